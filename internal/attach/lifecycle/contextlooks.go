package lifecycle

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"correlator/internal/host/share"
	"correlator/internal/worker"
	"correlator/procscan"
)

const (
	// maxContextLooks is how many processes are looked at for a process context at the same time. An owner that is
	// alone holds half of them: at 200 programs a second that run on, all of those of ten seconds. Owners are known
	// from when processes are due first: whoever starts some 5000 a second takes places of no owner, too.
	maxContextLooks = 4096

	// contextBatch is how many processes are looked at before the end, and new ones, get their turn. A batch ends
	// early after contextSlice: each process can make a look take a tenth of a second.
	contextBatch = 16
	contextSlice = 10 * time.Millisecond

	// contextSlack is how much earlier than due a process may be looked at, together with others.
	contextSlack = 10 * time.Millisecond

	// An owner's processes are not looked at for contextShare times as long as it took to look at some of them: looks
	// take a tenth of a CPU for each owner, however many programs start and whatever they map. Between two batches
	// there is a pause as long as the first took: all take half of one at most.
	contextShare = 10

	// contextRest is how soon a context is found again in a process that goes on to map libraries: each
	// time takes more than a look.
	contextRest = time.Second
)

// contextLooks looks for process contexts in processes that have executed a program, or mapped a
// library, not long ago. The kernel reports that, and not that a process maps what is not executable,
// or has written a context into it: a program publishes its own when its SDK starts.
//
// A pid may be another process's by now: to look at that does no harm, and what is found is probed.
type contextLooks struct {
	after []time.Duration // when a process is looked at, since the event or the look before
	late  int             // after so many looks it begins anew with an event
	look  func(pid int) (found bool, err error)
	found func(pid int)
	owner func(pid int) worker.User // whose bounds a process counts against; it does not block
	now   func() time.Time
	wake  chan struct{} // has a token when something is due before until

	skip func(pid int) // is called with a process whose owner holds too many; it does not block

	mu     sync.Mutex
	queue  lookQueue
	byPID  map[int]*contextLook
	places *share.Budget[worker.User] // of the queue, by owner once that is known
	rests  map[worker.User]time.Time  // until when an owner's processes are not looked at
	until  time.Time                  // when run looks at the queue next; zero: it waits for wake
}

// contextLook is a process that is to be looked at.
type contextLook struct {
	pid, index int // of the heap
	times      int // how often it was looked at
	due        time.Time
	owner      worker.User // when it was looked at last; empty: it was not
	resting    bool        // its context was found a while before due
}

// newContextLooks returns one that calls look with each process that is due, found with each that has a context, and
// owner to know whose they are. Those whose owner has too many are skipped.
func newContextLooks(look func(pid int) (found bool, err error), found func(pid int),
	owner func(pid int) worker.User, skip func(pid int),
) *contextLooks {
	return &contextLooks{
		// 20 ms, 100 ms, 500 ms, 2 s and 10 s after the event: a native program publishes within
		// milliseconds, a JVM within a second or two, an interpreter when it gets to that.
		after: []time.Duration{
			20 * time.Millisecond, 80 * time.Millisecond, 400 * time.Millisecond, 1500 * time.Millisecond,
			8 * time.Second,
		},
		late: 3, look: look, found: found, owner: owner, skip: skip, now: time.Now,
		wake: make(chan struct{}, 1), byPID: make(map[int]*contextLook), rests: make(map[worker.User]time.Time),
		places: share.NewBudget[worker.User](maxContextLooks),
	}
}

