package config

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

const (
	one  = "otlp:\n  destinations:\n    - endpoint: "
	next = "\n    - endpoint: "
	more = "\n      "
)

// What cannot work is refused with who said it, and without a secret.
func TestRefused(t *testing.T) {
	dir := someFiles(t)
	long := "unix:/" + strings.Repeat("l", 200)
	flag := func(args ...string) said { return said{args: args} }
	variable := func(name, value string) said {
		return said{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://a", name: value}}
	}
	php := func(socket, keys, file string) said {
		return said{args: []string{"--opencensus-socket", socket}, file: "opencensus: {" + keys + "}\n" + file}
	}
	listening := func(listen, file string) said { return said{args: []string{"--otlp-listen", listen}, file: file} }
	for _, c := range []struct {
		said said
		want string
	}{
		// Endpoints
		{flag("--otlp-endpoint", "ftp://a"), `--otlp-endpoint: endpoint: scheme "ftp" is none of http, https, unix`},
		{flag("--otlp-endpoint", "https://u:s3cret@a"), "--otlp-endpoint: endpoint: credentials belong in headers"},
		{flag("--otlp-endpoint", "https://a", "--otlp-endpoint", "https://b?key=s3cret"),
			"--otlp-endpoint, number 2: endpoint: has a query or a fragment"},
		{said{env: map[string]string{"CORRELATOR_OTLP_ENDPOINT": "u:s3cret@a"}},
			"otlp-endpoint (environment variable CORRELATOR_OTLP_ENDPOINT): endpoint: "},
		{said{file: "\notlp-endpoint: https://u:s3cret@a\n"},
			"otlp-endpoint (DIR/c.yaml:2): endpoint: credentials belong in headers"},
		{said{file: one + "https://u:s3cret@a"}, "DIR/c.yaml:3: otlp.destinations[0]: endpoint: credentials belong " +
			"in headers"},
		{variable("OTEL_EXPORTER_OTLP_ENDPOINT", "https://u:s3cret@a"),
			"environment variable OTEL_EXPORTER_OTLP_ENDPOINT: endpoint: credentials belong in headers"},
		{said{file: "otlp-endpoint: https://a\n" + one + "https://b\n"},
			"otlp-endpoint (DIR/c.yaml:1): the same file has otlp.destinations"},
		{said{file: one + `""`}, "DIR/c.yaml:3: otlp.destinations[0]: endpoint is missing"},

		// A destination
		{said{file: one + "https://a" + more + "nam: b"},
			`DIR/c.yaml:4: otlp.destinations[0]: unknown key "nam"; did you mean name?`},
		{said{file: one + "https://a" + more + "header: {a: s3cret}"},
			`DIR/c.yaml:4: otlp.destinations[0]: unknown key "header"; did you mean headers?`},
		{said{file: one + "https://a" + more + "headers: {a=s3cret}"},
			"DIR/c.yaml:4: otlp.destinations[0].headers: a name with other characters"},
		{said{file: one + "https://a" + more + "headers: {a: \"s3cret\\n\"}"},
			`DIR/c.yaml:3: otlp.destinations[0]: header "a": its value is not printable ASCII`},
		{said{file: one + "https://a" + more + "headers: {Grpc-Timeout: s3cret}"},
			`DIR/c.yaml:3: otlp.destinations[0]: header "Grpc-Timeout": reserved`},
		{said{file: one + "https://a" + more + "headers: {a: s3cret}" + more + "headers-from: {a: DIR/token}"},
			"otlp.destinations[0]: header a is in headers and in headers-from"},
		{said{file: one + "https://a" + more + "headers-from: {te: DIR/token}"},
			`otlp.destinations[0]: header "te": reserved`},
		{said{file: one + "https://a" + more + "headers-from: {a: DIR/none}"},
			"DIR/c.yaml:4: otlp.destinations[0].headers-from: a: reading the file: no such file or directory"},
		{said{file: one + "https://a" + more + "headers-from: {a: Bearer s3cret}"},
			"otlp.destinations[0].headers-from: a: reading the file: no such file or directory"},
		{said{file: one + "https://a" + more + "headers-from: {a: DIR}"},
			"otlp.destinations[0].headers-from: a: reading the file: is a directory"},
		{said{file: one + "https://a" + more + "headers-from: {a: DIR/empty}"},
			"otlp.destinations[0].headers-from: a: the file is empty"},
		{said{file: one + "https://a" + more + "headers-from: {a: DIR/large}"},
			"otlp.destinations[0].headers-from: a: the file has more than 8192 bytes"},
		{said{file: one + "https://a" + more + "headers-from: {a: DIR/odd}"},
			`otlp.destinations[0].headers-from: header "a": its value is not printable ASCII`},
		{said{file: one + "https://a" + more + "signals: [logs]"},
			`DIR/c.yaml:4: otlp.destinations[0].signals: "logs" is none of traces, metrics, profiles`},
		{said{file: one + "https://a" + more + "signals: [traces, traces]"},
			"otlp.destinations[0].signals: traces stands there twice"},
		{said{file: one + "https://a" + more + "compression: zstd"},
			`DIR/c.yaml:3: otlp.destinations[0]: compression "zstd": neither gzip nor none`},
		{said{file: one + "https://a" + more + "concurrency: 65"},
			"otlp.destinations[0]: concurrency 65: not in 1 to 64"},
		{said{file: one + "https://a" + more + "timeout: 10"},
			"DIR/c.yaml:4: otlp.destinations[0].timeout: 10 is a duration without unit"},
		{said{file: one + "https://a" + more + "certificate: DIR/none"},
			"DIR/c.yaml:4: otlp.destinations[0].certificate: open DIR/none: no such file or directory"},
		{said{file: one + "https://a" + more + "certificate: DIR"},
			"DIR/c.yaml:4: otlp.destinations[0].certificate: DIR is a directory"},
		{said{file: one + "https://a" + more + "client-key: DIR/key.pem"},
			"otlp.destinations[0]: client-certificate and client-key: one without the other"},
		{said{file: one + "http://a" + more + "client-certificate: DIR/cert.pem" + more + "client-key: DIR/key.pem"},
			"DIR/c.yaml:4: otlp.destinations[0].client-certificate: the endpoint is plain text, in which there are " +
				"no certificates"},

		// Several
		{said{file: one + "https://a" + more + "name: x" + next + "https://b" + more + "name: x"},
			"DIR/c.yaml:6: otlp.destinations[1].name: two destinations are named x"},
		{said{file: one + "https://a" + next + "HTTPS://A:4317/"},
			"DIR/c.yaml:4: otlp.destinations[1].endpoint: destination https://a sends traces, metrics, profiles " +
				"there already"},
		{said{file: one + "https://a" + more + "signals: [traces]" + next + "a:4317" + more +
			"signals: [metrics, traces]"},
			"otlp.destinations[1].endpoint: destination https://a sends traces there already"},
		{flag("--otlp-endpoint", "http://localhost", "--otlp-endpoint", "http://127.0.0.1:4317"),
			"--otlp-endpoint, number 2: destination default sends traces, metrics, profiles there already"},
		{said{file: one + "http://c:4318" + more + "protocol: http/protobuf" + next +
			"http://c:4318/v1/metrics" + more + "protocol: http/protobuf" + more + "exact-url: true" + more +
			"signals: [metrics]"},
			"otlp.destinations[1].endpoint: destination http://c:4318 sends metrics there already"},
		{flag("--otlp-endpoint", "unix:/a/../b", "--otlp-endpoint", "unix:///b"),
			"--otlp-endpoint, number 2: destination default sends"},

		// Variables
		{variable("OTEL_EXPORTER_OTLP_HEADERS", "s3cret"),
			"environment variable OTEL_EXPORTER_OTLP_HEADERS: pair 1 is not KEY=VALUE"},
		{variable("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "10s"),
			`environment variable OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: "10s" is not a number of milliseconds from 1 to 3600000`},
		{variable("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
			`environment variable OTEL_EXPORTER_OTLP_PROTOCOL: protocol "http/json": neither grpc nor http/protobuf`},
		{said{args: []string{"--otlp-endpoint", "http://a"},
			env: map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}},
			`environment variable OTEL_EXPORTER_OTLP_PROTOCOL: protocol "http/json": neither grpc nor http/protobuf`},
		{flag("--otlp-endpoint", "http://a", "--otlp-protocol", "http"),
			`--otlp-protocol: protocol "http": neither grpc nor http/protobuf`},
		{flag("--otlp-endpoint", "http://a/in"), "--otlp-endpoint: endpoint: has more than scheme, host and port"},
		{flag("--otlp-endpoint", "a:4318", "--otlp-protocol", "http/protobuf"),
			"--otlp-endpoint: endpoint: none of http://, https:// and unix:, one of which http/protobuf needs"},
		{said{args: []string{"--otlp-protocol", "grpc"}, file: "otlp:\n  destinations:\n    - endpoint: http://a\n"},
			"--otlp-protocol: otlp.destinations have a protocol of their own, each"},
		{flag("--otlp-endpoint", "http://127.0.0.1/in", "--otlp-protocol", "http/protobuf",
			"--otlp-listen", "localhost:80"),
			"--otlp-endpoint: this is what --otlp-listen listens on"},
		{said{args: []string{"--otlp-endpoint", "http://a"},
			env: map[string]string{"OTEL_EXPORTER_OTLP_COMPRESSION": "zstd"}},
			`environment variable OTEL_EXPORTER_OTLP_COMPRESSION: compression "zstd": neither gzip nor none`},
		{variable("OTEL_EXPORTER_OTLP_CERTIFICATE", "DIR/none"),
			"environment variable OTEL_EXPORTER_OTLP_CERTIFICATE: open DIR/none: no such file or directory"},
		{variable("OTEL_METRIC_EXPORT_INTERVAL", "1m"),
			`environment variable OTEL_METRIC_EXPORT_INTERVAL: "1m" is not a number of milliseconds`},
		{variable("OTEL_METRIC_EXPORT_INTERVAL", "999"),
			"environment variable OTEL_METRIC_EXPORT_INTERVAL: otlp.metrics-interval 999ms is not between 1s and " +
				"1h0m0s"},
		{said{args: []string{"--otlp-endpoint", "http://a"},
			env: map[string]string{"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "DIR/cert.pem",
				"OTEL_EXPORTER_OTLP_CLIENT_KEY": "DIR/key.pem"}},
			"environment variable OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: the endpoint is plain text"},

		// The rest
		{said{file: "otlp: {queue-bytes: 0}"}, "DIR/c.yaml:1: otlp.queue-bytes 0 is not positive"},
		{said{file: "otlp: {queue-bytes: 8MiB}"},
			`DIR/c.yaml:1: otlp.queue-bytes: the text "8MiB" is not a whole number`},
		{said{file: "otlp:\n  shutdown-timeout: 11m"},
			"DIR/c.yaml:2: otlp.shutdown-timeout 11m0s is not between 0s and 10m0s"},
		{said{file: "otlp:\n  profiles-interval: 0s"},
			"DIR/c.yaml:2: otlp.profiles-interval 0s is not between 100ms and 1m0s"},
		{said{file: "otlp: {listener: {socket-mode: 0660}}"},
			"DIR/c.yaml:1: otlp.listener.socket-mode: 0660 is not a text: it needs quotes"},
		{said{file: "otlp: {listener: {socket-mode: \"rw\"}}"},
			`DIR/c.yaml:1: otlp.listener.socket-mode: "rw" is no mode of a file`},
		{said{file: "otlp: {listener: {socket-mode: \"4755\"}}"}, `otlp.listener.socket-mode: "4755" is no mode`},
		{said{file: "otlp: {listener: {key: DIR/key.pem}}"},
			"DIR/c.yaml:1: otlp.listener: certificate and key: one without the other"},
		{said{file: "otlp:\n  listener:\n    max-request-bytes: -1"},
			"DIR/c.yaml:2: otlp.listener: max-request-bytes -1: not in 1 to"},

		// The receiver
		{flag("--otlp-listen", "127.0.0.1:4317"), "--otlp-listen without a destination"},
		{listening("0.0.0.0:4317", one+"https://a"),
			"--otlp-listen: listen 0.0.0.0:4317: not a loopback address, and there is no certificate for TLS"},
		{listening("/run/x", one+"https://a"), `--otlp-listen: listen "/run/x": neither HOST:PORT nor unix:PATH`},
		{listening(long, one+"https://a"), "--otlp-listen " + long + " is a path of 201 bytes"},
		{listening("127.0.0.1:1", "otlp:\n  listener:\n    certificate: DIR/none\n    key: "+
			"DIR/key.pem\n"+one[6:]+"https://a"),
			"DIR/c.yaml:3: otlp.listener.certificate: open DIR/none: no such file"},
		{said{env: map[string]string{"CORRELATOR_OTLP_LISTEN": "127.0.0.1"}, file: one + "https://a"},
			"otlp-listen (environment variable CORRELATOR_OTLP_LISTEN): listen"},

		// OpenCensus
		{flag("--opencensus-socket", "/run/x"), "--opencensus-socket without a destination of OTLP"},
		{php("/run/x", "prometheus: true", one+"https://a"),
			"DIR/c.yaml:1: opencensus: prometheus is set without --metrics-address"},
		{php(long[len("unix:"):], "", one+"https://a"), "--opencensus-socket " + long[len("unix:"):] +
			" is a path of 201 bytes"},
		{php("/run/x", "socket-group: nobody-has-this", one+"https://a"),
			"DIR/c.yaml:1: opencensus: socket group: group: unknown group nobody-has-this"},
		{php("", `service-name: ""`, ""), "DIR/c.yaml:1: opencensus: service-name is empty"},
		{php("", "max-views: 0", ""), "DIR/c.yaml:1: opencensus.max-views 0 is not between 1 and 100000"},
		{php("", "max-stack-trace-bytes: -1", ""), "DIR/c.yaml:1: opencensus.max-stack-trace-bytes -1 is not between 0"},
		{php("", "buffer-bytes: 1", ""), "DIR/c.yaml:1: opencensus: buffer-bytes 1: less than 33554432"},
		{php("", "max-connections: -1", ""), "DIR/c.yaml:1: opencensus: max-connections -1: not in 1 to"},
		{said{args: []string{"--opencensus-socket", "/run/x", "--otlp-listen", "unix:///run/y/../x"}, file: one +
			"https://a"}, "--opencensus-socket and --otlp-listen are both /run/x"},
		// Live view
		{flag("--live-listen", "ftp://a"), "--live-listen: "},
		{flag("--live-listen", "tcp://127.0.0.1:1", "--live-listen", "ws://0.0.0.0:1"), "--live-listen, number 2: " +
			"ws://0.0.0.0:1 can be reached from other hosts, and there is no secret"},
		{flag("--live-listen", "ws://127.0.0.1:1", "--processes", "all"),
			"--live-listen: ws://127.0.0.1:1 can be reached " +
				"by every user"},
		{flag("--live-listen", "tcp://u:s3cret@127.0.0.1:1"), "--live-listen: a client name or a secret has no meaning"},
		{flag("--live-connect", "tcp://u:s3cret@broker"), "--live-connect: the secret belongs in --live-secret-file"},
		{flag("--live-listen", "ws://0.0.0.0:1", "--live-secret-file", "/nowhere/s3cret"),
			"--live-secret-file: reading"},
		{said{args: []string{"--opencensus-socket", "/run/./x", "--feed-socket", "/run/x"}, file: one + "https://a"},
			"--opencensus-socket and --feed-socket are both /run/x"},

		// Loops
		{listening("127.0.0.1:4317", one+"https://a"+next+"http://127.0.0.1"),
			"DIR/c.yaml:4: otlp.destinations[1].endpoint: this is what --otlp-listen listens on"},
		{listening("localhost:4317", one+"http://[::1]:4317/"),
			"otlp.destinations[0].endpoint: this is what --otlp-listen listens on"},
		{listening("127.0.0.1:99", one+"http://LocalHost:99"), "this is what --otlp-listen listens on"},
		{listening("unix:/run/x", one+"unix:///run/y/../x"), "this is what --otlp-listen listens on"},
		{said{args: []string{"--otlp-listen", "127.0.0.1:4317"},
			env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317"}},
			"environment variable OTEL_EXPORTER_OTLP_ENDPOINT: this is what --otlp-listen listens on"},
		{listening(":4317", "otlp:\n  listener: {certificate: DIR/cert.pem, key: "+
			"DIR/key.pem}\n"+one[6:]+"https://127.0.0.1"), "this is what --otlp-listen listens on"},
	} {
		if _, _, err := c.said.config(t, dir); err == nil || !strings.HasPrefix(err.Error(), c.want) &&
			!strings.Contains(err.Error(), ": "+c.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%+v:\n%v\nwant\n%s", c.said, err, c.want)
		}
	}
}

// Near misses.
func TestNotRefused(t *testing.T) {
	dir := someFiles(t)
	forOthers := map[string]string{
		"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_TIMEOUT": "10s",
		"OTEL_METRIC_EXPORT_INTERVAL": "1m",
	}
	for _, s := range []said{
		{args: []string{"--otlp-listen", "127.0.0.1:4317"}, file: one + "http://127.0.0.2:4317"},
		{args: []string{"--otlp-listen", "127.0.0.1:4317"}, file: one + "http://127.0.0.1:4318"},
		{args: []string{"--otlp-listen", "unix:/run/x"}, file: one + "unix:/run/xy"},
		{args: []string{"--otlp-listen", "127.0.0.1:0"}, file: one + "http://127.0.0.1"},
		{args: []string{"--opencensus-socket", "/run/x"}, file: one + "unix:/run/xy"},
		{args: []string{"--opencensus-socket", "/run/x", "--metrics-address", "127.0.0.1:0"},
			file: "opencensus: {prometheus: true}\n"}, // served, and not exported
		{file: "opencensus: {prometheus: true, socket-group: root}\n"}, // without a socket
		{file: one + "https://a" + more + "signals: [traces]" + next + "https://a" + more + "name: b" + more +
			"signals: [metrics]"},
		{file: one + "http://a" + more + "certificate: DIR/none"}, // not used
		{file: one + "https://a" + next + "http://a:4318"},
		{args: []string{"--otlp-endpoint", "https://a"}, env: map[string]string{"OTEL_METRIC_EXPORT_INTERVAL": " "}},

		// Variables that are for other programs: no destination takes them.
		{env: forOthers},
		{args: []string{"--otlp-endpoint", ""}, env: forOthers},
		{file: one + "https://a" + more + "signals: [profiles]", env: forOthers},
	} {
		_, _, err := s.config(t, dir)
		assert.Check(t, err, "%+v", s)
	}
}
