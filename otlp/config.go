package otlp

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/metadata"
)

// Compression is the compression of requests.
type Compression string

const (
	Gzip Compression = "gzip"
	None Compression = "none"
)

// Protocol is how requests are sent, by the name that OTEL_EXPORTER_OTLP_PROTOCOL has for it.
type Protocol string

const (
	GRPC         Protocol = "grpc"
	HTTPProtobuf Protocol = "http/protobuf"
)

// Validate returns an error for a protocol that is not spoken.
func (p Protocol) Validate() error {
	if p != GRPC && p != HTTPProtobuf {
		return fmt.Errorf("protocol %q: neither grpc nor http/protobuf", string(p))
	}
	return nil
}

func (c Compression) validate() error {
	if c != Gzip && c != None {
		return fmt.Errorf("compression %q: neither gzip nor none", string(c))
	}
	return nil
}

const (
	// DefaultQueueBytes is the memory for batches that are not yet delivered, which the
	// destinations share: at a few kB/s it lasts for half an hour.
	DefaultQueueBytes = 8 << 20
	// DefaultMaxRequestBytes is what deployed receivers accept unless configured otherwise.
	DefaultMaxRequestBytes = 4 << 20
	DefaultTimeout         = 10 * time.Second
	defaultMaxAge          = 5 * time.Minute
	// DefaultConcurrency is that of the OpenTelemetry Collector's exporters: with less, a Collector
	// that sends through this exporter would be slower than without it.
	DefaultConcurrency = 10
	// maxConcurrency is how many streams a connection may have at many receivers; more would only
	// wait elsewhere.
	maxConcurrency = 64
	// maxTimeout is longer than any response takes. Twice as much in milliseconds goes to the
	// kernel, which accepts no more than 24 days.
	maxTimeout = time.Hour
)

// Destination is the configuration of one receiver. Begin with NewDestination: the zero values of
// most fields are not their defaults, and are invalid.
type Destination struct {
	// Endpoint of GRPC is http://HOST[:PORT] (plain text), https://HOST[:PORT] (TLS), HOST[:PORT]
	// (TLS unless Insecure) or unix:PATH (plain text). The default port is 4317. That of
	// HTTPProtobuf is a URL, to whose path those of the signals are appended, or unix:PATH.
	Endpoint string   `key:"endpoint"`
	Name     string   `key:"name"` // in metrics, events and Status; unique
	Protocol Protocol `key:"protocol"`
	// ExactURL sends requests by HTTP to the Endpoint as it is. It is for one signal, because
	// nothing but the path says which one a request has.
	ExactURL bool     `key:"exact-url"`
	Insecure bool     `key:"insecure"` // only for an Endpoint of GRPC without a scheme
	Signals  []Signal `key:"signals"`  // that it gets; none: all
	Headers  Headers  `key:"headers" secret:"true"`

	// Names of PEM files. Those of the client are read for each connection, so they may be
	// replaced.
	Certificate       string `key:"certificate"` // of the authorities that sign the receiver's; none: those of the system
	ClientCertificate string `key:"client-certificate"`
	ClientKey         string `key:"client-key"`

	Compression Compression   `key:"compression"`
	Timeout     time.Duration `key:"timeout"` // of one attempt, at most MaxTimeout

	Concurrency int `key:"concurrency"` // requests in flight, at most
	// QueueBytes is the limit of batches that are queued or in flight; 0: a share of
	// Options.QueueBytes.
	QueueBytes      int64         `key:"queue-bytes" unit:"bytes"`
	MaxRequestBytes int           `key:"max-request-bytes" unit:"bytes"` // of one batch, before compression
	MaxAge          time.Duration `key:"max-age"`                        // of a batch; what is older is dropped. 0: any

	// RetryResourceExhausted sends a batch again after RESOURCE_EXHAUSTED without RetryInfo, for
	// receivers that return it when they are short of memory. OTLP wants the batch dropped.
	RetryResourceExhausted bool `key:"retry-resource-exhausted"`

	dial dialer // of tests
}

// NewDestination returns a destination with all defaults, whose name is its endpoint.
func NewDestination(endpoint string) Destination {
	return Destination{
		Name: endpoint, Endpoint: endpoint, Protocol: GRPC, Compression: Gzip, Timeout: DefaultTimeout,
		Concurrency: DefaultConcurrency, MaxRequestBytes: DefaultMaxRequestBytes, MaxAge: defaultMaxAge,
	}
}

// Takes reports whether the destination gets a signal.
func (d *Destination) Takes(s Signal) bool {
	return len(d.Signals) == 0 || slices.Contains(d.Signals, s)
}

// Secure reports whether connections to a valid destination use TLS.
func (d *Destination) Secure() bool {
	e, err := d.parseEndpoint()
	return err == nil && e.tls
}

// Address returns where connections of a valid destination go, HOST:PORT or unix:PATH.
func (d *Destination) Address() string {
	e, err := d.parseEndpoint()
	if err != nil || e.unix {
		return d.Endpoint
	}
	return e.host
}