// add has a process looked at after an event, and returns false when there are too many. It does not
// block. One that maps libraries all the time is looked at six times a second.
func (c *contextLooks) add(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.byPID[pid]
	switch {
	case p == nil && len(c.queue) >= maxContextLooks:
		return false
	case p == nil:
		p = &contextLook{pid: pid, due: c.now().Add(c.after[0])}
		c.byPID[pid] = p
		heap.Push(&c.queue, p)
	case p.resting: // it has one; it may soon run another program
		p.resting, p.times = false, 0
		return true
	case p.times < c.late:
		return true
	default:
		p.times, p.due = 0, c.now().Add(c.after[0])
		heap.Fix(&c.queue, p.index)
	}
	if c.until.IsZero() || p.due.Before(c.until) {
		c.until = p.due
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// run looks at processes until ctx ends. It has no timer while none are to be looked at.
func (c *contextLooks) run(ctx context.Context) {
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	var next time.Time // not before
	for {
		select {
		case <-c.wake:
		case <-timer.C:
			began := c.now()
			c.step(began)
			ended := c.now()
			next = ended.Add(ended.Sub(began))
		case <-ctx.Done():
			return
		}
		timer.Stop()
		if until := c.schedule(next); !until.IsZero() {
			timer.Reset(time.Until(until))
		}
	}
}

// schedule returns when to look next, not before a time; never when that is zero.
func (c *contextLooks) schedule(next time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = time.Time{}
	if len(c.queue) > 0 {
		if c.until = c.queue[0].due; c.until.Before(next) {
			c.until = next
		}
	}
	return c.until
}

// step looks at the processes that are due, contextBatch of them at most, in turn of being due, but for those of owners
// that rest.
func (c *contextLooks) step(began time.Time) {
	spent := make(map[worker.User]time.Duration)
	for now, n := began, 0; n < contextBatch && now.Sub(began) < contextSlice; n++ {
		p := c.next(now)
		if p == nil {
			break
		}
		owner := c.owner(p.pid)
		if c.take(p, owner, now) {
			c.lookAt(p.pid, now)
		}
		ended := c.now()
		spent[owner] += ended.Sub(now)
		now = ended
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	maps.DeleteFunc(c.rests, func(_ worker.User, until time.Time) bool { return !until.After(now) })
	for owner, took := range spent {
		if until := now.Add(contextShare * took); took > 0 && until.After(c.rests[owner]) {
			c.rests[owner] = until
		}
	}
}

// next returns the process that is due first, nil if there is none. Those of owners that are known to rest wait until
// then.
func (c *contextLooks) next(now time.Time) *contextLook {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 && !c.queue[0].due.After(now.Add(contextSlack)) {
		p := c.queue[0]
		if p.resting {
			c.remove(p.pid)
			continue
		}
		if until := c.rests[p.owner]; p.owner == "" || !until.After(now) {
			return p
		}
		c.postpone(p, now)
	}
	return nil
}

// postpone has a process wait until its owner does not rest.
func (c *contextLooks) postpone(p *contextLook, now time.Time) {
	p.due = now.Add(2 * contextSlack) // at the least, so that it is not the next one
	if until := c.rests[p.owner]; until.After(p.due) {
		p.due = until
	}
	heap.Fix(&c.queue, p.index)
}

// take has a process, whose owner is known now, wait for the look after this one, and reports whether
// it is to be looked at: its owner does not rest. It forgets one whose owner holds as many places as are left.
func (c *contextLooks) take(p *contextLook, owner worker.User, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.setOwner(p, owner) {
		c.remove(p.pid)
		c.skip(p.pid)
		return false
	}
	if owner != "" && c.rests[owner].After(now) {
		c.postpone(p, now)
		return false
	}
	if p.times++; p.times == len(c.after) {
		c.remove(p.pid)
		return true
	}
	p.due = now.Add(c.after[p.times])
	heap.Fix(&c.queue, p.index)
	return true
}

// setOwner says whose place a process takes, and reports whether that owner may have another one.
func (c *contextLooks) setOwner(p *contextLook, owner worker.User) bool {
	if p.owner == owner {
		return true
	}
	if p.owner != "" {
		c.places.Give(p.owner, 1)
	}
	p.owner = owner
	if owner == "" || c.places.Take(owner, 1) {
		return true
	}
	p.owner = ""
	return false
}

// lookAt looks at a process.
func (c *contextLooks) lookAt(pid int, now time.Time) {
	found, err := c.look(pid)
	c.mu.Lock()
	switch {
	case found:
		c.rest(pid, now)
	case errors.Is(err, procscan.ErrGone): // with another error, the next look tries again
		c.remove(pid)
	}
	c.mu.Unlock()
	if found {
		c.found(pid)
	}
}

// rest has a process forgotten in a while, in which its context is found only once.
func (c *contextLooks) rest(pid int, now time.Time) {
	p := c.byPID[pid]
	if p == nil {
		return // that was the last look
	}
	p.resting, p.due = true, now.Add(contextRest)
	heap.Fix(&c.queue, p.index)
}

// remove forgets a process.
func (c *contextLooks) remove(pid int) {
	if p := c.byPID[pid]; p != nil {
		c.setOwner(p, "")
		heap.Remove(&c.queue, p.index)
		delete(c.byPID, pid)
	}
}

// lookQueue is a heap, first what is due first; of those that are at the same time, what was looked at least.
type lookQueue []*contextLook

func (q lookQueue) Len() int { return len(q) }

func (q lookQueue) Less(i, j int) bool {
	return cmp.Or(q[i].due.Compare(q[j].due), cmp.Compare(q[i].times, q[j].times)) < 0
}

func (q lookQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *lookQueue) Push(p any) {
	look := p.(*contextLook)
	look.index = len(*q)
	*q = append(*q, look)
}

func (q *lookQueue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return p
}
