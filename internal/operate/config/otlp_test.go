package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/out/export"
	opencensus "correlator/opencensus/receiver"
	"correlator/otlp"
	"correlator/otlp/receiver"
)

// said is what an operator says.
type said struct {
	args []string
	env  map[string]string // all variables
	file string
}

// config returns what comes of it. DIR in it is a directory with files.
func (w said) config(t *testing.T, dir string) (*Config, *Settings, error) {
	t.Helper()
	var options struct {
		File
		Config
	}
	options.Config = Default()
	s := NewSettings(&options)
	here := strings.NewReplacer("DIR", dir)
	for name, value := range w.env {
		t.Setenv(name, here.Replace(value))
	}
	defer func() {
		for name := range w.env {
			os.Unsetenv(name)
		}
	}()
	var args []string
	for _, arg := range w.args {
		args = append(args, here.Replace(arg))
	}
	if w.file != "" {
		path := filepath.Join(dir, "c.yaml")
		assert.NilError(t, os.WriteFile(path, []byte(here.Replace(w.file)), 0o600))
		args = append(args, "--config", path)
	}
	if err := flagsOf(s).Parse(args); err != nil {
		return nil, nil, err
	}
	err := s.Load()
	if err == nil {
		err = options.Complete(s, os.Getenv)
	}
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), dir, "DIR"))
	}
	return &options.Config, s, err
}

// someFiles makes a directory with files that are named.
func someFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"ca.pem": "ca", "cert.pem": "cert", "key.pem": "key", "token": "Bearer " +
			"s3cret\r\n", "empty": "\n", "large": strings.Repeat("s3cret", 2000), "odd": "s3cret\x01",
	} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func made(endpoint, name string, change func(*otlp.Destination)) otlp.Destination {
	d := otlp.NewDestination(endpoint)
	d.Name = name
	if change != nil {
		change(&d)
	}
	return d
}

