package messaging

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pollBatch is how many sockets with room one call of epoll_wait may tell of.
const pollBatch = 64

// Poller wakes senders whose receivers have room again: one epoll descriptor and one goroutine for
// any number of senders. A socket is watched only while its Sender waits. This is why sockets are not
// in the poller of the Go runtime, which watches what it has for ever: the kernel would wake us for
// each message that a receiver reads.
//
// A socket is armed after a message found the receiver's queue full: EPOLLOUT, level-triggered, once
// (EPOLLONESHOT). No room is missed in between, since arming looks whether there is room already, and
// whoever makes room later finds the socket armed. After it was told of, nothing more is until the
// socket is armed again.
type Poller struct {
	epoll  int
	file   *os.File // owns epoll, and has the Go runtime watch it
	raw    syscall.RawConn
	events [pollBatch]unix.EpollEvent // the goroutine's own

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*Sender // by token, of which every wait has its own: descriptors are used again

	loop sendLoop
}

// NewPoller starts the goroutine; Close ends it.
func NewPoller() (*Poller, error) {
	p, err := openPoller()
	if err != nil {
		return nil, err
	}
	go p.raw.Read(func(uintptr) (done bool) {
		p.poll()
		return false
	})
	return p, nil
}

// openPoller makes a poller without the goroutine.
func openPoller() (*Poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating epoll: %w", err)
	}
	err = unix.SetNonblock(epoll, true) // else the runtime does not watch it
	p := &Poller{epoll: epoll, file: os.NewFile(uintptr(epoll), "epoll"), waiting: make(map[uint64]*Sender)}
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
	if err := p.loop.open(); err != nil {
		p.file.Close()
		return nil, err
	}
	return p, nil
}

// Close ends the goroutine and releases the descriptor. The senders must have been closed before.
func (p *Poller) Close() error { return errors.Join(p.loop.close(), p.file.Close()) }

// poll wakes the senders whose sockets have room by now, and returns for how many sockets the kernel
// said so. The runtime is told of each that follows, so that poll is called again.
func (p *Poller) poll() (told int) {
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
			told++
		}
		if n < pollBatch {
			return told
		}
	}
}

// add notes that s waits, under a new token.
func (p *Poller) add(s *Sender) (token uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.waiting[p.last] = s
	return p.last
}

// remove ends a wait, unless it has ended already: then it answers nil.
func (p *Poller) remove(token uint64) *Sender {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.waiting[token]
	delete(p.waiting, token)
	return s
}

// armedEvent has the kernel tell once, with the token, of room or of the end of the connection (which
// epoll tells of unasked).
func armedEvent(token uint64) *unix.EpollEvent {
	return &unix.EpollEvent{Events: unix.EPOLLOUT | unix.EPOLLONESHOT, Fd: int32(token), Pad: int32(token >> 32)}
}

func eventToken(event unix.EpollEvent) uint64 {
	return uint64(uint32(event.Fd)) | uint64(uint32(event.Pad))<<32
}
