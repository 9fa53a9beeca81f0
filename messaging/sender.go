package messaging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

var (
	// errSocketGone is sent on Down: the receiver ended the connection.
	errSocketGone = errors.New("the process's socket is gone")
	// errClosed reports that a sender was closed before.
	errClosed = errors.New("sender is closed")
)

const (
	// maxFutileWakeups is how many wake-ups in a row may find no room before the sender pauses.
	// Only a process that keeps filling and emptying its own socket causes them.
	maxFutileWakeups = 64

	// pauseTime is how long nothing is sent after that, or after the kernel had no memory: a
	// quarter of the time between two polls of an agent.
	pauseTime = 5 * time.Millisecond

	// idleTime is how long an empty queue keeps its memory at least, so that a process with samples in every
	// drain does not allocate it each time; and the time between two ticks of a poller.
	idleTime = time.Second

	never = math.MaxInt64
)

// Sender sends the samples of one process to its socket. Queued samples are aggregated by key, and
// the key with the oldest sample is sent first. A sample that could not be sent within the
// samples-delay is dropped; younger samples of the same key are kept. The ages of aggregated
// samples are known to an eighth of the delay: samples are dropped up to that much early, and none
// is handed to the kernel late. (Those that the kernel took late all the same, because the sender
// had to wait for a CPU, are counted: see Timing.) At any time, each sample that was added is
// either sent, dropped and counted with a reason, or queued.
//
// A Sender needs no goroutine while it waits for room, and next to no memory while nothing is
// queued. Methods do not block unless they say so: the lock is not held during a system call. All
// are safe for concurrent use.
type Sender struct {
	counters *Counters
	poller   *Poller
	epoch    time.Time // what the ns below count from
	down     chan error
	work     func() // run, as a value: starting it allocates nothing

	mu           sync.Mutex
	stats        Stats
	queue        *queue        // nil while idle
	idle         bool          // queue was not used since the timer last fired
	delay        time.Duration // promised in the last registration; 0 before the first
	socket       *Socket       // nil while there is none
	registration []byte        // to be sent first on socket; nil once it was sent
	closed       bool
	drained      chan struct{} // closed when nothing is queued; nil when nobody waits
	exited       chan struct{} // closed when running becomes false; nil when nobody waits

	ticking       bool        // the poller's next tick is also for this sender
	timer         *time.Timer // for what cannot wait for that; nil before the first use
	timerNs       int64       // when it fires, else never
	pausedUntilNs int64       // 0 when not paused

	parked        bool   // waiting for room on socket: no attempt before the poller reports some
	token         uint64 // of that wait, or the last one
	woken         bool   // the poller has reported room, and no attempt was made since
	futileWakeups int    // attempts without success after that, since a message was last sent

	// Of the goroutine that sends; running is under mu.
	running     bool    // a goroutine sends, or will
	current     *Socket // what it sends to; not s.socket any more when that was replaced
	registering bool    // it is sending the registration
	message     [correlationBytes]byte
}

// NewSender returns the sender of one process, not connected yet. All senders of an agent share its
// counters and its poller.
func NewSender(counters *Counters, poller *Poller) *Sender {
	s := &Sender{
		counters: counters,
		poller:   poller,
		epoch:    time.Now(),
		down:     make(chan error, 1),
		timerNs:  never,
	}
	s.work = s.run
	return s
}

// Add queues count samples of one key; all count as taken at sampledAt, which should have a
// monotonic clock reading. Before the first Connect no delay has been promised, so nothing is late.
// Without a connection samples wait for the next one until they are late.
//
// For samples counted over an interval, sampledAt is the time of the first. Then none is late
// unnoticed, but younger ones may be dropped early, by as much as they are younger. That wastes no
// room of the receiver; it loses part of a burst. Of 165 keys at once, which the receiver can take
// within 300 ms, it gets 110 when the first samples are 100 ms old.
func (s *Sender) Add(key Key, count uint64, sampledAt time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(key, count, sampledAt)
	s.start()
}

// Queue is Add for samples of which more may follow at once: Flush sends them.
func (s *Sender) Queue(key Key, count uint64, sampledAt time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(key, count, sampledAt)
}

// Flush sends what can be sent now: on the caller's goroutine, unless the kernel has lately taken long to keep some
// sender's message.
func (s *Sender) Flush() {
	s.mu.Lock()
	if s.running || !s.canSend() {
		s.mu.Unlock()
		return
	}
	s.running = true
	s.mu.Unlock()
	if s.poller.isQuick() {
		s.send(true)
	} else {
		go s.work()
	}
}

