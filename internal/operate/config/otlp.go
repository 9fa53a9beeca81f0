package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"correlator/internal/out/export"
	"correlator/otlp"
)

// The standard variables: one of OpenTelemetry's metrics SDK, and those of its exporters.
const (
	intervalVariable = "OTEL_METRIC_EXPORT_INTERVAL"
	exporterPrefix   = "OTEL_EXPORTER_OTLP_"
	protocolVariable = exporterPrefix + "PROTOCOL"
)

// Paths of settings in the file.
const (
	destinationsPath = "otlp.destinations"
	listenerPath     = "otlp.listener"
)

func destinationPath(i int) string { return fmt.Sprintf("%s[%d]", destinationsPath, i) }

// findDestinations sets the destinations as if a file had them. --otlp-endpoint goes before the
// destinations of a file, and those before the standard variables. An endpoint or a list of
// destinations that is given and empty exports nothing: then the variables do not count.
func (o *otlpSection) findDestinations(s *Settings, getenv func(string) string) error {
	const key = "otlp-endpoint"
	if err := o.checkProtocol(s); err != nil {
		return err
	}
	getenv = o.withProtocol(getenv)
	endpointsInFile := s.sources[key].kind == fromFile
	listed := len(o.Section.Destinations) > 0
	switch {
	case len(o.Endpoints) > 0 && endpointsInFile && listed:
		return fmt.Errorf("%s: the same file has otlp.destinations: say there all there is to say, or here",
			s.Name(key))
	case len(o.Endpoints) > 0:
		err := o.fromEndpoints(s, getenv)
		s.comment(key) // beside the destinations, which are printed, it would be refused
		return err
	case listed && (!s.Given(key) || endpointsInFile):
		if o.Protocol != "" {
			return fmt.Errorf("%s: otlp.destinations have a protocol of their own, each", s.Name(protocolKey))
		}
		s.comment(key)
		for i := range o.Section.Destinations {
			path := destinationPath(i)
			o.Section.Destinations[i].place = s.sources[path+".endpoint"].String() + ": " + path
		}
		return nil
	case s.Given(key) || s.Given(destinationsPath): // as none
		from := s.sources[destinationsPath]
		o.replace(s, nil)
		if !listed && from.kind == fromFile { // the file says so, which is what Print shows
			s.sources[destinationsPath] = from
		}
		return nil
	}
	found, err := otlp.FromEnvironment(getenv)
	if err != nil {
		return fmt.Errorf("environment variable %w", err)
	}
	o.replace(s, found)
	for i := range o.Section.Destinations {
		o.Section.Destinations[i].fromVariables(s, destinationPath(i), getenv)
		o.protocolSource(s, destinationPath(i))
		o.Section.Destinations[i].place = s.sources[destinationPath(i)+".endpoint"].String()
	}
	return nil
}

// protocolKey is the key of the protocol of destinations that are not in a file.
const protocolKey = "otlp-protocol"

func (o *otlpSection) checkProtocol(s *Settings) error {
	if o.Protocol == "" {
		return nil
	}
	if err := otlp.Protocol(o.Protocol).Validate(); err != nil {
		return fmt.Errorf("%s: %w", s.Name(protocolKey), err)
	}
	return nil
}

// withProtocol returns an environment in which otlp-protocol, if it is given, takes the place of the
// standard variables for it.
func (o *otlpSection) withProtocol(getenv func(string) string) func(string) string {
	if o.Protocol == "" {
		return getenv
	}
	return forAll("PROTOCOL", o.Protocol, getenv)
}

// protocolSource records that the protocol of a destination is that of otlp-protocol.
func (o *otlpSection) protocolSource(s *Settings, path string) {
	if o.Protocol != "" {
		from := s.sources[protocolKey]
		from.commented = false
		s.sources[path+".protocol"] = from
		s.comment(protocolKey) // as otlp-endpoint
	}
}

