package worker

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a Pool. A worker takes some 2 MB of memory of its own.
const (
	// maxBusy is how many requests are served at a time, and maxBusyOfUser how many that concern
	// processes of one user: the rest of the workers is there for others, however long those take.
	// Of suspects each has one, and together they have half of all.
	maxBusy       = 32
	maxBusyOfUser = 4

	// maxIdle is how many workers wait for requests at most, and keepIdle how many for longer than
	// idleTime: to start one takes some 5 ms.
	maxIdle  = 8
	keepIdle = 1
	idleTime = 10 * time.Second

	// patience is how long a request waits for a worker that serves another one before one more is started, which
	// would take longer, most on a busy host, and 5 MB for a while: most requests take less than a millisecond.
	patience = 20 * time.Millisecond

	// maxWait is how long a request waits for others of its user.
	maxWait = 10 * time.Second
)

var (
	// ErrHung: a worker hangs because of this process.
	ErrHung = errors.New("a worker still hangs because of this process")
	// ErrBusy: too many workers hang, or serve requests that take too long, because of processes of
	// this user.
	ErrBusy = errors.New("workers hang, or are busy for long, because of processes of the same user")
	// ErrUnavailable: no worker could be started, or it has ended before it answered, or got no CPU
	// time, for which the process need not be the reason.
	ErrUnavailable = errors.New("no worker")
)

// Pool serves requests, each by a worker that serves no other meanwhile. A worker that does not
// answer in time is killed, and replaced when it is needed. It is safe for concurrent use.
type Pool struct {
	spawner  *Spawner
	counters *Counters
	blame    Blame
	patience time.Duration

	maxBusy, maxBusyOfUser int

	mu      sync.Mutex
	closed  bool
	idle    []idleProcess // the one used last is the last
	serving map[*Process]struct{}
	busy    int             // requests that have a worker, or are about to
	busyOf  map[User]int    // by user, without those that have none: no more than maxBusy
	waiting []*waiter       // in their order
	wanted  []chan *Process // by requests that wait for a worker, in their order
}

// idleProcess is a worker that waits for requests.
type idleProcess struct {
	*Process
	since time.Time
}

type waiter struct {
	user  User
	ready chan struct{} // closed when the request may be served
}

// Counters is what Pools count. The fields only grow and may be read at any time.
type Counters struct {
	Started  atomic.Uint64 // workers
	TimedOut atomic.Uint64 // requests that were not answered in time: each had its worker killed
	Ended    atomic.Uint64 // workers that ended before they had answered
	Refused  atomic.Uint64 // requests with ErrHung or ErrBusy
}

// Stats is how many workers there are at one moment.
type Stats struct {
	Running int `json:"running"` // that serve a request, or wait for one
	Hung    int `json:"hung"`    // that were killed, and have not ended: the kernel waits for a process
}

// NewPool returns a Pool of workers of one kind, of which it has none yet. The caller must close it.
// procRoot is a procfs of our own pid namespace.
func NewPool(procRoot string, kind Kind, counters *Counters) (*Pool, error) {
	spawner, err := NewSpawner(procRoot, kind)
	if err != nil {
		return nil, err
	}
	p := &Pool{
		spawner: spawner, counters: counters, serving: make(map[*Process]struct{}), busyOf: make(map[User]int),
		maxBusy: maxBusy, maxBusyOfUser: maxBusyOfUser, patience: patience,
	}
	if kind.Busy > 0 {
		p.maxBusy, p.maxBusyOfUser = kind.Busy, kind.Busy/2
	}
	return p, nil
}

// Prepare starts a worker that waits, so that the first request does not. Errors are those of the
// first request.
func (p *Pool) Prepare() {
	go func() {
		process, err := p.spawner.Start()
		if err != nil {
			return
		}
		p.counters.Started.Add(1)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.closed || len(p.idle) >= keepIdle {
			process.Kill()
			return
		}
		p.idle = append(p.idle, idleProcess{process, time.Now()})
	}()
}

