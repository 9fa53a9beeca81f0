package otlp

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestParseEndpoint(t *testing.T) {
	for _, c := range []struct {
		in       string
		insecure bool
		want     endpoint
	}{
		{"http://host", false, endpoint{host: "host:4317"}},
		{"https://host", true, endpoint{host: "host:4317", tls: true}},
		{"http://host:1/", false, endpoint{host: "host:1"}},
		{"HTTPS://host:65535", false, endpoint{host: "host:65535", tls: true}},
		{"host", false, endpoint{host: "host:4317", tls: true}},
		{"host:99", true, endpoint{host: "host:99"}},
		{"[::1]:99", true, endpoint{host: "[::1]:99"}},
		{"http://[fe80::1]", false, endpoint{host: "[fe80::1]:4317"}},
		{"unix:/run/otlp.sock", false, endpoint{host: "/run/otlp.sock", unix: true}},
		{"unix:///run/otlp.sock", false, endpoint{host: "/run/otlp.sock", unix: true}},
	} {
		got, err := parseEndpoint(GRPC, c.in, c.insecure)
		assert.Check(t, err == nil && got == c.want, "%s: %+v, %v, want %+v", c.in, got, err, c.want)
	}
	for _, in := range []string{
		"", "http://", "https://:4317", "http://host:0", "http://host:65536", "http://host:x", "http://host/v1/traces",
		"http://host?key=s3cret", "http://u:s3cret@host", "u:s3cret@host", "ftp://host",
		"unix:", "unix://", "host/path", "http://ho st", "http://host:%zz s3cret", "ho\nst", "host\t:1",
	} {
		got, err := parseEndpoint(GRPC, in, true)
		assert.Check(t, err != nil && !strings.Contains(err.Error(), "s3cret"), "%s: %+v, %v", in, got, err)
	}
}

// By HTTP: where the connection goes, and the URLs of traces and of an endpoint for one signal.
func TestParseURL(t *testing.T) {
	for _, c := range []struct{ in, host, traces, exact string }{
		{"http://host", "host:80", "http://host/v1/traces", "http://host/"},
		{"https://host/", "host:443", "https://host/v1/traces", "https://host/"},
		{"https://host:4318", "host:4318", "https://host:4318/v1/traces", "https://host:4318/"},
		{"https://host/otlp", "host:443", "https://host/otlp/v1/traces", "https://host/otlp"},
		{"https://host/otlp/", "host:443", "https://host/otlp/v1/traces", "https://host/otlp/"},
		{"http://[::1]:1/a%2Fb", "[::1]:1", "http://[::1]:1/a%2Fb/v1/traces", "http://[::1]:1/a%2Fb"},
		{"http://[::1]", "[::1]:80", "http://[::1]/v1/traces", "http://[::1]/"},
		{"unix:/run/x", "/run/x", "http://localhost/v1/traces", "http://localhost/"},
	} {
		e, err := parseEndpoint(HTTPProtobuf, c.in, true)
		assert.Check(t, err == nil && e.host == c.host && e.tls == strings.HasPrefix(c.in, "https"),
			"%s: %+v, %v", c.in, e, err)
		traces, exact := e.url(Traces, false).String(), e.url(Traces, true).String()
		assert.Check(t, traces == c.traces && exact == c.exact, "%s: %s, %s", c.in, traces, exact)
	}
	for _, in := range []string{
		"", "http://", "host:4318", "https://:4318", "http://host:0", "http://host:x", "http://host/?key=s3cret",
		"http://host/#s3cret", "http://u:s3cret@host", "ftp://host", "unix:", "http://ho st/",
	} {
		e, err := parseEndpoint(HTTPProtobuf, in, true)
		assert.Check(t, err != nil && !strings.Contains(err.Error(), "s3cret"), "%s: %+v, %v", in, e, err)
	}
}

