package messaging

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

var (
	// ErrSocketGone is what Down tells: the connection ended from the receiver's side.
	ErrSocketGone = errors.New("the process's socket is gone")
	// ErrClosed says that a sender was closed before.
	ErrClosed = errors.New("sender is closed")
)

const (
	// maxFutileWakeups is how often we let ourselves be woken for room that is not there before we
	// pause. Only a process that fills its own socket and empties it again can do that.
	maxFutileWakeups = 64

	// pauseTime is how long we do not try to send after that, or after the kernel had no memory:
	// a quarter of the time between two polls of an agent.
	pauseTime = 5 * time.Millisecond

	// idleTime is how long an empty queue keeps its memory: a process that is sampled at all
	// does not allocate again and again.
	idleTime = time.Second

	never = math.MaxInt64
)

// Sender sends the samples of one process to its socket. What waits is added up by key, and the
// key with the oldest sample goes first. A sample that could not be sent within the
// samples-delay is dropped; samples of the same key that are younger are kept. For this the age
// of what was added up is known to an eighth of the delay: samples are dropped up to that much
// early, and none is given to the kernel late (what the kernel took late all the same, because we
// had to wait for a CPU, is counted: see Timing). Each sample added is sent, dropped and counted
// with a reason, or queued, at any time.
//
// A Sender holds a goroutine only while it hands messages to the kernel, none while it waits for
// room, and next to no memory while nothing is queued. No method blocks, except where it says so:
// the lock is not held over what the kernel does for a receiver. All are safe for concurrent use.
type Sender struct {
	counters *Counters
	poller   *Poller
	clock    clock
	epoch    time.Time // what the ns below count from
	down     chan error

	mu           sync.Mutex
	stats        Stats
	queue        *queue        // nil while idle
	idle         bool          // queue was not used for idleTime
	delay        time.Duration // promised in the last registration; 0 before the first
	socket       *Socket       // nil while there is none
	registration []byte        // to be sent first on socket; nil when it was
	closed       bool
	drained      chan struct{} // closed when nothing is queued; nil when nobody waits
	exited       chan struct{} // closed when the goroutine has ended; nil when nobody waits

	timer         timer // nil before the first use
	timerNs       int64 // when it fires, else never
	pausedUntilNs int64 // 0 when not paused

	parked        bool   // it waits for room on socket: no attempt before the poller tells of some
	token         uint64 // of that wait, or the last one
	woken         bool   // the poller has told, and no attempt was made since
	futileWakeups int    // attempts in vain after it had told, since a message was last sent

	// The goroutine's own, under mu where others look.
	running     bool
	current     *Socket // what it sends to; not s.socket any more when that was replaced
	registering bool    // it is sending the registration
	message     [correlationBytes]byte
}

// NewSender makes the sender of one process, with nothing to send to yet. All senders of an agent
// share its counters and its poller.
func NewSender(counters *Counters, poller *Poller) *Sender {
	return newSender(counters, poller, systemClock{})
}

func newSender(counters *Counters, poller *Poller, clock clock) *Sender {
	return &Sender{
		counters: counters,
		poller:   poller,
		clock:    clock,
		epoch:    clock.Now(),
		down:     make(chan error, 1),
		timerNs:  never,
	}
}

// Add queues samples of one key; all count as taken at sampledAt, which should have a monotonic
// reading as time.Now gives it. Before the first Connect nothing is promised and so nothing late;
// without a connection samples wait for the next one as long as they are in time.
//
// For what was counted over an interval sampledAt is the time of the first sample. Then nothing is
// late unnoticed, but the younger ones may be dropped early, by as much as they are younger. None
// of the receiver's room is lost by that; what is lost is part of a burst. Of 165 keys at once,
// which the receiver can take within 300 ms, it gets 110 when the first samples are 100 ms old.
func (s *Sender) Add(key Key, count uint64, sampledAt time.Time) {
	if count == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Added += count
	s.counters.Added.Add(count)
	if s.closed {
		s.drop(DropClosed, count)
		return
	}
	nowNs := s.nowNs()
	sampledNs := min(int64(sampledAt.Sub(s.epoch)), nowNs)
	if sampledNs <= s.limitNs(nowNs) {
		if s.socket != nil {
			s.counters.timings.lost.Add(count)
		}
		s.drop(DropAddedLate, count)
		return
	}
	if s.queue == nil {
		s.queue = newQueue()
	}
	s.idle = false
	if !s.queue.add(key, count, sampledNs, s.windowNs()) {
		s.drop(DropQueueFull, count)
		return
	}
	s.start()
	if !s.running {
		s.schedule(nowNs)
	}
}

// Connect makes socket the one to send to, beginning with the registration; it owns the socket
// from the call on, also when it fails. What is still in time of what is queued follows. A socket
// that was connected before is closed. The errors are those of AppendRegistration and ErrClosed.
func (s *Sender) Connect(socket *Socket, r Registration) error {
	registration, err := AppendRegistration(nil, r)
	if err == nil && r.SamplesDelay == 0 {
		err = fmt.Errorf("%w: nothing can be sent in no time", ErrSamplesDelay)
	}
	if err != nil {
		socket.Close()
		return err
	}
	replaced, err := s.replace(socket, registration, r.SamplesDelay)
	if err != nil {
		replaced = socket
	}
	if replaced != nil {
		replaced.Close() // not under s.mu: it waits for a message being sent
	}
	return err
}

// replace returns the socket that is now the caller's to close, if any.
func (s *Sender) replace(socket *Socket, registration []byte, delay time.Duration) (*Socket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.delay = delay
	s.expire(s.nowNs())
	replaced := s.socket
	s.socket, s.registration = socket, registration
	s.stats.Connected, s.stats.Registered = true, false
	s.unpark()
	s.pausedUntilNs, s.futileWakeups, s.woken = 0, 0, false
	s.clearDown()
	s.start()
	return replaced, nil
}

