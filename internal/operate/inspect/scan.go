// Package inspect probes the processes of the host once, or the threads of one: what `scan` and
// `inspect` show. It sends nothing.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"correlator/internal/attach/process"
	"correlator/internal/host/sorting"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/procscan"
)

// scanTimeout is how long Scan or Inspect wait for the probe of one process. On a busy machine, a worker that
// gets little CPU time has two seconds for a request, five times; one that hangs is given up after two. Only a
// process that blocks us otherwise takes longer.
const scanTimeout = 10 * time.Second

// Process is a process as `scan` prints it.
type Process struct {
	process.View
	// Unwinding is how far its runtimes can be read for unwinding. nil: it was not examined, as it is not served.
	Unwinding *unwind.Readability `json:"unwinding,omitempty"`
}

// Scan probes every process once and returns those that take part, or would but for the filter, by
// pid, and how many could not be examined. It sends nothing: it connects to the sockets, to see
// whether one could. When there are processes that we have no rights to read, the error wraps a
// bpf.MissingError, and the others are returned with it.
func Scan(ctx context.Context, procRoot string, filter process.Filter) (processes []Process, unreadable int,
	err error) {
	scanner, err := procscan.NewScanner(procRoot)
	if err != nil {
		return nil, 0, err
	}
	if filter, err = filter.Resolve(procRoot); err != nil {
		return nil, 0, err
	}
	client, err := access.Open(procRoot, new(worker.Counters))
	if err != nil {
		return nil, 0, err
	}
	defer client.Close()
	prober, err := unwind.OpenProber(procRoot)
	if err != nil {
		return nil, 0, err
	}
	defer prober.Close()
	views := []Process{}
	var mu sync.Mutex
	var probing sync.WaitGroup
	report, err := scanner.Sweep(nil, func(found procscan.Found) {
		probing.Go(func() {
			type result struct {
				process.View
				owner worker.User
			}
			r := within(ctx, result{View: timedOut(found)}, func() (r result) {
				var t *process.Target
				if r.View, t = examine(client, procRoot, found, filter); t != nil {
					r.owner = t.Owner()
					t.Close()
				}
				return r
			})
			view := probeRuntimes(ctx, prober, r.View, r.owner)
			if view.State != "" && view.State != process.StateGone {
				mu.Lock()
				defer mu.Unlock()
				views = append(views, view)
			}
		})
	})
	silent, silentErr := process.NewSilentSearch(scanner, client, procRoot, filter).Look(ctx)
	missed := silent.Missed
	if silentErr != nil {
		missed++
	}
	probing.Wait()
	for _, view := range silent.Views {
		views = append(views, Process{View: view})
	}
	sorting.Sort(views, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	if err != nil {
		return nil, 0, err
	}
	missing := missingRights()
	if missing == nil { // something else denies them, as a security module
		return views, len(report.Unreadable) + missed, nil
	}
	denied := 0
	for _, u := range report.Unreadable {
		if errors.Is(u.Err, procscan.ErrDenied) {
			denied++
		}
	}
	unreadable = len(report.Unreadable) + missed - denied
	for _, view := range views {
		if lacksRights(view.View) {
			denied++
		}
	}
	if denied > 0 {
		return views, unreadable, fmt.Errorf("not permitted to read %d processes: %w", denied, missing)
	}
	return views, unreadable, checkHidden(procRoot, 1)
}

// probeRuntimes returns a process with what is known of its runtimes, if it is served, or is to be when it publishes
// something. That waits for those of other processes.
func probeRuntimes(ctx context.Context, prober *unwind.Prober, view process.View, owner worker.User) Process {
	p := Process{View: view}
	if view.State != process.StateReady && view.State != process.StateNoStorage || ctx.Err() != nil {
		return p
	}
	readability, err := prober.Probe(view.ID, owner)
	if err != nil {
		p.State, p.Reason = process.StateGone, ""
	}
	p.Unwinding = &readability
	return p
}

// within returns what probe does, or late when that takes too long. probe then goes on by itself.
func within[T any](ctx context.Context, late T, probe func() T) T {
	result := make(chan T, 1)
	go func() { result <- probe() }()
	timeout := time.NewTimer(scanTimeout)
	defer timeout.Stop()
	select {
	case r := <-result:
		return r
	case <-timeout.C:
	case <-ctx.Done():
	}
	return late
}

func timedOut(found procscan.Found) process.View {
	view := process.NewView(found.ProcessID)
	view.State, view.Reason = process.StateError, process.ReasonTimeout.String()
	if len(found.Libraries) > 0 {
		view.Library = found.Libraries[0].Path
	}
	return view
}

// examine probes a process like one that is registered with, and sends nothing. The target is nil
// when the process was gone before; else the caller closes it.
func examine(client *access.Client, procRoot string, found procscan.Found, filter process.Filter) (process.View,
	*process.Target) {
	view := process.NewView(found.ProcessID)
	t, err := process.Open(client, procRoot, found, filter)
	if err != nil {
		view.State, view.Reason = process.StateOf(err)
		return view, nil
	}
	if err = t.Load(); t.IsUsable() {
		err = tryToConnect(t)
	}
	view.State, view.Reason = process.StateReady, ""
	if err != nil {
		view.State, view.Reason = process.StateOf(err)
	}
	t.Describe(&view)
	return view, t
}

// tryToConnect does what registering takes, short of sending.
func tryToConnect(t *process.Target) error {
	if _, err := t.Probe(); err != nil {
		return err
	}
	_ = t.Resolve() // the result is in the view
	if !t.HasStorage() {
		return nil
	}
	socket, err := t.Dial(0) // nothing is sent
	if err != nil {
		return err
	}
	return socket.Close()
}
