package agent

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/backend"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/names/naming"
	"correlator/internal/out"
	"correlator/internal/out/export"
	"correlator/otlp"
	"correlator/profile"
)

// exporting is an agent with an exporter, whose only destination is a backend.
type exporting struct {
	*running
	export  *export.Export
	backend *backend.Backend
}

// runExporting starts an agent that exports to a backend. Its exporter ends with ended.
func runExporting(t *testing.T, untraced bool, change ...func(*Config)) *exporting {
	t.Helper()
	testenv.NeedRoot(t)
	address := filepath.Join(t.TempDir(), "otlp")
	b, err := backend.Open("unix", address)
	assert.NilError(t, err)
	t.Cleanup(b.Close)
	config := export.DefaultConfig()
	destination := otlp.NewDestination("unix:" + address)
	destination.Signals = []otlp.Signal{otlp.Profiles}
	config.Destinations = []otlp.Destination{destination}
	config.ProfilesInterval, config.ShutdownTimeout, config.Untraced = 200*time.Millisecond, deadline, untraced
	namer, err := naming.Open("/proc")
	assert.NilError(t, err)
	t.Cleanup(namer.Close)
	about := out.About{Version: "test", HostID: testHostID, SamplesPerSecond: 997}
	e, err := export.Open(config, about, namer, zap.NewNop())
	assert.NilError(t, err)
	e.Start(nil)
	return &exporting{running: runWith(t, e, append(change, atRate(997))...), export: e, backend: b}
}

func (x *exporting) in(t *testing.T) *exporting {
	part := *x
	part.running = x.running.in(t)
	return &part
}

// ended ends the agent and its exporter, and returns what the backend has: every sample that the sampler
// handed on.
func (x *exporting) ended() backend.Profiles {
	x.t.Helper()
	x.end()
	x.added()
	x.export.Shutdown(x.t.Context())
	assert.Check(x.t, x.backend.Err())
	exported := x.backend.Profiles()
	var sum, without uint64
	for sample, n := range exported.Samples {
		sum += n
		if sample.TraceID == "" {
			without += n
		}
	}
	outcomes := &x.Counters().Sampling.Outcomes
	untraced := outcomes[process.OutcomeUntraced].Load()
	assert.Check(x.t, without == untraced, "%d samples without a trace handed on, %d exported", untraced, without)
	handed := outcomes[process.OutcomeCorrelated].Load() + outcomes[process.OutcomeOTel].Load() + untraced
	assert.Check(x.t, sum == handed, "%d samples exported, the sampler handed on %d", sum, handed)
	status := x.export.Status()
	assert.Check(x.t, status.Samples == sum && status.Lost == 0, "%d built, %d lost", status.Samples, status.Lost)
	return exported
}

// awaitSamples waits until so many more samples of a process were exported for which a function returns
// true.
func (x *exporting) awaitSamples(pid int, more uint64, what string, is func(backend.Sample) bool) {
	x.t.Helper()
	count := func() (sum uint64) {
		for sample, n := range x.backend.Profiles().Samples {
			if sample.PID == fmt.Sprint(pid) && is(sample) {
				sum += n
			}
		}
		return sum
	}
	before := count()
	testenv.Poll(x.t, deadline, what, func() bool { return count() >= before+more })
}

// awaitFrame waits until a frame in a stack of a process was exported.
func (x *exporting) awaitFrame(p *demo.Process, what string, is func(backend.Frame) bool) {
	x.t.Helper()
	testenv.Poll(x.t, deadline, what, func() bool {
		exported := x.backend.Profiles()
		for sample := range exported.Samples {
			if sample.PID == fmt.Sprint(p.PID) && slices.ContainsFunc(exported.Stacks[sample.Stack], is) {
				return true
			}
		}
		return false
	})
}

// contexts waits until a process is in a state and publishes by these standards.
func (r *running) contexts(p *demo.Process, want process.State, kinds ...string) {
	r.t.Helper()
	testenv.Poll(r.t, deadline, fmt.Sprintf("state %s, contexts %v", want, kinds), func() bool {
		status := r.statusOf(p)
		return status.State == want && slices.Equal(status.Contexts, kinds)
	})
}

// idsAreSent checks that the ids that a backend computes are those that the process was sent.
func (x *exporting) idsAreSent(exported backend.Profiles, report demo.Report) {
	x.t.Helper()
	clean(x.t, report)
	stacks := 0
	for _, transaction := range report.Transactions {
		for stack := range transaction.Stacks {
			stacks++
			assert.Check(x.t, exported.Stacks[stack] != nil, "no stack that was exported has the id %s", stack)
		}
	}
	assert.Check(x.t, stacks > 0, "the process was sent no stacks")
}

// in reports whether a stack has a frame in a function of the demo program.
func in(f demo.Function, frames []backend.Frame) bool {
	native := make([]profile.Frame, 0, len(frames))
	for _, frame := range frames {
		if frame.Type == "native" && frame.File != "" {
			native = append(native, profile.Frame{File: &profile.File{Kind: profile.NativeFrame, Path: frame.File},
				Address: frame.Address})
		}
	}
	return f.In(native)
}