// Close kills all workers, without waiting for their end. Calls return ErrClosed or ErrEnded.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	for _, process := range p.idle {
		process.Kill()
	}
	p.idle = nil
	for _, w := range p.waiting {
		close(w.ready)
	}
	p.waiting = nil
	p.spawner.Close() // kills those that serve
	for process := range p.serving {
		process.Interrupt()
	}
}

// Stats returns a snapshot.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Running: len(p.idle) + len(p.serving), Hung: p.blame.Hung()}
}

// EndIdle ends the workers that have waited for requests for longer than idle: for a Pool that is seldom
// used, which otherwise keeps some.
func (p *Pool) EndIdle(idle time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endIdle(idle, 0)
}

// endIdle ends those that have waited longest, but for some. p.mu must be held.
func (p *Pool) endIdle(idle time.Duration, keep int) {
	for now := time.Now(); len(p.idle) > keep && now.Sub(p.idle[0].since) > idle; p.idle = p.idle[1:] {
		p.idle[0].Kill()
	}
}

// Call has a worker serve a request that concerns a process, and passes its answer to use, which must
// not keep it, with a descriptor or -1, which use must close. Errors are ErrTimeout, ErrHung, ErrBusy,
// ErrUnavailable, ErrClosed, and those of use. It waits for the worker until timeout, longer only as
// [Wait] does; and before that for other requests of this user.
func (p *Pool) Call(owner Owner, timeout time.Duration, request []byte, use func(answer []byte, fd int) error) error {
	return p.Measure(nil, owner, timeout, request, use)
}

// Measure is Call, and adds the CPU time in ns that the worker uses for its answer to spent, unless that is nil.
func (p *Pool) Measure(spent *atomic.Int64, owner Owner, timeout time.Duration, request []byte,
	use func(answer []byte, fd int) error) error {
	if len(request) > MaxMessageBytes {
		return fmt.Errorf("requesting with %d bytes: %w", len(request), unix.EMSGSIZE)
	}
	if err := p.enter(owner); err != nil {
		return err
	}
	defer p.leave(owner.User)
	for again := true; ; again = false {
		process, wasIdle, err := p.take()
		if err != nil {
			return err // of a start, ErrUnavailable
		}
		err = p.serve(spent, process, owner, timeout, request, use)
		// A worker may have ended while nobody used it. But a request that ends one may end another.
		if !again || !wasIdle || !errors.Is(err, ErrEnded) {
			return err
		}
	}
}

// serve has one worker serve a request.
func (p *Pool) serve(spent *atomic.Int64, process *Process, owner Owner, timeout time.Duration, request []byte,
	use func([]byte, int) error) error {
	var before time.Duration
	if spent != nil {
		before = process.cpuTime()
	}
	err := process.Send(request)
	var answer []byte
	fd := -1
	if err == nil {
		answer, fd, err = process.Wait(timeout).Receive()
	}
	if spent != nil {
		spent.Add(max(0, int64(process.cpuTime()-before))) // 0 when it has ended
	}
	if err != nil {
		return p.discard(process, owner, err)
	}
	err = use(answer, fd)
	p.putBack(process, owner.User)
	return err
}

// enter waits until a request may be served.
func (p *Pool) enter(owner Owner) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	if err := p.blame.Refusal(owner); err != nil {
		p.counters.Refused.Add(1)
		p.mu.Unlock()
		return err
	}
	if p.mayServe(owner.User) {
		p.begin(owner.User)
		p.mu.Unlock()
		return nil
	}
	w := &waiter{owner.User, make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-timer.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.waiting {
		if p.waiting[i] == w {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			p.counters.Refused.Add(1)
			return ErrBusy
		}
	}
	if p.closed {
		return ErrClosed
	}
	return nil // whoever removed it has called begin
}

// IsSuspect reports whether a request of a user has timed out lately.
func (p *Pool) IsSuspect(user User) bool { return p.blame.IsSuspect(user) }

