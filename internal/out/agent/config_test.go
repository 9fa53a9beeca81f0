package agent

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestDefaultReportInterval(t *testing.T) {
	for delay, want := range map[time.Duration]time.Duration{time.Minute: 100 * time.Millisecond,
		300 * time.Millisecond: 100 * time.Millisecond,
		60 * time.Millisecond:  20 * time.Millisecond, 25 * time.Millisecond: MinReportInterval,
		20 * time.Millisecond: MinReportInterval} {
		got := DefaultReportInterval(delay)
		assert.Check(t, got == want, "for %v: %v, want %v", delay, got, want)
	}
}
