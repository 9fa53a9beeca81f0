package sampling

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/host/sorting"
	"correlator/profile"
)

// MaxPending is how many different samples of a process may wait for its goroutine. With 50 frames
// each they take 3 MB.
const MaxPending = 4096

// exportAge is how old samples may be at least that are for no APM agent: who exports them has seconds. What a process
// that hangs has waiting takes some MB.
const exportAge = 2 * time.Second

// partOfWaits is which part of the limit waits may have. If there is no room for all, they are refused first.
const partOfWaits = 4

// pendingSample is samples that cannot be handed on before the process was probed.
type pendingSample struct {
	program *program
	sample  profile.Sample // without its Stack
	key     bpf.StackKey
	raw     bpf.Stack

	needsContext  bool
	tid           int
	threadPointer uint64

	tried   time.Time // when its stack was first to be named, in vain; else zero
	unnamed bool      // its stack lacks frames that could not be named
}

// Samples returns how many they are.
func (p *pendingSample) Samples() uint64 { return p.sample.Count }

// inbox is what waits for the goroutine of one process, whatever programs it runs.
type inbox struct {
	ready  chan struct{} // has a token when there is something to do
	active *atomic.Bool  // is set when samples were taken
	maxAge time.Duration // of samples that are of use to an APM agent; 0: any, of all
	limit  int           // of pending
	held   process.Held  // the samples that were added, and have not ended
	waits  process.Held  // the same of waits

	forgotten bool // nothing is added any more; guarded by Sampling.mu

	mu      sync.Mutex
	pending []pendingSample
	taken   int // by the goroutine of the process, which may give them back
	waiting int // waits, of both
}

func newInbox(active *atomic.Bool, maxAge time.Duration) *inbox {
	return &inbox{ready: make(chan struct{}, 1), active: active, maxAge: maxAge, limit: MaxPending}
}

func (i *inbox) notify() {
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

// add adds as many samples as there is room for, and returns how many. It removes and returns those
// that have become too old, once they are more than half of all: then what waits is copied at most
// once. The process's goroutine cannot do that while the process makes it hang, and many processes
// that do so would make us keep gigabytes.
func (i *inbox) add(pending []pendingSample, now time.Time) (n int, late []pendingSample) {
	i.mu.Lock()
	defer i.mu.Unlock()
	first := 0 // they come about in the order of their age
	for first < len(i.pending) && i.isLate(&i.pending[first], now) {
		first++
	}
	if first > len(i.pending)/2 {
		late, i.pending = i.pending[:first], slices.Clone(i.pending[first:])
		i.waiting -= waitsIn(late)
	}
	n = i.room(pending)
	i.pending = append(i.pending, pending[:n]...)
	for j := range n {
		i.heldOf(&pending[j]).Add(pending[j].Samples())
	}
	i.notify()
	return n, late
}

// room sorts waits last, and returns how many there is room for.
func (i *inbox) room(pending []pendingSample) int {
	waits := waitsIn(pending)
	if waits > 0 {
		sorting.Stable(pending, func(a, b pendingSample) int { return a.wait() - b.wait() })
	}
	all := i.limit - len(i.pending) - i.taken
	samples := len(pending) - waits
	waits = max(0, min(waits, all-samples, i.limit/partOfWaits-i.waiting))
	i.waiting += waits
	return max(0, min(samples, all)) + waits
}

// wait is 1 for a wait, else 0.
func (p *pendingSample) wait() int {
	if p.sample.Wait != nil {
		return 1
	}
	return 0
}

func waitsIn(pending []pendingSample) (n int) {
	for j := range pending {
		n += pending[j].wait()
	}
	return n
}

func (i *inbox) heldOf(p *pendingSample) *process.Held {
	if p.sample.Wait != nil {
		return &i.waits
	}
	return &i.held
}

// isForAgent reports whether an APM agent takes a sample, or may do so once its context was read.
func (p *pendingSample) isForAgent() bool {
	traced := p.sample.HasTrace() && p.sample.Context != profile.OTelContext
	return p.sample.Wait == nil && (traced || p.needsContext)
}

// ageOf returns up to which age a sample is of use; 0: any.
func (i *inbox) ageOf(p *pendingSample) time.Duration {
	if i.maxAge == 0 || p.isForAgent() {
		return i.maxAge
	}
	return max(i.maxAge, exportAge)
}

// isLate reports whether a sample has waited too long.
func (i *inbox) isLate(p *pendingSample, now time.Time) bool {
	return i.maxAge > 0 && now.Sub(p.sample.At) > i.ageOf(p)
}

// nameBy returns until when a sample may wait for the name of its stack, if it is of use at some age only: the
// rest of that is for handing it on.
func (i *inbox) nameBy(p *pendingSample) time.Time { return p.sample.At.Add(i.ageOf(p) * 2 / 3) }

// namingDeadline returns until when samples may wait together for the names of their stacks.
func (i *inbox) namingDeadline(pending []*pendingSample, now time.Time) time.Time {
	deadline := now.Add(namingTime)
	for _, p := range pending {
		if by := i.nameBy(p); i.maxAge > 0 && by.Before(deadline) {
			deadline = by
		}
	}
	least := minNamingTime
	if i.maxAge > 0 {
		least = min(least, i.maxAge/6)
	}
	if deadline.Before(now.Add(least)) {
		return now.Add(least)
	}
	return deadline
}

// isLast reports whether a sample whose stack could not be named has no time left to wait for that again.
// One that is of use at any age does not wait for ever.
func (i *inbox) isLast(p *pendingSample, now time.Time) bool {
	if i.maxAge > 0 {
		return !now.Before(i.nameBy(p))
	}
	return !p.tried.IsZero() && now.Sub(p.tried) > maxNaming
}

// giveBack ends what take has begun: it has some of these samples wait again, before those that have come
// since.
func (i *inbox) giveBack(pending []pendingSample) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.taken = 0
	if len(pending) > 0 {
		i.pending = append(pending, i.pending...)
		i.notify()
	}
	i.waiting = waitsIn(i.pending)
}

// take empties the inbox. Until giveBack is called, there is no room for as many more.
func (i *inbox) take() (pending []pendingSample) {
	i.mu.Lock()
	defer i.mu.Unlock()
	pending, i.pending = i.pending, nil
	i.taken = len(pending)
	return pending
}

func (i *inbox) len() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.pending)
}
