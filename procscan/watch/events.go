package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"correlator/internal/host/timerfd"
	"correlator/procscan"
)

// EventKind is what a process did.
type EventKind uint8

const (
	// EventMapping: the process made an executable mapping, or made a mapping executable, of memory
	// or of a file that has no path any more. Just-in-time compilers do so all the time.
	EventMapping EventKind = iota
	// EventFile: it did so with a file that is not the agent's library, as programs and dynamic
	// loaders do.
	EventFile
	// EventLibrary: it did so with a file whose path procscan.MatchLibrary accepts, or whose path
	// the kernel could not record because of its length (4 KiB) or for lack of memory. The mapping
	// existed when it was recorded. A process can cause as many of these as it likes.
	EventLibrary
	// EventExec: the process executed another program, and has none of its earlier mappings. The
	// mappings that the kernel makes of the new program may be reported before it. It is not reported
	// where the kernel was started with vdso=0.
	EventExec
	// EventLost: records were lost. Only a sweep finds what happened.
	EventLost
)

// Event is a decoded record of the kernel.
type Event struct {
	Kind EventKind
	PID  int    // in our own pid namespace; 0 for EventLost
	Lost uint64 // for EventLost: how many records, of any process. 0 when that is not known (yet)
}

const (
	// pollInterval is how long Run waits before it polls the rings again while they have records:
	// the most that it adds to the latency of an event. A host on which thousands of programs start
	// costs 500 wake-ups a second.
	pollInterval = 2 * time.Millisecond

	// wakeBatch is how many descriptors one call of epoll_pwait reports. All rings are read in any
	// case; descriptors left over cause one more call.
	wakeBatch = 64
)

// EventWatcher reports, as it happens, which processes map executable files and which execute
// another program. It opens a perf event on each CPU that counts nothing, but has the kernel record
// this. Events of one CPU come in order, those of different CPUs in any order.
//
// What happened before it was opened is not reported: open it, then sweep. Nor are forks, by which
// a process inherits its parent's mappings, nor exits, for which see ExitWatcher.
type EventWatcher struct {
	epoll, wake int
	polled      *os.File        // epoll
	ready       syscall.RawConn // the same
	pause       *timerfd.Timer
	list        string // file with the list of CPUs
	size        int    // of a ring's data, bytes
	running     sync.Mutex

	mu    sync.Mutex
	rings map[int]*perfRing // by CPU; nil once closed
	gap   bool              // a CPU was without a ring
}

// OpenEventWatcher starts recording on all online CPUs; Close ends it. Each CPU takes two
// descriptors and 140 KiB of locked memory. The error is procscan.ErrDenied when we lack the
// capability, or the limit for that memory, and errors.ErrUnsupported when the kernel has no perf
// events.
func OpenEventWatcher() (*EventWatcher, error) {
	return openEventWatcher(procscan.OnlineCPUs, ringBytes)
}

func openEventWatcher(list string, size int) (*EventWatcher, error) {
	epoll, wake, err := newEpoll()
	if err != nil {
		return nil, err
	}
	w := &EventWatcher{epoll: epoll, wake: wake, list: list, size: size, rings: make(map[int]*perfRing)}
	if err := w.open(); err != nil {
		w.Close()
		return nil, err
	}
	w.gap = false // nothing is lost yet
	return w, nil
}

// open opens what Run waits for.
func (w *EventWatcher) open() error {
	err := unix.SetNonblock(w.epoll, true)
	w.polled = os.NewFile(uintptr(w.epoll), "epoll")
	if err == nil {
		err = w.polled.SetDeadline(time.Time{}) // which fails if the runtime does not poll it
	}
	if err == nil {
		w.ready, err = w.polled.SyscallConn()
	}
	if err != nil {
		return fmt.Errorf("watching epoll: %w", err)
	}
	if w.pause, err = timerfd.New(); err != nil {
		return err
	}
	if err := w.watch(w.wake); err != nil {
		return fmt.Errorf("adding eventfd to epoll: %w", err)
	}
	return w.Refresh()
}

// Run calls handle for every event until Close is called; then it returns nil. handle is called on
// the caller's goroutine, must not block, since the kernel keeps writing, and must not call the
// watcher's methods. On a busy host it is called for tens of thousands of mappings a second.
//
// It is the Go runtime that waits: a thread that blocks in a system call wakes two or three others
// each time that it comes back.
func (w *EventWatcher) Run(handle func(Event)) error {
	w.running.Lock()
	defer w.running.Unlock()
	ready := make([]unix.EpollEvent, wakeBatch)
	for {
		switch err := w.await(handle, ready); {
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return err
		}
		w.pause.Set(pollInterval)
		if err := w.pause.Wait(); err != nil {
			return fmt.Errorf("waiting to poll perf records again: %w", err)
		}
	}
}

// await polls the rings until that is to be done again, each time that a waker has fired or interrupt was called.
//
// The state of a perf event is taken away by who looks at it, and the runtime does before it calls the function: so
// what the rings hold counts, and not what epoll says.
func (w *EventWatcher) await(handle func(Event), ready []unix.EpollEvent) (err error) {
	waitErr := w.ready.Read(func(fd uintptr) (done bool) {
		_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(unsafe.SliceData(ready))),
			uintptr(len(ready)), 0, 0, 0)
		var again bool
		again, err = w.poll(handle)
		return again || err != nil
	})
	if err != nil || waitErr == nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rings == nil { // it was closed before
		return os.ErrClosed
	}
	return fmt.Errorf("waiting for perf records: %w", waitErr)
}

// poll reads all rings, and reports whether to do so again after pollInterval.
func (w *EventWatcher) poll(handle func(Event)) (again bool, err error) {
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
		ringAgain, err := ring.poll(handle)
		if err != nil {
			return false, err
		}
		again = again || ringAgain
	}
	return again, nil
}

// Refresh follows CPUs that go online and offline; call it every few seconds. What happened
// before on a CPU that is new is lost, which an EventLost reports. After an error the other CPUs
// continue, and the next call tries again. It interrupts each CPU briefly. It may be called at any
// time, but not by handle.
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
		// A CPU that went offline and back online in between shows in its event, which is disabled
		// for good.
		errs = append(errs, ring.close())
		delete(w.rings, cpu)
		w.gap = true // what the ring still held was not read
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

// add starts recording on a CPU. One that has just gone offline is no error.
func (w *EventWatcher) add(cpu int) error {
	ring, err := openPerfRing(cpu, w.size)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := w.watch(ring.waker); err != nil {
		return errors.Join(fmt.Errorf("adding perf event of CPU %d to epoll: %w", cpu, err), ring.close())
	}
	w.rings[cpu] = ring
	w.gap = true
	return nil
}

// watch adds a descriptor to epoll, edge-triggered: the event of an offline CPU may be readable
// forever.
func (w *EventWatcher) watch(fd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)}
	return unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &event)
}

// interrupt makes Run poll the rings, now or when it is called next.
func (w *EventWatcher) interrupt() {
	_, _ = unix.Write(w.wake, binary.NativeEndian.AppendUint64(nil, 1)) // fails after 2^64 - 2
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
		errs = append(errs, unix.Close(w.wake), w.polled.Close())
		if w.pause != nil {
			errs = append(errs, w.pause.Close())
		}
	}
	return errors.Join(errs...)
}