// Who names destinations, in which order, and where credentials go.
func TestDestinations(t *testing.T) {
	dir := someFiles(t)
	credentials := map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "a=s3cret", "OTEL_EXPORTER_OTLP_TIMEOUT": "3000",
		"OTEL_EXPORTER_OTLP_CERTIFICATE": "DIR/ca.pem"}
	with := func(more map[string]string) map[string]string {
		all := maps.Clone(credentials)
		maps.Copy(all, more)
		return all
	}
	ofVariables := func(d *otlp.Destination) {
		d.Headers, d.Timeout, d.Certificate = otlp.Headers{"a": "s3cret"}, 3*time.Second, filepath.Join(dir, "ca.pem")
	}
	byHTTP := func(d *otlp.Destination) { d.Protocol = otlp.HTTPProtobuf }
	const file = "otlp:\n  destinations:\n    - endpoint: http://file\n"
	for _, c := range []struct {
		name string
		said said
		want []otlp.Destination
	}{
		{"nothing", said{env: credentials}, nil},
		{"a flag", said{args: []string{"--otlp-endpoint", "https://a"}},
			[]otlp.Destination{made("https://a", "default", nil)}},
		{"flags, variables for the first",
			said{args: []string{"--otlp-endpoint", "https://a", "--otlp-endpoint=https://b"},
				env: with(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c",
					"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://d"})},
			[]otlp.Destination{made("https://a", "default", ofVariables), made("https://b", "https://b", nil)}},
		{"a variable has several, before a file",
			said{env: map[string]string{"CORRELATOR_OTLP_ENDPOINT": "https://a, unix:/b\nc:1"}, file: file},
			[]otlp.Destination{made("https://a", "default", nil), made("unix:/b", "unix:/b", nil),
				made("c:1", "c:1", nil)}},
		{"a flag before a variable and a file", said{args: []string{"--otlp-endpoint", "https://a"},
			env: map[string]string{"CORRELATOR_OTLP_ENDPOINT": "https://b"}, file: "otlp-endpoint: https://c\n"},
			[]otlp.Destination{made("https://a", "default", nil)}},
		{"endpoints of a file", said{env: credentials, file: "otlp-endpoint: [https://a, https://b]\n"},
			[]otlp.Destination{made("https://a", "default", ofVariables), made("https://b", "https://b", nil)}},
		{"destinations of a file take nothing of variables",
			said{env: with(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c"}), file: file},
			[]otlp.Destination{made("http://file", "http://file", nil)}},
		{"the standard variables", said{env: with(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c"})},
			[]otlp.Destination{made("https://c", "default", ofVariables)}},
		{"the standard variables of a signal", said{env: with(map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "https://m"})},
			[]otlp.Destination{
				made("https://c", "default", func(d *otlp.Destination) {
					ofVariables(d)
					d.Signals = []otlp.Signal{otlp.Traces, otlp.Profiles}
				}),
				made("https://m", "default-metrics",
					func(d *otlp.Destination) { ofVariables(d); d.Signals = []otlp.Signal{otlp.Metrics} }),
			}},
		{"a flag, and a variable of a signal", said{args: []string{"--otlp-endpoint", "https://a"},
			env: map[string]string{"OTEL_EXPORTER_OTLP_PROFILES_TIMEOUT": "1"}},
			[]otlp.Destination{
				made("https://a", "default", func(d *otlp.Destination) {
					d.Signals = []otlp.Signal{otlp.Traces,
						otlp.Metrics}
				}),
				made("https://a", "default-profiles", func(d *otlp.Destination) {
					d.Signals,
						d.Timeout = []otlp.Signal{otlp.Profiles}, time.Millisecond
				}),
			}},
		{"none by a flag", said{args: []string{"--otlp-endpoint", ""},
			env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c"}, file: file}, nil},
		{"none by a file", said{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c"},
			file: "otlp: {destinations: []}\n"}, nil},
		{"none by a file's endpoint", said{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c"},
			file: "otlp-endpoint: []\n"}, nil},
		{"HTTP for all endpoints",
			said{args: []string{"--otlp-endpoint", "https://a/in", "--otlp-endpoint=https://b",
				"--otlp-protocol", "http/protobuf"},
				env: with(map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
					"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"})},
			[]otlp.Destination{
				made("https://a/in", "default", func(d *otlp.Destination) { ofVariables(d); byHTTP(d) }),
				made("https://b", "https://b", byHTTP),
			}},
		{"HTTP by a variable, for all endpoints",
			said{args: []string{"--otlp-endpoint", "https://a/in", "--otlp-endpoint=https://b"},
				env: map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}},
			[]otlp.Destination{
				made("https://a/in", "default", byHTTP),
				made("https://b", "https://b", byHTTP),
			}},
		{"HTTP for the standard variables",
			said{args: []string{"--otlp-protocol", "http/protobuf"}, env: map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c/in", "OTEL_EXPORTER_OTLP_PROTOCOL": "s3cret"}},
			[]otlp.Destination{made("https://c/in", "default", byHTTP)}},
		{"a URL for one signal", said{file: `otlp:
  destinations:
    - {endpoint: "https://c/in", name: a, protocol: http/protobuf}
    - {endpoint: "https://c/in/it", name: b, protocol: http/protobuf, exact-url: true, signals: [traces]}
`}, []otlp.Destination{
			made("https://c/in", "a", byHTTP),
			made("https://c/in/it", "b", func(d *otlp.Destination) {
				d.Protocol, d.ExactURL, d.Signals = otlp.HTTPProtobuf, true, []otlp.Signal{otlp.Traces}
			}),
		}},
		{"the same endpoint, but other URLs", said{file: `otlp:
  destinations:
    - {endpoint: "http://c/in", name: a, protocol: http/protobuf}
    - {endpoint: "http://c/in", name: b, protocol: http/protobuf, exact-url: true, signals: [metrics]}
`}, []otlp.Destination{
			made("http://c/in", "a", byHTTP),
			made("http://c/in", "b", func(d *otlp.Destination) {
				d.Protocol, d.ExactURL, d.Signals = otlp.HTTPProtobuf, true, []otlp.Signal{otlp.Metrics}
			}),
		}},
		{"no endpoint beside destinations", said{file: "otlp-endpoint: []\n" + file},
			[]otlp.Destination{made("http://file", "http://file", nil)}},
		{"everything of a destination", said{file: `otlp:
  destinations:
    - endpoint: a:1
      name: b
      insecure: true
      signals: [profiles, metrics]
      headers: {X-Key: s3cret}
      headers-from: {authorization: DIR/token}
      compression: none
      timeout: 1s
      concurrency: 2
      queue-bytes: 3
      max-request-bytes: 4
      max-age: 0s
      retry-resource-exhausted: true
    - endpoint: https://c
      certificate: DIR/ca.pem
      client-certificate: DIR/cert.pem
      client-key: DIR/key.pem
`}, []otlp.Destination{
			{Name: "b", Endpoint: "a:1", Protocol: otlp.GRPC, Insecure: true,
				Signals:     []otlp.Signal{otlp.Profiles, otlp.Metrics},
				Headers:     otlp.Headers{"X-Key": "s3cret", "authorization": "Bearer s3cret"},
				Compression: otlp.None, Timeout: time.Second, Concurrency: 2, QueueBytes: 3, MaxRequestBytes: 4,
				RetryResourceExhausted: true},
			made("https://c", "https://c", func(d *otlp.Destination) {
				d.Certificate, d.ClientCertificate, d.ClientKey = filepath.Join(dir, "ca.pem"), filepath.Join(dir,
					"cert.pem"), filepath.Join(dir, "key.pem")
			}),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, s, err := c.said.config(t, dir)
			assert.NilError(t, err)
			assert.Check(t, reflect.DeepEqual(got.Export.Destinations, c.want),
				"got\n%+v\nwant\n%+v", got.Export.Destinations, c.want)
			verifyPrinted(t, dir, got, s)
		})
	}
}

// verifyPrinted checks that what is printed shows no secret, and that with the secrets it is a file
// by which the same comes out, whatever the environment is.
func verifyPrinted(t *testing.T, dir string, want *Config, s *Settings) {
	t.Helper()
	var out strings.Builder
	assert.NilError(t, want.Print(&out, s))
	assert.Check(t, !strings.Contains(out.String(), "s3cret"), "printed is\n%s", &out)
	var lines []string
	for line := range strings.Lines(out.String()) {
		if name, _, hidden := strings.Cut(line, ": "); hidden && strings.Contains(line, "# not shown; ") {
			line = name + ": s3cret\n"
		}
		lines = append(lines, line)
	}
	elsewhere := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://elsewhere"}
	again := said{file: strings.Join(lines, ""), env: elsewhere}
	got, _, err := again.config(t, dir)
	if err != nil || !reflect.DeepEqual(got.Export, want.Export) {
		t.Errorf("%v\n%s\ncomes to\n%+v\nnot\n%+v", err, strings.Join(lines, ""), got.Export, want.Export)
	}
	hidden := strings.Contains(out.String(), "# not shown; ")
	_, _, err = (said{file: out.String()}).config(t, dir)
	assert.Check(t, (err == nil) != hidden, "without the secrets: %v", err)
}

// All processes are sampled only where their samples are exported, and then those without a trace are, too.
func TestProcesses(t *testing.T) {
	dir := someFiles(t)
	for arguments, want := range map[string]string{
		"--processes all --otlp-endpoint https://a": "", "--processes all": "are for OTLP and the live view",
		"--processes all --live-listen uds:/run/x/live.sock":                                     "",
		"--processes all --samples-per-second 0 --otlp-listen unix:/x --otlp-endpoint https://a": "are for OTLP",
	} {
		got, _, err := said{args: strings.Fields(arguments)}.config(t, dir)
		if want != "" {
			assert.ErrorContains(t, err, want)
			continue
		}
		assert.Check(t, err == nil && got.Export.Untraced && got.LiveView.Untraced && got.Agent().Filter.All, err)
	}
	got, _, err := said{args: []string{"--otlp-endpoint", "https://a"}}.config(t, dir)
	assert.Check(t, err == nil && !got.Export.Untraced && !got.LiveView.Untraced && !got.Agent().Filter.All, err)
}

// What is not about a destination.
func TestOthers(t *testing.T) {
	dir := someFiles(t)
	got, s, err := said{
		args: []string{"--otlp-endpoint", "https://a", "--otlp-untraced", "--otlp-symbolize"},
		env:  map[string]string{"CORRELATOR_OTLP_LISTEN": "127.0.0.1:4317", "OTEL_METRIC_EXPORT_INTERVAL": " 15000 "},
		file: `otlp:
  queue-bytes: 1
  profiles-interval: 2s
  shutdown-timeout: 0s
  listener:
    {socket-mode: "0666", certificate: DIR/cert.pem, key: DIR/key.pem, client-authorities: DIR/ca.pem,
     max-request-bytes: 5}
opencensus-socket: /run/oc
opencensus:
  {socket-mode: "0666", socket-group: "4711", service-name: shop, prometheus: true, cut-queries: true,
   translate-attributes: true, non-monotonic-sums: true, max-connections: 7, buffer-bytes: 40000000,
   max-trace-bytes: 100000, max-stack-trace-bytes: 0, max-views: 8, max-series-per-view: 9}
metrics-address: 127.0.0.1:0
`}.config(t, dir)
	want := export.Config{
		Destinations: []otlp.Destination{made("https://a", "default", nil)}, QueueBytes: 1,
		Receiver: receiver.Config{
			Listen: "127.0.0.1:4317", SocketMode: 0o666, Certificate: filepath.Join(dir,
				"cert.pem"), Key: filepath.Join(dir, "key.pem"),
			ClientAuthorities: filepath.Join(dir, "ca.pem"), MaxRequestBytes: 5,
		},
		ProfilesInterval: 2 * time.Second, MetricsInterval: 15 * time.Second, Untraced: true,
		Symbolize: true,
		OpenCensus: export.OpenCensus{
			Receiver: opencensus.Config{Socket: "/run/oc", SocketMode: 0o666, Group: "4711", MaxConnections: 7,
				BufferBytes: 40_000_000, MaxTraceBytes: 100_000},
			ServiceName: "shop", Prometheus: true, CutQueries: true, TranslateAttributes: true, NonMonotonicSums: true,
			MaxViews: 8, MaxSeriesPerView: 9,
		},
	}
	if err != nil || !reflect.DeepEqual(got.Export, want) {
		t.Errorf("%+v, %v", got.Export, err)
	}
	verifyPrinted(t, dir, got, s)

	got, _, err = said{env: map[string]string{"OTEL_METRIC_EXPORT_INTERVAL": "15000"},
		file: "otlp: {metrics-interval: 3s}\n"}.config(t, dir)
	if err != nil || got.Export.MetricsInterval != 3*time.Second {
		t.Errorf("a file goes before the variable: %v, %v", got.Export.MetricsInterval, err)
	}
	got, _, err = said{}.config(t, dir)
	want = export.DefaultConfig()
	want.QueueBytes = otlp.DefaultQueueBytes
	want.Receiver.SocketMode = receiver.DefaultSocketMode
	want.Receiver.MaxRequestBytes = receiver.DefaultMaxRequestBytes
	if err != nil || !reflect.DeepEqual(got.Export, want) || got.Export.Enabled() {
		t.Errorf("%+v, %v", got.Export, err)
	}
}
