package report

import (
	"fmt"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/out/record"
)

const redrawInterval = 200 * time.Millisecond

// showProgress shows the progress of a recording until stop is called.
func showProgress(s *terminal.StatusLine, duration time.Duration, progress func() record.Progress) (stop func()) {
	if !s.InPlace() {
		return func() {}
	}
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		redraw := time.NewTicker(redrawInterval)
		defer redraw.Stop()
		for {
			s.Set(progressText(time.Now(), duration, progress()))
			select {
			case <-redraw.C:
			case <-stopped:
				return
			}
		}
	}()
	return func() {
		close(stopped)
		<-done
	}
}

// progressText returns the status line, in ASCII.
func progressText(now time.Time, duration time.Duration, p record.Progress) string {
	if p.Start.IsZero() {
		return "looking for processes"
	}
	share := 0.0
	if p.Samples > 0 {
		share = 100 * float64(p.WithTrace) / float64(p.Samples)
	}
	return fmt.Sprintf("recording %v of %v: %d samples, %.0f%% in transactions, %d processes (Ctrl-C ends it)",
		min(now.Sub(p.Start), duration).Truncate(time.Second), duration, p.Samples, share, p.Processes)
}
