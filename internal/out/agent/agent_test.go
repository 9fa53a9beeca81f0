package agent

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbolizer"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/messaging"
	"correlator/messaging/feed"
	"correlator/profile"
)

// deadline is how long a test waits for something that takes milliseconds on an idle machine.
const deadline = 30 * time.Second

const testHostID = "3a6f1c0e5d7b42c8"

func TestMain(m *testing.M) {
	worker.Main(access.Kind, symbolizer.Kind, symbolizer.LiveKind, unwind.Kind())
	os.Exit(testenv.Main(m))
}

// running is an agent that runs in the test, and a client at its feed socket.
type running struct {
	*Agent
	t    *testing.T
	logs *observer.ObservedLogs
	feed *feed.Client
	kept *stackKeeper // nil with another exporter
	end  func()       // ends the agent and waits for it
}

// stackKeeper is an Exporter that keeps the stacks of samples.
type stackKeeper struct {
	mu     sync.Mutex
	stacks map[profile.StackTraceID]*profile.Stack
}

func (k *stackKeeper) Sampled(sample *profile.Sample) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stacks[sample.Stack.ID] = sample.Stack
}

func (k *stackKeeper) TakesSamples() bool { return true }

func (k *stackKeeper) TakesUntraced() bool { return false }

// run starts an agent that ends with the test, at the latest.
func run(t *testing.T, change ...func(*Config)) *running {
	t.Helper()
	return runPrepared(t, func(*Agent) {}, change...)
}

// runPrepared is run for an agent that is not as it was opened.
func runPrepared(t *testing.T, prepare func(*Agent), change ...func(*Config)) *running {
	t.Helper()
	return runWith(t, nil, prepare, change...)
}

// noExporter has runWith start an agent that exports nothing.
type noExporter struct{ Exporter }

// runWith is runPrepared for an agent with an exporter; nil: one that keeps stacks.
func runWith(t *testing.T, exporter Exporter, prepare func(*Agent), change ...func(*Config)) *running {
	t.Helper()
	testenv.NeedRoot(t)
	cfg := Config{
		ProcRoot:          "/proc",
		HostID:            testHostID,
		SamplesDelay:      300 * time.Millisecond,
		ScanInterval:      50 * time.Millisecond,
		MaxProcesses:      DefaultMaxProcesses,
		AcceptPartialView: true, // tests run in a pid namespace of their own
		FeedSocket:        filepath.Join(t.TempDir(), "feed"),
	}
	for _, c := range change {
		c(&cfg)
	}
	core, logs := observer.New(zapcore.DebugLevel)
	r := &running{t: t, logs: logs}
	if exporter == nil && cfg.SamplesPerSecond > 0 {
		r.kept = &stackKeeper{stacks: make(map[profile.StackTraceID]*profile.Stack)}
		exporter = r.kept
	} else if _, none := exporter.(noExporter); none {
		exporter = nil
	}
	a, err := New(cfg, exporter, zap.New(core))
	assert.NilError(t, err)
	a.grace = time.Second // less than a worker has for reading
	prepare(a)
	r.Agent = a
	r.feed, err = feed.Dial(cfg.FeedSocket)
	assert.NilError(t, err)
	t.Cleanup(func() { r.feed.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stopped := false
	r.end = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			assert.Check(t, err, "agent ended with %v", err)
		case <-time.After(deadline):
			t.Error("agent does not end")
		}
	}
	t.Cleanup(func() {
		r.end()
		r.reasoned()
	})
	return r
}

// reasoned checks that whatever an operator is warned of names the counter by which it goes on to
// be counted, and that this has counted.
func (r *running) reasoned() {
	counted := make(map[string]uint64)
	r.Counters().Each(func(name string, n uint64) { counted[strings.TrimPrefix(name, "trouble_")] = n })
	for _, entry := range r.logs.FilterLevelExact(zapcore.WarnLevel).AllUntimed() {
		reason, _ := entry.ContextMap()["reason"].(string)
		if n, known := counted[reason]; !uncounted[entry.Message] && (!known || n == 0) {
			r.t.Errorf("%q has reason %q, which is counted %d times", entry.Message, reason, n)
		}
	}
}

