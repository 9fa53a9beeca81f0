package record

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"

	"correlator/internal/stacks/sampling"
)

// settling is an unwinder that takes some time.
type settling struct {
	takes  time.Duration
	status *sampling.UnwindingStatus
}

func (s settling) Settle(ctx context.Context) {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
	}
}

func (s settling) Unwinding() *sampling.UnwindingStatus { return s.status }

// Recording begins when stacks are unwound, or without, which it says. The time is that of a bubble.
func TestSettle(t *testing.T) {
	const waiting = "waiting until stacks can be unwound"
	const walked = "stacks are walked by frame pointers until they can be unwound: the machine is busy, or runtimes start"
	loading, unwound := &sampling.UnwindingStatus{Needed: true, Waiting: 2}, &sampling.UnwindingStatus{Unwound: 2}
	for what, c := range map[string]struct {
		settling
		cancel time.Duration // 0: not
		took   time.Duration
		want   []string
	}{
		"at once":                 {settling{0, unwound}, 0, 0, nil},
		"no engine was asked for": {settling{0, nil}, 0, 0, nil},
		"in time":                 {settling{time.Second, loading}, 0, time.Second, nil},
		"late":                    {settling{unwindNotice + 1, loading}, 0, unwindNotice + 1, []string{waiting}},
		"too late":                {settling{time.Hour, loading}, 0, unwindGrace, []string{waiting, walked}},
		"of nobody":               {settling{time.Hour, unwound}, 0, unwindGrace, []string{waiting}},
		"interrupted":             {settling{time.Hour, loading}, time.Second, time.Second, nil},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zapcore.WarnLevel)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				began := time.Now()
				settle(ctx, c.settling, unwindGrace, zap.New(core))
				took := time.Since(began)
				assert.Check(t, took == c.took, "after %v, want %v", took, c.took)
				var got []string
				for _, entry := range logs.All() {
					got = append(got, entry.Message)
					if n := entry.ContextMap()["processes"]; entry.Message == walked && (n != int64(2) ||
						entry.ContextMap()["error"] != loading.Err().Error()) {
						t.Errorf("%v", entry.ContextMap())
					}
				}
				assert.Check(t, slices.Equal(got, c.want), "logged %q, want %q", got, c.want)
			})
		})
	}
}
