package validate

import (
	"fmt"
	"strings"

	"correlator/internal/host/label"
)

// Signal is the kind of telemetry in a request.
type Signal uint8

const (
	Traces   Signal = iota // ExportTraceServiceRequest
	Metrics                // ExportMetricsServiceRequest
	Profiles               // ExportProfilesServiceRequest
	numSignals
)

// units is what the protocol counts in a request of each signal.
var units = [numSignals]string{Traces: "spans", Metrics: "data points", Profiles: "profiles"}

// RejectReason is why an item was rejected.
type RejectReason uint8

const (
	BadID         RejectReason = iota // of a trace, span or profile: wrong length, or all zero
	BadTime                           // ends before it starts
	BadValue                          // NaN or out of range, or missing
	BadShape                          // lists of different lengths that belong together
	BadIndex                          // into the dictionary: outside a table, or a table without zero entry
	BadAttributes                     // too many
	UnknownField                      // data in a field that is not of the schema, of what is not passed on
	NumRejectReasons
)

var rejectReasonNames = [NumRejectReasons]string{
	BadID: "bad_id", BadTime: "bad_time", BadValue: "bad_value", BadShape: "bad_shape", BadIndex: "bad_index",
	BadAttributes: "bad_attributes", UnknownField: "unknown_field",
}

// String is the value of the label reason.
func (r RejectReason) String() string { return label.Of(rejectReasonNames[:], r) }

// Repair is why a field was removed from an item that was kept, or changed.
type Repair uint8

const (
	BadField     Repair = iota // belongs to profiles, but is in another signal
	DuplicateKey               // the list has the key again: the last one wins
	BadText                    // not UTF-8: it has question marks instead, also in what is rejected
	TooDeep                    // a value in more than maxDepth others
	NumRepairs
)

var repairNames = [NumRepairs]string{
	BadField: "bad_field", DuplicateKey: "duplicate_key", BadText: "bad_utf8", TooDeep: "too_deep",
}

// String is the value of the label reason.
func (f Repair) String() string { return label.Of(repairNames[:], f) }

// Verdict is the result of checking a request that can be decoded.
//
// Items are spans, data points and samples; a metric or a profile without any counts as one. Units
// are what the protocol counts: the same, except that a profile is one, whatever its number of
// samples.
type Verdict struct {
	// Request contains what is valid: the bytes that were given if that is all of them, else a
	// copy.
	Request      []byte
	Items, Units int // in Request; without items it need not be passed on

	Rejected      [NumRejectReasons]uint64 // items that are not in Request
	RejectedUnits int
	Repaired      [NumRepairs]uint64 // fields that are not in Request, of items that are; or not as they were
	// Message reports both to the sender: how many, why, and where the first was. It is printable
	// ASCII, a few kilobytes at most, and empty if there is nothing to report.
	Message string
}

// Received returns the number of items before the check.
func (v *Verdict) Received() int {
	n := v.Items
	for _, rejected := range v.Rejected {
		n += int(rejected)
	}
	return n
}

// Error is why a request cannot be decoded by any protobuf decoder.
type Error struct {
	Field string // resource_spans[0].scope_spans[2].spans[17].name; "request" if it is not a field of the schema
	Text  string
}

func (e *Error) Error() string { return e.Field + ": " + e.Text }

// maxRemoved bounds the memory for ranges that are removed: they take 12 bytes each, so that a
// request is refused before they take a fifth of its size. Less than 64 bytes for each error occur
// in hostile requests only.
func maxRemoved(size int) int { return max(1<<16, size/64) }

const tooManyRemoved = "too many parts would have to be left out"

// Check checks an encoded request of less than 4 GiB. It returns an *Error if the request cannot be
// decoded. It does not write to the bytes, and the Verdict may share them. Beyond them it takes up
// to one and a half times as much memory, and as much again where texts are not UTF-8.
func Check(signal Signal, encoded []byte) (*Verdict, error) {
	learn()
	r, root := request(encoded), requests[signal]
	var bad []part
	if t := r.decode(root, r.all(), 0, &bad); t != nil {
		field := r.path(root, t.at)
		if field == "" {
			field = "request"
		}
		return nil, &Error{Field: field, Text: t.text}
	}
	if len(bad) > 0 {
		r = r.repaired(bad)
	}
	c := check(signal, r)
	c.Repaired[BadText] = uint64(len(bad))
	if c.full {
		return nil, &Error{Field: "request", Text: tooManyRemoved}
	}
	if c.Request = r; len(c.removed) > 0 {
		c.Request = r.without(c.removed)
	}
	c.Message = c.message()
	return &c.Verdict, nil
}

// violation is what is wrong with a request, and where.
type violation struct {
	at   uint32 // the offset at which the field begins
	text string
}

// problem is why an item is rejected. Without text there is none.
type problem struct {
	violation
	reason RejectReason
}

func (p problem) found() bool { return p.text != "" }

// found returns a problem with a field.
func found(reason RejectReason, at uint32, text string) problem {
	return problem{violation{at, text}, reason}
}

