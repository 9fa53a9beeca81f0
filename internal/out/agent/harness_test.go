package agent

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/bpf"
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
const deadline = 60 * time.Second

const testHostID = "3a6f1c0e5d7b42c8"

func TestMain(m *testing.M) {
	worker.Main(access.Kind, symbolizer.Kind, symbolizer.LiveKind, unwind.Kind())
	demo.Rest()
	types := bpf.KeepTypes()
	demo.Workers(access.Kind.Name, symbolizer.Kind.Name, symbolizer.LiveKind.Name, unwind.Kind().Name)
	code := testenv.Main(m)
	runtime.KeepAlive(types)
	os.Exit(code)
}

// running is an agent that runs in the test, and a client at its feed socket.
type running struct {
	*Agent
	t    *testing.T
	logs *observer.ObservedLogs
	feed *feed.Client
	kept *keeper // nil with another exporter, or none
	end  func()  // ends the agent and waits for it
}

// in is the agent for a part of the test.
func (r *running) in(t *testing.T) *running {
	part := *r
	part.t = t
	return &part
}

// run starts an agent that ends with the test, at the latest, and keeps what it exports.
func run(t *testing.T, change ...func(*Config)) *running {
	t.Helper()
	return runWith(t, new(keeper), change...)
}

// runWith is run for an agent with another exporter, or none.
func runWith(t *testing.T, exporter Exporter, change ...func(*Config)) *running {
	t.Helper()
	r := open(t, exporter, change...)
	r.start()
	return r
}

// open opens an agent, which must be started.
func open(t *testing.T, exporter Exporter, change ...func(*Config)) *running {
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
	r.kept, _ = exporter.(*keeper)
	if r.kept != nil && cfg.SamplesPerSecond == 0 {
		exporter = nil
	}
	var err error
	r.Agent, err = New(cfg, exporter, zap.New(core))
	assert.NilError(t, err)
	r.feed, err = feed.Dial(cfg.FeedSocket)
	assert.NilError(t, err)
	t.Cleanup(func() { r.feed.Close() })
	return r
}

func (r *running) start() {
	t := r.t
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.end = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			assert.Check(t, err == nil, "agent ended with %v", err)
		case <-time.After(deadline):
			t.Error("agent does not end")
		}
	})
	t.Cleanup(func() {
		r.end()
		r.reasoned()
	})
}

func atRate(perSecond int) func(*Config) {
	return func(c *Config) { c.SamplesPerSecond, c.ReportInterval = perSecond, 100*time.Millisecond }
}

// patient has the agent hold what waits for so long that nothing becomes late in a test, and fetch
// samples so rarely that there is something to wait whenever sampling ends.
func patient(c *Config) { c.SamplesDelay, c.ReportInterval = time.Hour, 400*time.Millisecond }

// sweepOnce has the agent sweep when it starts, and not again in the time of a test.
func sweepOnce(c *Config) { c.ScanInterval = 50 * deadline }

// reasoned checks that whatever an operator is warned of names the counter by which it goes on to
// be counted, and that this has counted.
func (r *running) reasoned() {
	counted := make(map[string]uint64)
	r.Counters().Each(func(name string, n uint64) { counted[strings.TrimPrefix(name, "trouble_")] = n })
	for _, entry := range r.logs.FilterLevelExact(zapcore.WarnLevel).AllUntimed() {
		reason, _ := entry.ContextMap()["reason"].(string)
		n, known := counted[reason]
		assert.Check(r.t, uncounted[entry.Message] || known && n > 0,
			"%q has reason %q, which is counted %d times", entry.Message, reason, n)
	}
}

// uncounted warnings tell at the start what is so for as long as the agent runs.
var uncounted = map[string]bool{
	"samples are taken here and fed, too: the same CPU time is counted twice, unless --samples-per-second is 0": true,
	"stacks have no kernel frames":                             true,
	"stacks that are walked by frame pointers lack callers":    true,
	"not ready: only a part of the host's processes is served": true,
}

// keeper is an Exporter that keeps samples, by all but their stack and times, and their stacks.
type keeper struct {
	untraced bool

	mu      sync.Mutex
	samples map[keptSample]uint64
	stacks  map[profile.StackTraceID]*profile.Stack
}

