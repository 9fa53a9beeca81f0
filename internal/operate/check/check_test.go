package check

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/host/self"
	"correlator/internal/lab/testenv"
	"correlator/internal/operate/inspect"
	"correlator/internal/out/agent"
	"correlator/internal/out/export"
	"correlator/internal/stacks/sampling"
	"correlator/internal/stacks/unwind"
	"correlator/otlp"
)

var errRefused = errors.New("refused")

// config returns the configuration of `run` without flags.
func config() Config {
	return Config{Config: agent.Config{
		ProcRoot: "/proc", SamplesDelay: 300 * time.Millisecond, ReportInterval: 100 * time.Millisecond,
		ScanInterval: 30 * time.Second, MaxProcesses: agent.DefaultMaxProcesses, SamplesPerSecond: 20,
	}}
}

// fakeMachine returns a machine with the given files in procfs and sysfs, two CPUs and all
// capabilities, where every probe succeeds.
func fakeMachine(t *testing.T, files map[string]string) *machine {
	t.Helper()
	dir := t.TempDir()
	works := func() error { return nil }
	m := &machine{
		config: config(), sysRoot: filepath.Join(dir, "sys"), cpus: 2, caps: ^self.Capabilities(0),
		procfs: works, sampler: works, unwinder: works, waits: works, liveEvents: works, kernelSymbols: works,
		readv: works, readsInKernel: works,
		memory:   func() (access, error) { return access{allowed: 10}, nil },
		admin:    works,
		runtimes: func() ([]inspect.Process, error) { return nil, nil },
	}
	m.config.ProcRoot = filepath.Join(dir, "proc")
	for _, dir := range []string{m.proc("sys/kernel"), m.proc("7"), m.sysRoot} {
		assert.NilError(t, os.MkdirAll(dir, 0o755))
	}
	assert.NilError(t, os.Symlink("7", m.proc("self")))
	for name, text := range files {
		testenv.WriteFile(t, filepath.Join(dir, name), strings.ReplaceAll(text, "DIR", dir))
	}
	return m
}

func found(t *testing.T, m *machine, name string) finding {
	t.Helper()
	list := probesFor(&m.config)
	i := slices.IndexFunc(list, func(p probe) bool { return p.name == name })
	assert.Assert(t, i >= 0, "no check %s", name)
	return list[i].run(m)
}

// verify checks the status, that detail and remedy contain the given texts, and that loss and
// remedy are there unless the status is OK.
func (f finding) verify(t *testing.T, status Status, detail, remedy string) {
	t.Helper()
	assert.Check(t, f.status == status && strings.Contains(f.detail, detail) && strings.Contains(f.remedy, remedy),
		"found %+v, want %s, detail %q, remedy %q", f, status, detail, remedy)
	if explained := f.loss != "" && f.remedy != ""; f.detail == "" || explained != (f.status != OK) {
		t.Errorf("%s with loss %q and remedy %q", f.status, f.loss, f.remedy)
	}
}

