package agent

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"correlator/bpf"
	"correlator/elfsym"
	"correlator/procscan"
)

// scanTimeout is how long one process may take to be looked at by Scan or Inspect. Only one
// that makes us wait on purpose, or stands on a dead file system, takes more than milliseconds.
const scanTimeout = 2 * time.Second

// Scan looks once at every process and returns those that take part, by pid, and how many could
// not be looked into. It sends nothing: it connects to the sockets, to see whether one could.
func Scan(ctx context.Context, procRoot string) (processes []Process, unreadable int, err error) {
	scanner, err := procscan.NewScanner(procRoot)
	if err != nil {
		return nil, 0, err
	}
	files, err := elfsym.NewCache(libraryCacheEntries)
	if err != nil {
		return nil, 0, err
	}
	views := []Process{}
	var mu sync.Mutex
	var looking sync.WaitGroup
	report, err := scanner.Sweep(func(found procscan.Found) {
		looking.Go(func() {
			view := within(ctx, timedOut(found), func() Process {
				view, target := examine(procRoot, files, found)
				if target != nil {
					target.close()
				}
				return view
			})
			if view.State != "" && view.State != StateGone {
				mu.Lock()
				defer mu.Unlock()
				views = append(views, view)
			}
		})
	})
	looking.Wait()
	sortByPID(views)
	return views, len(report.Unreadable), err
}

// ErrNotTarget is Inspect's answer for a process that lives and takes no part.
var ErrNotTarget = errors.New("process does not carry the APM agent's library, or one that is too old")

// Inspect looks once at one process, and at what each of its threads works on. The errors are
// ErrNotTarget, and those of procscan (gone, denied) and of bpf (what is missing to see threads).
func Inspect(ctx context.Context, procRoot string, pid int) (Inspection, error) {
	scanner, err := procscan.NewScanner(procRoot)
	if err != nil {
		return Inspection{}, err
	}
	found, err := scanner.Process(pid)
	if errors.Is(err, procscan.ErrNotFound) {
		return Inspection{}, fmt.Errorf("inspecting process %d: %w", pid, ErrNotTarget)
	}
	if err != nil {
		return Inspection{}, err
	}
	files, err := elfsym.NewCache(1)
	if err != nil {
		return Inspection{}, err
	}
	type answer struct {
		Inspection
		err error
	}
	a := within(ctx, answer{Inspection: Inspection{Process: timedOut(found), Threads: []Thread{}}}, func() (a answer) {
		var target *target
		if a.Process, target = examine(procRoot, files, found); target != nil {
			defer target.close()
			a.Threads, a.err = inspectThreads(procRoot, target)
		}
		return a
	})
	switch a.State {
	case "":
		a.err = ErrNotTarget
	case StateGone:
		a.err = procscan.ErrGone
	}
	if a.err != nil {
		return Inspection{}, fmt.Errorf("inspecting process %d: %w", pid, a.err)
	}
	return a.Inspection, nil
}

// within answers what look does, or late when that takes too long. look then goes on by itself.
func within[T any](ctx context.Context, late T, look func() T) T {
	answer := make(chan T, 1)
	go func() { answer <- look() }()
	timeout := time.NewTimer(scanTimeout)
	defer timeout.Stop()
	select {
	case a := <-answer:
		return a
	case <-timeout.C:
	case <-ctx.Done():
	}
	return late
}

func timedOut(found procscan.Found) Process {
	view := newView(found.Identity)
	view.State, view.Reason = StateError, ReasonTimeout.String()
	view.Library = found.Libraries[0].Path
	return view
}

// examine is the life of a process as far as it goes without sending anything. The target is nil
// when the process was gone before; else the caller closes it.
func examine(procRoot string, files *elfsym.Cache, found procscan.Found) (Process, *target) {
	view := newView(found.Identity)
	t, err := openTarget(procRoot, found)
	if err != nil {
		view.State, view.Reason = describeError(err)
		return view, nil
	}
	if err = t.load(files); len(t.images) > 0 {
		err = t.tryToConnect()
	}
	view.State, view.Reason = StateReady, ""
	if err != nil {
		view.State, view.Reason = describeError(err)
	}
	t.describe(&view)
	return view, t
}

// tryToConnect does what registering takes, short of sending.
func (t *target) tryToConnect() error {
	if _, err := t.look(); err != nil {
		return err
	}
	t.resolve() // what comes of it is shown by itself
	socket, err := t.dial()
	if err != nil {
		return err
	}
	return socket.Close()
}

// inspectThreads looks at all threads of a process at once.
func inspectThreads(procRoot string, t *target) ([]Thread, error) {
	threads, err := bpf.OpenThreads()
	if err != nil {
		return nil, err
	}
	defer threads.Close()
	pid := t.handle.Identity().PID
	var reader contextReader
	if err := reader.findThreads(threads, pid); err != nil {
		return nil, err
	}
	views := make([]Thread, len(reader.threads))
	contexts := make([]threadContext, len(views))
	for i := range contexts {
		contexts[i].outcome = OutcomeNotRegistered
		if t.publishing != nil {
			contexts[i].outcome = OutcomeNoRule
		}
	}
	if t.ruleErr == nil {
		contexts, err = reader.read(t, len(views), func(i int) int { return reader.threads[i].TID })
		if err != nil {
			return nil, err
		}
		if !t.handle.Alive() {
			return nil, procscan.ErrGone
		}
		if !t.stillPublishing() {
			return nil, errWithdrawn
		}
	}
	for i, thread := range reader.threads {
		if contexts[i].outcome == OutcomeCorrelated && !threadLives(procRoot, pid, thread.TID) {
			contexts[i] = threadContext{outcome: OutcomeNoThread}
		}
		views[i] = contexts[i].view(thread.TID, threadName(procRoot, pid, thread.TID))
	}
	slices.SortFunc(views, func(a, b Thread) int { return cmp.Compare(a.TID, b.TID) })
	return views, nil
}

// threadName is what the thread calls itself, at most 15 bytes; empty when it has ended.
func threadName(procRoot string, pid, tid int) string {
	fs, err := procfs.NewFS(procRoot)
	if err != nil {
		return ""
	}
	thread, err := fs.Thread(pid, tid)
	if err != nil {
		return ""
	}
	name, err := thread.Comm()
	if err != nil {
		return ""
	}
	return name
}

func (c threadContext) view(tid int, name string) Thread {
	view := Thread{TID: tid, Name: name, Valid: c.slot.Valid, TracePresent: c.slot.TracePresent, TraceFlags: c.slot.TraceFlags}
	if c.addr != 0 {
		view.Slot = fmt.Sprintf("%#x", c.addr)
	}
	if c.slot.TracePresent {
		view.TraceID = hex.EncodeToString(c.slot.TraceID[:])
		view.SpanID = hex.EncodeToString(c.slot.SpanID[:])
		view.TransactionID = hex.EncodeToString(c.slot.TransactionID[:])
	} else {
		view.Reason = c.outcome.String()
	}
	return view
}