// fromEndpoints makes a destination of each endpoint. The first is the default one of the standard
// variables, and the only one that they are for, except for the protocol: credentials are for one
// receiver.
func (o *otlpSection) fromEndpoints(s *Settings, getenv func(string) string) error {
	const key = "otlp-endpoint"
	variables := forAll("ENDPOINT", o.Endpoints[0], getenv)
	var all []otlp.Destination
	var places []string
	first := 0 // how many are made of the first endpoint
	for i, endpoint := range o.Endpoints {
		place := s.Name(key)
		if len(o.Endpoints) > 1 {
			place += ", number " + strconv.Itoa(i+1)
		}
		d := otlp.NewDestination(endpoint)
		d.Protocol = otlp.Protocol(cmp.Or(strings.TrimSpace(variables(protocolVariable)), string(otlp.GRPC)))
		if err := d.Validate(); err != nil && d.Protocol.Validate() == nil { // else the variable is wrong
			return fmt.Errorf("%s: %w", place, err)
		}
		found := []otlp.Destination{d}
		if i == 0 {
			var err error
			if found, err = otlp.FromEnvironment(variables); err != nil {
				return fmt.Errorf("environment variable %w", err)
			}
			first = len(found)
		}
		all = append(all, found...)
		places = append(places, slices.Repeat([]string{place}, len(found))...)
	}
	o.replace(s, all)
	for i := range o.Section.Destinations {
		d, path := &o.Section.Destinations[i], destinationPath(i)
		if i < first {
			d.fromVariables(s, path, variables)
		} else if strings.TrimSpace(variables(protocolVariable)) != "" {
			s.sources[path+".protocol"] = variableSource(protocolVariable)
		}
		o.protocolSource(s, path)
		d.place = places[i]
		s.sources[path+".endpoint"] = s.sources[key]
		s.sources[path+".name"] = s.sources[key]
	}
	return nil
}

// forAll returns an environment in which a standard variable has a value for all signals.
func forAll(variable, value string, getenv func(string) string) func(string) string {
	return func(name string) string {
		switch rest, ours := strings.CutPrefix(name, exporterPrefix); {
		case ours && rest == variable:
			return value
		case ours && strings.HasSuffix(rest, "_"+variable):
			return ""
		}
		return getenv(name)
	}
}

// replace puts destinations in the place of those of a file.
func (o *otlpSection) replace(s *Settings, all []otlp.Destination) {
	maps.DeleteFunc(s.sources, func(path string, _ source) bool { return strings.HasPrefix(path, destinationsPath) })
	o.Section.Destinations = make([]destination, len(all))
	for i, d := range all {
		if len(d.Signals) == int(otlp.NumSignals) {
			d.Signals = nil // all
		}
		o.Section.Destinations[i].Destination = d
	}
}

// variables are the keys that standard variables set, and the ends of their names.
var variables = map[string]string{
	"endpoint": "ENDPOINT", "insecure": "INSECURE", "headers": "HEADERS", "certificate": "CERTIFICATE",
	"client-certificate": "CLIENT_CERTIFICATE", "client-key": "CLIENT_KEY",
	"compression": "COMPRESSION", "timeout": "TIMEOUT", "protocol": "PROTOCOL",
}

// fromVariables records which standard variables a destination is made of: those of its signal go
// before those of all.
func (d *destination) fromVariables(s *Settings, path string, getenv func(string) string) {
	signal := otlp.Signal(0)
	if len(d.Signals) > 0 {
		signal = d.Signals[0]
		s.sources[path+".signals"] = variableSource(exporterPrefix + "*")
	}
	for key, end := range variables {
		for _, name := range []string{exporterPrefix + strings.ToUpper(signal.String()) + "_" + end,
			exporterPrefix + end} {
			if strings.TrimSpace(getenv(name)) != "" {
				s.sources[path+"."+key] = variableSource(name)
				break
			}
		}
	}
	s.sources[path+".name"] = s.sources[path+".endpoint"]
	if d.ExactURL {
		s.sources[path+".exact-url"] = s.sources[path+".endpoint"]
	}
}

// findMetricsInterval reads the standard variable, if a destination takes metrics.
func (o *otlpSection) findMetricsInterval(s *Settings, getenv func(string) string) error {
	const path = "otlp.metrics-interval"
	text := strings.TrimSpace(getenv(intervalVariable))
	takesMetrics := func(d destination) bool { return len(d.Signals) == 0 || slices.Contains(d.Signals, otlp.Metrics) }
	if text == "" || s.Given(path) || !slices.ContainsFunc(o.Section.Destinations, takesMetrics) {
		return nil
	}
	ms, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return fmt.Errorf("environment variable %s: %q is not a number of milliseconds", intervalVariable, text)
	}
	o.Section.MetricsInterval = time.Duration(ms) * time.Millisecond
	s.sources[path] = variableSource(intervalVariable)
	return nil
}