func TestDestinationIsChecked(t *testing.T) {
	good := NewDestination("http://host")
	assert.NilError(t, good.Validate())
	for name, spoil := range map[string]func(*Destination){
		"name":               func(d *Destination) { d.Name = "" },
		"name is not UTF-8":  func(d *Destination) { d.Name = "a\xff" },
		"endpoint":           func(d *Destination) { d.Endpoint = "" },
		"protocol":           func(d *Destination) { d.Protocol = "http/json" },
		"exact-url":          func(d *Destination) { d.ExactURL, d.Signals = true, []Signal{Traces} },
		"exact-url of all":   func(d *Destination) { d.Protocol, d.ExactURL = HTTPProtobuf, true },
		"binary":             func(d *Destination) { d.Protocol, d.Headers = HTTPProtobuf, Headers{"a-bin": "s3cret\n"} },
		"compression":        func(d *Destination) { d.Compression = "zstd" },
		"timeout":            func(d *Destination) { d.Timeout = 0 },
		"timeout too long":   func(d *Destination) { d.Timeout = maxTimeout + 1 },
		"max-age":            func(d *Destination) { d.MaxAge = -1 },
		"concurrency":        func(d *Destination) { d.Concurrency = 65 },
		"queue-bytes":        func(d *Destination) { d.QueueBytes = -1 },
		"max-request-bytes":  func(d *Destination) { d.MaxRequestBytes = 0 },
		"client certificate": func(d *Destination) { d.ClientKey = "x" },
		"signal":             func(d *Destination) { d.Signals = []Signal{NumSignals} },
		"header":             func(d *Destination) { d.Headers = Headers{"a b": "s3cret"} },
		"reserved":           func(d *Destination) { d.Headers = Headers{"Grpc-Timeout": "s3cret"} },
		"printable":          func(d *Destination) { d.Headers = Headers{"a": "s3cret\n"} },
		"twice":              func(d *Destination) { d.Headers = Headers{"a": "s3cret", "A": "x"} },
		"certificate":        func(d *Destination) { d.Endpoint, d.Certificate = "https://host", "/nowhere" },
		"client key": func(d *Destination) {
			d.Endpoint, d.ClientCertificate, d.ClientKey = "https://host", "/no", "/no"
		},
	} {
		d := good
		spoil(&d)
		x, err := Open(Options{Destinations: []Destination{d}})
		if err == nil {
			x.Shutdown(t.Context())
		}
		word := strings.Fields(name)[0]
		if word == "binary" {
			word = "printable"
		}
		assert.Check(t, err != nil && strings.Contains(err.Error(), word) && !strings.Contains(err.Error(), "s3cret"),
			"%s: %v", name, err)
	}
	_, err := Open(Options{Destinations: []Destination{good, good}})
	assert.Check(t, err != nil, "two destinations of one name")
	_, err = Open(Options{QueueBytes: -1})
	assert.Check(t, err != nil, "negative budget")
	secret := NewDestination("http://u:s3cret@host")
	if _, err := Open(Options{Destinations: []Destination{good, secret}}); err == nil ||
		strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "destination 2: ") {
		t.Errorf("a password in an endpoint: %v", err)
	}
}

// However a destination is printed, the values of its headers do not show.
func TestHeadersAreSecret(t *testing.T) {
	d := NewDestination("http://host")
	d.Headers = Headers{"authorization": "s3cret", "b": "s3cret"}
	j, err := json.Marshal(d)
	assert.NilError(t, err)
	y, _ := d.Headers.MarshalYAML()
	text, _ := d.Headers.MarshalText()
	printed := []string{string(j), fmt.Sprint(y), string(text)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		printed = append(printed, fmt.Sprintf(verb, d), fmt.Sprintf(verb, &d), fmt.Sprintf(verb, d.Headers))
	}
	for _, s := range printed {
		assert.Check(t, !strings.Contains(s, "s3cret") && !strings.Contains(s, "733363") &&
			strings.Contains(s, "authorization=REDACTED"),
			"printed as %s", s)
	}
}

// An address of IPv6 with a zone is what gRPC connects to.
func TestTargetWithZone(t *testing.T) {
	u, err := url.Parse(endpoint{host: "[fe80::1%eth0]:4317"}.target())
	assert.NilError(t, err)
	assert.Check(t, u.Path == "/[fe80::1%eth0]:4317", "%q", u.Path)
}
