package spans

import (
	"errors"
	"strings"
	"sync"
	"time"

	"correlator/internal/host/label"
	"correlator/otlp/field"
)

// maxSpans limits the spans of an export. 600 bare ones have 255 KB, and the largest exports that
// clients get through have a few megabytes.
const maxSpans = 50_000

// Options are the options of an Encoder.
type Options struct {
	ServiceName        string // service.name of all resources
	HostID, HostName   string // host.id and host.name, if they are not empty
	MaxStackTraceBytes int    // size of code.stacktrace; 0: the attribute is left out
	// SplitBytes is the size from which on a further ResourceSpans is begun for the spans that follow;
	// 0: none is.
	SplitBytes int
	// CutQueries removes the query from the names of SERVER spans, which the client makes from the
	// request URI.
	CutQueries bool
	// TranslateAttributes replaces the attributes of the client's request handler by those of
	// OpenTelemetry's conventions.
	TranslateAttributes bool
}

// DefaultMaxStackTraceBytes holds about 128 frames.
const DefaultMaxStackTraceBytes = 16 << 10

// Process is what is known of the sending process; what is zero or empty is not known.
type Process struct {
	PID                         int // in our pid namespace, whatever the client's is
	ContainerID, ExecutableName string
}

// Export is a trace export as it was received.
type Export struct {
	Payload    []byte    // JSON
	Sent       time.Time // zero: the message has no usable time
	Received   time.Time
	PHPVersion string // empty: not known
	Process    Process
}

// DropReason is why a span was dropped.
type DropReason uint8

const (
	BadTraceID DropReason = iota // missing, not hexadecimal, too long, or zero
	BadSpanID                    // the same
	NotObject                    // the list has something else in the span's place
	TooMany                      // beyond 50,000 spans of an export
	NumDropReasons
)

var dropReasonNames = [NumDropReasons]string{
	BadTraceID: "bad_trace_id", BadSpanID: "bad_span_id", NotObject: "not_object", TooMany: "too_many",
}

// String is the value of the label reason.
func (r DropReason) String() string { return label.Of(dropReasonNames[:], r) }

// Result is what became of an export. Spans and Dropped add up to what it had.
type Result struct {
	Spans   int // appended
	Dropped [NumDropReasons]int
	// Of spans that were appended: what is in their dropped counts.
	DroppedAttributes, DroppedEvents, DroppedLinks int

	InvalidParents int  // not hexadecimal, or too long: the span has no parent
	UnknownZones   int  // times taken as UTC
	Empty          bool // no payload: the client could not encode its spans, and has lost them
}

// ErrInvalid is returned for a payload that is not valid JSON, is nested deeper than any client
// writes, or is neither a list nor an object.
var ErrInvalid = errors.New("invalid JSON of a trace export")

// Encoder encodes exports. It is safe for concurrent use.
type Encoder struct {
	options  Options
	resource []byte // the attributes that all resources have
	zones    zones
	pool     sync.Pool // of *encoding
}

// NewEncoder returns an Encoder.
func NewEncoder(o Options) *Encoder {
	e := &Encoder{options: o}
	for _, a := range [...]struct{ key, text string }{
		{"service.name", o.ServiceName},
		{"telemetry.sdk.name", "opencensus"},
		{"telemetry.sdk.language", "php"},
		{"process.runtime.name", "php"},
		{"host.id", o.HostID},
		{"host.name", o.HostName},
	} {
		e.resource = appendAttribute(e.resource, a.key, a.text)
	}
	e.pool.New = func() any { return &encoding{Encoder: e} }
	return e
}

// appendAttribute appends an attribute of a resource, unless it is empty.
func appendAttribute(to []byte, key, text string) []byte {
	if text == "" {
		return to
	}
	return field.AppendTextAttribute(to, 1, key, strings.ToValidUTF8(text, "\uFFFD"))
}

// Append appends the spans of an export to an ExportTraceServiceRequest, as one field
// resource_spans, or several with Options.SplitBytes: see Parts. Without any span, and with an error,
// it appends nothing. The error is ErrInvalid.
func (e *Encoder) Append(dst []byte, x *Export) ([]byte, Result, error) {
	switch string(x.Payload) {
	case "":
		return dst, Result{Empty: true}, nil
	case "[]": // of each request that is not sampled
		return dst, Result{}, nil
	}
	enc := e.pool.Get().(*encoding)
	defer enc.release()
	enc.out, enc.Result = dst, Result{}
	enc.sent = sentAt(x)
	if err := enc.export(x); err != nil {
		return dst, Result{}, err
	}
	if enc.Spans == 0 {
		return dst, enc.Result, nil
	}
	return enc.out, enc.Result, nil
}

