package sampling

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/elfsym"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/internal/worker/access/accesstest"
	"correlator/memread"
	"correlator/procscan"
	"correlator/profile"
	"correlator/tlsdesc"
)

// deadline is how long anything may take that happens at once on an idle machine.
const deadline = 60 * time.Second

func TestMain(m *testing.M) {
	worker.Main(access.Kind, unwind.Kind())
	demo.Rest()
	types := bpf.KeepTypes()
	demo.Workers(access.Kind.Name, unwind.Kind().Name)
	code := testenv.Main(m)
	runtime.KeepAlive(types)
	os.Exit(code)
}

// sampled is a Sampling that runs in the test.
type sampled struct {
	*Sampling
	t   *testing.T
	end func() // ends Run, and waits for it
}

// open begins to sample until the test ends, at the latest.
func open(t *testing.T, options bpf.SamplerOptions) *sampled {
	t.Helper()
	return openWith(t, Options{SamplerOptions: options})
}

func openWith(t *testing.T, options Options) *sampled {
	t.Helper()
	testenv.NeedRoot(t)
	if options.SamplesPerSecond == 0 {
		options.SamplesPerSecond = 1000
	}
	options.ProcRoot = "/proc"
	if options.Interval == 0 {
		options.Interval = 20 * time.Millisecond
	}
	sampling, err := Open(options, new(Counters), zaptest.NewLogger(t))
	if errors.Is(err, errors.ErrUnsupported) {
		testenv.Missing(t, err.Error())
	}
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		sampling.Run(ctx)
	}()
	s := &sampled{Sampling: sampling, t: t, end: func() { cancel(); <-ended }}
	t.Cleanup(func() {
		s.end()
		assert.Check(t, sampling.Close())
	})
	return s
}

// start has a process sampled, by the rule that holds for it now.
func (s *sampled) start(p *demo.Process, r *receiver) *program {
	s.t.Helper()
	identity, err := s.sampler.Identify(p.PID)
	assert.NilError(s.t, err)
	scanner, err := procscan.NewScanner("/proc")
	assert.NilError(s.t, err)
	found, err := scanner.Process(p.PID)
	assert.NilError(s.t, err)
	handle, err := procscan.OpenProcess("/proc", found.ProcessID)
	assert.NilError(s.t, err)
	s.t.Cleanup(func() { handle.Close() })
	memory := executableMemory{handle, accesstest.Open(s.t).Process(found.ProcessID, "0")}
	rules := bpf.TargetRules{Elastic: rule(s.t, p, handle)}
	program, err := s.Sampling.start(identity, rules, nil, memory, r, r.inbox)
	assert.NilError(s.t, err)
	return program
}

// libraryOf is what the ELF file of the process's library says.
func libraryOf(t *testing.T, p *demo.Process) *elfsym.Library {
	t.Helper()
	library, err := os.Open(p.HostPath(p.Library))
	assert.NilError(t, err)
	defer library.Close()
	info, err := library.Stat()
	assert.NilError(t, err)
	parsed, err := elfsym.ParseLibrary(library, info.Size())
	assert.NilError(t, err)
	return parsed
}

func rule(t *testing.T, p *demo.Process, handle *procscan.Handle) tlsdesc.Rule {
	t.Helper()
	parsed := libraryOf(t, p)
	mappings, err := handle.ExecutableMappings()
	assert.NilError(t, err)
	memory := memread.Open("/proc", p.PID)
	defer memory.Close()
	base := p.Loaded().Base
	if base == 0 { // of a JVM; its library's addresses are those of the file
		i := slices.IndexFunc(mappings, func(m procscan.Mapping) bool {
			return strings.HasSuffix(m.Path, filepath.Base(p.Library))
		})
		base = mappings[i].Start - mappings[i].Offset
	}
	rule, err := tlsdesc.Resolve(&parsed.Variable, base, memory, mappings)
	assert.NilError(t, err)
	return rule
}

// added checks, after the end, that each sample that the kernel handed over has one outcome.
// Samples that are pending have none yet.
func (s *sampled) added(pending uint64) {
	s.t.Helper()
	handed := s.kernel(bpf.Correlated) + s.kernel(bpf.TableFull) + s.kernel(bpf.Unreadable)
	if outcomes := s.counters.Outcomes.Sum(); outcomes+pending != handed || handed == 0 {
		s.t.Errorf("the kernel handed over %d samples: %d outcomes, %d pending", handed, outcomes, pending)
	}
	troubles := s.counters.Errors.Load() + s.counters.ProbesFailed.Load()
	assert.Check(s.t, troubles == 0, "sampling was in trouble %d times", troubles)
}

