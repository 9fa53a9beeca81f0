package export

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"correlator/internal/settings"
	"correlator/otlp"
)

// The standard variables: one of OpenTelemetry's metrics SDK, and those of its exporters.
const (
	intervalVariable = "OTEL_METRIC_EXPORT_INTERVAL"
	exporterPrefix   = "OTEL_EXPORTER_OTLP_"
)

// Complete finds out who names the destinations, and refuses what cannot work. It reads the files of headers,
// sees that the others can be read, and opens nothing else. What it finds out is shown by settings.Print.
//
// --otlp-endpoint goes before the destinations of a file, those before the standard variables. An endpoint or
// destinations that are said to be none are none: then the variables do not count.
func (s *Settings) Complete(getenv func(string) string) (Config, error) {
	if err := s.findDestinations(getenv); err != nil {
		return Config{}, err
	}
	if err := s.findMetricsInterval(getenv); err != nil {
		return Config{}, err
	}
	c := s.config
	for _, d := range s.destinations {
		out, err := d.complete()
		if err != nil {
			return Config{}, err
		}
		c.Destinations = append(c.Destinations, out)
	}
	if c.QueueBytes == 0 { // which is the default to who has not said it
		return Config{}, s.at("queue-bytes", errors.New("otlp.queue-bytes 0 is not positive"))
	}
	if key, err := c.validate(); err != nil {
		return Config{}, s.at(key, err)
	}
	if err := s.checkListener(); err != nil {
		return Config{}, err
	}
	return c, s.checkTogether()
}

// at says where the value of a key below otlp is from, unless it is the default, or there is no key.
func (s *Settings) at(key string, err error) error {
	if !s.section.Changed(key) {
		return err
	}
	origin, _ := settings.Origin(s.section, key)
	return fmt.Errorf("%s: %w", origin, err)
}

func (s *Settings) findDestinations(getenv func(string) string) error {
	_, endpointsInFile := settings.Origin(s.flags, "otlp-endpoint")
	given, listed := s.flags.Changed("otlp-endpoint"), len(s.destinations) > 0
	switch {
	case len(s.endpoints) > 0 && endpointsInFile && listed:
		return errors.New("--otlp-endpoint: the same file has otlp.destinations: say there all there is to say, or here")
	case len(s.endpoints) > 0:
		return s.fromEndpoints(getenv)
	case listed && (!given || endpointsInFile):
		for i, d := range s.destinations {
			origin, _ := settings.Origin(d.flags, "endpoint")
			d.place = fmt.Sprintf("%s: otlp.destinations[%d]", origin, i)
		}
		settings.AsComment(s.flags, "otlp-endpoint")
		return nil
	case given || s.section.Changed("destinations"): // none
		s.replace(nil)
		return nil
	}
	found, err := otlp.FromEnvironment(getenv)
	if err != nil {
		return fmt.Errorf("environment variable %w", err)
	}
	s.replace(found)
	for _, d := range s.destinations {
		d.showVariables(getenv)
		d.place, _ = settings.Origin(d.flags, "endpoint")
	}
	return nil
}

// fromEndpoints makes a destination of each endpoint. The first is the default one of the standard variables,
// and that alone: credentials are for one receiver.
func (s *Settings) fromEndpoints(getenv func(string) string) error {
	place := func(i int) string {
		if len(s.endpoints) == 1 {
			return "--otlp-endpoint"
		}
		return fmt.Sprintf("--otlp-endpoint, number %d", i+1)
	}
	var all []otlp.Destination
	var places []string
	variables := ofEndpoint(s.endpoints[0], getenv)
	for i, endpoint := range s.endpoints {
		d := otlp.NewDestination(endpoint)
		if err := d.Validate(); err != nil {
			return fmt.Errorf("%s: %w", place(i), err)
		}
		found := []otlp.Destination{d}
		if i == 0 {
			var err error
			if found, err = otlp.FromEnvironment(variables); err != nil {
				return fmt.Errorf("environment variable %w", err)
			}
		}
		for _, d := range found {
			all, places = append(all, d), append(places, place(i))
		}
	}
	origin, _ := settings.Origin(s.flags, "otlp-endpoint")
	s.replace(all)
	for i, d := range s.destinations {
		d.place = places[i]
		if d.place == place(0) {
			d.showVariables(variables)
		}
		settings.SetOrigin(d.flags, "endpoint", origin)
		settings.SetOrigin(d.flags, "name", origin)
	}
	settings.AsComment(s.flags, "otlp-endpoint") // beside the destinations, which are shown, it is refused
	return nil
}