// Disconnect closes the connection, if there is one. What is queued waits for the next one as
// long as it is in time.
func (s *Sender) Disconnect() {
	s.mu.Lock()
	socket := s.socket
	s.disconnect()
	s.mu.Unlock()
	if socket != nil {
		socket.Close() // not under s.mu: it waits for a message being sent
	}
}

// Down delivers an error, with ErrSocketGone in it, when the connection has ended: it is time to
// Dial again. What is queued waits meanwhile. Nothing is told about a socket that the owner has
// replaced or disconnected since.
func (s *Sender) Down() <-chan error { return s.down }

// Drain blocks until nothing is queued or ctx has ended. If nothing is added meanwhile, that is no
// longer than the samples-delay, with or without a connection, once there was one.
func (s *Sender) Drain(ctx context.Context) error {
	s.mu.Lock()
	if s.queued() == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.drained == nil {
		s.drained = make(chan struct{})
	}
	drained := s.drained
	s.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("draining: %w", ctx.Err())
	}
}

// Close ends the connection and drops what is queued, and what is added later. It waits for a
// message that is just being handed to the kernel. Only the first call does anything.
func (s *Sender) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	socket := s.socket
	s.disconnect()
	var exited chan struct{}
	if s.running {
		exited = make(chan struct{})
		s.exited = exited
	}
	s.mu.Unlock()

	if socket != nil {
		socket.Close()
	}
	if exited != nil {
		<-exited
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.queue != nil {
		s.drop(DropClosed, s.queue.expire(never))
		s.queue = nil
	}
	s.signalDrained()
}

// Stats is what the sender counted so far.
func (s *Sender) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Queued = s.queued()
	return stats
}

// From here on everything is called with s.mu held.

func (s *Sender) nowNs() int64 { return int64(s.clock.Now().Sub(s.epoch)) }

// limitNs is the age from which on samples are late.
func (s *Sender) limitNs(nowNs int64) int64 {
	if s.delay == 0 {
		return math.MinInt64
	}
	return nowNs - int64(s.delay)
}

// deadlineNs is when the head of the queue becomes late.
func (s *Sender) deadlineNs() int64 {
	if s.delay == 0 || s.queue == nil || !s.queue.waiting() {
		return never
	}
	return s.queue.oldestNs() + int64(s.delay)
}

func (s *Sender) windowNs() int64 { return int64(s.delay) / maxParts }

func (s *Sender) queued() uint64 {
	if s.queue == nil {
		return 0
	}
	return s.queue.total
}

func (s *Sender) drop(reason DropReason, count uint64) {
	s.stats.Dropped[reason] += count
	s.counters.Dropped[reason].Add(count)
}

// expire drops what has become late. Before a connection comes or goes it must be called, so that
// what became late with and without one is told apart.
func (s *Sender) expire(nowNs int64) {
	if s.queue == nil {
		return
	}
	if late := s.queue.expire(s.limitNs(nowNs)); late > 0 {
		reason := DropLate
		switch {
		case s.socket == nil:
			reason = DropSocketGone
		case !s.parked && !s.woken && s.futileWakeups == 0: // nothing was in their way but ourselves
			s.stats.Lost += late
			s.counters.timings.lost.Add(late)
		}
		s.drop(reason, late)
		s.signalDrained()
	}
}

func (s *Sender) signalDrained() {
	if s.drained != nil && s.queued() == 0 {
		close(s.drained)
		s.drained = nil
	}
}

// disconnect forgets the socket, which the caller closes after releasing s.mu.
func (s *Sender) disconnect() {
	s.expire(s.nowNs())
	s.socket, s.registration = nil, nil
	s.stats.Connected, s.stats.Registered = false, false
	s.unpark()
	s.clearDown()
}

// clearDown makes Down silent about a socket that nobody cares for any more.
func (s *Sender) clearDown() {
	select {
	case <-s.down:
	default:
	}
}

// canSend says whether there is something to do for the goroutine.
func (s *Sender) canSend() bool {
	return s.socket != nil && !s.parked && s.pausedUntilNs == 0 && s.waiting()
}

// waiting says whether there is a message to be sent.
func (s *Sender) waiting() bool {
	return s.registration != nil || s.queue != nil && s.queue.waiting()
}

func (s *Sender) start() {
	if !s.running && s.canSend() {
		s.running = true
		s.poller.loop.add(s)
	}
}

// unpark ends the wait for room, if there is one. When the socket stays open the kernel may still
// tell of room, once; no sender is woken by that.
func (s *Sender) unpark() {
	if s.parked {
		s.poller.remove(s.token)
		s.parked = false
	}
}

// arm has onTimer called at atNs at the latest.
func (s *Sender) arm(atNs int64) {
	if atNs >= s.timerNs {
		return
	}
	s.timerNs = atNs
	after := time.Duration(atNs - s.nowNs())
	if s.timer == nil {
		s.timer = s.clock.AfterFunc(after, s.onTimer)
	} else {
		s.timer.Reset(after)
	}
}

// schedule arms the timer for the next thing that happens by itself while nothing is being sent.
func (s *Sender) schedule(nowNs int64) {
	switch {
	case s.pausedUntilNs != 0:
		s.arm(min(s.pausedUntilNs, s.deadlineNs()))
	case s.queue != nil && !s.queue.waiting():
		s.arm(nowNs + int64(idleTime))
	default:
		s.arm(s.deadlineNs())
	}
}
