package config

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/messaging"
)

func TestValidate(t *testing.T) {
	good := func() *Config {
		c := Default()
		c.Agents.HostID = strings.Repeat("x", messaging.MaxHostIDBytes)
		c.Discovery.MaxProcesses = 9000
		c.Samplers.FeedSocket, c.Samples.ReportInterval = "feed", 100*time.Millisecond
		return &c
	}
	for _, test := range []struct {
		want   string
		change func(*Config)
	}{
		{"", func(*Config) {}},
		{`--exclude-user: "www-data" matches no user's id`, func(c *Config) { c.Filter.ExcludeUsers = Patterns{"www-data"} }},
		{`--include-container: "kube" matches no container's id`,
			func(c *Config) { c.Filter.IncludeContainers = Patterns{"kube"} }},
		{"--log-level: \"loud\" is none of debug, info, warn and error",
			func(c *Config) { c.Monitoring.LogLevel = "loud" }},
		{"--log-level: \"fatal\" is none of", func(c *Config) { c.Monitoring.LogLevel = "fatal" }},
		{"--log-format: \"xml\" is neither console nor json", func(c *Config) { c.Monitoring.LogFormat = "xml" }},
		{"--host-id is 1013 bytes long", func(c *Config) { c.Agents.HostID += "x" }},
		{`--host-id "\xff" is not UTF`, func(c *Config) { c.Agents.HostID = "\xff" }},
		{"--feed-socket /fff", func(c *Config) { c.Samplers.FeedSocket = "/" + strings.Repeat("f", 107) }},
		{"--admin-socket /fff", func(c *Config) { c.Monitoring.AdminSocket = "/" + strings.Repeat("f", 107) }},
		{"--admin-socket and --feed-socket are both feed", func(c *Config) { c.Monitoring.AdminSocket = "feed" }},
		{"--metrics-address localhost is not host:port", func(c *Config) { c.Monitoring.MetricsAddress = "localhost" }},
		{"--samples-delay 0s is not between", func(c *Config) { c.Agents.SamplesDelay = 0 }},
		{"--samples-delay 1m0.001s is not between",
			func(c *Config) { c.Agents.SamplesDelay = time.Minute + time.Millisecond }},
		{"--samples-delay 1.5ms is not between", func(c *Config) { c.Agents.SamplesDelay = 1500 * time.Microsecond }},
		{"--scan-interval 9ms is below", func(c *Config) { c.Discovery.ScanInterval = 9 * time.Millisecond }},
		{"--processes: \"none\" is neither contexts nor all", func(c *Config) { c.Discovery.Processes = "none" }},
		{"--max-processes 0 is not between 1 and 9000", func(c *Config) { c.Discovery.MaxProcesses = 0 }},
		{"--max-processes 9001 is not between", func(c *Config) { c.Discovery.MaxProcesses = 9001 }},
		{"--samples-per-second -1 is not between 0 and 10000", func(c *Config) { c.Samples.PerSecond = -1 }},
		{"--samples-per-second 10001 is not", func(c *Config) { c.Samples.PerSecond = 10001 }},
		{"--report-interval 0s is not between 10ms and half of --samples-delay 300ms",
			func(c *Config) { c.Samples.ReportInterval = 0 }},
		{"--report-interval 151ms is not", func(c *Config) { c.Samples.ReportInterval = 151 * time.Millisecond }},
		{"--samples-delay 19ms is too short", func(c *Config) {
			c.Agents.SamplesDelay, c.Samples.ReportInterval = 19*time.Millisecond, 10*time.Millisecond
		}},
		{"--samples-per-second 0 without", func(c *Config) { c.Samples.PerSecond, c.Samplers.FeedSocket = 0, "" }},
		{"", func(c *Config) { c.Samples.PerSecond, c.Samples.ReportInterval = 0, 0 }}, // not used
		{"--report-interval 0s is not", func(c *Config) {
			c.Samples.PerSecond, c.Samples.ReportInterval, c.Samplers.PinMaps = 0, 0, "/sys/fs/bpf/correlator"
		}},
	} {
		c := good()
		test.change(c)
		err := c.validate(NewSettings(c))
		assert.Check(t, (err == nil) == (test.want == "") && (err == nil || strings.HasPrefix(err.Error(), test.want)),
			"%v, want %q", err, test.want)
	}
}