// ofEndpoint is an environment whose variables are about one endpoint, for all signals.
func ofEndpoint(endpoint string, getenv func(string) string) func(string) string {
	return func(name string) string {
		switch rest, ours := strings.CutPrefix(name, exporterPrefix); {
		case ours && rest == "ENDPOINT":
			return endpoint
		case ours && strings.HasSuffix(rest, "_ENDPOINT"):
			return ""
		}
		return getenv(name)
	}
}

// replace makes destinations that are not of a file look as if they were.
func (s *Settings) replace(all []otlp.Destination) {
	s.destinations = nil
	settings.Replace(s.section, "destinations", len(all))
	for i, d := range s.destinations {
		if d.Destination = all[i]; len(d.Signals) == int(otlp.NumSignals) {
			d.Signals = nil // all
		}
	}
}

// variables are the keys that standard variables set, by the ends of their names.
var variables = map[string]string{
	"endpoint": "ENDPOINT", "insecure": "INSECURE", "headers": "HEADERS", "certificate": "CERTIFICATE",
	"client-certificate": "CLIENT_CERTIFICATE", "client-key": "CLIENT_KEY", "compression": "COMPRESSION", "timeout": "TIMEOUT",
}

// showVariables says of what is from standard variables from which: those of the signal go before those of all.
func (d *destination) showVariables(getenv func(string) string) {
	signal := otlp.Signal(0)
	if len(d.Signals) > 0 {
		signal = d.Signals[0]
		settings.SetOrigin(d.flags, "signals", "environment variables "+exporterPrefix+"*")
	}
	for key, end := range variables {
		for _, name := range []string{exporterPrefix + strings.ToUpper(signal.String()) + "_" + end, exporterPrefix + end} {
			if strings.TrimSpace(getenv(name)) != "" {
				settings.SetOrigin(d.flags, key, "environment variable "+name)
				break
			}
		}
	}
	origin, _ := settings.Origin(d.flags, "endpoint")
	settings.SetOrigin(d.flags, "name", origin)
}

func (s *Settings) findMetricsInterval(getenv func(string) string) error {
	text := strings.TrimSpace(getenv(intervalVariable))
	takesMetrics := func(d *destination) bool { return d.Takes(otlp.Metrics) }
	if text == "" || s.section.Changed("metrics-interval") || !slices.ContainsFunc(s.destinations, takesMetrics) {
		return nil
	}
	ms, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return fmt.Errorf("environment variable %s: %q is not a number of milliseconds", intervalVariable, text)
	}
	s.config.MetricsInterval = time.Duration(ms) * time.Millisecond
	settings.SetOrigin(s.section, "metrics-interval", "environment variable "+intervalVariable)
	return nil
}

// complete is a destination with everything in it that is in files.
func (d *destination) complete() (otlp.Destination, error) {
	out := d.Destination
	if d.Secure() {
		for _, f := range []file{{"certificate", d.Certificate}, {"client-certificate", d.ClientCertificate}, {"client-key", d.ClientKey}} {
			if err := f.readable(); err != nil {
				return out, d.at(f.key, err)
			}
		}
	} else if d.ClientCertificate != "" {
		return out, d.at("client-certificate", errors.New("the endpoint is plain text, in which there are no certificates"))
	}
	if len(d.headersFrom) == 0 {
		return out, nil
	}
	if out.Headers = maps.Clone(d.Headers); out.Headers == nil {
		out.Headers = otlp.Headers{}
	}
	for name, path := range d.headersFrom {
		value, err := readHeader(path)
		if err != nil {
			return out, d.at("headers-from", fmt.Errorf("%s: %w", name, err))
		}
		out.Headers[name] = value
	}
	if err := out.Validate(); err != nil {
		return out, d.at("headers-from", err)
	}
	return out, nil
}

// check is what is wrong with a destination of a file, without looking at other files.
func (d *destination) check() error {
	if d.Endpoint == "" {
		return errors.New("endpoint is missing")
	}
	if !d.flags.Changed("name") {
		settings.SetFound(d.flags, "name", d.Endpoint, "the endpoint")
	}
	if err := d.Validate(); err != nil {
		return err
	}
	names := otlp.Headers{}
	for name := range d.headersFrom {
		names[name] = ""
	}
	for name := range d.Headers {
		if _, twice := names[name]; twice {
			return fmt.Errorf("header %s is in headers and in headers-from", name)
		}
	}
	probe := d.Destination
	probe.Headers = names
	return probe.Validate()
}

// at says whose fault an error about a key of the destination is.
func (d *destination) at(key string, err error) error {
	switch origin, file := settings.Origin(d.flags, key); {
	case file:
		_, name, _ := strings.Cut(d.place, ": ")
		return fmt.Errorf("%s: %s.%s: %w", origin, name, key, err)
	case strings.Contains(origin, exporterPrefix):
		return fmt.Errorf("%s: %w", origin, err)
	}
	return fmt.Errorf("%s: %w", d.place, err)
}