// Path returns the path of a signal's requests, by HTTP.
func (d *Destination) Path(s Signal) string {
	e, err := d.parseEndpoint()
	if err != nil || d.Protocol != HTTPProtobuf {
		return ""
	}
	return strings.TrimRight(e.url(s, d.ExactURL).Path, "/")
}

// Validate returns an error for a destination that cannot work. It does not open anything. The
// error never contains a secret: no value of a header, and nothing of an invalid endpoint.
func (d *Destination) Validate() error {
	if err := d.Protocol.Validate(); err != nil {
		return err
	}
	if _, err := d.parseEndpoint(); err != nil {
		return err
	}
	switch {
	case d.Name == "":
		return errors.New("name is empty")
	case !utf8.ValidString(d.Name): // it labels metrics
		return errors.New("name is not UTF-8")
	case d.Timeout <= 0 || d.Timeout > maxTimeout:
		return fmt.Errorf("timeout %v: not above 0 and at most %v", d.Timeout, maxTimeout)
	case d.MaxAge < 0:
		return fmt.Errorf("max-age %v: negative", d.MaxAge)
	case d.Concurrency < 1 || d.Concurrency > maxConcurrency:
		return fmt.Errorf("concurrency %d: not in 1 to %d", d.Concurrency, maxConcurrency)
	case d.QueueBytes < 0:
		return fmt.Errorf("queue-bytes %d: negative", d.QueueBytes)
	case d.MaxRequestBytes <= 0:
		return fmt.Errorf("max-request-bytes %d: not positive", d.MaxRequestBytes)
	case (d.ClientCertificate == "") != (d.ClientKey == ""):
		return errors.New("client-certificate and client-key: one without the other")
	case d.ExactURL && d.Protocol != HTTPProtobuf:
		return errors.New("exact-url: only the protocol http/protobuf has paths")
	case d.ExactURL && len(d.Signals) != 1:
		return errors.New("exact-url: for one signal, which signals must name")
	}
	for _, s := range d.Signals {
		if s >= NumSignals {
			return fmt.Errorf("signal %d: unknown", s)
		}
	}
	if err := d.Compression.validate(); err != nil {
		return err
	}
	return d.Headers.validate(d.Protocol)
}

// Headers are sent with every request. Their values are secrets: however they are printed, only the
// keys show.
type Headers map[string]string

// Format prints the keys, for every verb.
func (h Headers) Format(f fmt.State, _ rune) { fmt.Fprint(f, h.redacted()) }

// MarshalText returns the keys with their values redacted.
func (h Headers) MarshalText() ([]byte, error) { return []byte(h.redacted()), nil }

// MarshalJSON returns the keys with their values redacted.
func (h Headers) MarshalJSON() ([]byte, error) { return []byte(fmt.Sprintf("%q", h.redacted())), nil }

// MarshalYAML returns the keys with their values redacted.
func (h Headers) MarshalYAML() (any, error) { return h.redacted(), nil }

func (h Headers) redacted() string {
	var b strings.Builder
	for i, k := range slices.Sorted(maps.Keys(h)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(k + "=REDACTED")
	}
	return b.String()
}

// reserved are keys that belong to HTTP and gRPC.
var reserved = []string{
	"content-type", "content-encoding", "accept-encoding", "user-agent", "te", "host", "connection",
	"content-length", "transfer-encoding", "trailer", "upgrade", "expect",
}

// validate returns an error for headers that a protocol cannot send. It never contains a value.
// gRPC encodes the values of keys that end with -bin.
func (h Headers) validate(p Protocol) error {
	seen := make(map[string]bool, len(h))
	for key, value := range h {
		k := strings.ToLower(key)
		switch {
		case k == "" || strings.Trim(k, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "":
			return fmt.Errorf("header %q: not a key of HTTP or gRPC", key)
		case slices.Contains(reserved, k) || strings.HasPrefix(k, "grpc-"):
			return fmt.Errorf("header %q: reserved", key)
		case seen[k]:
			return fmt.Errorf("header %q: twice, in upper and lower case", key)
		case (p != GRPC || !strings.HasSuffix(k, "-bin")) && strings.ContainsFunc(value, notPrintable):
			return fmt.Errorf("header %q: its value is not printable ASCII", key)
		}
		seen[k] = true
	}
	return nil
}

func notPrintable(r rune) bool { return r < ' ' || r > '~' }

// secrets redacts the values in texts: a receiver may repeat the key that it does not know. Short
// values are not secrets but words that may be in any text.
func (h Headers) secrets() *strings.Replacer {
	const short = 8
	var pairs []string
	for _, v := range h {
		// Also the last word alone, without the scheme of an authorization.
		for _, secret := range []string{v, v[strings.LastIndexByte(v, ' ')+1:]} {
			if len(secret) >= short {
				pairs = append(pairs, secret, "REDACTED")
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

func (h Headers) metadata() metadata.MD { return metadata.New(h) }
