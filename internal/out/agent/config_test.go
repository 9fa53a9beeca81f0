package agent

import (
	"testing"
	"time"
)

func TestDefaultReportInterval(t *testing.T) {
	for delay, want := range map[time.Duration]time.Duration{time.Minute: 100 * time.Millisecond,
		300 * time.Millisecond: 100 * time.Millisecond,
		60 * time.Millisecond:  20 * time.Millisecond, 25 * time.Millisecond: MinReportInterval,
		20 * time.Millisecond: MinReportInterval} {
		if got := DefaultReportInterval(delay); got != want {
			t.Errorf("for %v: %v, want %v", delay, got, want)
		}
	}
}
