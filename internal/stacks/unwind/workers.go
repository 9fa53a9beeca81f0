package unwind

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/internal/host/share"
	"correlator/internal/worker"
)

const (
	// maxUnreaped is how many killed workers there may be that have not ended, because a system call
	// waits for a process: each takes some 20 MB. Then no other is started.
	maxUnreaped = 4

	// killTimeout is how long a killed worker is given to end before its tables are cleared. One that
	// hangs longer is in a system call that reads, after which it ends.
	killTimeout = 100 * time.Millisecond
)

// retry is how soon the next worker is tried after one that could not be started.
var retry = share.Backoff{Min: time.Second, Max: time.Minute}

// errUnable: a worker says that it cannot serve.
var errUnable = errors.New("the unwinding worker cannot start")

// errUnreaped: there are maxUnreaped killed workers.
var errUnreaped = fmt.Errorf("%d that were killed have not ended: processes make the kernel wait", maxUnreaped)

// ensureWorker starts a worker unless there is one. One that has ended while it served nothing did so
// for no target's sake.
func (e *Engine) ensureWorker() error {
	if e.worker != nil && hasEnded(e.worker.PID()) {
		_ = e.kill(nil, worker.ErrEnded)
	}
	e.mu.Lock()
	closed, broken, failure := e.closed, e.broken, e.failure
	e.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case e.worker != nil:
		return nil
	case broken != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, broken)
	case e.blame.Hung() >= maxUnreaped:
		return fmt.Errorf("%w: %w", ErrUnavailable, errUnreaped)
	case time.Now().Before(e.retryAt):
		return fmt.Errorf("%w: %w", ErrUnavailable, failure)
	}
	err := e.startWorker()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failure = err; err != nil {
		e.retryAfter = retry.Next(e.retryAfter)
		e.retryAt = time.Now().Add(e.retryAfter)
		if e.closed {
			return ErrClosed
		}
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	e.retryAfter = 0
	return nil
}

func (e *Engine) startWorker() error {
	process, err := e.spawner.Start()
	if err != nil {
		return err
	}
	e.counters.Started.Add(1)
	e.mu.Lock()
	e.serving = process
	closed := e.closed
	e.mu.Unlock()
	if closed {
		process.Kill()
		return ErrClosed
	}
	e.worker, e.tableBytes, e.asked, e.startedAt = process, 0, make(map[int]bool), time.Now()
	r := start{Tables: writtenMaps, Signatures: e.options.Signatures}
	var fds []int
	for _, name := range r.Tables {
		fds = append(fds, e.chain.maps[name].FD())
	}
	message, err := jsonMessage(opStart, r)
	if err == nil {
		err = process.SendDescriptors(message, fds)
	}
	var answer []byte
	if err == nil {
		answer, err = e.receive(process.Wait(startTimeout), opStart)
	}
	var s started
	if err == nil && json.Unmarshal(answer[1:], &s) != nil {
		err = errAnswer
	}
	if err == nil && s.Failure != "" {
		err = fmt.Errorf("%w: %s", errUnable, s.Failure[:min(len(s.Failure), maxFailureBytes)])
	}
	if err == nil {
		return nil
	}
	if killed := e.kill(nil, err); !errors.Is(killed, ErrKilled) {
		return killed
	}
	return err // and not ErrKilled: that is for the user's sake whom it served
}

// hasEnded reports whether a child has ended. It was not waited for.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	// Raw, since it does not block: see worker.Process.Send.
	_, _, errno := unix.RawSyscall6(unix.SYS_WAITID, unix.P_PID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
		unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	return errno == 0 && info.Signo != 0
}

// kill kills the worker because of an error, without waiting for its end, and deletes what it has
// written. t is what it served, or nil. It returns the error as the caller is to see it.
func (e *Engine) kill(t *Target, err error) error {
	process := e.worker
	e.worker = nil
	e.mu.Lock()
	e.serving = nil
	closed := e.closed
	e.generation++
	clear(e.known)
	onReset := e.onReset
	e.mu.Unlock()
	if onReset != nil {
		onReset()
	}
	process.Kill()
	if isNobodys(err) {
		t = nil
	}
	e.watch(process, t)
	if closed {
		return ErrClosed
	}
	reason := "the worker ended"
	switch {
	case errors.Is(err, worker.ErrTimeout), errors.Is(err, worker.ErrStarved):
		e.counters.TimedOut.Add(1)
		reason = "the worker did not answer in time"
	case errors.Is(err, errExhausted):
		e.counters.Exhausted.Add(1)
	case errors.Is(err, errUnable):
		e.counters.Unable.Add(1)
	case errors.Is(err, errAnswer):
		e.counters.Nonsense.Add(1)
		reason = "the worker answered nonsense"
	default:
		e.counters.Ended.Add(1)
	}
	if t != nil {
		e.quarantine(t, reason)
	}
	if wipeErr := e.wipe(); wipeErr != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.broken = fmt.Errorf("clearing tables: %w", wipeErr)
		return fmt.Errorf("%w: %w", ErrUnavailable, e.broken)
	}
	return fmt.Errorf("%w: %w", ErrKilled, err)
}

// isNobodys reports whether a worker is killed for a reason of which the process that it served need not be
// the cause.
func isNobodys(err error) bool {
	return errors.Is(err, errExhausted) || errors.Is(err, worker.ErrStarved)
}

// watch gives a killed worker, which served t if that is not nil, a moment to end. After that it hangs.
func (e *Engine) watch(process *worker.Process, t *Target) {
	var owner worker.Owner
	if t != nil {
		owner = worker.Owner{PID: t.ID.PID, User: t.User}
	}
	timer := time.NewTimer(killTimeout)
	defer timer.Stop()
	select {
	case <-e.blame.Watch(process, owner):
	case <-timer.C:
	}
}

// wipe deletes all that workers have written. What they write to an array is replaced by the next one.
func (e *Engine) wipe() error {
	var all error
	for _, name := range writtenMaps {
		table := e.chain.maps[name]
		if table.Type() == ebpf.Array {
			continue
		}
		all = errors.Join(all, bpf.EmptyTable(table))
	}
	for _, runtime := range e.chain.runtimes {
		all = errors.Join(all, bpf.EmptyTable(runtime.table))
	}
	return all
}
