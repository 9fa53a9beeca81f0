package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"correlator/procscan"
)

// EventKind says what happened.
type EventKind uint8

const (
	// EventMapping: the process mapped something executably, or made a mapping executable, that is
	// no library of the agent. Just-in-time compilers do so, with memory without a file.
	EventMapping EventKind = iota
	// EventLibrary: it did so with a file whose path procscan.MatchLibrary accepts, or whose path
	// the kernel could not tell because of its length (4 KiB) or for want of memory. The mapping
	// was there when this was recorded. What made the event is the process's choice, so it can make
	// as many as it likes.
	EventLibrary
	// EventExec: the process runs another program, and has none of its mappings from before.
	EventExec
	// EventLost: something happened that is not told. Only a sweep finds out what.
	EventLost
)

// Event is what one record of the kernel says.
type Event struct {
	Kind EventKind
	PID  int    // as our own pid namespace calls the process; 0 of EventLost
	Lost uint64 // of EventLost: how many records, of any process. 0 when that is not known (yet)
}

const (
	// wakeInterval is how long Run waits before it looks again, while there is something to see:
	// the most that it adds to the age of an event. A host on which thousands of programs start
	// costs 500 wake-ups a second.
	wakeInterval = 2 * time.Millisecond

	// wakeBatch is how many descriptors one call of epoll_wait reports. All rings are read either
	// way; what is left over makes one more call.
	wakeBatch = 64
)

// EventWatcher tells, as it happens, which processes map executable files and which run another
// program: by a perf event of each CPU that counts nothing, but has the kernel record this. Events
// of one CPU come in order, those of several in none.
//
// Nothing is told of what happened before it was opened: open it, then sweep. Nor of forks, by
// which a process comes to have its parent's mappings, nor of exits, for which see ExitWatcher.
type EventWatcher struct {
	epoll, wake int
	list        string // file with the list of CPUs
	size        int    // of a ring's data, bytes
	running     sync.Mutex

	mu    sync.Mutex
	rings map[int]*perfRing // by CPU; nil once closed
	gap   bool              // a CPU was without a ring
}

// OpenEventWatcher begins to record on all online CPUs; Close ends it. Each takes two descriptors
// and 140 KiB of locked memory. procscan.ErrDenied: we lack the capability, or that memory.
// errors.ErrUnsupported: the kernel has no perf events.
func OpenEventWatcher() (*EventWatcher, error) {
	return openEventWatcher(procscan.OnlineCPUs, ringBytes)
}

func openEventWatcher(list string, size int) (*EventWatcher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("creating eventfd: %w", err)
	}
	w := &EventWatcher{epoll: epoll, wake: wake, list: list, size: size, rings: make(map[int]*perfRing)}
	if err := w.watch(wake); err != nil {
		w.Close()
		return nil, fmt.Errorf("adding eventfd to epoll: %w", err)
	}
	if err := w.Refresh(); err != nil {
		w.Close()
		return nil, err
	}
	w.gap = false // there is no before
	return w, nil
}

// Run passes on what happens until Close is called; then it returns nil. It sits in epoll_wait and
// so takes one thread. handle is called on the caller's goroutine, must not block, since the kernel
// goes on to write, and must not call the watcher's methods. On a busy host it is called for tens
// of thousands of mappings a second.
func (w *EventWatcher) Run(handle func(Event)) error {
	w.running.Lock()
	defer w.running.Unlock()
	ready := make([]unix.EpollEvent, wakeBatch)
	interval := unix.NsecToTimespec(wakeInterval.Nanoseconds())
	for {
		again, err := w.look(handle)
		switch {
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return err
		case again:
			// On this thread: time.Sleep would have the runtime look for other work each time, at
			// twice the cost. An error is a signal, and the next look comes early.
			_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &interval, nil)
			continue
		}
		if _, err := unix.EpollWait(w.epoll, ready, -1); err != nil && err != unix.EINTR {
			return fmt.Errorf("waiting for perf records: %w", err)
		}
	}
}

// look looks at all rings, and reports whether to do so again soon.
func (w *EventWatcher) look(handle func(Event)) (again bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rings == nil {
		return false, os.ErrClosed
	}
	if w.gap {
		w.gap = false
		handle(Event{Kind: EventLost})
	}
	for _, ring := range w.rings {
		ringAgain, err := ring.look(handle)
		if err != nil {
			return false, err
		}
		again = again || ringAgain
	}
	return again, nil
}

// Refresh follows CPUs that come and go; call it about once a second. What happened meanwhile on a
// CPU that came is lost, as an event will say. After an error the other CPUs go on, and the next
// call tries again. It interrupts each CPU for a moment. It may be called at any time, but not by
// handle.
func (w *EventWatcher) Refresh() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rings == nil {
		return nil
	}
	cpus, err := procscan.ReadCPUs(w.list)
	if err != nil {
		return err
	}
	var errs []error
	for cpu, ring := range w.rings {
		counts, err := ring.counts()
		if err != nil {
			errs = append(errs, fmt.Errorf("reading perf event of CPU %d: %w", cpu, err))
		}
		if counts && slices.Contains(cpus, cpu) {
			continue
		}
		// A CPU that went and came back in between is known by its event, which counts no longer.
		errs = append(errs, ring.close())
		delete(w.rings, cpu)
		w.gap = true // for want of a look at what the ring still held
	}
	for _, cpu := range cpus {
		if w.rings[cpu] == nil {
			errs = append(errs, w.add(cpu))
		}
	}
	if w.gap {
		w.interrupt()
	}
	return errors.Join(errs...)
}

// add begins on a CPU. One that has just gone is no error.
func (w *EventWatcher) add(cpu int) error {
	ring, err := openPerfRing(cpu, w.size)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := w.watch(ring.alarm); err != nil {
		return errors.Join(fmt.Errorf("adding perf event of CPU %d to epoll: %w", cpu, err), ring.close())
	}
	w.rings[cpu] = ring
	w.gap = true
	return nil
}

// watch has epoll report a descriptor once each time that something happens there: the event of a
// CPU that has gone may say so for ever.
func (w *EventWatcher) watch(fd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)}
	return unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &event)
}

// interrupt has Run look, soon or when it is called next.
func (w *EventWatcher) interrupt() {
	unix.Write(w.wake, binary.NativeEndian.AppendUint64(nil, 1)) // fails after 2^64 - 2
}

// Close ends Run, waits for it, and releases the descriptors and rings. It may be called more than
// once, but not by handle.
func (w *EventWatcher) Close() error {
	w.mu.Lock()
	rings := w.rings
	w.rings = nil
	var errs []error
	for _, ring := range rings {
		errs = append(errs, ring.close())
	}
	if rings != nil {
		w.interrupt()
	}
	w.mu.Unlock()
	w.running.Lock()
	defer w.running.Unlock()
	if rings != nil {
		errs = append(errs, unix.Close(w.wake), unix.Close(w.epoll))
	}
	return errors.Join(errs...)
}