type keptSample struct {
	service               profile.Service
	pid, tid              int
	context               profile.ContextKind
	trace                 [16]byte
	span, transaction     [8]byte
	attributes            string
	executable, container string
}

func (k *keeper) TakesAccounts() bool { return false }

func (k *keeper) Accounted(*profile.Account) {}

func (k *keeper) Waited(*profile.Sample) {}

func (k *keeper) Sampled(s *profile.Sample) {
	var attributes []string
	for key, value := range s.Attributes.All() {
		attributes = append(attributes, fmt.Sprintf("%s=%q", key, value))
	}
	key := keptSample{
		service: s.Resource.Service, pid: s.Resource.PID, tid: s.TID, context: s.Context, trace: s.TraceID,
		span: s.SpanID, transaction: s.TransactionID, attributes: fmt.Sprint(attributes),
		executable: s.Resource.ExecutableName, container: s.Resource.ContainerID,
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.samples == nil {
		k.samples, k.stacks = make(map[keptSample]uint64), make(map[profile.StackTraceID]*profile.Stack)
	}
	k.samples[key] += s.Count
	k.stacks[s.Stack.ID] = s.Stack
}

func (k *keeper) TakesSamples() bool { return true }

func (k *keeper) TakesUntraced() bool { return k.untraced }

func (k *keeper) find(is func(keptSample) bool) map[keptSample]uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := maps.Clone(k.samples)
	maps.DeleteFunc(found, func(s keptSample, _ uint64) bool { return !is(s) })
	return found
}

// await waits until there are samples for which a function returns true, and returns one of them.
func (k *keeper) await(t *testing.T, what string, is func(keptSample) bool) (sample keptSample) {
	t.Helper()
	testenv.Poll(t, deadline, what, func() bool {
		for sample = range k.find(is) {
			return true
		}
		return false
	})
	return sample
}

func (r *running) state(p *demo.Process, want process.State, reason string) process.View {
	r.t.Helper()
	var last process.View
	testenv.Poll(r.t, deadline, fmt.Sprintf("state %s %s", want, reason), func() bool {
		last = r.statusOf(p).View
		return last.State == want && last.Reason == reason
	})
	return last
}

func (r *running) gone(p *demo.Process) {
	r.t.Helper()
	r.state(p, "", "")
}

func (r *running) statusOf(p *demo.Process) (status ProcessStatus) {
	statuses := r.processStatuses()
	if i := slices.IndexFunc(statuses, func(s ProcessStatus) bool { return s.PID == p.PID }); i >= 0 {
		return statuses[i]
	}
	return ProcessStatus{}
}

// registration is that of a process that is served. Its sender can be asked after the end, too.
func (r *running) registration(p *demo.Process) *registration {
	r.t.Helper()
	found := r.registrations.Find(p.PID)
	assert.Assert(r.t, found != nil, "process %d is not served", p.PID)
	return found
}

func (r *running) swept(times uint64) {
	r.t.Helper()
	want := r.Counters().Sweeps.Load() + times + 1 // one may be under way
	testenv.Poll(r.t, deadline, "sweeps", func() bool { return r.Counters().Sweeps.Load() >= want })
}

// sample feeds one sample of a thread without its context.
func (r *running) sample(pid, tid int, stack [16]byte) {
	r.t.Helper()
	r.send(feed.Record{PID: uint32(pid), TID: uint32(tid), StackTraceID: stack, Count: 1})
}

func (r *running) send(records ...feed.Record) {
	r.t.Helper()
	for _, record := range records {
		assert.NilError(r.t, r.feed.Add(record))
	}
	assert.NilError(r.t, r.feed.Flush())
}

// sampleInTime is sample until that was in time.
func (r *running) sampleInTime(pid, tid int, stack [16]byte) {
	r.t.Helper()
	r.sendInTime(feed.Record{PID: uint32(pid), TID: uint32(tid), StackTraceID: stack, Count: 1})
}