func (d *destination) check(s *Settings, path string) error {
	if d.Endpoint == "" {
		return errors.New("endpoint is missing")
	}
	if !s.Given(path + ".name") {
		d.Name = d.Endpoint
		s.derived(path+".name", "the endpoint")
	}
	names := otlp.Headers{}
	for name := range d.HeadersFrom {
		if _, twice := d.Headers[name]; twice {
			return fmt.Errorf("header %s is in headers and in headers-from", name)
		}
		names[name] = ""
	}
	for _, headers := range []otlp.Headers{d.Headers, names} {
		if o := d.with(headers); o.Validate() != nil {
			return o.Validate()
		}
	}
	return nil
}

// export returns what is exported where. It reads the files of headers, checks that the others can
// be read, and opens nothing else.
func (o *otlpSection) export(s *Settings) (export.Config, error) {
	c := export.Config{
		QueueBytes: o.Section.QueueBytes, Receiver: o.receiver(o.Listen),
		ProfilesInterval: o.Section.ProfilesInterval, MetricsInterval: o.Section.MetricsInterval,
		ShutdownTimeout: o.Section.ShutdownTimeout, Untraced: o.Untraced, Symbolize: o.Symbolize,
	}
	for i := range o.Section.Destinations {
		d, err := o.Section.Destinations[i].complete(s, destinationPath(i))
		if err != nil {
			return c, err
		}
		c.Destinations = append(c.Destinations, d)
	}
	return c, nil
}

// complete returns a destination with the headers that are in files.
func (d *destination) complete(s *Settings, path string) (otlp.Destination, error) {
	out := d.Destination
	if out.Secure() {
		for _, f := range []struct{ key, path string }{
			{"certificate", d.Certificate}, {"client-certificate", d.ClientCertificate}, {"client-key", d.ClientKey},
		} {
			if err := checkReadable(f.path); err != nil {
				return out, d.at(s, path, f.key, err)
			}
		}
	} else if d.ClientCertificate != "" {
		return out, d.at(s, path, "client-certificate",
			errors.New("the endpoint is plain text, in which there are no certificates"))
	}
	if len(d.HeadersFrom) == 0 {
		return out, nil
	}
	if out.Headers = maps.Clone(d.Headers); out.Headers == nil {
		out.Headers = otlp.Headers{}
	}
	for name, file := range d.HeadersFrom {
		value, err := readHeader(file)
		if err != nil {
			return out, d.at(s, path, "headers-from", fmt.Errorf("%s: %w", name, err))
		}
		out.Headers[name] = value
	}
	if err := out.Validate(); err != nil {
		return out, d.at(s, path, "headers-from", err)
	}
	return out, nil
}

// at puts before an error about a key of a destination where the value comes from: a line of the
// file, a standard variable, or else what the whole destination comes from.
func (d *destination) at(s *Settings, path, key string, err error) error {
	switch from := s.sources[path+"."+key]; {
	case from.kind == fromFile && strings.HasSuffix(d.place, path):
		return fmt.Errorf("%v: %s.%s: %w", from, path, key, err)
	case from.kind == fromEnvironment && strings.HasPrefix(from.detail, exporterPrefix):
		return fmt.Errorf("%v: %w", from, err)
	}
	return fmt.Errorf("%s: %w", d.place, err)
}

// maxHeaderBytes is what most servers accept of all headers together.
const maxHeaderBytes = 8 << 10

// readHeader reads the value of a header. The error shows neither the value nor the path: a value
// that was written where the name of its file belongs must not get into the log.
func readHeader(path string) (string, error) {
	content, err := readSome(path, maxHeaderBytes+1)
	switch value := strings.TrimRight(string(content), "\r\n"); {
	case err != nil:
		return "", fmt.Errorf("reading the file: %w", err)
	case len(content) > maxHeaderBytes:
		return "", fmt.Errorf("the file has more than %d bytes", maxHeaderBytes)
	case value == "":
		return "", errors.New("the file is empty")
	default:
		return value, nil
	}
}

// checkReadable returns an error if a file cannot be read. No path is no file.
func checkReadable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", path)
	}
	return nil
}
