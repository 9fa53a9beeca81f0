package agent

import (
	"context"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/messaging"
)

const (
	// delayWindow is over how long it is judged whether the samples-delay is kept.
	delayWindow = 10 * time.Second

	// delayPause is how long nothing is logged after a warning that it is not.
	delayPause = time.Minute

	// delaySamples is how many samples it takes to judge: of fewer, 1 % is none.
	delaySamples = 100

	// lateShare is how much of the samples may be late: the protocol promises the delay for 99 %.
	lateShare = 0.01
)

// delaySLO checks whether samples come into the sockets within the samples-delay.
type delaySLO struct {
	timing func() messaging.Timing
	delay  time.Duration
	log    *zap.Logger
	last   messaging.Timing // at the beginning of the window
	warned time.Time
}

// watchDelay judges every delayWindow until ctx ends.
func (a *Agent) watchDelay(ctx context.Context) {
	slo := delaySLO{timing: a.counters.Messages.Timing, delay: a.config.SamplesDelay, log: a.log}
	ticker := time.NewTicker(delayWindow)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			slo.judge(now)
		}
	}
}

// judge ends a window. That the delay was not kept is logged, but not again and again.
func (d *delaySLO) judge(now time.Time) {
	current := d.timing()
	window := current.Since(&d.last)
	if window.Sent+window.Lost < delaySamples {
		return // the window goes on
	}
	d.last = current
	if window.Missed() <= lateShare || !d.warned.IsZero() && now.Sub(d.warned) < delayPause {
		return
	}
	d.warned = now
	reason := "samples_delay_missed_overdue"
	if window.Lost > window.Overdue {
		reason = "samples_delay_missed_lost"
	}
	d.log.Warn("samples-delay is not kept, by this agent or its machine: agents lose samples; a longer --samples-delay helps",
		because(reason), zap.Float64("missed_share", window.Missed()), zap.Duration("samples_delay", d.delay),
		zap.Object("window", timing(window)))
}

// timing is a messaging.Timing as fields of a log line.
type timing messaging.Timing

func (t timing) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	m := messaging.Timing(t)
	enc.AddUint64("sent", m.Sent)
	enc.AddUint64("overdue", m.Overdue)
	enc.AddUint64("lost", m.Lost)
	enc.AddDuration("p50", m.Quantile(0.5))
	enc.AddDuration("p99", m.Quantile(0.99))
	enc.AddDuration("max", m.Quantile(1))
	return nil
}