// uncounted warnings tell at the start what is so for as long as the agent runs.
var uncounted = map[string]bool{
	"samples are taken here and fed, too: the same CPU time is counted twice, unless --samples-per-second is 0": true,
	"stacks have no kernel frames":                             true,
	"not ready: only a part of the host's processes is served": true,
}

// sweepOnce has the agent sweep when it starts, and not again in the time of a test.
func sweepOnce(c *Config) { c.ScanInterval = 50 * deadline }

// state waits until the process is in a state, with a reason if it is that of an error.
func (r *running) state(p *demo.Process, want process.State, reason string) process.View {
	r.t.Helper()
	var last process.View
	testenv.Poll(r.t, deadline, "state "+string(want)+" "+reason, func() bool {
		last = r.view(p)
		return last.State == want && last.Reason == reason
	})
	return last
}

// view returns how a process is served, nothing if it is not known.
func (r *running) view(p *demo.Process) process.View {
	for _, status := range r.processStatuses() {
		if status.PID == p.PID {
			return status.View
		}
	}
	return process.View{}
}

// sample feeds one sample of a thread without its context.
func (r *running) sample(pid, tid int, stack [16]byte) {
	r.t.Helper()
	r.send(feed.Record{PID: uint32(pid), TID: uint32(tid), StackTraceID: stack, Count: 1})
}