// sendInTime sends a sample without its trace until it was not too old when its thread's context was
// read: on a busy machine that takes several tries.
func (r *running) sendInTime(record feed.Record) {
	r.t.Helper()
	fed := &r.Counters().Fed
	testenv.Poll(r.t, deadline, "a sample in time", func() bool {
		stale, before := fed[process.OutcomeStale].Load(), fed.Sum()
		r.send(record)
		testenv.Poll(r.t, deadline, "an outcome", func() bool { return fed.Sum() == before+uint64(record.Count) })
		return fed[process.OutcomeStale].Load() == stale
	})
}

// feedContext feeds samples of a transaction, of n different stacks.
func (r *running) feedContext(p *demo.Process, context demo.Context, n int) {
	r.t.Helper()
	var records []feed.Record
	for i := range n {
		records = append(records, feed.Record{PID: uint32(p.PID), TID: uint32(context.Thread.TID),
			StackTraceID: [16]byte{7, byte(i), byte(i >> 8)}, Count: 1,
			HasContext: true, TraceID: context.TraceID, TransactionID: context.TransactionID})
	}
	r.send(records...)
}

// comesTo feeds samples of a thread until one comes to an outcome. On a busy machine others are too old, or
// the worker that reads their context does not answer in time.
func (r *running) comesTo(pid, tid int, want process.SampleOutcome) {
	r.t.Helper()
	r.recordComesTo(feed.Record{PID: uint32(pid), TID: uint32(tid), StackTraceID: [16]byte{9}, Count: 1}, want)
}

// recordComesTo is comesTo for a record.
func (r *running) recordComesTo(record feed.Record, want process.SampleOutcome) {
	r.t.Helper()
	fed := &r.Counters().Fed
	others := func() uint64 {
		return fed.Sum() - fed[want].Load() - fed[process.OutcomeStale].Load() - fed[process.OutcomeUnreadable].Load()
	}
	before, otherwise := fed[want].Load(), others()
	testenv.Poll(r.t, deadline, "outcome "+want.String(), func() bool {
		r.sendInTime(record)
		return fed[want].Load() > before
	})
	assert.Check(r.t, want == process.OutcomeUnreadable || others() == otherwise, "another outcome than %v", want)
}

func (r *running) outcome(o process.SampleOutcome, n uint64) {
	r.t.Helper()
	testenv.Poll(r.t, deadline, "outcome "+o.String(), func() bool { return r.Counters().Fed[o].Load() >= n })
}

// served proves that a process is served: a sample of a thread that works on a transaction arrives
// there, on that transaction. It is fed again when something was lost, as everything that is lost is
// counted: on a busy machine it may have become too old, or a worker not have answered in time.
func (r *running) served(p *demo.Process, thread int, stack [16]byte) {
	r.t.Helper()
	context := p.Begin(thread)
	text := base64.RawURLEncoding.EncodeToString(stack[:])
	fed := &r.Counters().Fed
	lost := func() uint64 {
		n := dropped(&r.Counters().Messages)
		for o := range fed {
			if process.SampleOutcome(o) != process.OutcomeCorrelated {
				n += fed[o].Load()
			}
		}
		return n
	}
	before, samples := lost(), uint64(1)
	defer func() {
		if r.t.Failed() {
			r.logCounters()
			r.t.Logf("lost %d, samples %d, %+v, %+v", before, samples, r.statusOf(p), p.Report())
		}
	}()
	r.sample(p.PID, context.Thread.TID, stack)
	p.ReportWhen("sample "+text, func(report demo.Report) bool {
		if now := lost(); now > before {
			before = now
			samples++ // one of another process may have been lost
			r.sample(p.PID, context.Thread.TID, stack)
		}
		transaction, ok := report.Transaction(context.TraceID)
		n := transaction.Stacks[text]
		return ok && n > 0 && n <= samples
	})
}

// logCounters says what became of samples.
func (r *running) logCounters() {
	r.Counters().Each(func(name string, n uint64) {
		if n > 0 {
			r.t.Logf("%s %d", name, n)
		}
	})
}

