package otlp

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestFromEnvironment(t *testing.T) {
	base := func(name string, change func(*Destination), signals ...Signal) Destination {
		d := NewDestination("http://host")
		d.Name, d.Signals = name, signals
		change(&d)
		return d
	}
	same := func(*Destination) {}
	for _, c := range []struct {
		name string
		env  map[string]string
		want []Destination
	}{
		{"nothing", map[string]string{"HEADERS": "a=b"}, nil},
		{"endpoint", map[string]string{"ENDPOINT": "http://host", "PROTOCOL": "grpc"},
			[]Destination{base("default", same, Traces, Metrics, Profiles)}},
		{"everything", map[string]string{
			"ENDPOINT": " host:1 ", "INSECURE": "True", "CERTIFICATE": "/ca", "CLIENT_KEY": "/key",
			"CLIENT_CERTIFICATE": "/cert",
			"HEADERS":            "Api-Key=a%2Cb%3D%20c , x-y = 1=2,", "COMPRESSION": "none", "TIMEOUT": "2500",
		}, []Destination{base("default", func(d *Destination) {
			d.Endpoint, d.Insecure, d.Certificate, d.ClientKey, d.ClientCertificate = "host:1", true, "/ca", "/key",
				"/cert"
			d.Headers, d.Compression, d.Timeout = Headers{"api-key": "a,b= c", "x-y": "1=2"}, None,
				2500*time.Millisecond
		}, Traces, Metrics, Profiles)}},
		{"a signal has its own", map[string]string{
			"ENDPOINT": "http://host", "HEADERS": "a=1", "METRICS_HEADERS": "b=2", "TRACES_TIMEOUT": "10000",
		}, []Destination{
			base("default", func(d *Destination) { d.Headers = Headers{"a": "1"} }, Traces, Profiles),
			base("default-metrics", func(d *Destination) { d.Headers = Headers{"b": "2"} }, Metrics),
		}},
		{"traces have their own", map[string]string{"ENDPOINT": "http://host", "TRACES_COMPRESSION": "none"},
			[]Destination{
				base("default-traces", func(d *Destination) { d.Compression = None }, Traces),
				base("default", same, Metrics, Profiles),
			}},
		{"only one signal", map[string]string{"PROFILES_ENDPOINT": "http://host"},
			[]Destination{base("default", same, Profiles)}},
		{"each signal elsewhere", map[string]string{
			"TRACES_ENDPOINT": "http://host", "METRICS_ENDPOINT": "http://b", "PROFILES_ENDPOINT": "unix:/c",
		}, []Destination{
			base("default", same, Traces),
			base("default-metrics", func(d *Destination) { d.Endpoint = "http://b" }, Metrics),
			base("default-profiles", func(d *Destination) { d.Endpoint = "unix:/c" }, Profiles),
		}},
		{"HTTP", map[string]string{"ENDPOINT": "https://host/otlp", "PROTOCOL": "http/protobuf", "INSECURE": "true"},
			[]Destination{base("default", func(d *Destination) {
				d.Endpoint, d.Protocol, d.Insecure = "https://host/otlp", HTTPProtobuf, true
			}, Traces, Metrics, Profiles)}},
		{"HTTP for one signal", map[string]string{
			"ENDPOINT": "http://host", "TRACES_ENDPOINT": "http://host/in", "TRACES_PROTOCOL": "http/protobuf",
		}, []Destination{
			base("default-traces", func(d *Destination) {
				d.Endpoint, d.Protocol, d.ExactURL = "http://host/in", HTTPProtobuf, true
			}, Traces),
			base("default", same, Metrics, Profiles),
		}},
		{"one URL for two signals", map[string]string{
			"TRACES_ENDPOINT": "http://host", "METRICS_ENDPOINT": "http://host", "PROTOCOL": "http/protobuf",
		}, []Destination{
			base("default", func(d *Destination) { d.Protocol, d.ExactURL = HTTPProtobuf, true }, Traces),
			base("default-metrics", func(d *Destination) { d.Protocol, d.ExactURL = HTTPProtobuf, true }, Metrics),
		}},
		{"a socket", map[string]string{"PROFILES_ENDPOINT": "unix:/s", "PROFILES_PROTOCOL": "http/protobuf"},
			[]Destination{base("default", func(d *Destination) {
				d.Endpoint, d.Protocol = "unix:/s", HTTPProtobuf
			}, Profiles)}},
		{"empty is not set", map[string]string{"ENDPOINT": "http://host", "TRACES_ENDPOINT": "", "TIMEOUT": " "},
			[]Destination{base("default", same, Traces, Metrics, Profiles)}},
	} {
		got, err := FromEnvironment(func(k string) string {
			return c.env[strings.TrimPrefix(k,
				"OTEL_EXPORTER_OTLP_")]
		})
		if err != nil || len(got) != len(c.want) {
			t.Errorf("%s: %v, %v", c.name, got, err)
			continue
		}
		for i := range got {
			assert.Check(t, reflect.DeepEqual(got[i], c.want[i]), "%s:\n got %+v\nwant %+v", c.name, got[i], c.want[i])
		}
	}
}

