package otlp

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseEndpoint(t *testing.T) {
	for _, c := range []struct {
		in       string
		insecure bool
		want     endpoint
	}{
		{"http://host", false, endpoint{target: "dns:///host:4317"}},
		{"https://host", true, endpoint{target: "dns:///host:4317", tls: true}},
		{"http://host:1/", false, endpoint{target: "dns:///host:1"}},
		{"HTTPS://host:65535", false, endpoint{target: "dns:///host:65535", tls: true}},
		{"host", false, endpoint{target: "dns:///host:4317", tls: true}},
		{"host:99", true, endpoint{target: "dns:///host:99"}},
		{"[::1]:99", true, endpoint{target: "dns:///[::1]:99"}},
		{"http://[fe80::1]", false, endpoint{target: "dns:///[fe80::1]:4317"}},
		{"unix:/run/otlp.sock", false, endpoint{target: "unix:/run/otlp.sock", unix: true}},
		{"unix:///run/otlp.sock", false, endpoint{target: "unix:/run/otlp.sock", unix: true}},
	} {
		if got, err := parseEndpoint(c.in, c.insecure); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{
		"", "http://", "https://:4317", "http://host:0", "http://host:65536", "http://host:x", "http://host/v1/traces",
		"http://host?key=s3cret", "http://u:s3cret@host", "u:s3cret@host", "ftp://host", "unix:", "unix://", "host/path", "http://ho st",
		"http://host:%zz s3cret",
	} {
		if got, err := parseEndpoint(in, true); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
}

func TestDestinationIsChecked(t *testing.T) {
	good := NewDestination("http://host")
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Destination){
		"name":               func(d *Destination) { d.Name = "" },
		"endpoint":           func(d *Destination) { d.Endpoint = "" },
		"compression":        func(d *Destination) { d.Compression = "zstd" },
		"timeout":            func(d *Destination) { d.Timeout = 0 },
		"max-age":            func(d *Destination) { d.MaxAge = -1 },
		"concurrency":        func(d *Destination) { d.Concurrency = 65 },
		"queue-bytes":        func(d *Destination) { d.QueueBytes = 0 },
		"max-request-bytes":  func(d *Destination) { d.MaxRequestBytes = 0 },
		"client certificate": func(d *Destination) { d.ClientKey = "x" },
		"signal":             func(d *Destination) { d.Signals = []Signal{NumSignals} },
		"header":             func(d *Destination) { d.Headers = Headers{"a b": "s3cret"} },
		"reserved":           func(d *Destination) { d.Headers = Headers{"Grpc-Timeout": "s3cret"} },
		"printable":          func(d *Destination) { d.Headers = Headers{"a": "s3cret\n"} },
		"twice":              func(d *Destination) { d.Headers = Headers{"a": "s3cret", "A": "x"} },
		"certificate":        func(d *Destination) { d.Endpoint, d.Certificate = "https://host", "/nowhere" },
		"client key":         func(d *Destination) { d.Endpoint, d.ClientCertificate, d.ClientKey = "https://host", "/no", "/no" },
	} {
		d := good
		spoil(&d)
		x, err := Open(Options{Destinations: []Destination{d}})
		if err == nil {
			x.Shutdown(t.Context())
		}
		word := strings.Fields(name)[0]
		if err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(Options{Destinations: []Destination{good, good}}); err == nil {
		t.Error("two destinations of one name")
	}
	if _, err := Open(Options{QueueBytes: -1}); err == nil {
		t.Error("negative budget")
	}
}

// However a destination is printed, the values of its headers do not show.
func TestHeadersAreSecret(t *testing.T) {
	d := NewDestination("http://host")
	d.Headers = Headers{"authorization": "s3cret", "b": "s3cret"}
	j, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	y, _ := d.Headers.MarshalYAML()
	text, _ := d.Headers.MarshalText()
	printed := []string{string(j), fmt.Sprint(y), string(text)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		printed = append(printed, fmt.Sprintf(verb, d), fmt.Sprintf(verb, &d), fmt.Sprintf(verb, d.Headers))
	}
	for _, s := range printed {
		if strings.Contains(s, "s3cret") || strings.Contains(s, "733363") || !strings.Contains(s, "authorization=REDACTED") {
			t.Errorf("printed as %s", s)
		}
	}
}

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
		{"endpoint", map[string]string{"ENDPOINT": "http://host", "PROTOCOL": "grpc"}, []Destination{base("default", same, Traces, Metrics, Profiles)}},
		{"everything", map[string]string{
			"ENDPOINT": " host:1 ", "INSECURE": "True", "CERTIFICATE": "/ca", "CLIENT_KEY": "/key", "CLIENT_CERTIFICATE": "/cert",
			"HEADERS": "Api-Key=a%2Cb%3D%20c , x-y = 1=2,", "COMPRESSION": "none", "TIMEOUT": "2500",
		}, []Destination{base("default", func(d *Destination) {
			d.Endpoint, d.Insecure, d.Certificate, d.ClientKey, d.ClientCertificate = "host:1", true, "/ca", "/key", "/cert"
			d.Headers, d.Compression, d.Timeout = Headers{"api-key": "a,b= c", "x-y": "1=2"}, None, 2500*time.Millisecond
		}, Traces, Metrics, Profiles)}},
		{"a signal has its own", map[string]string{
			"ENDPOINT": "http://host", "HEADERS": "a=1", "METRICS_HEADERS": "b=2", "TRACES_TIMEOUT": "10000",
		}, []Destination{
			base("default", func(d *Destination) { d.Headers = Headers{"a": "1"} }, Traces, Profiles),
			base("default-metrics", func(d *Destination) { d.Headers = Headers{"b": "2"} }, Metrics),
		}},
		{"traces have their own", map[string]string{"ENDPOINT": "http://host", "TRACES_COMPRESSION": "none"}, []Destination{
			base("default-traces", func(d *Destination) { d.Compression = None }, Traces),
			base("default", same, Metrics, Profiles),
		}},
		{"only one signal", map[string]string{"PROFILES_ENDPOINT": "http://host"}, []Destination{base("default", same, Profiles)}},
		{"each signal elsewhere", map[string]string{
			"TRACES_ENDPOINT": "http://host", "METRICS_ENDPOINT": "http://b", "PROFILES_ENDPOINT": "unix:/c",
		}, []Destination{
			base("default", same, Traces),
			base("default-metrics", func(d *Destination) { d.Endpoint = "http://b" }, Metrics),
			base("default-profiles", func(d *Destination) { d.Endpoint = "unix:/c" }, Profiles),
		}},
		{"empty is not set", map[string]string{"ENDPOINT": "http://host", "TRACES_ENDPOINT": "", "TIMEOUT": " "},
			[]Destination{base("default", same, Traces, Metrics, Profiles)}},
	} {
		got, err := FromEnvironment(func(k string) string { return c.env[strings.TrimPrefix(k, "OTEL_EXPORTER_OTLP_")] })
		if err != nil || len(got) != len(c.want) {
			t.Errorf("%s: %v, %v", c.name, got, err)
			continue
		}
		for i := range got {
			if !reflect.DeepEqual(got[i], c.want[i]) {
				t.Errorf("%s:\n got %+v\nwant %+v", c.name, got[i], c.want[i])
			}
		}
	}
	for name, value := range map[string]string{
		"ENDPOINT": "ftp://host", "PROTOCOL": "http/protobuf", "TIMEOUT": "10s", "METRICS_TIMEOUT": "0", "COMPRESSION": "zstd",
		"HEADERS": "s3cret", "TRACES_HEADERS": "a=%zzs3cret", "CLIENT_KEY": "x",
	} {
		_, err := FromEnvironment(func(k string) string {
			switch k {
			case "OTEL_EXPORTER_OTLP_" + name:
				return value
			case "OTEL_EXPORTER_OTLP_ENDPOINT":
				return "http://host"
			}
			return ""
		})
		if err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}
