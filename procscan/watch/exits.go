package watch

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"correlator/procscan"
)

// exitBatch is how many exits one call of epoll_wait may report.
const exitBatch = 64

// ExitWatcher reports when processes exit, with one epoll descriptor and one goroutine for any
// number of processes. The goroutine blocks in epoll_wait and so takes one thread. It is safe for
// concurrent use.
type ExitWatcher struct {
	epoll, wake int
	stopped     chan struct{} // closed when the goroutine has returned
	closing     sync.Once

	mu      sync.Mutex
	err     error // why processes cannot be added any more; nil while it works
	last    uint64
	watches map[uint64]watch // by token, which is unique: descriptors are reused
	tokens  map[*procscan.Handle]uint64
}

type watch struct {
	handle *procscan.Handle
	exited func()
}

const wakeToken = 0

// NewExitWatcher starts the goroutine; Close ends it.
func NewExitWatcher() (*ExitWatcher, error) {
	epoll, wake, err := newEpoll()
	if err != nil {
		return nil, err
	}
	w := &ExitWatcher{
		epoll: epoll, wake: wake, stopped: make(chan struct{}),
		last: wakeToken, watches: make(map[uint64]watch), tokens: make(map[*procscan.Handle]uint64),
	}
	if err := w.control(unix.EPOLL_CTL_ADD, wake, wakeToken); err != nil {
		unix.Close(epoll)
		unix.Close(wake)
		return nil, fmt.Errorf("adding eventfd to epoll: %w", err)
	}
	go w.run()
	return w, nil
}

// newEpoll returns an epoll, and an eventfd to interrupt who waits for it. The caller must close both.
func newEpoll() (epoll, wake int, err error) {
	if epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("creating epoll: %w", err)
	}
	if wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(epoll)
		return -1, -1, fmt.Errorf("creating eventfd: %w", err)
	}
	return epoll, wake, nil
}

// Add arranges for exited to be called once when the process exits, on the watcher's goroutine:
// also if it has exited already, and perhaps before Add returns. exited must not block, since every
// other exit waits for it; it may call Add and Remove, but not Close. The handle must stay open
// until exited was called or Remove has returned, or the exit is not reported. A handle can be
// added once at a time.
func (w *ExitWatcher) Add(h *procscan.Handle, exited func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	token := w.last + 1
	if err := w.controlHandle(unix.EPOLL_CTL_ADD, h, token); err != nil {
		return fmt.Errorf("watching process %d: %w", h.Identity().PID, err)
	}
	w.last = token
	w.watches[token] = watch{h, exited}
	w.tokens[h] = token
	return nil
}

// Remove stops watching the process. It reports whether it came in time: if so, exited will not be
// called; if not, it was called, or is being called.
func (w *ExitWatcher) Remove(h *procscan.Handle) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	token, ok := w.tokens[h]
	if ok {
		w.forget(token, h)
	}
	return ok
}

// Close stops watching all processes, ends the goroutine and closes the descriptors. No callback
// runs after it has returned. It may be called more than once.
func (w *ExitWatcher) Close() error {
	w.closing.Do(func() {
		w.mu.Lock()
		w.err = fmt.Errorf("exit watcher: %w", os.ErrClosed)
		w.watches, w.tokens = nil, nil
		w.mu.Unlock()
		_, _ = unix.Write(w.wake, binary.NativeEndian.AppendUint64(nil, 1)) // an eventfd at 0 takes 1
		<-w.stopped
		unix.Close(w.wake)
		unix.Close(w.epoll)
	})
	return nil
}

// run reports exits until it is woken.
func (w *ExitWatcher) run() {
	defer close(w.stopped)
	events := make([]unix.EpollEvent, exitBatch)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			w.mu.Lock()
			w.err = fmt.Errorf("waiting for exits: %w", err)
			w.mu.Unlock()
			return
		}
		for _, event := range events[:n] {
			token := eventToken(event)
			if token == wakeToken {
				return
			}
			if watch, ok := w.take(token); ok {
				watch.exited()
			}
		}
	}
}

// take removes a watch whose process has exited. The callback runs if take removes the watch, and
// does not if Remove does.
func (w *ExitWatcher) take(token uint64) (watch, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken, ok := w.watches[token]
	if ok {
		w.forget(token, taken.handle)
	}
	return taken, ok
}

// forget also removes the descriptor from epoll: a pidfd stays readable forever. If that fails the
// handle is closed, and epoll has dropped the descriptor already.
func (w *ExitWatcher) forget(token uint64, h *procscan.Handle) {
	_ = w.controlHandle(unix.EPOLL_CTL_DEL, h, token)
	delete(w.watches, token)
	delete(w.tokens, h)
}

func (w *ExitWatcher) controlHandle(op int, h *procscan.Handle, token uint64) error {
	var ctlErr error
	err := h.Control(func(fd int) { ctlErr = w.control(op, fd, token) })
	if err != nil {
		return err
	}
	return ctlErr
}

// control passes the token in the 64 bits that epoll returns with an event.
func (w *ExitWatcher) control(op, fd int, token uint64) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(token), Pad: int32(token >> 32)}
	return unix.EpollCtl(w.epoll, op, fd, &event)
}

func eventToken(event unix.EpollEvent) uint64 {
	return uint64(uint32(event.Fd)) | uint64(uint32(event.Pad))<<32
}
