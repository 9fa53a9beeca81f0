package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/host/sorting"
	"correlator/procscan"
)

// This file is how recording ends.

// recordFailure records why a process was not sampled, or not to the end, if that is worth
// reporting. It is called with mu held.
func (r *Recorder) recordFailure(h *handler) {
	since, err := h.failure()
	if err == nil || len(r.failed) >= r.options.MaxProcesses {
		return
	}
	if len(h.sampled()) == 0 {
		since = time.Time{}
		if takesNoPart(err) && r.options.PID == 0 {
			return
		}
	} else if state, _ := process.StateOf(err); state != process.StateError { // it has ended, or has ended taking part
		return
	}
	r.failed = append(r.failed, Failure{PID: h.id.PID, Err: err, Since: since})
}

// end waits for the goroutines of the processes, and puts together what was recorded. What is stuck
// is left behind, and what it uses stays open.
func (r *Recorder) end(recording *Recording, at time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), endGrace)
	defer cancel()
	r.manager.Shutdown(ctx)
	r.access.Close()
	learned := make(chan struct{})
	go func() {
		r.learning.Wait()
		close(learned)
	}()
	select {
	case <-learned:
	case <-ctx.Done():
	}
	r.aggregate.close(recording)
	if recording.Start.IsZero() { // it never began
		recording.Start = at
	}
	recording.Duration = max(0, at.Sub(recording.Start))
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, h := range r.processes {
		r.log.Warn("process was not released in time", zap.Int("pid", id.PID))
		if len(h.sampled()) == 0 {
			r.failed = append(r.failed, Failure{PID: id.PID, Err: procscan.ErrStuck})
		}
	}
	recording.Processes = r.sampled()
	recording.Failed = append(r.failed, r.aggregate.failures()...)
	for id, err := range r.refused {
		recording.Failed = append(recording.Failed, Failure{PID: id.PID, Err: err})
	}
	sorting.Stable(recording.Failed, func(a, b Failure) int { return cmp.Compare(a.PID, b.PID) })
	recording.Unreadable = r.counters.ProcessesDenied.Load()
	r.addLost(recording)
	ended := slices.Concat(slices.Collect(maps.Values(r.ended))...) // without those that end later
	recording.close = func() {
		for _, h := range ended {
			h.release()
		}
	}
}

// addLost adds up what became of samples that are not in the recording.
func (r *Recorder) addLost(recording *Recording) {
	lose := func(reason string, samples uint64) {
		if samples > 0 {
			recording.Lost[reason] += samples
		}
	}
	// Without those that processes that were left behind hand on from now on.
	ended := r.aggregate.early + recording.Unselected
	for _, samples := range recording.Samples {
		ended += samples
	}
	for _, samples := range recording.Lost {
		ended += samples
	}
	handed := uint64(0) // over to us by the kernel
	for i := range r.counters.Sampling.Kernel {
		samples := r.counters.Sampling.Kernel[i].Load()
		switch o := bpf.KernelOutcome(i); o {
		case bpf.NoTarget, bpf.Idle:
		case bpf.Correlated, bpf.Unsampled, bpf.NoTrace, bpf.NoSlot, bpf.NotValid, bpf.ZeroIDs, bpf.TableFull,
			bpf.Unreadable:
			handed += samples
		default:
			lose("kernel_"+o.String(), samples)
		}
	}
	for o := range process.NumOutcomes {
		if o.IsLoss() {
			samples := r.counters.Sampling.Outcomes[o].Load()
			lose(o.String(), samples)
			ended += samples
		}
	}
	if ended < handed { // they were on their way to the recording when that was closed
		lose(process.OutcomeAbandoned.String(), handed-ended)
	}
	counters := &r.counters.Sampling
	recording.LostAccounts += counters.AccountsLost.Load() + counters.AccountsUnknown.Load()
	recording.Unaccounted = counters.AccountsUnprepared.Load()
	recording.Missed = counters.Missed.Load()
	recording.LabelsRefused = counters.LabelsRefused.Load()
	recording.AttributesCut, recording.UnknownKeys = counters.AttributesCut.Load(), counters.UnknownKeys.Load()
}

// verify checks that the only process to be recorded was sampled.
func (r *Recorder) verify(recording *Recording) error {
	pid := r.options.PID
	if pid == 0 || len(recording.Processes) > 0 {
		return nil
	}
	err := errors.New("not probed yet")
	if len(recording.Failed) > 0 {
		err = recording.Failed[0].Err
	}
	return fmt.Errorf("recording process %d: %w", pid, err)
}