// Connect sends to socket from now on, first the registration, then those queued samples that are
// not late. It takes ownership of the socket, also when it fails, and closes the one that was
// connected before. The error is errClosed, or about the registration.
func (s *Sender) Connect(socket *Socket, r Registration) error {
	registration, err := appendRegistration(nil, r)
	if err == nil && r.SamplesDelay == 0 {
		err = fmt.Errorf("%w: must not be zero", errSamplesDelay)
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

// replace returns the socket that the caller must close, or nil.
func (s *Sender) replace(socket *Socket, registration []byte, delay time.Duration) (*Socket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
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

// Disconnect closes the connection, if there is one. Queued samples wait for the next one until
// they are late.
func (s *Sender) Disconnect() {
	s.mu.Lock()
	socket := s.socket
	s.disconnect()
	s.mu.Unlock()
	if socket != nil {
		socket.Close() // not under s.mu: it waits for a message being sent
	}
}

// Down delivers an error when the receiver has ended the connection: the caller should Dial again.
// Queued samples wait meanwhile. Nothing is delivered about a socket that was replaced or
// disconnected since.
func (s *Sender) Down() <-chan error { return s.down }

// Drain blocks until nothing is queued or ctx has ended. If nothing is added meanwhile, it takes no
// longer than the samples-delay after the first Connect, connected or not.
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
	if !s.running {
		s.schedule()
	}
	s.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("draining: %w", ctx.Err())
	}
}

// Close ends the connection and drops queued samples, and those added later. It waits for a message
// that is being handed to the kernel. Only the first call has an effect.
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

// Stats returns what the sender has counted so far.
func (s *Sender) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireWaiting(s.nowNs())
	stats := s.stats
	stats.Queued = s.queued()
	return stats
}

// The methods below are called with s.mu held.

// add queues samples.
func (s *Sender) add(key Key, count uint64, sampledAt time.Time) {
	if count == 0 {
		return
	}
	s.stats.Added += count
	s.counters.SamplesQueued.Add(count)
	if s.closed {
		s.drop(DropClosed, count)
		return
	}
	nowNs := s.nowNs()
	s.expireWaiting(nowNs)
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
	if !s.running {
		s.schedule()
	}
}

func (s *Sender) nowNs() int64 { return int64(time.Since(s.epoch)) }

// limitNs returns the time such that samples taken then or before are late.
func (s *Sender) limitNs(nowNs int64) int64 {
	if s.delay == 0 {
		return math.MinInt64
	}
	return nowNs - int64(s.delay)
}

// deadlineNs returns when the head of the queue becomes late.
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
	s.counters.SamplesDropped[reason].Add(count)
}

// expire drops what has become late. It must be called before a connection comes or goes, to
// distinguish what became late with a connection from what became late without one.
func (s *Sender) expire(nowNs int64) {
	if s.queue == nil {
		return
	}
	if late := s.queue.expire(s.limitNs(nowNs)); late > 0 {
		reason := DropLate
		switch {
		case s.socket == nil:
			reason = DropSocketGone
		case !s.parked && !s.woken && s.futileWakeups == 0: // the delay was our own
			s.stats.Lost += late
			s.counters.timings.lost.Add(late)
		}
		s.drop(reason, late)
		s.signalDrained()
	}
}

// expireWaiting is expire while nothing is being sent, or about to be. Nothing calls it just when a sample becomes
// late: what is added next does, whoever reads counts, and the poller's tick.
func (s *Sender) expireWaiting(nowNs int64) {
	s.expire(nowNs)
	if !s.waiting() {
		s.unpark() // the next message tries again
	}
}

func (s *Sender) signalDrained() {
	if s.drained != nil && s.queued() == 0 {
		close(s.drained)
		s.drained = nil
	}
}

// disconnect removes the socket, which the caller closes after releasing s.mu.
func (s *Sender) disconnect() {
	s.expire(s.nowNs())
	s.socket, s.registration = nil, nil
	s.stats.Connected, s.stats.Registered = false, false
	s.unpark()
	s.clearDown()
}

// clearDown removes an undelivered error about a socket that is not used any more.
func (s *Sender) clearDown() {
	select {
	case err := <-s.down:
		_ = err
	default:
	}
}

// canSend reports whether a message could be sent now.
func (s *Sender) canSend() bool {
	return s.socket != nil && !s.parked && s.pausedUntilNs == 0 && s.waiting()
}

// waiting reports whether there is a message to be sent.
func (s *Sender) waiting() bool {
	return s.registration != nil || s.queue != nil && s.queue.waiting()
}

func (s *Sender) start() {
	if !s.running && s.canSend() {
		s.running = true
		go s.work()
	}
}

// unpark ends the wait for room, if there is one. While the socket stays open epoll may still
// report it once; that wakes no sender.
func (s *Sender) unpark() {
	if s.parked {
		s.poller.remove(s.token)
		s.parked = false
	}
}

// arm schedules onTimer for atNs at the latest.
func (s *Sender) arm(atNs int64) {
	if atNs >= s.timerNs {
		return
	}
	s.timerNs = atNs
	after := time.Duration(atNs - s.nowNs())
	if s.timer == nil {
		s.timer = time.AfterFunc(after, s.onTimer)
	} else {
		s.timer.Reset(after)
	}
}

// schedule has the next event not be missed while nothing is being sent. The end of a pause, and a deadline that
// somebody waits for, have a timer. All else is done within two ticks that the senders of a poller share: waking up for
// each of them costs more than what is to be done.
func (s *Sender) schedule() {
	if s.pausedUntilNs != 0 || s.drained != nil {
		s.arm(min(cmp.Or(s.pausedUntilNs, never), s.deadlineNs()))
	}
	if s.queue != nil && !s.ticking {
		s.ticking = true
		s.poller.later(s)
	}
}