// A wrong value names where it comes from, and so does one that it depends on.
func TestValidateNamesSources(t *testing.T) {
	for _, c := range []struct {
		said said
		want string
	}{
		{said{file: "samples-per-second: 0\n"}, "samples-per-second 0 (DIR/c.yaml:1) without --feed-socket or " +
			"--pin-maps"},
		{said{file: "log-level: loud\n"}, `log-level (DIR/c.yaml:1): "loud" is none of`},
		{said{file: "feed-socket: a\n", args: []string{"--admin-socket", "a"}},
			"--admin-socket and feed-socket (DIR/c.yaml:1) are both a"},
	} {
		_, _, err := c.said.config(t, t.TempDir())
		assert.Check(t, err != nil && strings.HasPrefix(err.Error(), c.want), "%v, want %s", err, c.want)
	}
}

// A default is derived from another setting unless a value is given, which may be empty.
func TestComplete(t *testing.T) {
	for _, c := range []struct {
		args     []string
		interval time.Duration
	}{{nil, 100 * time.Millisecond}, {[]string{"--samples-delay", "60ms"},
		20 * time.Millisecond}, {[]string{"--report-interval", "50ms"}, 50 * time.Millisecond}} {
		got, _, err := said{args: c.args}.config(t, t.TempDir())
		assert.Check(t, err == nil && got.Agent().ReportInterval == c.interval, "%q: %+v, %v", c.args, got, err)
	}
	for _, c := range []struct {
		args  []string
		waits bool
	}{{nil, false}, {[]string{"--keep", "1m"}, true}, {[]string{"--otlp-endpoint", "unix:/x"}, true},
		{[]string{"--live-listen", "uds:/x"}, true},
		{[]string{"--keep", "1m", "--otlp-endpoint", "unix:/x", "--waits", "off"}, false}} {
		got, _, err := said{args: c.args}.config(t, t.TempDir())
		assert.Check(t, err == nil && got.Agent().Waits == c.waits, "%q: %v", c.args, err)
	}
	if got, _, err := (said{args: []string{"--host-id", ""}}).config(t, t.TempDir()); err != nil ||
		got.Agents.HostID != "" {
		t.Errorf("%q, %v", got.Agents.HostID, err)
	}
}

// An agent without samples that receives what others send serves no process: agents would wait for samples.
func TestReceivesOnly(t *testing.T) {
	for _, c := range []struct {
		args []string
		only bool
	}{
		{[]string{"--samples-per-second=0", "--opencensus-socket=/php", "--otlp-endpoint=http://c"}, true},
		{[]string{"--samples-per-second=0", "--otlp-listen=unix:/in", "--otlp-endpoint=http://c"}, true},
		{[]string{"--samples-per-second=0", "--opencensus-socket=/php", "--otlp-endpoint=http://c",
			"--feed-socket=/f"}, false},
		{[]string{"--opencensus-socket=/php", "--otlp-endpoint=http://c"}, false},
	} {
		got, _, err := said{args: c.args}.config(t, t.TempDir())
		assert.NilError(t, err)
		filter := got.Agent().Filter
		assert.Check(t, got.ReceivesOnly() == c.only && filter.Nothing == c.only, "%q: %+v", c.args, filter)
	}
}

// The beginning of a container's id, as engines print it, stands for the id; nothing else is changed.
func TestContainersByBeginning(t *testing.T) {
	f := Filter{ExcludeContainers: Patterns{"8d3f12345678", "8d3f", "/8d3f12345678"}}
	filter := f.Process().ExcludeContainers
	assert.Check(t, filter[0].MatchString("8d3f12345678"+strings.Repeat("a", 52)))
	assert.Check(t, !filter[0].MatchString("8d3f12345678/a") && !filter[1].MatchString("8d3f1"))
	assert.Check(t, !filter[2].MatchString("/8d3f123456789"))
}
