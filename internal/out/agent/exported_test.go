package agent

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	e, err := export.Open(config, out.About{Version: "test", HostID: testHostID, SamplesPerSecond: 997}, namer, zap.NewNop())
	assert.NilError(t, err)
	e.Start(nil)
	return &exporting{running: runWith(t, e, func(*Agent) {}, append(change, atRate(997))...), export: e, backend: b}
}

// ended ends the agent and its exporter, and returns what the backend has.
func (x *exporting) ended() backend.Profiles {
	x.t.Helper()
	x.end()
	x.sampledAdded()
	x.export.Shutdown(x.t.Context())
	if err := x.backend.Err(); err != nil {
		x.t.Error(err)
	}
	return x.backend.Profiles()
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

// What agents are sent and what is exported are the same samples: a backend that computes the ids
// of the stacks that it gets arrives at those of the transactions, with the frames of what these
// did.
func TestExported(t *testing.T) {
	x := runExporting(t, false, roomy)
	var processes []*demo.Process
	for _, o := range []demo.Options{
		{Flavor: demo.Glibc, Service: "shop"},
		{Flavor: demo.Musl, Service: "stock", Placement: demo.Placement{PrivateTmp: true}},
		{Flavor: demo.GlibcDTPMod, Service: "mail", Environment: "other"},
	} {
		o.Busy, o.Gap = 2, -1
		processes = append(processes, demo.Start(t, o))
	}
	for _, p := range processes {
		x.sampledReport(p, 300)
	}
	exported := x.ended()
	x.exportedAdded(exported, 0)

	type key struct{ trace, stack string }
	samples, about := make(map[key]uint64), make(map[string]backend.Sample)
	for sample, n := range exported.Samples {
		samples[key{sample.TraceID, sample.Stack}] += n
		about[sample.TraceID] = sample
	}
	for i, p := range processes {
		program, err := backend.FileID(p.HostPath(filepath.Join(p.Dir, "demo")))
		assert.NilError(t, err)
		code, report := p.Functions(), p.Quit()
		clean(t, report)
		var sent, inWork uint64
		for _, transaction := range report.Transactions {
			trace := transaction.TraceID.String()
			for stack, n := range transaction.Stacks {
				frames := exported.Stacks[stack]
				// A message may have come too late for the demo; what is exported has no such
				// limit.
				got := samples[key{trace, stack}]
				assert.Check(t, got >= n && len(frames) != 0 && (got == n || transaction.LateSamples != 0),
					"%d samples of stack %s with %d frames exported, its agent was sent %d", got, stack, len(frames), n)
				if in(code[transaction.Kind], frames) && slices.ContainsFunc(frames,
					func(f backend.Frame) bool { return f.FileID == program }) {
					inWork += n
				}
				sent += n
			}
			if transaction.Samples == 0 {
				continue
			}
			sample := about[trace]
			want := backend.Sample{
				Service:     []string{"shop", "stock", "mail"}[i],
				Environment: cmp.Or([]string{"", "", "other"}[i], "test"),
				PID:         strconv.Itoa(p.PID), Executable: filepath.Join(p.Dir, "demo"), HostID: testHostID,
				TraceID: trace, SpanID: transaction.TraceID.SpanID().String(),
				TransactionID: transaction.TransactionID.String(),
				TID:           sample.TID, Thread: sample.Thread, Stack: sample.Stack,
			}
			assert.Check(t, sample == want, "exported\n%+v, want\n%+v", sample, want)
		}
		assert.Check(t, inWork >= sent*9/10 && sent >= 300,
			"of %d samples, %d have a stack of the transaction's work", sent, inWork)
		x.named(exported, program, code)
	}
	names := make(map[string]bool)
	for sample := range exported.Samples {
		names[sample.Thread] = true
	}
	assert.Check(t, names["busy-1"] && names["busy-2"], "threads are called %v", names)
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
				if frame.FileID != program || !in(f, []backend.Frame{frame}) {
					continue
				}
				found[frame.Function] = true
				if frame.Function != name && (frame.Function != "" || !late) {
					x.t.Errorf("a frame in %s has the name %q", name, frame.Function)
				}
			}
		}
	}
	if delete(found, ""); len(found) == 0 {
		x.t.Error("no function of the program has a name")
	}
}

// exportedAdded checks that every sample that the sampler handed on was exported.
func (x *exporting) exportedAdded(exported backend.Profiles, untraced uint64) {
	x.t.Helper()
	var sum, without uint64
	for sample, n := range exported.Samples {
		sum += n
		if sample.TraceID == "" {
			without += n
		}
	}
	outcomes := &x.Counters().Sampling.Outcomes
	if got := outcomes[process.OutcomeUntraced].Load(); got != untraced || without != untraced {
		x.t.Errorf("%d samples without a trace were handed on, %d exported, want %d", got, without, untraced)
	}
	traced := outcomes[process.OutcomeCorrelated].Load() + outcomes[process.OutcomeOTel].Load()
	if handed := traced + untraced; sum != handed {
		x.t.Errorf("%d samples exported, the sampler handed on %d", sum, handed)
	}
	status := x.export.Status()
	if status.Samples != sum || status.Lost != 0 {
		x.t.Errorf("%d samples arrived; %d were built, %d lost", sum, status.Samples, status.Lost)
	}
}

// Samples of threads that worked on no trace are exported without a link if that is asked for, and
// no agent is sent them.
func TestExportedUntraced(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1, Transaction: 50 * time.Millisecond, Gap: 50 * time.Millisecond,
		Untouched: 1})
	x := runExporting(t, true)
	x.sampledReport(p, 200)
	exported := x.ended()
	untraced := x.Counters().Sampling.Outcomes[process.OutcomeUntraced].Load() // sampledAdded knows that these are all
	assert.Check(t, untraced >= 20, "%d samples without a trace: too few to tell anything", untraced)
	x.exportedAdded(exported, untraced)
	code, report := p.Functions(), p.Quit()
	clean(t, report)
	var housekeeping uint64
	for sample, n := range exported.Samples {
		assert.Check(t, sample.TraceID != "" || sample.SpanID == "" && sample.TransactionID == "",
			"no trace, but %+v", sample)
		if sample.TraceID == "" && in(code["housekeeping"], exported.Stacks[sample.Stack]) {
			housekeeping += n
		}
	}
	assert.Check(t, housekeeping >= untraced/2,
		"of %d samples between transactions, %d are of what the process does then", untraced, housekeeping)
}

// Samples of a process in a container say so.
func TestExportedContainer(t *testing.T) {
	const id = "5ebf11e02dbde102cda4b76bc0e3849a65f9edac7a12bdabfd34db01b9556101"
	cgroup := testenv.Cgroup(t, "/correlator-test-exported-"+strconv.Itoa(os.Getpid())+"/docker-"+id+".scope")
	contained := demo.Start(t, demo.Options{Service: "contained", Busy: 1, Gap: -1})
	enter(t, cgroup, contained.PID)
	free := demo.Start(t, demo.Options{Service: "free", Busy: 1, Gap: -1})
	x := runExporting(t, false)
	x.sampledReport(contained, 50)
	x.sampledReport(free, 50)
	seen := make(map[string]string)
	for sample := range x.ended().Samples {
		if before, known := seen[sample.Service]; known && before != sample.ContainerID {
			t.Errorf("%s is in containers %q and %q", sample.Service, before, sample.ContainerID)
		}
		seen[sample.Service] = sample.ContainerID
	}
	assert.Check(t, len(seen) == 2 && seen["contained"] == id && seen["free"] != id, "containers are %v", seen)
}
