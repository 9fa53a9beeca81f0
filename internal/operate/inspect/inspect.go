package inspect

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/host/sorting"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/procscan"
)

// Thread is what one thread of a process works on, as `inspect` prints it. The ids are lower-case
// hex, and absent when no trace was active or the slot could not be read.
type Thread struct {
	TID           int    `json:"tid"`
	Name          string `json:"name"`
	Slot          string `json:"slot,omitempty"` // address in the process, hex; absent when the thread has none
	Valid         bool   `json:"valid"`
	TracePresent  bool   `json:"trace_present"`
	TraceFlags    uint8  `json:"trace_flags"`
	TraceID       string `json:"trace_id,omitempty"`
	SpanID        string `json:"span_id,omitempty"`
	TransactionID string `json:"transaction_id,omitempty"`
	Reason        string `json:"reason,omitempty"` // why there is no trace: a process.SampleOutcome's name
}

// Why there is no trace of a thread that publishes by OpenTelemetry's standard alone.
const (
	// The standard forbids reading what it works on unless it is interrupted, so only samples have it.
	reasonWhileRunning = "read_while_sampled"
	reasonSchema       = "schema_not_read" // nor have samples
	reasonNoSchema     = "no_thread_contexts"
)

// Inspection is a process and its threads, as `inspect` prints them.
type Inspection struct {
	process.View
	Threads []Thread `json:"threads"`
}

// errNotTarget: the process lives and takes no part.
var errNotTarget = errors.New("process publishes no context: neither Elastic's library (of an agent that is not too " +
	"old) nor OTEL_CTX is mapped; \"correlator record --pid\" needs none")

// Inspect probes one process, and what each of its threads works on. The errors are errNotTarget,
// those of procscan (gone, denied) and bpf.MissingError (what is missing to see the process or its
// threads). With an error, what could be read is returned, if its PID is not 0.
func Inspect(ctx context.Context, procRoot string, pid int) (Inspection, error) {
	scanner, err := procscan.NewScanner(procRoot)
	if err != nil {
		return Inspection{}, err
	}
	found, err := scanner.Process(pid)
	if hidden := checkHidden(procRoot, pid); err != nil && hidden != nil {
		return Inspection{}, fmt.Errorf("inspecting process %d: %w", pid, hidden)
	}
	if errors.Is(err, procscan.ErrNotFound) {
		return Inspection{}, fmt.Errorf("inspecting process %d: %w", pid, whyNotTarget(scanner, procRoot, pid))
	}
	if missing := missingRights(); missing != nil && errors.Is(err, procscan.ErrDenied) {
		return Inspection{}, fmt.Errorf("%w: %w", err, missing)
	}
	if err != nil {
		return Inspection{}, err
	}
	client, err := access.Open(procRoot, new(worker.Counters))
	if err != nil {
		return Inspection{}, err
	}
	defer client.Close()
	type result struct {
		Inspection
		err error
	}
	r := within(ctx, result{Inspection: Inspection{View: timedOut(found), Threads: []Thread{}}}, func() (r result) {
		var t *process.Target
		r.Threads = []Thread{}
		filter, _ := process.Filter{}.Resolve(procRoot) // for the path of the cgroup, as scan shows it
		if r.View, t = examine(client, procRoot, found, filter); t != nil {
			defer t.Close()
			r.Threads, r.err = inspectThreads(t, &r.View)
		}
		return r
	})
	switch r.State {
	case "":
		r.err = errNotTarget
	case process.StateGone:
		r.err = procscan.ErrGone
	}
	if r.err != nil {
		return Inspection{}, fmt.Errorf("inspecting process %d: %w", pid, r.err)
	}
	if missing := missingRights(); missing != nil && lacksRights(r.View) {
		return r.Inspection, fmt.Errorf("not permitted to read process %d: %w", pid, missing)
	}
	return r.Inspection, nil
}

func inspectThreads(t *process.Target, view *process.View) ([]Thread, error) {
	iterator, err := bpf.OpenThreads()
	if err != nil {
		return nil, err
	}
	defer iterator.Close()
	pid := t.Handle().Identity().PID
	var reader process.ContextReader
	threads, err := reader.FindThreads(iterator, pid)
	if err != nil {
		return nil, err
	}
	views := make([]Thread, len(threads))
	contexts := make([]process.Context, len(threads))
	for i := range contexts {
		contexts[i].Outcome = process.OutcomeNotRegistered
		if t.HasStorage() {
			contexts[i].Outcome = process.OutcomeNoRule
		}
	}
	if _, err := t.Rule(); err == nil {
		contexts, err = reader.ReadThreads(t, len(threads), func(i int) int { return threads[i].TID })
		if err != nil {
			return nil, err
		}
		if err := t.CheckPublishing(); err != nil {
			return nil, err
		}
	}
	for i, thread := range threads {
		if contexts[i].Slot.TracePresent && !t.HasThread(thread.TID) {
			contexts[i] = process.Context{Outcome: process.OutcomeNoThread}
		}
		name, _ := t.Handle().ThreadName(thread.TID) // "" when it has ended
		views[i] = newThread(thread.TID, name, contexts[i])
		switch {
		case !t.HasContext() || t.HasStorage():
		case view.UnreadSchema() != "":
			views[i].Reason = reasonSchema
		case view.OTel.Schema == "":
			views[i].Reason = reasonNoSchema
		default:
			views[i].Reason = reasonWhileRunning
		}
	}
	sorting.Sort(views, func(a, b Thread) int { return cmp.Compare(a.TID, b.TID) })
	return views, nil
}

func newThread(tid int, name string, c process.Context) Thread {
	view := Thread{TID: tid, Name: name, Valid: c.Slot.Valid, TracePresent: c.Slot.TracePresent,
		TraceFlags: c.Slot.TraceFlags}
	if c.Addr != 0 {
		view.Slot = fmt.Sprintf("%#x", c.Addr)
	}
	if c.Slot.TracePresent {
		view.TraceID = hex.EncodeToString(c.Slot.TraceID[:])
		view.SpanID = hex.EncodeToString(c.Slot.SpanID[:])
		if c.Slot.TransactionID != [8]byte{} {
			view.TransactionID = hex.EncodeToString(c.Slot.TransactionID[:])
		}
	} else {
		view.Reason = c.Outcome.String()
	}
	return view
}
