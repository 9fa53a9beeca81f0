package bpf

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// probes are the probes of one requirement each.
var probes = map[string]func() error{
	"types":       ProbeTypes,
	"iterator":    func() error { _, err := ProbeIterator(); return err },
	"ring buffer": ProbeRingBuffer,
	"clock":       ProbeClock,
}

// Where a sampler works, all probes succeed, and leave no descriptor open.
func TestProbes(t *testing.T) {
	openSampler(t, SamplerOptions{SamplesPerSecond: 1}).Stop()
	for name, probe := range probes {
		t.Run(name, func(t *testing.T) {
			// libraries keep descriptors that the first one opens
			assert.NilError(t, probe())
			before := descriptors(t)
			assert.NilError(t, probe())
			after := descriptors(t)
			assert.Check(t, slices.Equal(before, after), "descriptors before %v, after %v", before, after)
		})
	}
	filters, err := ProbeIterator()
	if threads := openThreads(t); err != nil || filters != threads.filters {
		t.Errorf("filters: %v, %v, want %v", filters, err, threads.filters)
	}
}

// descriptors returns our open descriptors and what they refer to.
func descriptors(t *testing.T) (open []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	assert.NilError(t, err)
	for _, entry := range entries {
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err == nil { // else it is that of the directory
			open = append(open, entry.Name()+" "+target)
		}
	}
	return open
}

// Probes return the MissingError that the sampler returns, which alone needs perf events.
func TestProbesMissing(t *testing.T) {
	openSampler(t, SamplerOptions{SamplesPerSecond: 1}).Stop()
	withoutBPF := map[string]string{"iterator": "CAP_BPF", "ring buffer": "CAP_BPF"}
	if testenv.PerfNeedsAdmin(t) {
		withoutBPF["clock"] = "permission to use perf_event_open(2)"
	}
	for _, test := range []struct {
		name    string
		prepare func() error
		feature map[string]string // of the MissingError, by probe; the others work
		remedy  string            // of the sampler's, where the clock is missing
	}{
		{"no CAP_BPF", func() error { return keepCapabilities(unix.CAP_PERFMON) }, withoutBPF, ""},
		{"no CAP_PERFMON", func() error { return keepCapabilities(unix.CAP_BPF) },
			map[string]string{"iterator": "CAP_PERFMON", "clock": "CAP_PERFMON"}, ""},
		{"bpf refused", func() error { return failBPF(unix.EPERM) },
			map[string]string{"iterator": "permission to use bpf(2)", "ring buffer": "permission to use bpf(2)"}, ""},
		{"no bpf", func() error { return failBPF(unix.ENOSYS) },
			map[string]string{"iterator": "the bpf system call", "ring buffer": "the bpf system call"}, ""},
		{"no ring buffers", func() error { return failBPF(unix.EINVAL) },
			map[string]string{"ring buffer": "the kernel's eBPF ring buffer"}, ""},
		{"perf refused", func() error { return failCall(unix.SYS_PERF_EVENT_OPEN, unix.EACCES) },
			map[string]string{"clock": "permission to use perf_event_open(2)"}, "allow it in the seccomp profile"},
		{"perf not permitted", func() error { return failCall(unix.SYS_PERF_EVENT_OPEN, unix.EPERM) },
			map[string]string{"clock": "permission to use perf_event_open(2)"}, "allow it in the seccomp profile"},
		{"no perf", func() error { return failCall(unix.SYS_PERF_EVENT_OPEN, unix.ENOSYS) },
			map[string]string{"clock": "the software CPU clock of perf_event_open(2)"}, "CONFIG_PERF_EVENTS"},
	} {
		t.Run(test.name, func(t *testing.T) {
			runtime.LockOSThread() // never unlocked: the thread ends with the test
			assert.NilError(t, test.prepare())
			for name, probe := range probes {
				if test.name == "no ring buffers" && name == "iterator" {
					continue // bpf(2) fails for that as well
				}
				err := probe()
				var missing *MissingError
				switch want := test.feature[name]; {
				case want == "" && err != nil:
					t.Errorf("%s: %v", name, err)
				case want != "" && (!errors.As(err, &missing) || missing.Feature != want):
					t.Errorf("%s: %v, want one that is missing %s", name, err, want)
				}
			}
			if test.remedy != "" {
				_, err := OpenSampler(SamplerOptions{SamplesPerSecond: 1})
				verifyMissingError(t, err, "", test.feature["clock"], test.remedy)
			}
		})
	}
}

// ProbePinDir returns the error that using the directory would return, and does not create it.
func TestProbePinDir(t *testing.T) {
	testenv.NeedRoot(t)
	verifyFeature := func(err error, feature string) {
		t.Helper()
		var missing *MissingError
		assert.Check(t, errors.As(err, &missing) && missing.Feature == feature,
			"%v, want one that is missing %s", err, feature)
	}
	elsewhere := filepath.Join(t.TempDir(), "pins")
	verifyFeature(ProbePinDir(elsewhere), "a bpf file system at "+elsewhere)

	dir := mountBPF(t)
	for _, path := range []string{dir, filepath.Join(dir, "deeper")} {
		assert.Check(t, ProbePinDir(path))
	}
	_, err := os.Stat(dir)
	assert.Check(t, errors.Is(err, os.ErrNotExist), "%s: %v", dir, err)

	locked, err := openPinDir(dir) // as a sampler does
	assert.NilError(t, err)
	err = ProbePinDir(dir)
	assert.Check(t, errors.Is(err, unix.EWOULDBLOCK), "in use: %v", err)
	locked.Close()
	assert.Check(t, ProbePinDir(dir), "after its use")
	file := filepath.Join(filepath.Dir(dir), "file")
	pinned, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	assert.NilError(t, err)
	defer pinned.Close()
	assert.NilError(t, pinned.Pin(file))
	err = ProbePinDir(filepath.Join(file, "pins"))
	assert.Check(t, errors.Is(err, unix.ENOTDIR), "below a file: %v", err)
	unix.SetfsuidRetUid(4711)
	err = ProbePinDir(filepath.Join(dir, "deeper"))
	unix.SetfsuidRetUid(0)
	assert.Check(t, errors.Is(err, unix.EACCES), "another user: %v", err)
}
