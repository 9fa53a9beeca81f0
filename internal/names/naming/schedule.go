package naming

import (
	"time"

	"correlator/internal/host/share"
)

// This file is about which process is asked next.

const (
	// maxAsking is how many requests are under way, of one owner one. A worker takes 5 MB. Of
	// owners for whom one has failed within suspectTime, because it took too long or ended its
	// worker, there are maxSuspects.
	maxAsking   = 4
	maxSuspects = maxAsking / 2
	suspectTime = 10 * time.Minute

	// How much longer than the CPU time of a request is the time until the next one: of the
	// process, and of its owner, of whom each of those who wait has as much. So reading names takes
	// at most a twentieth of a CPU for a process, a tenth for an owner, and a fifth for all.
	pace      = 20
	ownerPace = 10
	totalPace = 5
	// hangPace is the same for the time that a request took which failed: it had a worker all the
	// time.
	hangPace = 4

	// shortest is the time between two requests of a process at least, so that frames come
	// together; scheduleInterval between two searches for what is due.
	shortest         = 200 * time.Millisecond
	scheduleInterval = 20 * time.Millisecond

	// looksAtOnce is of how many processes one search finds that they need no request any more: each takes a
	// search through all that wait.
	looksAtOnce = 64
)

var (
	// Reading names of the kernel takes some 100 ms of CPU time, however many. The first time is
	// there for most of the functions that are sampled at all.
	kernelPauses = share.Backoff{Min: 2 * time.Second, Max: time.Minute}

	// A process whose names were all read rests, longer each time: names of functions that are seldom
	// sampled come one by one, and each request reads whole tables. But somebody may watch, else it may rest longer
	// (half of maxHold).
	rests        = share.Backoff{Min: shortest, Max: 500 * time.Millisecond}
	patientRests = share.Backoff{Min: shortest, Max: 2 * time.Second}

	// A process for which a request failed is not asked for some time, longer each time; and so is
	// a file.
	pauses = share.Backoff{Min: 10 * time.Second, Max: 10 * time.Minute}
)

// shares is what all owners share.
type shares struct {
	asking   int // requests under way
	suspects int // of them of suspects
}

// turn is when it is an owner's turn.
type turn struct {
	asking  bool      // a request is under way
	suspect bool      // it counts as one of a suspect
	served  time.Time // when the last one began
	next    time.Time // when the next one may
	failed  time.Time // when one took too long, or ended its worker
}

func (t *turn) isSuspect(now time.Time) bool {
	return !t.failed.IsZero() && now.Sub(t.failed) < suspectTime
}

// wait has a process wait for its turn.
func (n *Namer) wait(p *process) {
	if _, waits := p.owner.waiting[p]; waits {
		return
	}
	p.owner.waiting[p] = struct{}{}
	n.notify()
}

// notify has what is due searched for.
func (n *Namer) notify() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// run does what is due, until Close.
func (n *Namer) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var kept, forgot time.Time
	for {
		select {
		case <-timer.C:
		case <-n.wake: // many may begin to wait at a time
			timer.Reset(scheduleInterval)
			select {
			case <-timer.C:
			case <-n.ctx.Done():
				return
			}
		case <-n.ctx.Done():
			return
		}
		now := time.Now()
		wait, satisfied := n.schedule(now)
		if satisfied {
			n.settleAll(func(p *process) bool { return p.isSatisfied() && !p.asking })
		}
		timer.Reset(wait)
		if n.isIdle() {
			timer.Stop() // until something is wanted
		}
		if now.Sub(kept) >= tick {
			kept = now
			n.settleAll(func(p *process) bool { return now.After(p.held[0].until) })
			if now.Sub(forgot) >= calmTick { // it looks at all processes
				forgot = now
				n.forget(now)
			}
			n.live.EndIdle(idleWorker)
		}
	}
}

// isIdle reports whether there is nothing to be done before there is a sample.
func (n *Namer) isIdle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.processes)+len(n.owners)+len(n.kernel.wanted)+n.live.Stats().Running == 0 && !n.kernel.asking
}