func clean(t *testing.T, report demo.Report) {
	t.Helper()
	assert.Check(t, report.Torn == 0 && report.Foreign == 0 && report.Malformed == 0 && report.Unregistered == 0,
		"torn %d, foreign %d, malformed %d, before a registration %d: want none of these",
		report.Torn, report.Foreign, report.Malformed, report.Unregistered)
}

// harmless checks that a process was sent nothing wrong since an exec. It may have been sent traces
// that the program before had, which it does not know.
func harmless(t *testing.T, report demo.Report) {
	t.Helper()
	assert.Check(t, report.Torn == 0 && report.Malformed == 0, "torn %d, malformed %d", report.Torn, report.Malformed)
}

// added checks, after the end, that every sample that was fed, and every one that the kernel took, has
// exactly one outcome, and every one that was queued exactly one end.
func (r *running) added() {
	r.t.Helper()
	c := r.Counters()
	fed, outcomes := c.FeedSamples.Load(), c.Fed.Sum()
	assert.Check(r.t, outcomes == fed, "%d samples fed, %d outcomes", fed, outcomes)

	handed := r.kernel(bpf.Correlated) + r.kernel(bpf.TableFull) + r.kernel(bpf.Unreadable)
	if r.config.Unsampled {
		handed += r.kernel(bpf.Unsampled)
	}
	if r.exporter != nil && r.exporter.TakesUntraced() {
		handed += r.kernel(bpf.NoTrace) + r.kernel(bpf.NoSlot) + r.kernel(bpf.NotValid) + r.kernel(bpf.ZeroIDs)
	}
	sum := c.Sampling.Outcomes.Sum()
	assert.Check(r.t, sum == handed, "the kernel handed over %d samples, %d outcomes", handed, sum)
	troubles := c.Sampling.Errors.Load()
	assert.Check(r.t, troubles == 0, "sampling was in trouble %d times", troubles)

	correlated := c.Sampling.Outcomes[process.OutcomeCorrelated].Load() + c.Fed[process.OutcomeCorrelated].Load()
	queued, sent, dropped := c.Messages.SamplesQueued.Load(), c.Messages.SamplesSent.Load(), dropped(&c.Messages)
	assert.Check(r.t, correlated == queued && queued == sent+dropped,
		"%d samples correlated, %d queued, %d sent and %d dropped", correlated, queued, sent, dropped)
}

// dropped is how many samples were dropped, for whatever reason.
func dropped(c *messaging.Counters) (sum uint64) {
	for i := range c.SamplesDropped {
		sum += c.SamplesDropped[i].Load()
	}
	return sum
}

// sampledReport waits for samples of a process, and returns its report. It asks rarely: a report is
// work, on CPUs that the process is to burn.
func (r *running) sampledReport(p *demo.Process, samples uint64) (report demo.Report) {
	r.t.Helper()
	var asked time.Time
	testenv.Poll(r.t, deadline, "samples", func() bool {
		if time.Since(asked) < 50*time.Millisecond {
			return false
		}
		report, asked = p.Report(), time.Now()
		return report.Samples >= samples
	})
	return report
}

// stacks are the frames of all stacks that a process was sent, by their ids. A sample can arrive before it is exported.
func (r *running) stacks(report demo.Report) map[string][]profile.Frame {
	r.t.Helper()
	found := make(map[string][]profile.Frame)
	for _, transaction := range report.Transactions {
		for text := range transaction.Stacks {
			id, err := base64.RawURLEncoding.DecodeString(text)
			assert.NilError(r.t, err)
			var stack *profile.Stack
			testenv.Poll(r.t, deadline, "a sample with stack "+text, func() bool {
				r.kept.mu.Lock()
				defer r.kept.mu.Unlock()
				stack = r.kept.stacks[profile.StackTraceID(id)]
				return stack != nil
			})
			computed := profile.TraceID(stack.Frames)
			assert.Check(r.t, computed == stack.ID, "stack %s has frames with id %s", text, computed)
			found[text] = stack.Frames
		}
	}
	return found
}

