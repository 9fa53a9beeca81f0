package keep

import (
	"strings"
	"time"

	"correlator/internal/host/textcut"
	"correlator/profile"
)

const (
	// partOfWaits is which part of the memory the waits of an owner may take, with what only they refer to: there
	// may be many more of them than of samples, which are not to make room for them.
	partOfWaits = 4

	// maxCauseBytes is the most that is kept of a path, and of the name of a thread or a service.
	maxCauseBytes = 256
)

// WaitStats is what became of waits with a stack.
type WaitStats struct {
	Kept, Added, Evicted, Expired uint64
	Lost                          [numLost]uint64 // not added
}

// waits are those of an owner.
type waits struct {
	slices []*timeSlice // as owner.slices
	bytes  int          // by which the owner grew with them
}

// causeID is what a thread waited for, and what ended that.
type causeID struct {
	state         profile.ThreadState
	waker         profile.WakerKind
	context       profile.ContextKind // of the waker
	pid, tid      int32               // of the waker
	peer          string
	futex         uint64
	path          string
	thread        string // of the waker
	service       string // of the waker
	transactionID        // of the waker
}

// cause is what waits of a process have in common.
type cause struct {
	causeID
	entries int32
	slow    slowRefs
}

// waitKey is what waits are added up under.
type waitKey struct {
	entryKey
	cause *cause
}

type waitEntry struct {
	waitKey
	profile.StateTimes
	last int64 // when the last one ended, in ns
}

func newCauseID(w *profile.Wait) causeID {
	id := causeID{state: w.State, peer: shorten(w.Peer), futex: w.Futex, path: shorten(w.Path), waker: w.Waker.Kind}
	if w.Waker.Kind == profile.ThreadWaker {
		of := &w.Waker
		id.pid, id.tid, id.context = int32(of.PID), int32(of.TID), of.Context
		id.thread, id.service = shorten(of.Thread), shorten(of.Service)
		id.transactionID = transactionID{of.TraceID, of.TransactionID}
	}
	return id
}

func shorten(text string) string {
	if len(text) <= maxCauseBytes {
		return text
	}
	return strings.Clone(textcut.At(text, maxCauseBytes)) // of a long one, no more is kept
}

func (c *causeID) textBytes() int {
	return len(c.peer) + len(c.path) + len(c.thread) + len(c.service)
}

// wait returns the cause as an answer has it.
func (c *causeID) wait() Wait {
	w := Wait{State: c.state, Peer: c.peer, Path: c.path, Futex: c.futex}
	if c.waker == profile.UnknownWaker {
		return w
	}
	w.Waker = &Waker{Source: c.waker, PID: int(c.pid), TID: int(c.tid), Thread: c.thread, Service: c.service}
	if c.trace != [16]byte{} {
		w.Waker.Trace = hexadecimal(c.trace[:])
	}
	if c.transaction != [8]byte{} {
		w.Waker.ID = hexadecimal(c.transaction[:])
	}
	return w
}

func (s *Store) cause(p *process, w *profile.Wait) *cause {
	id := newCauseID(w)
	of := p.causes.get(id)
	if of == nil {
		of = &cause{causeID: id}
		p.causes.put(id, of)
		s.grow(p.owner, causeBytes+id.textBytes())
	}
	return of
}

// countWait adds waits to a slice of them, and returns the place of their entry.
func (s *Store) countWait(p *process, slice *timeSlice, of entryKey, sample *profile.Sample) uint32 {
	key := waitKey{of, s.cause(p, sample.Wait)}
	i, known := slice.waitIndex[key]
	if !known {
		i = uint32(len(slice.waits))
		slice.waitIndex[key] = i
		slice.waits = append(slice.waits, waitEntry{waitKey: key})
		key.take()
		key.cause.entries++
		s.grow(p.owner, openWaitBytes)
	}
	slice.waits[i].last = max(slice.waits[i].last, s.clock.Ns(sample.At))
	slice.waits[i].Add(profile.StateTimes{Sum: sample.Wait.Sum, Longest: sample.Wait.Longest, Count: sample.Count})
	s.stats.Waits.Added += sample.Count
	s.stats.Waits.Kept += sample.Count
	return i
}

// forgetWaits forgets the waits of a slice, and returns how many it had.
func (s *Store) forgetWaits(o *owner, slice *timeSlice, why reason, now time.Time) (forgotten uint64) {
	for i := range slice.waits {
		e := &slice.waits[i]
		forgotten += e.Count
		if e.cause.entries--; e.cause.entries == 0 {
			p := e.transaction.process
			p.causes.delete(e.cause.causeID)
			s.grow(o, -causeBytes-e.cause.textBytes())
		}
		s.forgetEntry(&e.entryKey, why, now)
	}
	s.stats.Waits.Kept -= forgotten
	return forgotten
}

// evictWaits keeps the waits of an owner in their part of the memory.
func (s *Store) evictWaits(o *owner, now time.Time) {
	for o.waits.bytes > s.limit/partOfWaits {
		n := s.forgetOldest(o, &o.waits.slices, goneEvicted, now)
		s.stats.Waits.Evicted += n
	}
}
