package lifecycle

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

const (
	// maxContextLooks is how many processes are looked at for a process context at the same time: at
	// 400 programs a second that run on, all of those of ten seconds.
	maxContextLooks = 4096

	// contextBatch is how many processes are looked at before others, and the end, get their turn: each
	// can make that take a tenth of a second, once.
	contextBatch = 16

	// contextSlack is how much earlier than due a process may be looked at, together with others.
	contextSlack = 10 * time.Millisecond

	// Between two batches is a pause of contextShare times as long as the first took: looks take a
	// tenth of a CPU, however many programs start and whatever they map.
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
	look  func(pids []int) (found, gone []int, err error)
	found func(pid int)
	now   func() time.Time
	wake  chan struct{} // has a token when something is due before until

	mu    sync.Mutex
	queue lookQueue
	byPID map[int]*contextLook
	until time.Time // when run looks at the queue next; zero: it waits for wake
}

// contextLook is a process that is to be looked at.
type contextLook struct {
	pid, index int // of the heap
	times      int // how often it was looked at
	due        time.Time
	resting    bool // its context was found a while before due
}

// newContextLooks returns one that calls look with the processes that are due, and found with each
// that has a context.
func newContextLooks(look func(pids []int) (found, gone []int, err error), found func(pid int)) *contextLooks {
	return &contextLooks{
		// 20 ms, 100 ms, 500 ms, 2 s and 10 s after the event: a native program publishes within
		// milliseconds, a JVM within a second or two, an interpreter when it gets to that.
		after: []time.Duration{
			20 * time.Millisecond, 80 * time.Millisecond, 400 * time.Millisecond, 1500 * time.Millisecond,
			8 * time.Second,
		},
		late: 3, look: look, found: found, now: time.Now,
		wake: make(chan struct{}, 1), byPID: make(map[int]*contextLook),
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
			next = ended.Add(contextShare * ended.Sub(began))
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

// step looks at the processes that are due, contextBatch of them at most.
func (c *contextLooks) step(now time.Time) {
	pids := c.take(now)
	if len(pids) == 0 {
		return
	}
	found, gone, _ := c.look(pids) // with an error, the next look tries again
	c.mu.Lock()
	for _, pid := range found {
		c.rest(pid, now)
	}
	for _, pid := range gone {
		c.remove(pid)
	}
	c.mu.Unlock()
	for _, pid := range found {
		c.found(pid)
	}
}

// take returns the processes that are due, and has them wait for the look after.
func (c *contextLooks) take(now time.Time) (pids []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(pids) < contextBatch && len(c.queue) > 0 && !c.queue[0].due.After(now.Add(contextSlack)) {
		p := c.queue[0]
		if p.resting {
			c.remove(p.pid)
			continue
		}
		pids = append(pids, p.pid)
		if p.times++; p.times == len(c.after) {
			c.remove(p.pid)
			continue
		}
		p.due = now.Add(c.after[p.times])
		heap.Fix(&c.queue, 0)
	}
	return pids
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
		heap.Remove(&c.queue, p.index)
		delete(c.byPID, pid)
	}
}

// lookQueue is a heap, first what is due first.
type lookQueue []*contextLook

func (q lookQueue) Len() int           { return len(q) }
func (q lookQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

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