const containerID = "5ebf11e02dbde102cda4b76bc0e3849a65f9edac7a12bdabfd34db01b9556101"

// What agents are sent and what is exported are the same samples: a backend that computes the ids
// of the stacks that it gets arrives at those of the transactions, with the frames of what these
// did, and who and where the process was. Samples of threads that worked on no trace have no link.
func TestExported(t *testing.T) {
	cgroup := testenv.Cgroup(t, "/correlator-test-exported-"+strconv.Itoa(os.Getpid())+"/docker-"+containerID+".scope")
	x := runExporting(t, true)
	var processes []*demo.Process
	services := []string{"shop", "stock", "mail"}
	for i, o := range []demo.Options{
		{Flavor: demo.Glibc, Gap: 50 * time.Millisecond, Untouched: 1},
		{Flavor: demo.Musl, Placement: demo.Placement{PrivateTmp: true}},
		{Flavor: demo.GlibcDTPMod, Environment: "other", Hold: true},
	} {
		o.Busy, o.Service = 1+o.Untouched, services[i]
		processes = append(processes, demo.Start(t, o))
	}
	enter(t, cgroup, processes[2].PID)
	processes[2].Load()
	processes[2].Publish()
	for _, p := range processes {
		x.sampledReport(p, 100)
		code := p.Functions()
		names := []string{"checkout", "search", "browse", "housekeeping"}
		x.awaitFrame(p, "a name", func(f backend.Frame) bool { return slices.Contains(names, f.Function) })
		x.awaitFrame(p, "housekeeping", func(f backend.Frame) bool {
			return in(code["housekeeping"], []backend.Frame{f})
		})
	}
	exported := x.ended()

	type key struct{ trace, stack string }
	samples, about, threads := make(map[key]uint64), make(map[string]backend.Sample), make(map[string]bool)
	for sample, n := range exported.Samples {
		samples[key{sample.TraceID, sample.Stack}] += n
		about[sample.TraceID] = sample
		threads[sample.Thread] = true
		assert.Check(t, sample.TraceID != "" || sample.SpanID == "" && sample.TransactionID == "", "%+v", sample)
	}
	assert.Check(t, threads["busy-1"] && threads["busy-2"], "threads are called %v", threads)
	for i, p := range processes {
		program, err := backend.FileID(p.HostPath(filepath.Join(p.Dir, "demo")))
		assert.NilError(t, err)
		code, report := p.Functions(), p.Quit()
		clean(t, report)
		var all, inWork uint64
		for _, transaction := range report.Transactions {
			trace := transaction.TraceID.String()
			for stack, n := range transaction.Stacks {
				frames := exported.Stacks[stack]
				all += n
				// A message may have come too late for the demo; what is exported has no such limit.
				got := samples[key{trace, stack}]
				assert.Check(t, got >= n && len(frames) > 0 && (got == n || transaction.LateSamples > 0 ||
					dropped(&x.Counters().Messages) > 0), "%d samples of stack %s exported, %d sent", got, stack, n)
				ofProgram := slices.ContainsFunc(frames, func(f backend.Frame) bool { return f.FileID == program })
				if in(code[transaction.Kind], frames) && ofProgram {
					inWork += n
				}
			}
			if transaction.Samples == 0 {
				continue
			}
			sample := about[trace]
			want := backend.Sample{
				Service:     services[i],
				Environment: cmp.Or([]string{"", "", "other"}[i], "test"),
				PID:         strconv.Itoa(p.PID), Executable: filepath.Join(p.Dir, "demo"), HostID: testHostID,
				TraceID: trace, SpanID: transaction.TraceID.SpanID().String(),
				TransactionID: transaction.TransactionID.String(),
				ContainerID:   []string{sample.ContainerID, sample.ContainerID, containerID}[i],
				TID:           sample.TID, Thread: sample.Thread, Stack: sample.Stack,
			}
			assert.Check(t, sample == want, "exported\n%+v, want\n%+v", sample, want)
			assert.Check(t, i == 2 || sample.ContainerID != containerID)
		}
		mostInWork(t, inWork, all)
		x.named(exported, program, code)
	}
}

// named checks that frames in functions of a program have their names.
func (x *exporting) named(exported backend.Profiles, program string, code map[string]demo.Function) {
	x.t.Helper()
	late := false // a machine that is very busy
	for _, samples := range x.export.Unnamed {
		late = late || samples > 0
	}
	found := make(map[string]bool)
	for _, frames := range exported.Stacks {
		for _, frame := range frames {
			for name, f := range code {
				if frame.FileID == program && in(f, []backend.Frame{frame}) {
					found[frame.Function] = true
					assert.Check(x.t, frame.Function == name || frame.Function == "" && late,
						"in %s: %q", name, frame.Function)
				}
			}
		}
	}
	delete(found, "")
	assert.Check(x.t, len(found) > 0, "no function of the program has a name")
}