func (s *sampled) kernel(o bpf.KernelOutcome) uint64      { return s.counters.Kernel[o].Load() }
func (s *sampled) outcome(o process.SampleOutcome) uint64 { return s.counters.Outcomes[o].Load() }
func (s *sampled) poll(what string, done func() bool) {
	s.t.Helper()
	testenv.Poll(s.t, deadline, what, done)
}
func (s *sampled) drains(n uint64) {
	s.t.Helper()
	until := s.counters.Drains.Load() + n
	s.poll("drains", func() bool { return s.counters.Drains.Load() >= until })
}

// receiver is a sink that keeps what it gets, and its inbox. What is pending is handed in again by
// serve.
type receiver struct {
	t     *testing.T
	inbox *inbox
	delay time.Duration // of each sample that was not counted in the kernel
	begun time.Time     // before all samples

	refused process.SampleOutcomes

	mu      sync.Mutex
	samples map[profile.Sample]uint64 // without their number and times
	counted map[interval]uint64
	alone   uint64 // samples with an interval of their own
	outside uint64 // samples that are not in their interval
	calls   int    // of Sampled

	first, last time.Time // when a sample was taken

	waits    []profile.Sample
	accounts []profile.Account
}

// newReceiver returns a receiver with an inbox for so many samples.
func newReceiver(t *testing.T, limit int) *receiver {
	inbox := newInbox(new(atomic.Bool), 0)
	inbox.limit = limit
	return &receiver{t: t, inbox: inbox, begun: time.Now(), samples: make(map[profile.Sample]uint64),
		counted: make(map[interval]uint64)}
}

type interval struct{ start, end time.Time }

// Sampled checks that the ids belong together, and the frames to the stack's id.
func (r *receiver) Sampled(sample profile.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	trace := demo.TraceID(sample.TraceID)
	assert.Check(r.t, trace.Whole() && trace.TransactionID() == demo.TransactionID(sample.TransactionID),
		"ids that do not belong together: %+v", sample)
	assert.Check(r.t, profile.TraceID(sample.Stack.Frames) == sample.Stack.ID,
		"a stack with the id of another one: %+v", sample.Stack)
	assert.Check(r.t, sample.Count != 0 && !sample.At.Before(r.begun) && !sample.Last.Before(sample.At) &&
		!sample.Last.After(time.Now()), "%d samples taken from %v to %v", sample.Count, sample.At, sample.Last)
	assert.Check(r.t, sample.Count > 1 || sample.Last.Equal(sample.At), "one, from %v to %v", sample.At, sample.Last)
	if r.calls == 1 || sample.At.Before(r.first) {
		r.first = sample.At
	}
	if sample.Last.After(r.last) {
		r.last = sample.Last
	}
	if sample.Start.Equal(sample.End) {
		time.Sleep(r.delay)
		r.alone += sample.Count
	} else {
		r.counted[interval{sample.Start, sample.End}] += sample.Count
	}
	if sample.At.Before(sample.Start) || sample.At.After(sample.End) {
		r.outside += sample.Count
	}
	key := sample
	key.Count, key.At, key.Last, key.Start, key.End = 0, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	r.samples[key] += sample.Count
}

func (r *receiver) Waited(sample profile.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Check(r.t, profile.TraceID(sample.Stack.Frames) == sample.Stack.ID && sample.Count == 1 &&
		!sample.At.Before(r.begun) && !sample.At.After(time.Now()) && sample.Wait.Sum > 0, "%+v", sample)
	r.waits = append(r.waits, sample)
}

func (r *receiver) Accounted(account *profile.Account) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accounts = append(r.accounts, *account)
}

func (r *receiver) Refused(outcome process.SampleOutcome, samples uint64) {
	r.refused.Add(outcome, samples)
}

func (r *receiver) Flush() {}

// sum is how many samples were handed over, and how many are pending.
func (r *receiver) sum() (samples, pending uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.samples {
		samples += n
	}
	r.inbox.mu.Lock()
	defer r.inbox.mu.Unlock()
	for i := range r.inbox.pending {
		pending += r.inbox.pending[i].Samples()
	}
	return samples, pending
}

// serve hands in what is pending, as the goroutine of a process would, until stopped.
func (r *receiver) serve(s *sampled) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			pending := r.inbox.take()
			var all []*pendingSample
			for i := range pending {
				all = append(all, &pending[i])
			}
			named := s.nameUnwound(all, time.Now().Add(deadline))
			for i := range pending {
				outcome := process.OutcomeUnreadable
				if !pending[i].needsContext {
					var later bool
					if outcome, later = s.resolve(&pending[i], named); later {
						pending[i].sample.Stack = s.cutStack(&pending[i])
					}
				}
				s.finish(&pending[i], outcome)
			}
			select {
			case <-r.inbox.ready:
			case <-done:
				if r.inbox.len() == 0 {
					return
				}
			}
		}
	}()
	return func() { close(done); <-ended }
}
