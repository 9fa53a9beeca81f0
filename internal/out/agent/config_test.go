package agent

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/lifecycle"
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

// So many samples are taken, and fetched as often, as the configuration says, of all processes that may be known,
// with frames of the kernel or not.
func TestSamplingOptions(t *testing.T) {
	for _, kernel := range []bool{false, true} {
		a := &Agent{config: Config{SamplesPerSecond: 97, ReportInterval: 30 * time.Millisecond, MaxProcesses: 10,
			KernelStacks: kernel}}
		o := a.samplingOptions()
		assert.Check(t, o.SamplesPerSecond == 97 && o.Interval == 30*time.Millisecond &&
			o.MaxTargets == 10+lifecycle.ExtraProcesses && o.KernelStacks == kernel, "%+v", o)
	}
}