// checker checks the items of one request that can be decoded.
type checker struct {
	Verdict
	request
	signal  Signal
	tables  []int          // profiles: the number of entries of each table
	keys    []key          // scratch of unique
	first   problem        // of those that were rejected
	removed []removedRange // what is not passed on
	full    bool           // there would be too many of them
}

// Tags of the envelopes, which are the same in all signals.
const (
	tagResources = 1<<3 | wireBytes // of a request
	tagResource  = 1<<3 | wireBytes // of Resource{Spans,Metrics,Profiles}
	tagScopes    = 2<<3 | wireBytes
	tagScope     = 1<<3 | wireBytes // of Scope{Spans,Metrics,Profiles}
	tagItems     = 2<<3 | wireBytes
)

// check checks a request that can be decoded.
func check(signal Signal, r request) *checker {
	c := &checker{request: r, signal: signal}
	var bad problem
	if signal == Profiles {
		bad = c.dictionary()
	}
	for f := range c.fields(r.all()) {
		if f.tag == tagResources {
			c.resource(f, bad)
		}
	}
	if c.Items == 0 {
		c.lose(requests[signal], r.all())
	}
	return c
}

// lose counts the data in unknown fields of a message that is not passed on, each field as an item:
// what they are is not known, and their sender would take them for delivered.
func (c *checker) lose(m *messageType, p part) {
	for f := range c.fields(p) {
		if describe(m, f.tag).kind != unknown || f.body.size() == 0 && f.tag.wire() != wireGroup {
			continue
		}
		if c.RejectedUnits == 0 {
			c.first = found(UnknownField, f.whole.from, "unknown field")
		}
		c.RejectedUnits++
		c.Rejected[UnknownField]++
	}
}

// resource checks one resource and its items. A problem with what contains it rejects all of them.
func (c *checker) resource(envelope field, bad problem) {
	before := c.save()
	for f := range c.fields(envelope.body) {
		if f.tag == tagResource && !bad.found() {
			bad = c.clean(msgResource, f.body, 0)
		}
	}
	for f := range c.fields(envelope.body) {
		if f.tag == tagScopes {
			c.scope(f, bad)
		}
	}
	c.leave(envelope, onResource, before)
}

func (c *checker) scope(envelope field, bad problem) {
	before := c.save()
	for f := range c.fields(envelope.body) {
		if f.tag == tagScope && !bad.found() {
			bad = c.clean(msgScope, f.body, 0)
		}
	}
	for f := range c.fields(envelope.body) {
		if f.tag != tagItems {
			continue
		}
		switch c.signal {
		case Traces:
			c.span(f, bad)
		case Metrics:
			c.metric(f, bad)
		case Profiles:
			c.profile(f, bad)
		}
	}
	c.leave(envelope, onScope, before)
}

// saved is the state of a check before an envelope or item.
type saved struct {
	items, removed int
	repaired       [NumRepairs]uint64
}

func (c *checker) save() saved { return saved{c.Items, len(c.removed), c.Repaired} }

// leave removes an envelope without items, or without any that were kept.
func (c *checker) leave(envelope field, on level, before saved) {
	if c.Items == before.items {
		switch m := requests[c.signal].fields[1].message; on { // Resource{Spans,Metrics,Profiles}
		case onResource:
			c.lose(m, envelope.body)
		case onScope:
			c.lose(m.fields[2].message, envelope.body)
		}
		c.drop(envelope, on, before)
	}
}

// drop removes a whole field, so that what was removed inside it no longer counts. Adjacent fields
// become one range, so there are at most as many ranges as fields that are kept.
func (c *checker) drop(f field, on level, before saved) {
	c.removed, c.Repaired = c.removed[:before.removed], before.repaired
	n := len(c.removed)
	if n > 0 && c.removed[n-1].level == on && c.removed[n-1].to == f.whole.from {
		c.removed[n-1].to = f.whole.to
		return
	}
	c.remove(f.whole, on)
}

// repair removes a field from an item that is kept.
func (c *checker) repair(f part, why Repair) {
	c.remove(f, onInside)
	c.Repaired[why]++
}

func (c *checker) remove(p part, on level) {
	if c.full = c.full || len(c.removed) >= maxRemoved(len(c.request)); !c.full {
		c.removed = append(c.removed, removedRange{p, on})
	}
}

// settle ends the check of an item (or of one whose parts are items): it is kept, or rejected and
// taken out.
func (c *checker) complete(f field, on level, items int, bad problem, before saved) {
	if !bad.found() {
		c.Units++
		c.Items += items
		return
	}
	if c.RejectedUnits == 0 {
		c.first = bad
	}
	c.RejectedUnits++
	c.Rejected[bad.reason] += uint64(items)
	c.drop(f, on, before)
}

func (c *checker) message() string {
	var parts []string
	if c.RejectedUnits > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d %s rejected, the first because of %s: %s", c.RejectedUnits,
			c.Units+c.RejectedUnits, units[c.signal], c.path(requests[c.signal], c.first.at), c.first.text))
	}
	for why, n := range c.Repaired {
		if n == 0 {
			continue
		}
		done := "ignored"
		if Repair(why) == BadText {
			done = "changed"
		}
		parts = append(parts, fmt.Sprintf("%d fields %s: %s", n, done, Repair(why)))
	}
	return strings.Join(parts, "; ")
}
