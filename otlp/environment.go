package otlp

import (
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// envPrefix begins the names of all variables of the OpenTelemetry exporter specification that are
// read here: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT for one signal, and so
// on. Those for SDKs, like OTEL_SDK_DISABLED, are not.
const envPrefix = "OTEL_EXPORTER_OTLP_"

// setting is a variable; its name follows the prefix and the signal. An empty variable counts as
// not set.
type setting struct {
	name string
	set  func(d *Destination, value string) error
}

var settings = []setting{
	{"PROTOCOL", func(d *Destination, v string) error {
		d.Protocol = Protocol(v)
		return d.Protocol.Validate()
	}},
	{"ENDPOINT", func(d *Destination, v string) error {
		d.Endpoint = v
		_, err := d.parseEndpoint() // insecure or not, what is wrong is the same
		return err
	}},
	{"INSECURE", func(d *Destination, v string) error {
		d.Insecure = strings.EqualFold(v, "true")
		if !d.Insecure && !strings.EqualFold(v, "false") {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		return nil
	}},
	{"CERTIFICATE", func(d *Destination, v string) error { d.Certificate = v; return nil }},
	{"CLIENT_KEY", func(d *Destination, v string) error { d.ClientKey = v; return nil }},
	{"CLIENT_CERTIFICATE", func(d *Destination, v string) error { d.ClientCertificate = v; return nil }},
	{"HEADERS", func(d *Destination, v string) (err error) { d.Headers, err = ParseHeaders(v); return err }},
	{"COMPRESSION", func(d *Destination, v string) error {
		d.Compression = Compression(strings.ToLower(v))
		return d.Compression.validate()
	}},
	{"TIMEOUT", func(d *Destination, v string) error {
		ms, err := strconv.ParseUint(v, 10, 31)
		if most := uint64(maxTimeout.Milliseconds()); err != nil || ms == 0 || ms > most {
			return fmt.Errorf("%q is not a number of milliseconds from 1 to %d", v, most)
		}
		d.Timeout = time.Duration(ms) * time.Millisecond
		return nil
	}},
}

// FromEnvironment returns the destinations of the standard variables: one named default, and one
// named default-SIGNAL for each signal whose own variables make a difference. A variable of a
// signal takes precedence over that of all signals. Without an endpoint in the environment there is
// no destination.
func FromEnvironment(getenv func(string) string) ([]Destination, error) {
	var found []Destination
	for s := range NumSignals {
		d, err := ofSignal(s, getenv)
		if err != nil {
			return nil, err
		}
		if d.Endpoint != "" {
			found = addSignal(found, d, s)
		}
	}
	nameDestinations(found)
	for i := range found {
		if err := found[i].Validate(); err != nil {
			return nil, fmt.Errorf("%s*: %w", envPrefix, err)
		}
	}
	return found, nil
}

// ofSignal returns the destination that the variables define for a signal. Without an endpoint the
// others are ignored: they are for other programs in the same environment. By HTTP, the endpoint of
// a signal is the URL of its requests, and that of all signals is what their paths are appended to.
func ofSignal(s Signal, getenv func(string) string) (Destination, error) {
	d, own := NewDestination(""), strings.ToUpper(s.String())+"_"
	isSet := func(name string) bool { return strings.TrimSpace(getenv(envPrefix+name)) != "" }
	if !isSet(own+"ENDPOINT") && !isSet("ENDPOINT") {
		return d, nil
	}
	for _, setting := range settings {
		found, err := setting.from(getenv, own+setting.name, &d)
		if err == nil && !found {
			_, err = setting.from(getenv, setting.name, &d)
		}
		if err != nil {
			return d, err
		}
	}
	if d.Protocol == HTTPProtobuf && !strings.HasPrefix(d.Endpoint, "unix:") {
		d.ExactURL = isSet(own + "ENDPOINT")
	}
	return d, nil
}

// from applies one variable, and reports whether it is set.
func (s *setting) from(getenv func(string) string, name string, d *Destination) (found bool, err error) {
	value := strings.TrimSpace(getenv(envPrefix + name))
	if value == "" {
		return false, nil
	}
	if err := s.set(d, value); err != nil {
		return false, fmt.Errorf("%s%s: %w", envPrefix, name, err)
	}
	return true, nil
}

// addSignal adds the signal to the destination with the same configuration, or adds the
// destination.
func addSignal(found []Destination, d Destination, s Signal) []Destination {
	for i := range found {
		other := found[i]
		other.Signals = nil
		if !d.ExactURL && reflect.DeepEqual(other, d) {
			found[i].Signals = append(found[i].Signals, s)
			return found
		}
	}
	d.Signals = []Signal{s}
	return append(found, d)
}

// nameDestinations names the one with most signals default: it comes from the variables of all
// signals.
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

// ParseHeaders parses KEY=VALUE,KEY=VALUE with percent-encoding in keys and values, as in the W3C
// baggage header without properties. Errors never contain a value.
func ParseHeaders(s string) (Headers, error) {
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
	return h, h.validate(GRPC)
}
