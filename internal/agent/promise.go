package agent

import (
	"context"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/messaging"
)

const (
	// promiseWindow is over how long it is judged whether the samples-delay is kept.
	promiseWindow = 10 * time.Second

	// promisePause is how long nothing is said after a warning that it is not.
	promisePause = time.Minute

	// promiseSamples is how many samples it takes to judge: of fewer, 1 % is none.
	promiseSamples = 100

	// promisedShare is how much of the samples may be late: the protocol promises the delay for 99 %.
	promisedShare = 0.01
)

// promise watches whether samples come into the sockets within the samples-delay.
type promise struct {
	timing func() messaging.Timing
	delay  time.Duration
	log    *zap.Logger
	last   messaging.Timing // at the begin of the window
	warned time.Time
}

// watchPromise judges every promiseWindow until ctx ends.
func (a *Agent) watchPromise(ctx context.Context) {
	p := promise{timing: a.counters.Messages.Timing, delay: a.config.SamplesDelay, log: a.log}
	ticker := time.NewTicker(promiseWindow)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			p.judge(now)
		}
	}
}

// judge ends a window. A broken promise is told, but not again and again.
func (p *promise) judge(now time.Time) {
	current := p.timing()
	window := current.Since(&p.last)
	if window.Sent+window.Lost < promiseSamples {
		return // the window goes on
	}
	p.last = current
	if window.Missed() <= promisedShare || !p.warned.IsZero() && now.Sub(p.warned) < promisePause {
		return
	}
	p.warned = now
	reason := "samples_delay_missed_overdue"
	if window.Lost > window.Overdue {
		reason = "samples_delay_missed_lost"
	}
	p.log.Warn("samples-delay is not kept, by this agent or its machine: agents lose samples; a longer --samples-delay helps",
		because(reason), zap.Float64("missed_share", window.Missed()), zap.Duration("samples_delay", p.delay), zap.Object("window", timing(window)))
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
