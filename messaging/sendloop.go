package messaging

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxInTurn is how many messages a sender may send before the others get their turn: it then goes
// on in a goroutine of its own. A message takes 3 µs, and at most some 10 µs with a socket filter
// that the receiver made as slow as it could: a receiver delays the others by less than a
// millisecond.
const maxInTurn = 64

// sendLoop is the goroutine that sends for all senders that have only a few messages to send.
//
// It is woken by an eventfd, which the runtime watches. To start a goroutine, or to wake one by a
// channel, would also wake a second thread, to look for more work; that costs more than sending the
// messages of a drain. An event of the kernel is found by the thread that drained, when it is done.
type sendLoop struct {
	event *os.File
	fd    uintptr

	mu      sync.Mutex
	waiting []*Sender
	awake   bool // sendWaiting runs, or the event was raised: it will see what is added to waiting
	spare   []*Sender
}

// open starts the goroutine; close ends it.
func (l *sendLoop) open() error {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("creating eventfd: %w", err)
	}
	l.fd, l.event = uintptr(fd), os.NewFile(uintptr(fd), "eventfd")
	raw, err := l.event.SyscallConn()
	if err != nil {
		l.event.Close()
		return fmt.Errorf("watching eventfd: %w", err)
	}
	// The runtime watches for edges: every write is one, so that nothing is ever read.
	go func() {
		_ = raw.Read(func(uintptr) (done bool) { // fails when the loop is closed
			l.sendWaiting()
			return false
		})
	}()
	return nil
}

func (l *sendLoop) close() error { return l.event.Close() }

// add has the goroutine run s.
func (l *sendLoop) add(s *Sender) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, s)
	if l.awake {
		return
	}
	l.awake = true
	one := uint64(1)
	// Raw, because it cannot block: an ordinary system call wakes the runtime's monitor thread. It
	// cannot fail before 2^64 writes.
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, l.fd, uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one))
}

// next returns the senders to run, until the next call.
func (l *sendLoop) next() []*Sender {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.spare)
	l.waiting, l.spare = l.spare[:0], l.waiting
	l.awake = len(l.spare) > 0
	return l.spare
}

func (l *sendLoop) sendWaiting() {
	for senders := l.next(); len(senders) > 0; senders = l.next() {
		for _, s := range senders {
			if !s.send(maxInTurn) {
				go s.run()
			}
		}
	}
}
