package sampling

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"correlator/profile"
)

const (
	// maxPieces bounds the threads of a program of which a piece of a wait is held.
	maxPieces = 256

	// pieceTime is how long a piece of a wait is held: JVMs look at a monitor once a second at the least.
	pieceTime = 1500 * time.Millisecond

	// maxPieced is how long a wait in pieces may be. What is longer is handed on in several, none of which waits for
	// an end that may never come.
	maxPieced = 3 * time.Second

	// pieceGap is the most that may be between two pieces of a wait: a thread that looks at a monitor may have to
	// wait for a CPU.
	pieceGap = 10 * time.Millisecond
)

// isPiece reports whether a wait may be a piece of a longer one: JVMs before 24 have a thread that waits for a monitor
// look at it now and then. Methods that wait until a time are native, and have no lines.
func isPiece(sample *profile.Sample) bool {
	return sample.Wait.Waker.Kind == profile.TimerWaker && placeInJVM(sample).Line > 0
}

// placeInJVM returns the innermost frame of a JVM where a thread waits in user space, an empty one if there is none.
func placeInJVM(sample *profile.Sample) (place profile.Frame) {
	if sample.Wait.State != profile.Futex || sample.Stack == nil {
		return place
	}
	frames := sample.Stack.Frames
	at := slices.IndexFunc(frames, func(f profile.Frame) bool { return f.Kind() == profile.JVMFrame && !f.IsInlined() })
	if at < 0 {
		return place
	}
	return frames[at]
}

// pieces are those of waits of a program's threads, by tid, that are held until the next one comes. They are safe for
// concurrent use.
type pieces struct {
	mu    sync.Mutex
	held  map[int]profile.Sample
	ended bool          // nobody would take them: none are held any more
	count *atomic.Int64 // of all programs
}

// next takes the next wait of a thread, and returns those that are over: one of several pieces is as long as these
// together, and was ended by who has ended the last. Who has ended one that has no other is not known.
func (p *pieces) next(sample profile.Sample) (over []profile.Sample) {
	if !sample.Wait.State.Blocks() {
		return []profile.Sample{sample} // it may be between two pieces
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, held := p.held[sample.TID]; held {
		delete(p.held, sample.TID)
		p.count.Add(-1)
		if continues(&before, &sample) {
			wait := *sample.Wait
			wait.Sum += before.Wait.Sum
			wait.Longest += before.Wait.Longest
			sample.Wait = &wait
		} else {
			over = append(over, withoutWaker(before))
		}
	}
	if !isPiece(&sample) {
		return append(over, sample)
	}
	if p.ended || sample.Wait.Longest >= maxPieced || len(p.held) >= maxPieces {
		return append(over, withoutWaker(sample))
	}
	if p.held == nil {
		p.held = make(map[int]profile.Sample)
	}
	p.held[sample.TID] = sample
	p.count.Add(1)
	return over
}

// continues reports whether a thread went on to wait where it had waited before.
func continues(before, after *profile.Sample) bool {
	began := after.At.Add(-after.Wait.Queue - after.Wait.Longest)
	a, b := placeInJVM(before), placeInJVM(after)
	return before.TraceID == after.TraceID && before.TransactionID == after.TransactionID &&
		a.Line == b.Line && a.Name() == b.Name() && began.Sub(before.At) < pieceGap
}

func withoutWaker(sample profile.Sample) profile.Sample {
	wait := *sample.Wait
	wait.Waker = profile.Waker{}
	sample.Wait = &wait
	return sample
}

// takeOld returns those that were held for too long at a time; all, if that is zero, after which none are held.
func (p *pieces) takeOld(now time.Time) (over []profile.Sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = p.ended || now.IsZero()
	for tid, held := range p.held {
		if now.IsZero() || now.Sub(held.At) > pieceTime {
			over = append(over, withoutWaker(held))
			delete(p.held, tid)
			p.count.Add(-1)
		}
	}
	return over
}

// endPieces hands on those that no others follow.
func (s *Sampling) endPieces(now time.Time) {
	if s.pieces.Load() == 0 {
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, program := range s.programs {
		if !program.inbox.forgotten && s.handPieces(program, now) {
			s.flushLater(program)
		}
	}
}

// endPiecesOf hands on those of a process that is forgotten.
func (s *Sampling) endPiecesOf(inbox *inbox) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, program := range s.programs {
		if program.inbox == inbox {
			s.handPieces(program, time.Time{})
		}
	}
}

// handPieces hands on those of a program that takeOld returns. It reports whether there are any.
func (s *Sampling) handPieces(program *program, now time.Time) bool {
	old := program.pieces.takeOld(now)
	for _, over := range old {
		s.handOn(program, &over, time.Now())
	}
	return len(old) > 0
}
