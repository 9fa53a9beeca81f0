package agent

import (
	"testing"
	"time"
)

func TestConfigValidate(t *testing.T) {
	good := Config{ProcRoot: "/proc", HostID: strings.Repeat("x", 1012), SamplesDelay: 300 * time.Millisecond,
		ScanInterval: time.Second, MaxProcesses: maxMaxProcesses, FeedSocket: "feed"}
	if err := good.Validate(); err != nil {
		t.Errorf("%v, want none", err)
	}
	for want, change := range map[string]func(*Config){
		"--host-id is 1013 bytes long": func(c *Config) { c.HostID += "x" },
		`--host-id "\xff" is not UTF`:  func(c *Config) { c.HostID = "\xff" },
		"is a path of ":                func(c *Config) { c.FeedSocket = "/" + strings.Repeat("f", 107) },
		"--samples-delay 0s":           func(c *Config) { c.SamplesDelay = 0 },
		"--samples-delay 1m0.001s":     func(c *Config) { c.SamplesDelay = time.Minute + time.Millisecond },
		"--samples-delay 1.5ms":        func(c *Config) { c.SamplesDelay = 1500 * time.Microsecond },
		"--scan-interval 9ms is below": func(c *Config) { c.ScanInterval = 9 * time.Millisecond },
		"--max-processes 0 is not":     func(c *Config) { c.MaxProcesses = 0 },
		"--max-processes 9001 is not":  func(c *Config) { c.MaxProcesses = 9001 },
		"--samples-per-second -1":      func(c *Config) { c.SamplesPerSecond = -1 },
		"--report-interval 0s is not":  func(c *Config) { c.SamplesPerSecond = 1 },
		"--report-interval 151ms": func(c *Config) {
			c.SamplesPerSecond, c.ReportInterval = 1,
				151*time.Millisecond
		},
		"--samples-delay 19ms is too short": func(c *Config) {
			c.SamplesPerSecond, c.SamplesDelay = 1, 19*time.Millisecond
			c.ReportInterval = DefaultReportInterval(c.SamplesDelay)
		},
		"--samples-per-second 0 without": func(c *Config) { c.FeedSocket = "" },
		"--report-interval 0s":           func(c *Config) { c.PinMaps = "/sys/fs/bpf/correlator" },
	} {
		bad := good
		change(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestDefaultReportInterval(t *testing.T) {
	for delay, want := range map[time.Duration]time.Duration{time.Minute: 100 * time.Millisecond,
		300 * time.Millisecond: 100 * time.Millisecond,
		60 * time.Millisecond:  20 * time.Millisecond, 25 * time.Millisecond: minReportInterval,
		20 * time.Millisecond: minReportInterval} {
		if got := DefaultReportInterval(delay); got != want {
			t.Errorf("for %v: %v, want %v", delay, got, want)
		}
	}
}
