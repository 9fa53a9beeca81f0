package agent

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"

	"correlator/messaging"
)

func TestDelaySLO(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	var now messaging.Timing
	p := delaySLO{timing: func() messaging.Timing { return now }, delay: 300 * time.Millisecond, log: zap.New(core)}
	at := time.Unix(1_000_000, 0)
	window := func(sent, lost uint64, want int) {
		t.Helper()
		now.Sent, now.Lost = now.Sent+sent, now.Lost+lost
		p.judge(at)
		if got := logs.Len(); got != want {
			t.Errorf("at %v: %d warnings, want %d", at.Unix(), got, want)
		}
		at = at.Add(delayWindow)
	}
	window(0, 0, 0)     // nobody was registered with
	window(9900, 99, 0) // kept
	window(50, 49, 0)   // too few to tell
	window(0, 1, 1)     // all of them together
	window(10000, 0, 1)
	for range int(delayPause/delayWindow) - 2 {
		window(0, 100, 1) // logged already
	}
	window(0, 100, 2)

	fields := logs.All()[0].ContextMap()
	assert.Check(t, fields["missed_share"] == 0.5 && fields["samples_delay"] == p.delay, "warning %v", fields)
	w, _ := fields["window"].(map[string]any)
	assert.Check(t, w["lost"] == uint64(50) && w["sent"] == uint64(50), "window %v", w)
}
