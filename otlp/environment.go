package otlp

import (
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// envPrefix begins the names of all variables of the OpenTelemetry exporter specification that are read
// here: OTEL_EXPORTER_OTLP_ENDPOINT, and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT for one signal, and so on.
const envPrefix = "OTEL_EXPORTER_OTLP_"

// settings are the variables, by what follows the prefix and the signal. A variable that is set to nothing
// counts as not set.
var settings = []struct {
	name string
	set  func(d *Destination, value string) error
}{
	{"ENDPOINT", func(d *Destination, v string) error { d.Endpoint = v; return nil }},
	{"INSECURE", func(d *Destination, v string) error { d.Insecure = strings.EqualFold(v, "true"); return nil }},
	{"CERTIFICATE", func(d *Destination, v string) error { d.Certificate = v; return nil }},
	{"CLIENT_KEY", func(d *Destination, v string) error { d.ClientKey = v; return nil }},
	{"CLIENT_CERTIFICATE", func(d *Destination, v string) error { d.ClientCertificate = v; return nil }},
	{"HEADERS", func(d *Destination, v string) (err error) { d.Headers, err = parseHeaders(v); return err }},
	{"COMPRESSION", func(d *Destination, v string) error { d.Compression = Compression(strings.ToLower(v)); return nil }},
	{"TIMEOUT", func(d *Destination, v string) error {
		ms, err := strconv.ParseUint(v, 10, 31)
		if err != nil || ms == 0 {
			return fmt.Errorf("%q is not a number of milliseconds", v)
		}
		d.Timeout = time.Duration(ms) * time.Millisecond
		return nil
	}},
	{"PROTOCOL", func(_ *Destination, v string) error {
		if v != "grpc" {
			return fmt.Errorf("%q: only grpc is spoken", v)
		}
		return nil
	}},
}

// FromEnvironment is what the standard variables say: the destination named default, and one for each
// signal that has variables of its own which make a difference, named default-SIGNAL. A variable of a signal
// goes before the one of all. Without any endpoint in the environment there is no destination.
func FromEnvironment(getenv func(string) string) ([]Destination, error) {
	var found []Destination
	for s := range NumSignals {
		d := NewDestination("")
		for _, setting := range settings {
			name := envPrefix + strings.ToUpper(s.String()) + "_" + setting.name
			value := strings.TrimSpace(getenv(name))
			if value == "" {
				name = envPrefix + setting.name
				value = strings.TrimSpace(getenv(name))
			}
			if value == "" {
				continue
			}
			if err := setting.set(&d, value); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		if d.Endpoint != "" {
			found = addSignal(found, d, s)
		}
	}
	nameDestinations(found)
	for i := range found {
		if err := found[i].validate(); err != nil {
			return nil, fmt.Errorf("%s*: %w", envPrefix, err)
		}
	}
	return found, nil
}

// addSignal adds the signal to the destination that is configured the same, or adds that.
func addSignal(found []Destination, d Destination, s Signal) []Destination {
	for i := range found {
		other := found[i]
		other.Signals = nil
		if reflect.DeepEqual(other, d) {
			found[i].Signals = append(found[i].Signals, s)
			return found
		}
	}
	d.Signals = []Signal{s}
	return append(found, d)
}

// nameDestinations calls the one with most signals default: that is what the variables of all signals say.
func nameDestinations(found []Destination) {
	most := 0
	for i := range found {
		if len(found[i].Signals) > len(found[most].Signals) {
			most = i
		}
	}
	for i := range found {
		found[i].Name = "default"
		if i != most {
			found[i].Name += "-" + found[i].Signals[0].String()
		}
	}
}

// parseHeaders reads KEY=VALUE,KEY=VALUE with percent-encoding in keys and values, as in the baggage
// header of the W3C without properties. Errors never have a value in them.
func parseHeaders(s string) (Headers, error) {
	h := make(Headers)
	for i, pair := range strings.Split(s, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		key, keyErr := url.PathUnescape(strings.TrimSpace(key))
		value, valueErr := url.PathUnescape(strings.TrimSpace(value))
		if !ok || key == "" || keyErr != nil || valueErr != nil {
			return nil, fmt.Errorf("pair %d is not KEY=VALUE with percent-encoding", i+1)
		}
		h[strings.ToLower(key)] = value
	}
	return h, nil
}