// mayServe reports whether one more request of a user may be served. p.mu must be held.
func (p *Pool) mayServe(user User) bool {
	if !p.blame.IsSuspect(user) {
		return p.busyOf[user] < p.maxBusyOfUser && p.busy < p.maxBusy
	}
	suspects := 0 // requests of all of them
	for other, busy := range p.busyOf {
		if p.blame.IsSuspect(other) {
			suspects += busy
		}
	}
	return p.busyOf[user] == 0 && suspects < p.maxBusy/2 && p.busy < p.maxBusy
}

func (p *Pool) begin(user User) {
	p.busy++
	p.busyOf[user]++
}

// leave undoes enter, and lets the next request be served: of the user with the fewest that are.
func (p *Pool) leave(user User) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	if p.busyOf[user]--; p.busyOf[user] == 0 {
		delete(p.busyOf, user)
	}
	next := -1
	for i, w := range p.waiting {
		if i > 0 && w.user == p.waiting[i-1].user {
			continue // hundreds of one user may wait; the first of them has been looked at
		}
		if p.mayServe(w.user) && (next < 0 || p.busyOf[w.user] < p.busyOf[p.waiting[next].user]) {
			next = i
		}
	}
	if next >= 0 {
		w := p.waiting[next]
		p.begin(w.user)
		p.waiting = append(p.waiting[:next], p.waiting[next+1:]...)
		close(w.ready)
	}
}

// take returns a worker that serves nothing.
func (p *Pool) take() (process *Process, wasIdle bool, err error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, false, ErrClosed
	}
	if last := len(p.idle) - 1; last >= 0 {
		process = p.idle[last].Process
		p.idle = p.idle[:last]
		p.serving[process] = struct{}{}
		p.mu.Unlock()
		return process, true, nil
	}
	var given chan *Process
	if len(p.serving) > 0 {
		given = make(chan *Process, 1)
		p.wanted = append(p.wanted, given)
	}
	p.mu.Unlock()
	if process := p.await(given); process != nil {
		return process, true, nil
	}
	if process, err = p.spawner.Start(); err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counters.Started.Add(1)
	p.serving[process] = struct{}{}
	return process, false, nil
}

// await waits for a worker that another request has used, and returns nil if none comes soon.
func (p *Pool) await(given chan *Process) *Process {
	if given == nil {
		return nil
	}
	timer := time.NewTimer(p.patience)
	defer timer.Stop()
	select {
	case process := <-given:
		return process
	case <-timer.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.wanted, given); i >= 0 {
		p.wanted = slices.Delete(p.wanted, i, i+1)
		return nil
	}
	return <-given // just now
}

// putBack has a worker that has served a user wait for the next request, unless enough others do, and
// ends those that have waited for too long.
func (p *Pool) putBack(process *Process, user User) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blame.Served(user)
	if len(p.wanted) > 0 && !p.closed {
		p.wanted[0] <- process // which goes on serving
		p.wanted = slices.Delete(p.wanted, 0, 1)
		return
	}
	delete(p.serving, process)
	p.endIdle(idleTime, keepIdle-1)
	if p.closed || len(p.idle) == maxIdle {
		process.Kill()
		return
	}
	p.idle = append(p.idle, idleProcess{process, time.Now()})
}

// discard kills a worker that did not answer, and returns why as the caller is to see it.
func (p *Pool) discard(process *Process, owner Owner, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.serving, process)
	process.Kill()
	switch {
	case errors.Is(err, ErrTimeout):
		p.counters.TimedOut.Add(1)
		p.blame.Late(owner.User)
		p.blame.Watch(process, owner)
		return err
	case errors.Is(err, ErrStarved):
		p.counters.TimedOut.Add(1)
	default:
		p.counters.Ended.Add(1)
	}
	owner.PID = 0 // one that closed its channel may hang all the same, whatever is the cause
	p.blame.Watch(process, owner)
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