// encoding is the state of encoding one export, in memory that is used again.
type encoding struct {
	*Encoder
	Result
	out    []byte
	sent   uint64 // time of the export in Unix nanoseconds
	source *Export

	// Where the ResourceSpans begins that is being encoded, and the contents of two messages.
	begin, resourceSpans, scopeSpans int
	before                           int    // spans of those before
	scratch                          []byte // texts of the current span
	trace                            []byte // of the current span: its stack trace
	entries                          []entry
	zone                             zone // of the latest time

	readers []*reader // of a text, of a value in it, and so on
	opened  int
}

// open returns a reader of a text, which close ends. It is not used after that.
func (e *encoding) open(text []byte) *reader {
	if e.opened == len(e.readers) {
		e.readers = append(e.readers, new(reader))
	}
	r := e.readers[e.opened]
	e.opened++
	r.reset(text)
	return r
}

// close ends the reader that was opened last.
func (e *encoding) close() { e.opened-- }

// maxScratch is the memory that is kept for the next export: far more than real spans need.
const maxScratch = 64 << 10

func (e *encoding) release() {
	e.out, e.source, e.entries, e.zone = nil, nil, e.entries[:0], zone{}
	if cap(e.scratch) > maxScratch {
		e.scratch = nil
	}
	if cap(e.trace) > maxScratch {
		e.trace = nil
	}
	for _, r := range e.readers {
		r.reset(nil) // a reader refers to its text
	}
	e.pool.Put(e)
}

// The messages and fields that are used (trace_service.proto, trace.proto, resource.proto,
// common.proto); those of a Span are with its code.
//
//	message                    field  type      content
//	ExportTraceServiceRequest      1  messages  ResourceSpans, one for each export
//	ResourceSpans                  1  message   Resource
//	                               2  messages  ScopeSpans, one
//	Resource                       1  messages  KeyValue: 1 text, 2 AnyValue
//	ScopeSpans                     1  message   InstrumentationScope: 1 name
//	                               2  messages  Span

// scope is the field of ScopeSpans: the producer of the spans.
const scope = "\x0a\x10\x0a\x0eopencensus-php"

// export encodes an export. Without any span, what it has appended is not to be used.
func (e *encoding) export(x *Export) error {
	e.source = x
	e.beginResource()
	if !e.list(x.Payload) {
		return ErrInvalid
	}
	e.endResource()
	return nil
}

// beginResource begins a ResourceSpans, up to its spans.
func (e *encoding) beginResource() {
	e.begin, e.before = len(e.out), e.Spans
	x, out := e.source, e.out
	out, e.resourceSpans = field.Begin(out, 1)
	out, resource := field.Begin(out, 1)
	out = append(out, e.resource...)
	out = appendAttribute(out, "process.runtime.version", x.PHPVersion)
	out = appendAttribute(out, "process.executable.name", x.Process.ExecutableName)
	out = appendAttribute(out, "container.id", x.Process.ContainerID)
	if x.Process.PID > 0 {
		out = field.AppendIntAttribute(out, 1, "process.pid", uint64(x.Process.PID))
	}
	out = field.End(out, resource)
	out, e.scopeSpans = field.Begin(out, 2)
	e.out = append(out, scope...)
}

func (e *encoding) endResource() {
	e.out = field.End(field.End(e.out, e.scopeSpans), e.resourceSpans)
}

// list encodes the spans of an export, and reports whether it is valid.
func (e *encoding) list(payload []byte) bool {
	r := e.open(payload)
	defer e.close()
	if kind := r.kind(); kind != '[' && kind != '{' {
		return false
	}
	for range r.elements {
		e.element(r)
	}
	return r.ended()
}

// element encodes one of the spans, or counts why it is none.
func (e *encoding) element(r *reader) {
	if r.kind() != '{' {
		r.value()
		e.Dropped[NotObject]++
		return
	}
	e.scratch = e.scratch[:0]
	m := e.members(r)
	switch {
	case r.bad:
	case e.Spans+e.dropped() >= maxSpans:
		e.Dropped[TooMany]++
	default:
		if limit := e.options.SplitBytes; limit > 0 && len(e.out)-e.begin >= limit && e.Spans > e.before {
			e.endResource()
			e.beginResource()
		}
		e.span(&m)
	}
}

// dropped returns the number of spans that were dropped.
func (r *Result) dropped() (n int) {
	for _, count := range r.Dropped {
		n += count
	}
	return n
}