// Frames of the kernel are exported with names, and come before all those of the process.
func TestExportedKernelNames(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1, Rewrite: demo.RewriteCycle, PageOut: true}) // often in the kernel
	x := runExporting(t, false, func(c *Config) { c.KernelStacks = true })
	x.awaitFrame(p, "a frame of madvise", func(f backend.Frame) bool {
		return f.Type == "kernel" && f.File == "vmlinux" && strings.Contains(f.Function, "madvise")
	})
	x.awaitFrame(p, "a frame of the program", func(f backend.Frame) bool { return f.Function == "tracer_rewrite" })
	exported, fromProcess := x.ended(), 0
	for _, frames := range exported.Stacks {
		user := slices.IndexFunc(frames, func(f backend.Frame) bool { return f.Type != "kernel" })
		if user > 0 && in(p.Functions()["tracer_rewrite"], frames[user:]) {
			fromProcess++
		}
		assert.Check(t, user < 0 || !slices.ContainsFunc(frames[user:], func(f backend.Frame) bool {
			return f.Type == "kernel"
		}), "%+v", frames)
	}
	assert.Check(t, fromProcess > 0, "no stack goes on from the kernel to what has called it")
	without := x.Counters().Sampling.Outcomes[process.OutcomeNoStack].Load()
	assert.Check(t, without == 0, "%d samples without stack", without)
	x.idsAreSent(exported, p.Quit())
}

// The methods of a JVM whose stacks are walked by frame pointers have the names that its perf map has
// for them. The ids are those without names.
func TestExportedPerfMap(t *testing.T) {
	testenv.NeedTool(t, "jcmd")
	p := demo.StartJVM(t, demo.JVMOptions{FramePointers: true, Busy: true, Threads: 1})
	path := p.HostPath(fmt.Sprintf("/tmp/perf-%d.map", p.PID))
	t.Cleanup(func() { os.Remove(path) })
	p.Begin(1)
	const method = "Demo$Worker.burn"
	testenv.Poll(t, deadline, "the method in the perf map", func() bool { // it is compiled sooner or later
		out, err := exec.Command("jcmd", fmt.Sprint(p.PID), "Compiler.perfmap").CombinedOutput()
		assert.NilError(t, err, "%s", out)
		return bytes.Contains(testenv.ReadFile(t, path), []byte(method))
	})
	x := runExporting(t, false)
	x.awaitFrame(p, "the method", func(f backend.Frame) bool {
		return f.Type == "native" && f.FileID == anonymousID && strings.Contains(f.Function, method)
	})
	x.awaitFrame(p, "a function of the JVM", func(f backend.Frame) bool {
		return strings.HasSuffix(f.File, "/libjvm.so") && f.Function != ""
	})
	p.End(1)
	x.idsAreSent(x.ended(), p.Quit())
}

// anonymousID is the file id of frames in no file: xxh64 of no bytes, twice.
const anonymousID = "ef46db3751d8e999ef46db3751d8e999"

// Processes with libraries of Datadog's take part, though none of their threads has a context: samples
// of them say who they are, also after they have published something else.
func TestExportedDatadog(t *testing.T) {
	x := runExporting(t, true)
	pids := make(map[string]bool)
	for _, c := range []struct {
		name     string
		start    func(testing.TB, demo.DatadogContext, demo.DatadogOptions) *demo.DatadogProcess
		instance string // the library for Go has one of its own
	}{
		{"dd-trace-go", demo.StartDatadogGo, ""},
		{"libdatadog for Node.js", demo.StartDatadogNode, "instance"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := x.in(t)
			p := c.start(t, demo.DatadogContext{Service: "shop", Environment: "prod", Version: "1.2.3",
				InstanceID: c.instance}, demo.DatadogOptions{Busy: true})
			is := func(s backend.Sample) bool { return isResource(p, s) }
			x.awaitSamples(p.PID, 20, "samples", is)
			x.contexts(p.Process, process.StateAttached, "opentelemetry")
			p.PublishContext(demo.DatadogContext{Service: "basket", Environment: "test", Version: "1.2.4",
				InstanceID: c.instance})
			x.awaitSamples(p.PID, 20, "samples of the updated context", is)
			pids[fmt.Sprint(p.PID)] = true
		})
	}
	services := make(map[string]uint64)
	for sample, n := range x.ended().Samples {
		assert.Check(t, pids[sample.PID] && sample.TraceID == "", "%+v", sample)
		services[sample.Service+" "+sample.Environment+" "+sample.Version] += n
	}
	if len(pids) > 0 {
		assert.Check(t, len(services) == 2 && services["shop prod 1.2.3"] > 0 && services["basket test 1.2.4"] > 0,
			"samples by who the process is: %v", services)
	}
}

// isResource reports whether a sample says of its process what that has published. What else the
// library says, whose value is not known, must be there.
func isResource(p *demo.DatadogProcess, s backend.Sample) bool {
	for key, value := range map[string]string{
		"service.name": s.Service, "deployment.environment.name": s.Environment, "service.version": s.Version,
		"service.instance.id": s.InstanceID, "telemetry.sdk.name": s.SDKName, "telemetry.sdk.language": s.SDKLanguage,
		"telemetry.sdk.version": s.SDKVersion,
	} {
		if want, known := p.Resource[key]; value == "" || known && value != want {
			return false
		}
	}
	return true
}
