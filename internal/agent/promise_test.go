package agent

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"correlator/messaging"
)

func TestPromise(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	var counters messaging.Counters
	p := promise{messages: &counters, delay: 300 * time.Millisecond, log: zap.New(core)}
	now := time.Unix(1_000_000, 0)
	window := func(lost, want int) {
		t.Helper()
		counters.Dropped[messaging.ReasonLate].Add(uint64(lost))
		p.judge(now)
		if got := logs.Len(); got != want {
			t.Errorf("at %v: %d warnings, want %d", now.Unix(), got, want)
		}
		now = now.Add(promiseWindow)
	}
	window(0, 0) // nothing was promised to anybody
	window(3, 1) // all is lost
	window(0, 1) // and that was all
	for range int(promisePause/promiseWindow) - 3 {
		window(3, 1) // told already
	}
	now = now.Add(promiseWindow)
	window(3, 2)

	fields := logs.All()[0].ContextMap()
	if fields["missed_share"] != 1.0 || fields["samples_delay"] != p.delay {
		t.Errorf("warning %v", fields)
	}
	if w, _ := fields["window"].(map[string]any); w["lost"] != uint64(3) || w["sent"] != uint64(0) {
		t.Errorf("window %v", w)
	}
}
