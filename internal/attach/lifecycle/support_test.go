package lifecycle

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/sampling"
	"correlator/internal/worker/access/accesstest"
	"correlator/memread"
	"correlator/procscan"
	"correlator/profile"
)

// running is a Manager that runs in the test, and its client.
type running struct {
	*Manager
	t    *testing.T
	logs *observer.ObservedLogs

	mu       sync.Mutex
	handlers map[int]*recorder // by pid, the last of each
	limit    int               // of handlers; 0: none
	refused  []error

	attaching func() // called before a process is attached to; nil: nothing is
}

// recorder is a Handler, and the sink of its programs, that records what it is called with.
type recorder struct {
	process *Process
	down    chan error
	probes  atomic.Uint64

	outdated, invalidated atomic.Uint64

	attaching func()

	mu       sync.Mutex
	attached []memread.ProcessStorage
	detached int
	closed   bool
	calls    []string // at the end, in their order
	samples  uint64
	isWork   func([]profile.Frame) bool // nil: stacks are not looked into
	inWork   uint64                     // samples with such a stack
}

// run starts a Manager that ends with the test, with all processes let go.
func run(t *testing.T, change ...func(*Options)) *running {
	t.Helper()
	return runPrepared(t, func(*Manager) {}, change...)
}

// runPrepared is run for a Manager that is not as it was opened.
func runPrepared(t *testing.T, prepare func(*Manager), change ...func(*Options)) *running {
	t.Helper()
	testenv.NeedRoot(t)
	core, logs := observer.New(zapcore.DebugLevel)
	r := &running{t: t, logs: logs, handlers: make(map[int]*recorder)}
	options := Options{
		ProcRoot: "/proc", SweepInterval: 50 * time.Millisecond, Counters: new(Counters),
		Log: zap.New(core), ProcessLog: zap.New(core), Access: accesstest.Open(t),
	}
	for _, c := range change {
		c(&options)
	}
	m, err := Open(options, r)
	assert.NilError(t, err)
	prepare(m)
	r.Manager = m
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		patience, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		stuck, ok := m.Shutdown(patience)
		assert.Check(t, ok, "processes %v are not let go", stuck)
		r.mu.Lock()
		defer r.mu.Unlock()
		for pid, h := range r.handlers {
			h.mu.Lock()
			assert.Check(t, h.closed, "the handler of process %d was not closed", pid)
			h.mu.Unlock()
		}
	})
	if options.SweepInterval == onlyOnce {
		r.sweeps(1) // what begins now is not found by it, however late that is
	}
	return r
}

// sampled has samples taken, and counted.
func sampled(t *testing.T, perSecond int, counters *sampling.Counters) func(*Options) {
	return func(o *Options) {
		s, err := sampling.Open(sampling.Options{
			SamplerOptions: bpf.SamplerOptions{SamplesPerSecond: perSecond}, Interval: 20 * time.Millisecond,
			ProcRoot: "/proc",
		}, counters, o.Log)
		if errors.Is(err, errors.ErrUnsupported) {
			testenv.Missing(t, err.Error())
		}
		assert.NilError(t, err)
		o.Sampling = s
	}
}

var errLimit = errors.New("too many processes")

func (r *running) Admit(procscan.ProcessID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limit > 0 && len(r.handlers) >= r.limit {
		return errLimit
	}
	return nil
}

func (r *running) NewHandler(p *Process) (Handler, Sampler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &recorder{process: p, down: make(chan error, 1), attaching: r.attaching}
	if before := r.handlers[p.Identity().PID]; before != nil { // of the same process, or one that had its pid
		h.attached = before.attached
	}
	r.handlers[p.Identity().PID] = h
	s, _ := r.options.Sampling.(*sampling.Sampling) // nil: none are taken
	sink := func(bpf.ExecID) sampling.Sink { return h }
	return h, &sampler{sampling.NewProcessSampler(s, p.Target(), sink, p.Active(), 300*time.Millisecond), h}
}