// The flags of `run` determine which checks there are, and which are required.
func TestRequired(t *testing.T) {
	always := []string{"proc-root", "pid-namespace", "openat2", "pidfd", "RLIMIT_NOFILE"}
	sampler := []string{"user-namespace", "CAP_BPF", "CAP_PERFMON", "btf", "task-iterator", "ring-buffer", "sampler",
		"lockdown"}
	for _, test := range []struct {
		name     string
		change   func(*Config)
		required [][]string
		listed   []string // in addition to the required ones
		unlisted []string
	}{
		{"nothing", func(*Config) {}, [][]string{always, sampler, {"perf-cpu-clock"}},
			[]string{"live-events", "net.unix.max_dgram_qlen", "CAP_SETUID"},
			[]string{"unwinder", "CAP_SYSLOG", "kernel.kptr_restrict", "kernel-symbols", "feed-socket", "pin-maps",
				"otlp-listen", "opencensus-socket"}},
		{"--samples-per-second 0 --feed-socket", func(c *Config) { c.SamplesPerSecond, c.FeedSocket = 0, "/s" },
			[][]string{always, {"feed-socket"}},
			[]string{"CAP_BPF", "CAP_PERFMON", "btf", "task-iterator", "live-events"},
			[]string{"ring-buffer", "perf-cpu-clock", "sampler", "lockdown", "kernel.perf_event_max_sample_rate"}},
		{"--samples-per-second 0 --pin-maps", func(c *Config) { c.SamplesPerSecond, c.PinMaps = 0, "/d" },
			[][]string{always, sampler, {"pin-maps"}}, nil, []string{"perf-cpu-clock"}},
		{"--otlp-endpoint --otlp-listen", func(c *Config) {
			c.Export.Destinations, c.Export.Receiver.Listen = []otlp.Destination{{Name: "a"}, {Name: "b"}}, "unix:/s"
		}, [][]string{always, sampler, {"perf-cpu-clock", "otlp-listen", "otlp-destination a",
			"otlp-destination b"}}, nil, nil},
		{"--opencensus-socket", func(c *Config) {
			c.Export.OpenCensus = export.DefaultOpenCensus()
			c.Export.OpenCensus.Receiver.Socket = "/s"
		}, [][]string{always, sampler, {"perf-cpu-clock", "opencensus-socket"}}, nil, []string{"otlp-listen"}},
		{"--live-listen", func(c *Config) { c.LiveListen = []string{"uds:/s", "ws://127.0.0.1:1"} },
			[][]string{always, sampler, {"perf-cpu-clock", "live-listen uds:///s", "live-listen ws://127.0.0.1:1"}},
			nil, []string{"otlp-listen"}},
		{"--admin-socket --metrics-address", func(c *Config) {
			c.AdminSocket, c.NeedsAdminSocket, c.MetricsAddress = "/s", true, ":1"
		}, [][]string{always, sampler, {"perf-cpu-clock", "admin-socket", "metrics-address"}}, nil, nil},
		{"the default admin socket", func(c *Config) { c.AdminSocket, c.NeedsAdminSocket, c.MetricsAddress = "/s", false, "" },
			[][]string{always, sampler, {"perf-cpu-clock"}}, []string{"admin-socket"}, []string{"metrics-address"}},
		{"--unwinder auto", func(c *Config) { c.Unwinder = sampling.AutoUnwinder },
			[][]string{always, sampler, {"perf-cpu-clock"}}, []string{"unwinder", "runtimes"}, nil},
		{"--unwinder full --samples-per-second 0 --pin-maps", func(c *Config) {
			c.SamplesPerSecond, c.PinMaps, c.Unwinder = 0, "/d", sampling.FullUnwinder
		}, [][]string{always, sampler, {"pin-maps"}}, nil, []string{"unwinder", "runtimes"}},
		{"--kernel-stacks", func(c *Config) { c.KernelStacks = true }, [][]string{always, sampler, {"perf-cpu-clock"}},
			[]string{"CAP_SYSLOG", "kernel.kptr_restrict", "kernel-symbols"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config()
			test.change(&c)
			var required, all []string
			for _, p := range probesFor(&c) {
				assert.Check(t, !slices.Contains(all, p.name), "%s is listed twice", p.name)
				if all = append(all, p.name); p.required != nil && p.required(&c) {
					required = append(required, p.name)
				}
			}
			want := slices.Concat(test.required...)
			slices.Sort(want)
			slices.Sort(required)
			assert.Check(t, slices.Equal(required, want), "required are\n%v, not\n%v", required, want)
			for _, name := range test.listed {
				assert.Check(t, slices.Contains(all, name), "%s is not listed", name)
			}
			for _, name := range test.unlisted {
				assert.Check(t, !slices.Contains(all, name), "%s is listed", name)
			}
		})
	}
}

// A kernel that can freeze is named, with one that cannot.
func TestSamplesInKernel(t *testing.T) {
	m := fakeMachine(t, nil)
	found(t, m, "samples-in-kernel").verify(t, OK, "can be read", "")
	m.readsInKernel = func() error {
		return &bpf.MissingError{Feature: "another kernel", Remedy: "boot it", Err: errRefused}
	}
	f := found(t, m, "samples-in-kernel")
	f.verify(t, Missing, "needs another kernel", "boot it")
	assert.Check(t, strings.Contains(f.loss, "not sampled while they are in the kernel"), "loss %q", f.loss)
}

// A sampler of which the kernel has refused a part loads; that part's loss is named.
func TestSamplerInPart(t *testing.T) {
	m := fakeMachine(t, nil)
	found(t, m, "sampler").verify(t, OK, "loads", "")
	m.sampler = func() error { return fmt.Errorf("%w: too complex", bpf.ErrChainOnly) }
	f := found(t, m, "sampler")
	f.verify(t, Degraded, "too complex", "uname -r")
	assert.Check(t, strings.Contains(f.loss, "lack callers"), "loss %q", f.loss)
}

