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

// Compression is how requests are compressed.
type Compression string

const (
	Gzip Compression = "gzip"
	None Compression = "none"
)

func (c Compression) validate() error {
	if c != Gzip && c != None {
		return fmt.Errorf("compression %q: neither gzip nor none", string(c))
	}
	return nil
}

const (
	// DefaultQueueBytes is the memory for batches that are not yet delivered, of all destinations together
	// and of each: at a few kB/s this is half an hour.
	DefaultQueueBytes = 8 << 20
	// DefaultMaxRequestBytes is what deployed receivers accept unless told otherwise.
	DefaultMaxRequestBytes = 4 << 20
	DefaultTimeout         = 10 * time.Second
	DefaultMaxAge          = 5 * time.Minute
	DefaultConcurrency     = 4
	// MaxConcurrency: beyond it a request only waits elsewhere.
	MaxConcurrency = 64
	// MaxTimeout: nobody answers after that. The kernel, which gets twice as much in milliseconds, takes no
	// more than 24 days.
	MaxTimeout = time.Hour
)

// Destination is the configuration of one receiver. Begin with NewDestination: the zero values of most
// fields are not their defaults, and are refused.
type Destination struct {
	Name string // in metrics, events and Status; unique
	// Endpoint is http://HOST[:PORT] (plain text), https://HOST[:PORT] (TLS), HOST[:PORT] (TLS unless
	// Insecure) or unix:PATH (plain text). The default port is 4317.
	Endpoint string
	Insecure bool     // only for an Endpoint without a scheme
	Signals  []Signal // those that it gets; none: all

	// Names of PEM files. Those of the client are read again for each connection, so they may be replaced.
	Certificate       string // of the authorities that sign the receiver's; none: those of the system
	ClientCertificate string
	ClientKey         string

	Headers     Headers
	Compression Compression
	Timeout     time.Duration // of one attempt, at most MaxTimeout

	// Concurrency is how many requests are in flight, at most. Beside other destinations, it is fewer if they are
	// large and of our own data: what is in flight cannot make room for that of others.
	Concurrency     int
	QueueBytes      int64 // of batches that are queued or in flight, at most
	MaxRequestBytes int   // of one batch, before compression
	// MaxAge is how old a batch may be when an attempt begins; 0: any. A destination that takes nothing for
	// longer does not harm others: see EnqueueReceived.
	MaxAge time.Duration

	// RetryResourceExhausted sends a batch again that was answered with RESOURCE_EXHAUSTED and no RetryInfo,
	// for receivers that say so when they are short of memory. OTLP wants it dropped.
	RetryResourceExhausted bool

	dial dialer // of tests
}

// NewDestination is a destination with all defaults, whose name is its endpoint.
func NewDestination(endpoint string) Destination {
	return Destination{
		Name: endpoint, Endpoint: endpoint, Compression: Gzip, Timeout: DefaultTimeout,
		Concurrency: DefaultConcurrency, QueueBytes: DefaultQueueBytes, MaxRequestBytes: DefaultMaxRequestBytes,
		MaxAge: DefaultMaxAge,
	}
}

// Takes says whether the destination gets a signal.
func (d *Destination) Takes(s Signal) bool {
	return len(d.Signals) == 0 || slices.Contains(d.Signals, s)
}

// Secure says whether connections to the destination, which is valid, have TLS.
func (d *Destination) Secure() bool {
	e, err := parseEndpoint(d.Endpoint, d.Insecure)
	return err == nil && e.tls
}

// Validate says what is wrong with a destination, as far as it can be seen without opening anything. It never has
// a secret in it: no value of a header, and nothing of an endpoint that is none.
func (d *Destination) Validate() error {
	if _, err := parseEndpoint(d.Endpoint, d.Insecure); err != nil {
		return err
	}
	switch {
	case d.Name == "":
		return errors.New("name is empty")
	case !utf8.ValidString(d.Name): // it labels metrics
		return errors.New("name is not UTF-8")
	case d.Timeout <= 0 || d.Timeout > MaxTimeout:
		return fmt.Errorf("timeout %v: not above 0 and at most %v", d.Timeout, MaxTimeout)
	case d.MaxAge < 0:
		return fmt.Errorf("max-age %v: negative", d.MaxAge)
	case d.Concurrency < 1 || d.Concurrency > MaxConcurrency:
		return fmt.Errorf("concurrency %d: not in 1 to %d", d.Concurrency, MaxConcurrency)
	case d.QueueBytes <= 0:
		return fmt.Errorf("queue-bytes %d: not positive", d.QueueBytes)
	case d.MaxRequestBytes <= 0:
		return fmt.Errorf("max-request-bytes %d: not positive", d.MaxRequestBytes)
	case (d.ClientCertificate == "") != (d.ClientKey == ""):
		return errors.New("client-certificate and client-key: one without the other")
	}
	for _, s := range d.Signals {
		if s >= NumSignals {
			return fmt.Errorf("signal %d: unknown", s)
		}
	}
	if err := d.Compression.validate(); err != nil {
		return err
	}
	return d.Headers.validate()
}

// Headers are sent with every request. Their values are secrets: however they are printed, only the keys
// show.
type Headers map[string]string

// Format prints the keys, for every verb.
func (h Headers) Format(f fmt.State, _ rune) { fmt.Fprint(f, h.redacted()) }

// MarshalText gives the keys, for encoders that know it.
func (h Headers) MarshalText() ([]byte, error) { return []byte(h.redacted()), nil }

// MarshalJSON gives the keys with their values redacted.
func (h Headers) MarshalJSON() ([]byte, error) { return []byte(fmt.Sprintf("%q", h.redacted())), nil }

// MarshalYAML gives the keys with their values redacted.
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

// reserved are keys that belong to HTTP/2 and gRPC.
var reserved = []string{"content-type", "user-agent", "te", "host", "connection", "content-length", "transfer-encoding"}

// validate is an error for what gRPC could not send. It never has a value in it.
func (h Headers) validate() error {
	seen := make(map[string]bool, len(h))
	for key, value := range h {
		k := strings.ToLower(key)
		switch {
		case k == "" || strings.Trim(k, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "":
			return fmt.Errorf("header %q: not a key of gRPC", key)
		case slices.Contains(reserved, k) || strings.HasPrefix(k, "grpc-"):
			return fmt.Errorf("header %q: reserved", key)
		case seen[k]:
			return fmt.Errorf("header %q: twice, in upper and lower case", key)
		case !strings.HasSuffix(k, "-bin") && strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
			return fmt.Errorf("header %q: its value is not printable ASCII", key)
		}
		seen[k] = true
	}
	return nil
}

// secrets hides the values in texts: a receiver may repeat the key that it does not know. Short values are
// no secrets but words that may be in any text.
func (h Headers) secrets() *strings.Replacer {
	const short = 8
	var pairs []string
	for _, v := range h {
		// The last word alone too, without the scheme of an authorization.
		for _, secret := range []string{v, v[strings.LastIndexByte(v, ' ')+1:]} {
			if len(secret) >= short {
				pairs = append(pairs, secret, "REDACTED")
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

func (h Headers) metadata() metadata.MD { return metadata.New(h) }