func (r *running) send(records ...feed.Record) {
	r.t.Helper()
	for _, record := range records {
		if err := r.feed.Add(record); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.feed.Flush(); err != nil {
		r.t.Fatal(err)
	}
}

// outcome waits until n samples, of all so far, have come to an outcome.
func (r *running) outcome(o process.SampleOutcome, n uint64) {
	r.t.Helper()
	testenv.Poll(r.t, deadline, "outcome "+o.String(), func() bool { return r.Counters().Fed[o].Load() >= n })
}

// served proves that a process is served: a sample of a thread that works on a transaction arrives
// there, on that transaction. A sample that a busy machine let become too old to be of use is fed
// again.
func (r *running) served(p *demo.Process, thread int, stack [16]byte) {
	r.t.Helper()
	context := p.Begin(thread)
	text := base64.RawURLEncoding.EncodeToString(stack[:])
	fed := &r.Counters().Fed
	dropped := &r.Counters().Messages.Dropped
	late := func() uint64 { // of a busy machine: workers that did not answer in time included
		return fed[process.OutcomeStale].Load() + fed[process.OutcomeUnreadable].Load() +
			dropped[messaging.DropLate].Load() + dropped[messaging.DropAddedLate].Load()
	}
	before, samples := late(), uint64(1)
	r.sample(p.PID, context.Thread.TID, stack)
	p.ReportWhen("sample "+text, func(report demo.Report) bool {
		if now := late(); now > before {
			before = now
			samples++ // of another process may have been late
			r.sample(p.PID, context.Thread.TID, stack)
		}
		transaction, ok := report.Transaction(context.TraceID)
		return ok && transaction.Stacks[text] > 0 && transaction.Stacks[text] <= samples
	})
}

// clean checks that a process was sent nothing wrong.
func clean(t *testing.T, report demo.Report) {
	t.Helper()
	assert.Check(t, report.Torn == 0 && report.Foreign == 0 && report.Malformed == 0 && report.Unregistered == 0,
		"torn %d, foreign %d, malformed %d, before a registration %d: want none of these", report.Torn, report.Foreign,
		report.Malformed, report.Unregistered)
}

// added checks that every sample that was fed has exactly one outcome, and every one that was
// queued exactly one end. Nothing must be on its way.
func (r *running) added() {
	r.t.Helper()
	c := r.Counters()
	var outcomes, dropped uint64
	for o := range process.NumOutcomes {
		outcomes += c.Fed[o].Load()
	}
	if fed := c.FedSamples.Load(); outcomes != fed {
		r.t.Errorf("%d samples fed, %d outcomes", fed, outcomes)
	}
	for i := range c.Messages.Dropped {
		dropped += c.Messages.Dropped[i].Load()
	}
	correlated, queued, sent := c.Fed[process.OutcomeCorrelated].Load(), c.Messages.Added.Load(), c.Messages.Sent.Load()
	if correlated != queued || queued != sent+dropped {
		r.t.Errorf("%d samples correlated, %d queued, %d sent and %d dropped", correlated, queued, sent, dropped)
	}
}

func TestEveryPlacementOfTheVariable(t *testing.T) {
	for _, flavor := range demo.Flavors() {
		t.Run(flavor.String(), func(t *testing.T) {
			p := demo.Start(t, demo.Options{Flavor: flavor, Manual: true, Idle: 2, Service: "shop",
				Environment: "production"})
			r := run(t)
			registration := p.Registration(1)
			assert.Check(t, registration.SamplesDelayMillis == 300 && registration.HostID == testHostID,
				"registered with %+v", registration)
			view := r.state(p, process.StateRegistered, "")
			assert.Check(t, view.ServiceName == "shop" && view.ServiceEnvironment == "production" &&
				view.SocketPath == p.Socket && view.Library == p.Library,
				"view %+v", view)
			for thread := range 3 { // the main thread and the others
				r.served(p, thread, [16]byte{1, byte(thread)})
			}
			clean(t, p.Report())
			r.end()
			r.added()
		})
	}
}

// The library as other linkers and options make it.
func TestEveryLibrary(t *testing.T) {
	names := []string{"dtpmod-local", "dtpmod-nosections", "tlsdesc-lld", "tlsdesc-lld-local", "tlsdesc-local",
		"tlsdesc-nosections"}
	if demo.Machine == "x86_64" { // on AArch64 nobody makes such
		names = append(names, "dtpmod-lld-local", "tlsdesc-sysvhash")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			library := demo.Fixture(t, demo.Machine+"-glibc-"+name)
			p := demo.Start(t, demo.Options{Library: library, Manual: true, Idle: 1})
			r := run(t)
			p.Registration(1)
			r.served(p, 1, [16]byte{1})
			clean(t, p.Quit())
		})
	}
}

func TestThreadsWithoutTrace(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Untouched: 1})
	r := run(t)
	p.Registration(1)
	threads := p.Threads()
	p.Begin(1)
	p.End(1)
	for i, want := range map[int]process.SampleOutcome{1: process.OutcomeNoTrace, 2: process.OutcomeNoSlot} {
		fed := &r.Counters().Fed
		testenv.Poll(t, deadline, "a sample that is not late", func() bool {
			late := fed[process.OutcomeStale].Load()
			r.sample(p.PID, threads[i].TID, [16]byte{byte(i)})
			testenv.Poll(t, deadline, "outcome "+want.String()+" or stale", func() bool {
				return fed[want].Load() > 0 || fed[process.OutcomeStale].Load() > late
			})
			return fed[want].Load() > 0
		})
	}
	r.sampleInTime(p.PID, 1, [16]byte{3}) // the init process's thread, not ours
	r.outcome(process.OutcomeNoThread, 1)
	r.sample(1, 1, [16]byte{4})
	r.outcome(process.OutcomeUnknownProcess, 1)
	r.send(feed.Record{PID: uint32(p.PID), TID: uint32(threads[1].TID), StackTraceID: [16]byte{5}, Count: 7,
		TimeNs: 1}) // taken just after boot
	r.outcome(process.OutcomeStale, 7)
	if report := p.Quit(); report.Samples != 0 || report.Messages != 1 {
		t.Errorf("%d messages, %d samples: want the registration alone", report.Messages, report.Samples)
	}
	r.end()
	r.added()
}
