package record

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/internal/process"
	"correlator/procscan"
)

// This file is how recording ends, of one process and of all.

// ended is called by a process's goroutine when it ends. Of a process that has ended itself, the roots alone
// stay open.
func (r *Recorder) ended(s *subject) {
	exited, sampled := !s.target.Handle().Alive(), len(s.sampled()) > 0
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.processes, s.id)
	r.fail(s)
	if sampled {
		r.recorded = append(r.recorded, s)
	}
	if exited || !sampled {
		s.target.Close()
	}
	if r.options.PID != 0 {
		close(r.over)
	}
}

// fail takes down why a process was not sampled, or not to the end, if that is worth telling. It is called
// with mu held.
func (r *Recorder) fail(s *subject) {
	since, err := s.trouble()
	if err == nil || len(r.failed) >= r.options.MaxProcesses {
		return
	}
	if len(s.sampled()) == 0 {
		since = time.Time{}
		if takesNoPart(err) && r.options.PID == 0 {
			return
		}
	} else if state, _ := process.StateOf(err); state != process.StateError { // it has ended, or has ended taking part
		return
	}
	r.failed = append(r.failed, Failure{PID: s.id.PID, Err: err, Since: since})
}

// end waits for the goroutines of the processes, and puts together what was recorded. What is stuck is left
// behind, and what it uses stays open.
func (r *Recorder) end(recording *Recording, at time.Time) {
	ended := make(chan struct{})
	go func() {
		r.running.Wait()
		close(ended)
	}()
	timeout := time.NewTimer(endGrace)
	defer timeout.Stop()
	select {
	case <-ended:
		r.exits.Close()
		if err := r.sampling.Close(); err != nil {
			r.log.Error("sampling did not end well", zap.Error(err))
		}
	case <-timeout.C:
	}
	r.tally.close(recording)
	if recording.Start.IsZero() { // it never began
		recording.Start = at
	}
	recording.Duration = max(0, at.Sub(recording.Start))
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range r.processes {
		r.log.Warn("process does not let go of us", zap.Int("pid", id.PID))
		if len(s.sampled()) == 0 {
			r.failed = append(r.failed, Failure{PID: id.PID, Err: procscan.ErrStuck})
		}
	}
	recording.Processes = r.sampled()
	recording.Failed = append(r.failed, r.tally.truncated()...)
	for id, err := range r.refused {
		recording.Failed = append(recording.Failed, Failure{PID: id.PID, Err: err})
	}
	slices.SortStableFunc(recording.Failed, func(a, b Failure) int { return cmp.Compare(a.PID, b.PID) })
	r.addLost(recording)
	closing := r.recorded
	recording.close = func() {
		for _, s := range closing {
			s.close()
		}
	}
}

// addLost takes down what became of samples that are not in the recording.
func (r *Recorder) addLost(recording *Recording) {
	lose := func(reason string, samples uint64) {
		if samples > 0 {
			recording.Lost[reason] += samples
		}
	}
	handed := uint64(0) // over to us by the kernel
	for i := range r.counters.Kernel {
		samples := r.counters.Kernel[i].Load()
		switch o := bpf.KernelOutcome(i); o {
		case bpf.NoTarget, bpf.Idle:
		case bpf.Correlated, bpf.Unsampled, bpf.NoTrace, bpf.NoSlot, bpf.TableFull, bpf.Unreadable:
			handed += samples
		default:
			lose("kernel_"+o.String(), samples)
		}
	}
	for o := range process.NumOutcomes {
		if o != process.OutcomeCorrelated && o != process.OutcomeUntraced {
			lose(o.String(), r.counters.Outcomes[o].Load())
		}
	}
	if ended := r.counters.Outcomes.Sum(); ended < handed {
		lose(LostHanging, handed-ended)
	}
	recording.Missed = r.counters.Missed.Load()
}

// verify makes sure that the only process to be recorded was sampled.
func (r *Recorder) verify(recording *Recording) error {
	pid := r.options.PID
	if pid == 0 || len(recording.Processes) > 0 {
		return nil
	}
	err := errors.New("not looked at yet")
	if len(recording.Failed) > 0 {
		err = recording.Failed[0].Err
	}
	return fmt.Errorf("recording process %d: %w", pid, err)
}