// sampler is a Sampler that records its end.
type sampler struct {
	*sampling.ProcessSampler
	handler *recorder
}

func (s *sampler) Close() error {
	s.handler.called("sampler closed")
	return s.ProcessSampler.Close()
}

func (s *sampler) Outdate() {
	s.handler.outdated.Add(1)
	s.ProcessSampler.Outdate()
}

func (s *sampler) Invalidate() {
	s.handler.invalidated.Add(1)
	s.ProcessSampler.Invalidate()
}

// noSampling takes no samples.
type noSampling struct{ told atomic.Bool }

func (s *noSampling) Run(ctx context.Context) { <-ctx.Done() }
func (s *noSampling) LastDrain() time.Time    { return time.Time{} }
func (s *noSampling) Close() error            { return nil }
func (s *noSampling) SetTold(told bool)       { s.told.Store(told) }

func (h *recorder) called(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, what)
}

func (r *running) Refused(_ procscan.ProcessID, _ RefusalReason, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = append(r.refused, err)
}

func (r *running) Swept(error) {}

func (h *recorder) Attach() error {
	if h.attaching != nil {
		h.attaching()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attached = append(h.attached, h.process.Target().Storage())
	h.process.Log().Info("attached", zap.String("service", h.process.Target().Storage().ServiceName))
	return nil
}

func (h *recorder) Valid() bool        { return true }
func (h *recorder) Down() <-chan error { return h.down }
func (h *recorder) Probed(error)       { h.probes.Add(1) }
func (h *recorder) Abandon()           { h.called("abandoned") }

func (h *recorder) Detach() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.detached++
}

func (h *recorder) Close(bool) {
	h.called("handler closed")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

func (h *recorder) Accounted(*profile.Account) {}

func (h *recorder) Waited(profile.Sample) {}

func (h *recorder) Sampled(sample profile.Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples += sample.Count
	if h.isWork != nil && h.isWork(sample.Stack.Frames) {
		h.inWork += sample.Count
	}
}

func (h *recorder) Refused(process.SampleOutcome, uint64) {}
func (h *recorder) Flush()                                {}

// times is how often a process was attached to.
func (h *recorder) times() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.attached)
}

// handler returns that of a process, nil before it was found.
func (r *running) handler(p *demo.Process) *recorder {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handlers[p.PID]
}

// attached waits until a process was attached to so many times, also after it was gone, and returns
// what it published then.
func (r *running) attached(p *demo.Process, times int) memread.ProcessStorage {
	r.t.Helper()
	var h *recorder
	testenv.Poll(r.t, deadline, "a process to be attached to", func() bool {
		h = r.handler(p)
		return h != nil && h.times() >= times
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	assert.Check(r.t, len(h.attached) == times, "attached %d times, want %d", len(h.attached), times)
	return h.attached[times-1]
}

// state waits until a process is in a state, with a reason if it is that of an error.
func (r *running) state(p *demo.Process, want process.State, reason string) {
	r.t.Helper()
	testenv.Poll(r.t, deadline, "state "+string(want)+" "+reason, func() bool {
		known := r.process(p.PID)
		if known == nil {
			return false
		}
		view := known.Status().View
		return view.State == want && view.Reason == reason
	})
}

// gone waits until a process is not known any more.
func (r *running) gone(p *demo.Process) {
	r.t.Helper()
	testenv.Poll(r.t, deadline, "a process to be gone", func() bool { return r.process(p.PID) == nil })
}

// sweeps waits until there were so many.
func (r *running) sweeps(n uint64) {
	r.t.Helper()
	testenv.Poll(r.t, deadline, "a sweep", func() bool { return r.counters.Sweeps.Load() >= n })
}

// sweepOnce has the Manager sweep when it starts, and not again in the time of a test.
func sweepOnce(o *Options) { o.SweepInterval = onlyOnce }

const onlyOnce = 50 * deadline
