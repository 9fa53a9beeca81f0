package messaging

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pollBatch is how many sockets with room one call of epoll_wait may return.
const pollBatch = 64

// Poller wakes the senders of an agent whose receivers have room again, with one goroutine and one
// epoll descriptor for any number of senders. A socket is watched only while its Sender waits. This
// is why sockets are not in the poller of the Go runtime, which watches a descriptor until it is
// closed: the kernel would wake us for each message that a receiver reads.
//
// A socket is armed after a message found the receiver's queue full: EPOLLOUT, level-triggered,
// once (EPOLLONESHOT). No room is missed in between, since arming checks for room, and room made
// later finds the socket armed. Once reported, a socket is not reported again until it is armed
// again.
type Poller struct {
	epoll  int
	file   *os.File // owns epoll, and is watched by the Go runtime
	raw    syscall.RawConn
	events [pollBatch]unix.EpollEvent // of the goroutine

	epoch     time.Time    // what the ns below count from
	quickFrom atomic.Int64 // when messages may be sent on goroutines that others wait for, ns

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*Sender // by token, one for each wait: descriptors are reused
	ticking map[*Sender]struct{}
	timer   *time.Timer // set while there are some; nil before
}

// NewPoller starts the goroutine; Close ends it.
func NewPoller() (*Poller, error) {
	p, err := openPoller()
	if err != nil {
		return nil, err
	}
	go func() {
		_ = p.raw.Read(func(uintptr) (done bool) { // fails when the poller is closed
			p.poll()
			return false
		})
	}()
	return p, nil
}

// openPoller returns a poller that wakes no senders unless poll is called.
func openPoller() (*Poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating epoll: %w", err)
	}
	err = unix.SetNonblock(epoll, true) // else the runtime does not watch it
	p := &Poller{epoll: epoll, file: os.NewFile(uintptr(epoll), "epoll"), epoch: time.Now(),
		waiting: make(map[uint64]*Sender), ticking: make(map[*Sender]struct{})}
	if err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // only what the runtime watches has deadlines
	}
	if err == nil {
		p.raw, err = p.file.SyscallConn()
	}
	if err != nil {
		p.file.Close()
		return nil, fmt.Errorf("polling epoll: %w", err)
	}
	return p, nil
}

// Close ends the goroutine and closes the descriptor. The senders must have been closed before.
func (p *Poller) Close() error {
	p.mu.Lock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	return p.file.Close()
}

const (
	// slowTime is how long the kernel takes for messages at most that are not slow: mostly some microseconds for each.
	slowTime = time.Millisecond

	// quickShare is which part of the time may be lost to slow messages by goroutines that others wait for,
	// whichever processes make them slow.
	quickShare = 100
)

// isQuick reports whether messages may be sent by goroutines that others wait for.
func (p *Poller) isQuick() bool { return int64(time.Since(p.epoch)) >= p.quickFrom.Load() }

// isSlow reports whether a message that has taken so long was slow; then isQuick is false for a while.
func (p *Poller) isSlow(took time.Duration) bool {
	if took <= slowTime {
		return false
	}
	p.quickFrom.Store(int64(time.Since(p.epoch) + quickShare*took))
	return true
}

// later has the next tick call onTick of a sender, once, within idleTime. s.mu is held.
func (p *Poller) later(s *Sender) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ticking[s] = struct{}{}
	switch {
	case len(p.ticking) > 1: // the timer is set
	case p.timer == nil:
		p.timer = time.AfterFunc(idleTime, p.tick)
	default:
		p.timer.Reset(idleTime)
	}
}

func (p *Poller) tick() {
	p.mu.Lock()
	senders := p.ticking
	p.ticking = make(map[*Sender]struct{}, len(senders))
	p.mu.Unlock()
	for s := range senders {
		s.onTick()
	}
}

// poll wakes the senders whose sockets have room, and returns how many sockets epoll reported. The
// runtime sees an edge for each that follows, so that poll is called again.
func (p *Poller) poll() (reported int) {
	for {
		n, err := unix.EpollWait(p.epoll, p.events[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		for _, event := range p.events[:max(n, 0)] {
			token := eventToken(event)
			if s := p.remove(token); s != nil {
				s.wake(token)
			}
			reported++
		}
		if n < pollBatch {
			return reported
		}
	}
}

// add records that s waits, and returns the token of the wait.
func (p *Poller) add(s *Sender) (token uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.waiting[p.last] = s
	return p.last
}

// remove ends a wait and returns its sender, or nil when the wait has ended already.
func (p *Poller) remove(token uint64) *Sender {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.waiting[token]
	delete(p.waiting, token)
	return s
}

// armedEvent asks for one event, with the token, when there is room or the connection has ended
// (which epoll always reports).
func armedEvent(token uint64) *unix.EpollEvent {
	return &unix.EpollEvent{Events: unix.EPOLLOUT | unix.EPOLLONESHOT, Fd: int32(token), Pad: int32(token >> 32)}
}

func eventToken(event unix.EpollEvent) uint64 {
	return uint64(uint32(event.Fd)) | uint64(uint32(event.Pad))<<32
}
