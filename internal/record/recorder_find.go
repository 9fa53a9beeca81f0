package record

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"correlator/internal/process"
	"correlator/internal/sampling"
	"correlator/procscan"
)

// This file is how the processes to be recorded are found.

// find looks for processes until ctx ends, which it has stopped when the time is over. Those that it finds
// are recorded until serving ends.
func (r *Recorder) find(ctx, serving context.Context, stop context.CancelFunc) error {
	if pid := r.options.PID; pid != 0 {
		found, err := r.scanner.Process(pid)
		if err == nil {
			err = r.take(serving, found)
		}
		if err != nil {
			return fmt.Errorf("recording process %d: %w", pid, err)
		}
	} else if err := r.sweep(ctx, serving); err != nil && r.isIdle() {
		return err
	} else {
		r.failSweep(err)
	}
	r.begin(ctx)
	if r.options.Duration > 0 {
		over := time.AfterFunc(time.Until(r.Progress().Start.Add(r.options.Duration)), stop)
		defer over.Stop()
	}
	if r.options.PID != 0 {
		<-ctx.Done()
		return nil
	}
	next := time.NewTicker(sweepInterval)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			r.failSweep(r.sweep(ctx, serving))
		case <-ctx.Done():
			return nil
		}
	}
}

// begin has samples counted as soon as each process that is there was looked at, from a drain on: what was
// counted together is from before, or from after. It does nothing when ctx ends.
func (r *Recorder) begin(ctx context.Context) {
	waiting, cancel := context.WithTimeout(ctx, attachGrace)
	defer cancel()
	r.mu.Lock()
	first := slices.Collect(maps.Values(r.processes))
	r.mu.Unlock()
	for _, s := range first {
		select {
		case <-s.stepped:
		case <-s.exited:
		case <-waiting.Done():
		}
	}
	attached := time.Now()
	look := time.NewTicker(drainInterval / 10)
	defer look.Stop()
	for ctx.Err() == nil {
		start := r.sampling.LastDrain()
		if late := time.Now(); late.Sub(attached) > attachGrace { // sampling is in trouble, and counts that
			start = late
		}
		if start.After(attached) {
			r.tally.begin(start)
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
}

// isIdle says whether no process was taken up.
func (r *Recorder) isIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.processes)+len(r.recorded) == 0
}

// sweep takes up all processes that are new, and tells the others what they map. With an error it has ended
// early.
func (r *Recorder) sweep(ctx, serving context.Context) error {
	report, err := r.scanner.Sweep(nil, func(found procscan.Found) {
		if ctx.Err() != nil {
			return
		}
		if err := r.take(serving, found); err != nil && !errors.Is(err, procscan.ErrGone) {
			r.refuse(found.ProcessID, err)
		}
	})
	for _, process := range report.Unreadable {
		if _, told := r.denied[process.ProcessID]; !told { // a sweep that ended early forgets whom it told of
			r.denied[process.ProcessID] = struct{}{}
			r.log.Warn("process cannot be looked into", zap.String("reason", "processes_denied"),
				zap.Int("pid", process.PID), zap.Error(process.Err))
		}
	}
	return err
}

// failSweep takes down the first error of a sweep. Later ones have the same reason, as a rule, every second.
func (r *Recorder) failSweep(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && !r.sweepFailed {
		r.sweepFailed = true
		r.failed = append(r.failed, Failure{Err: fmt.Errorf("looking for processes: %w", err)})
		r.log.Error("sweep ended early", zap.String("reason", "sweeps_failed"), zap.Error(err))
	}
}

var errTooManyProcesses = errors.New("too many processes")

// take has a process recorded, and one that is already hear what it maps.
func (r *Recorder) take(serving context.Context, found procscan.Found) error {
	r.mu.Lock()
	known, running, ended := r.processes[found.ProcessID], len(r.processes), len(r.recorded)
	r.mu.Unlock()
	if known != nil {
		known.mu.Lock()
		defer known.mu.Unlock()
		known.mappings = found.Libraries
		return nil
	}
	if limit := r.options.MaxProcesses; running >= limit || ended >= limit {
		return fmt.Errorf("%w: %d are recorded already, and %d have ended", errTooManyProcesses, running, ended)
	}
	t, err := process.Open(r.options.ProcRoot, found, r.options.Filter)
	if err != nil {
		return err
	}
	s := &subject{
		recorder: r, id: found.ProcessID, target: t,
		held:   sampling.NewHeldQueue(),
		exited: make(chan struct{}), stirred: make(chan struct{}, 1), taken: make(chan struct{}, 1),
		stepped: make(chan struct{}),
	}
	s.own = process.NewOwnership(&r.originals, s)
	s.follower = sampling.NewFollower(r.sampling, t, s.receiver)
	if err := r.exits.Add(t.Handle(), func() { close(s.exited) }); err != nil {
		t.Close()
		return err
	}
	r.mu.Lock()
	r.processes[found.ProcessID] = s
	delete(r.refused, found.ProcessID)
	r.mu.Unlock()
	r.running.Go(func() { s.run(serving) })
	return nil
}

// refuse takes down that a process is not recorded for a reason of our own, as long as it is not.
func (r *Recorder) refuse(id procscan.ProcessID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.refused[id]; known || len(r.refused) < r.options.MaxProcesses {
		r.refused[id] = err
	}
}
