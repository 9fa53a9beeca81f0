package sampling

import (
	"slices"
	"sync"
	"time"

	"correlator/bpf"
	"correlator/internal/process"
)

// MaxHeld is how many different samples may wait for the goroutine of a process. With 50 frames each they
// take 3 MB.
const MaxHeld = 4096

// PendingSample are samples that cannot be handed on before the process was looked at.
type PendingSample struct {
	program *Program
	sample  Sample // without its Stack
	key     bpf.StackKey
	stack   bpf.Stack

	needsContext  bool
	tid           int
	threadPointer uint64
}

// Samples is how many they are.
func (h *PendingSample) Samples() uint64 { return h.sample.Samples }

// Refuse ends what was held with an outcome.
func (s *Sampling) Refuse(held *PendingSample, outcome process.SampleOutcome) {
	s.counters.Outcomes.Add(outcome, held.Samples())
	held.program.receiver.Refused(outcome, held.Samples())
}

// PendingQueue holds samples on their way from a Receiver to the goroutine of its process.
type PendingQueue struct {
	ready chan struct{}

	mu      sync.Mutex
	samples []PendingSample
}

// NewHeldQueue returns an empty queue.
func NewHeldQueue() *PendingQueue { return &PendingQueue{ready: make(chan struct{}, 1)} }

// Ready has a token when there are some.
func (q *PendingQueue) Ready() <-chan struct{} { return q.ready }

// Len is how many wait.
func (q *PendingQueue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.samples)
}

// Add takes as many as there is room for, and answers how many. It takes out those that were taken
// before a time, when they are most of all: then what waits is never copied more than once.
func (q *PendingQueue) Add(held []PendingSample, before time.Time) (n int, late []PendingSample) {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := 0 // they come about in the order of their age
	for first < len(q.samples) && q.samples[first].sample.At.Before(before) {
		first++
	}
	if first > len(q.samples)/2 {
		late, q.samples = q.samples[:first], slices.Clone(q.samples[first:])
	}
	n = min(len(held), MaxHeld-len(q.samples))
	q.samples = append(q.samples, held[:n]...)
	select {
	case q.ready <- struct{}{}:
	default:
	}
	return n, late
}

// Take empties the queue.
func (q *PendingQueue) Take() (held []PendingSample) {
	q.mu.Lock()
	defer q.mu.Unlock()
	held, q.samples = q.samples, nil
	return held
}
