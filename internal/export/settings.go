package export

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"correlator/internal/settings"
	"correlator/otlp"
	"correlator/otlp/receiver"
)

// Settings are what an operator says about OTLP. Flags adds them to those of a command; when these have their
// values, Complete makes a Config of them.
type Settings struct {
	config       Config // without destinations
	endpoints    endpoints
	flags        *pflag.FlagSet // of the command
	section      *pflag.FlagSet // what is below the key otlp of a file
	listener     *pflag.FlagSet // below that
	destinations []*destination // and these
}

// destination is one of a file, or one that is shown as if it was.
type destination struct {
	otlp.Destination
	headersFrom map[string]string // files with the values of headers, by name
	flags       *pflag.FlagSet    // that set all this
	place       string            // where it comes from, as errors about the whole of it begin
}

// Flags adds the flags, and the key of a file that has what is too much for flags.
func (s *Settings) Flags(flags *pflag.FlagSet) {
	s.flags, s.config = flags, DefaultConfig()
	settings.Group(flags, "OTLP", func(flags *pflag.FlagSet) {
		flags.Var(&s.endpoints, "otlp-endpoint",
			"`URL` of an OTLP receiver (gRPC) to export profiles and metrics to, any number of times: https://HOST:4317, http://HOST:4317 (plain text), unix:PATH. "+
				"The first gets headers and certificates from the variables OTEL_EXPORTER_OTLP_*, more of each is for the file (default: what the file's key otlp says, then OTEL_EXPORTER_OTLP_ENDPOINT, then none)")
		flags.StringVar(&s.config.Receiver.Listen, "otlp-listen", "",
			"`address` that takes OTLP (gRPC) of others, and passes it on to the endpoints: unix:PATH, or HOST:PORT of this host only, unless the file has a certificate for TLS (default: none)")
		flags.BoolVar(&s.config.Untraced, "otlp-untraced", false, "also export samples of threads that worked on no trace, of processes that take part")
		settings.Section(flags, "otlp", s.defineSection)
	})
}

func (s *Settings) defineSection(flags *pflag.FlagSet) {
	c := &s.config
	s.section = flags
	settings.Sections(flags, "destinations", s.defineDestination)
	flags.Int64Var(&c.QueueBytes, "queue-bytes", otlp.DefaultQueueBytes, "")
	flags.DurationVar(&c.ProfilesInterval, "profiles-interval", DefaultProfilesInterval, "")
	flags.DurationVar(&c.MetricsInterval, "metrics-interval", DefaultMetricsInterval, "")
	flags.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", DefaultShutdownTimeout, "")
	settings.Section(flags, "listener", func(flags *pflag.FlagSet) {
		r := &c.Receiver
		s.listener = flags
		r.SocketMode = receiver.DefaultSocketMode
		flags.Var((*mode)(&r.SocketMode), "socket-mode", "")
		flags.StringVar(&r.Certificate, "certificate", "", "")
		flags.StringVar(&r.Key, "key", "", "")
		flags.StringVar(&r.ClientAuthorities, "client-authorities", "", "")
		flags.IntVar(&r.MaxRequestBytes, "max-request-bytes", receiver.DefaultMaxRequestBytes, "")
	})
}

func (s *Settings) defineDestination(flags *pflag.FlagSet) (check func() error) {
	d := &destination{Destination: otlp.NewDestination(""), flags: flags}
	s.destinations = append(s.destinations, d)
	flags.StringVar(&d.Endpoint, "endpoint", "", "")
	flags.StringVar(&d.Name, "name", "", "")
	flags.BoolVar(&d.Insecure, "insecure", d.Insecure, "")
	flags.Var((*signals)(&d.Signals), "signals", "")
	settings.Texts(flags, "headers", (*map[string]string)(&d.Headers), true)
	settings.Texts(flags, "headers-from", &d.headersFrom, false)
	flags.StringVar(&d.Certificate, "certificate", "", "")
	flags.StringVar(&d.ClientCertificate, "client-certificate", "", "")
	flags.StringVar(&d.ClientKey, "client-key", "", "")
	flags.StringVar((*string)(&d.Compression), "compression", string(d.Compression), "")
	flags.DurationVar(&d.Timeout, "timeout", d.Timeout, "")
	flags.IntVar(&d.Concurrency, "concurrency", d.Concurrency, "")
	flags.Int64Var(&d.QueueBytes, "queue-bytes", d.QueueBytes, "")
	flags.IntVar(&d.MaxRequestBytes, "max-request-bytes", d.MaxRequestBytes, "")
	flags.DurationVar(&d.MaxAge, "max-age", d.MaxAge, "")
	flags.BoolVar(&d.RetryResourceExhausted, "retry-resource-exhausted", d.RetryResourceExhausted, "")
	return d.check
}

// endpoints is the value of a flag that may be given several times. It is a pflag.SliceValue. It takes
// whatever it is given: an error of pflag would show an endpoint that has a password in it.
type endpoints []string

// Set takes several, separated by commas or line ends.
func (e *endpoints) Set(texts string) error {
	for text := range strings.FieldsFuncSeq(texts, func(r rune) bool { return strings.ContainsRune(",\r\n", r) }) {
		e.Append(text)
	}
	return nil
}

func (e *endpoints) Append(text string) error {
	if text = strings.TrimSpace(text); text != "" {
		*e = append(*e, text)
	}
	return nil
}

func (e *endpoints) Replace(texts []string) error {
	*e = nil
	for _, text := range texts {
		e.Append(text)
	}
	return nil
}

func (e *endpoints) GetSlice() []string { return *e }
func (e *endpoints) Type() string       { return "URL" }

// String is empty: the help text tells the default.
func (e *endpoints) String() string { return "" }

// signals is a list of them, each once.
type signals []otlp.Signal

func (s *signals) Set(text string) error {
	return s.Replace(strings.Split(text, ","))
}

func (s *signals) Append(text string) error {
	for signal := range otlp.NumSignals {
		if signal.String() == text {
			if slices.Contains(*s, signal) {
				return fmt.Errorf("%s stands there twice", text)
			}
			*s = append(*s, signal)
			return nil
		}
	}
	return fmt.Errorf("%q is none of traces, metrics, profiles", text)
}

func (s *signals) Replace(texts []string) error {
	*s = nil
	for _, text := range texts {
		if err := s.Append(text); err != nil {
			return err
		}
	}
	return nil
}

func (s *signals) GetSlice() []string {
	names := make([]string, 0, len(*s))
	for _, signal := range *s {
		names = append(names, signal.String())
	}
	return names
}

func (s *signals) Type() string   { return "signals" }
func (s *signals) String() string { return strings.Join(s.GetSlice(), ",") }

// mode is permissions in octal. As text it has quotes in YAML, in which 0660 is 660 to some and 432 to others.
type mode fs.FileMode

func (m *mode) Set(text string) error {
	bits, err := strconv.ParseUint(text, 8, 32)
	if err != nil || fs.FileMode(bits)&^fs.ModePerm != 0 {
		return fmt.Errorf(`%q is no mode of a file, as "0660" is`, text)
	}
	*m = mode(bits)
	return nil
}

func (m *mode) Type() string   { return "mode" }
func (m *mode) String() string { return fmt.Sprintf("%04o", uint32(*m)) }