// An error names the variable, and only if there is an endpoint for which it counts.
func TestFromEnvironmentRefuses(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"ENDPOINT", "ftp://host", `ENDPOINT: endpoint: scheme "ftp" is none of http, https, unix`},
		{"METRICS_ENDPOINT", "https://u:s3cret@host", "METRICS_ENDPOINT: endpoint: credentials belong in headers"},
		{"PROTOCOL", "http/json", `PROTOCOL: protocol "http/json": neither grpc nor http/protobuf`},
		{"TRACES_PROTOCOL", "http", `TRACES_PROTOCOL: protocol "http": neither grpc nor http/protobuf`},
		{"ENDPOINT", "http://host/otlp", "ENDPOINT: endpoint: has more than scheme, host and port"},
		{"TIMEOUT", "10s", `TIMEOUT: "10s" is not a number of milliseconds from 1 to 3600000`},
		{"METRICS_TIMEOUT", "0", `METRICS_TIMEOUT: "0" is not`},
		{"TIMEOUT", "3600001", `TIMEOUT: "3600001" is not`},
		{"COMPRESSION", "zstd", `COMPRESSION: compression "zstd": neither gzip nor none`},
		{"PROFILES_COMPRESSION", "zstd", `PROFILES_COMPRESSION: compression "zstd"`},
		{"INSECURE", "yes", `INSECURE: "yes" is neither true nor false`},
		{"TRACES_INSECURE", "1", `TRACES_INSECURE: "1" is neither`},
		{"HEADERS", "s3cret", "HEADERS: pair 1 is not KEY=VALUE"},
		{"TRACES_HEADERS", "a=%zzs3cret", "TRACES_HEADERS: pair 1 is not KEY=VALUE"},
		{"METRICS_HEADERS", "te=s3cret", `METRICS_HEADERS: header "te": reserved`},
		{"CLIENT_KEY", "x", "*: client-certificate and client-key: one without the other"},
	} {
		env := map[string]string{envPrefix + "ENDPOINT": "http://host", envPrefix + c.name: c.value}
		_, err := FromEnvironment(func(k string) string { return env[k] })
		if err == nil || !strings.HasPrefix(err.Error(), envPrefix+c.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s=%s: %v, want %s", c.name, c.value, err, c.want)
		}
		if strings.HasSuffix(c.name, "ENDPOINT") {
			continue
		}
		delete(env, envPrefix+"ENDPOINT")
		found, err := FromEnvironment(func(k string) string { return env[k] })
		assert.Check(t, len(found) == 0 && err == nil, "%s=%s without an endpoint: %v, %v", c.name, c.value, found, err)
	}
	env := map[string]string{"METRICS_ENDPOINT": "http://host", "PROTOCOL": "http/json", "METRICS_PROTOCOL": "grpc"}
	found, err := FromEnvironment(func(k string) string { return env[strings.TrimPrefix(k, envPrefix)] })
	assert.Check(t, err == nil && len(found) == 1 && reflect.DeepEqual(found[0].Signals, []Signal{Metrics}),
		"JSON for signals that go nowhere: %v, %v", found, err)
}