// isCalm reports whether nothing waits for a name. n.mu must be held.
func (n *Namer) isCalm() bool { return n.held == 0 && n.waiting() == 0 && n.shares.asking == 0 }

// schedule begins the requests that are due. It returns when there may be another one, and whether processes need none
// any more, as others have had their files read.
func (n *Namer) schedule(now time.Time) (wait time.Duration, satisfied bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wait = tick
	if n.closed {
		return wait, false
	}
	if n.isCalm() {
		wait = calmTick
	}
	if k := n.kernel; len(k.wanted) > 0 && !k.asking {
		if k.next.After(now) {
			wait = min(wait, k.next.Sub(now))
		} else {
			n.begin(k, now)
			n.running.Go(n.askKernel)
		}
	}
	for looked := 0; n.shares.asking < maxAsking; {
		p, soonest := n.due(now)
		if p == nil {
			return min(wait, soonest), satisfied
		}
		if n.forgetWanted(p); p.isSatisfied() {
			delete(p.owner.waiting, p)
			satisfied = true
			if looked++; looked == looksAtOnce {
				return scheduleInterval, true
			}
			continue
		}
		n.begin(p, now)
		request := n.take(p)
		n.running.Go(func() { n.askProcess(p, request) })
	}
	return wait, satisfied
}

// begin begins a request.
func (n *Namer) begin(p *process, now time.Time) {
	p.asking, p.served = true, now
	t := &p.owner.turn
	t.asking, t.served = true, now
	if p == n.kernel {
		return
	}
	n.shares.asking++
	if t.suspect = t.isSuspect(now); t.suspect {
		n.shares.suspects++
	}
}

// due returns the process whose turn it is: of the owner who was not served for the longest time,
// that which was not. Without one it returns in which time there may be one.
func (n *Namer) due(now time.Time) (first *process, soonest time.Duration) {
	soonest = calmTick
	for _, o := range n.owners {
		if o.turn.asking || n.shares.suspects >= maxSuspects && o.turn.isSuspect(now) {
			continue
		}
		for p := range o.waiting {
			at := p.next
			if o.turn.next.After(at) {
				at = o.turn.next
			}
			switch {
			case at.After(now):
				soonest = min(soonest, at.Sub(now))
			case first == nil || p.isBefore(first):
				first = p
			}
		}
	}
	return first, soonest
}

func (p *process) isBefore(other *process) bool {
	if p.owner != other.owner {
		return p.owner.turn.served.Before(other.owner.turn.served)
	}
	return p.served.Before(other.served)
}

// waiting returns how many owners wait.
func (n *Namer) waiting() (owners time.Duration) {
	for _, o := range n.owners {
		if len(o.waiting) > 0 {
			owners++
		}
	}
	return owners
}

// isSatisfied reports whether nothing is to be asked for.
func (p *process) isSatisfied() bool { return len(p.wanted) == 0 && !p.look }

// end ends a request, which took some CPU time, and with a failure some time of a worker.
func (n *Namer) end(p *process, now time.Time, spent, failed time.Duration) {
	p.asking = false
	if p.isSatisfied() || p.gone {
		delete(p.owner.waiting, p)
	}
	if p == n.kernel {
		p.owner.turn.asking = false
		p.pause = kernelPauses.Next(p.pause)
		p.next, p.reason = now.Add(max(pace*spent, p.pause)), unnamedLate
		n.notify()
		return
	}
	n.shares.asking--
	t := &p.owner.turn
	if t.asking = false; t.suspect {
		n.shares.suspects--
		t.suspect = false
	}
	t.next = now.Add(max(ownerPace, totalPace*n.waiting())*spent + hangPace*failed)
	if failed == 0 {
		rests := rests
		if now.Sub(p.watched) > idleTime {
			rests = patientRests
		}
		if p.rest = rests.Next(p.rest); len(p.wanted) > 0 {
			p.rest = shortest
		}
		p.next, p.reason = now.Add(max(pace*spent, p.rest)), unnamedLate
	}
	n.notify()
}