// stacksTrue checks that each stack of each transaction is one of what the process did in it, and
// not of what it does between transactions, and that the frames of all stacks are known. What a
// thread does at the borders of a transaction is neither.
func (r *running) stacksTrue(p *demo.Process, report demo.Report) {
	r.t.Helper()
	code, stacks := p.Functions(), r.stacks(report)
	var all, inWork uint64
	for _, transaction := range report.Transactions {
		for text, n := range transaction.Stacks {
			all += n
			for _, kind := range []string{"checkout", "search", "browse", "housekeeping"} {
				worked := code[kind].In(stacks[text])
				assert.Check(r.t, !worked || kind == transaction.Kind, "a %q has a stack of %q", transaction.Kind, kind)
				if worked {
					inWork += n
				}
			}
		}
	}
	mostInWork(r.t, inWork, all)
}

// mostInWork checks that samples have stacks of their transaction's work. Nearly all of the CPU time is spent
// there, so of more than a few samples three quarters must.
func mostInWork(t testing.TB, inWork, all uint64) {
	t.Helper()
	assert.Check(t, inWork > 0 && (all < 20 || inWork >= all*3/4),
		"%d samples of %d have a stack of their transaction's work", inWork, all)
}

// parts runs parts of a test with one agent, which then ends with all samples accounted for.
func (r *running) parts(parts map[string]func(*running)) {
	r.t.Helper()
	for name, part := range parts {
		r.t.Run(name, func(t *testing.T) { part(r.in(t)) })
	}
	r.end()
	r.added()
}

// kernel is how many samples ended so in the kernel, as of the last drain.
func (r *running) kernel(o bpf.KernelOutcome) uint64 { return r.Counters().Sampling.Kernel[o].Load() }

// recounted waits until all that has happened before is in the kernel's counters.
func (r *running) recounted() {
	r.t.Helper()
	drains := &r.Counters().Sampling.Drains
	until := drains.Load() + 2 // the next one begins later, and has ended when another one begins
	testenv.Poll(r.t, deadline, "the kernel's counters to be read", func() bool { return drains.Load() >= until })
}

// notSampled makes sure that no process is sampled, though there is one that burns CPU.
func (r *running) notSampled() {
	r.t.Helper()
	sampled := func() (sum uint64) { // threads of targets
		for o := range len(bpf.Counters{}) {
			if outcome := bpf.KernelOutcome(o); outcome != bpf.NoTarget && outcome != bpf.Idle {
				sum += r.kernel(outcome)
			}
		}
		return sum
	}
	r.recounted()
	before, others := sampled(), r.kernel(bpf.NoTarget)
	testenv.Poll(r.t, deadline, "samples of others", func() bool { return r.kernel(bpf.NoTarget) > others+50 })
	r.recounted()
	now := sampled()
	assert.Check(r.t, now == before, "%d samples of a process that is not to be sampled", now-before)
}

// logged returns how often a reason was logged of a process.
func (r *running) logged(p *demo.Process, reason process.Reason) int {
	return r.logs.Filter(func(entry observer.LoggedEntry) bool {
		fields := entry.ContextMap()
		return fields["pid"] == int64(p.PID) && fields["reason"] == reason.String()
	}).Len()
}

func signal(t *testing.T, p *demo.Process, number syscall.Signal) {
	t.Helper()
	assert.NilError(t, syscall.Kill(p.PID, number))
}

// stop stops a process, and returns when it has: until then its threads go on, and read.
func stop(t *testing.T, p *demo.Process) {
	t.Helper()
	signal(t, p, syscall.SIGSTOP)
	assert.NilError(t, unix.Waitid(unix.P_PID, p.PID, nil, unix.WSTOPPED|unix.WNOWAIT, nil))
}

func patterns(t *testing.T, lines string) process.Patterns {
	t.Helper()
	p, err := process.ParsePatterns(lines)
	assert.NilError(t, err)
	return p
}

// addLibrary has a process load a copy of a library, and returns its path.
func addLibrary(t *testing.T, p *demo.Process, source string) (path string) {
	t.Helper()
	path = filepath.Join(p.Dir, demo.LibraryName(false))
	testenv.WriteFile(t, p.HostPath(path), testenv.ReadFile(t, source))
	assert.NilError(t, p.Command(nil, "load", path))
	return path
}