// What keeps waits from being accounted is named, and what keeps their stacks from being walked.
func TestWaits(t *testing.T) {
	m := fakeMachine(t, nil)
	m.config.Waits = true
	found(t, m, "waits").verify(t, OK, "with stacks", "")
	missing := &bpf.MissingError{Feature: "another kernel", Remedy: "boot it", Err: errRefused}
	m.waits = func() error { return missing }
	found(t, m, "waits").verify(t, Missing, "needs another kernel", "boot it")
	for err, remedy := range map[error]string{missing: "boot it", errRefused: "uname -r"} {
		m.waits = func() error { return &stacklessError{err} }
		found(t, m, "waits").verify(t, Degraded, "; not where it was spent: ", remedy)
	}
}

// An engine that cannot run does not prevent `run`, which is not ready if it is to run.
func TestUnwinder(t *testing.T) {
	m := fakeMachine(t, nil)
	m.config.Unwinder = sampling.AutoUnwinder
	found(t, m, "unwinder").verify(t, OK, "unwinds", "")
	m.unwinder = func() error { return &rootError{errRefused} }
	found(t, m, "unwinder").verify(t, OK, "unwinds a stack of this process; its worker is root's: "+errRefused.Error(), "")
	m.unwinder = func() error { return &javaError{errRefused} }
	java := found(t, m, "unwinder")
	java.verify(t, Degraded, "not of Java as it should: "+errRefused.Error(), "uname -r")
	assert.Check(t, java.loss == unwind.LossOfJava, "loss %q", java.loss)
	m.unwinder = func() error { return errRefused }
	found(t, m, "unwinder").verify(t, Missing, "refused", "--unwinder frame-pointers")
	m.unwinder = func() error { return &bpf.MissingError{Feature: "CAP_BPF", Remedy: "grant it", Err: errRefused} }
	m.config.Unwinder = sampling.FullUnwinder
	f := found(t, m, "unwinder")
	f.verify(t, Missing, "needs CAP_BPF", "grant it; or do without: --unwinder frame-pointers")
	assert.Check(t, strings.Contains(f.loss, "not ready (/readyz) without --unwinder auto"), "loss %q", f.loss)
}

// Runtimes that the engine cannot read, or not for certain, are named with the first of the reasons; a host without
// any lacks nothing.
func TestRuntimes(t *testing.T) {
	m := fakeMachine(t, nil)
	m.config.Unwinder = sampling.AutoUnwinder
	found(t, m, "runtimes").verify(t, OK, "read in all of 0 processes", "")
	var processes []inspect.Process
	m.runtimes = func() ([]inspect.Process, error) { return processes, nil }
	add := func(pid int, r *unwind.Readability) {
		processes = append(processes, inspect.Process{View: process.View{PID: pid}, Unwinding: r})
	}
	add(1, nil)
	add(2, &unwind.Readability{Runtimes: []string{"JVM 17"}})
	found(t, m, "runtimes").verify(t, OK, "read in all of 1 processes", "")
	add(3, &unwind.Readability{Unknown: "doubt"})
	found(t, m, "runtimes").verify(t, Degraded, "in 1 of 2 processes that take part now: stacks of 3 with doubts: doubt",
		"correlator scan")
	for i := range maxRemarks {
		add(10+i, &unwind.Readability{Refused: fmt.Sprint("reason ", i), Failure: "failure"})
	}
	found(t, m, "runtimes").verify(t, Degraded, "in 5 of 6 processes that take part now: stacks of 3 with doubts: doubt; "+
		"stacks of 10, 11, 12, 13 by frame pointers: failure; stacks of 10 as native code: reason 0; "+
		"stacks of 11 as native code: reason 1; and 2 more", "correlator scan")
	m.runtimes = func() ([]inspect.Process, error) { return nil, errRefused }
	found(t, m, "runtimes").verify(t, Degraded, "unknown: refused", "process-memory")
}

// Every result of the machine that the test runs on is complete.
func TestRun(t *testing.T) {
	c := config()
	c.Unwinder = sampling.AutoUnwinder
	c.FeedSocket, c.KernelStacks, c.PinMaps = filepath.Join(t.TempDir(), "feed"), true, "/sys/fs/bpf/correlator-check"
	c.Export.Receiver.Listen = "127.0.0.1:0"
	groups := []string{""}
	for _, r := range Run(c) {
		finding{r.Status, r.Detail, r.Loss, r.Remedy}.verify(t, r.Status, "", "")
		if r.Group != groups[len(groups)-1] {
			groups = append(groups, r.Group)
		}
	}
	slices.Sort(groups)
	assert.Check(t, len(slices.Compact(groups)) == 10, "groups are not contiguous: %q", groups)
	_, err := os.Stat(c.PinMaps)
	assert.Check(t, errors.Is(err, os.ErrNotExist), "%s: %v", c.PinMaps, err)
}
