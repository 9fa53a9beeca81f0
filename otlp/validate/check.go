package validate

import (
	"fmt"
	"strings"
)

// Signal is the kind of a request.
type Signal uint8

const (
	Traces   Signal = iota // ExportTraceServiceRequest
	Metrics                // ExportMetricsServiceRequest
	Profiles               // ExportProfilesServiceRequest
	numSignals
)

// requests is the schema of each signal's request; units is what the protocol counts in it.
var (
	requests = [numSignals]messageID{Traces: msgTraces, Metrics: msgMetrics, Profiles: msgProfiles}
	units    = [numSignals]string{Traces: "spans", Metrics: "data points", Profiles: "profiles"}
)

// Reason is why an item was rejected.
type Reason uint8

const (
	BadID         Reason = iota // of a trace, span or profile: its length, or all zero
	BadTime                     // it ends before it starts
	BadValue                    // no number where there must be one, or none at all
	BadShape                    // lists that belong together and do not fit
	BadIndex                    // of the dictionary: outside of a table, or a table without its zero entry
	BadAttributes               // nested too deep, or too many
	NumReasons
)

var reasonNames = [NumReasons]string{
	BadID: "bad_id", BadTime: "bad_time", BadValue: "bad_value", BadShape: "bad_shape", BadIndex: "bad_index",
	BadAttributes: "bad_attributes",
}

// String is the value of the label reason.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Repair is why a field of an item was taken out, and the item kept without it.
type Repair uint8

const (
	BadField     Repair = iota // belongs to profiles, in another signal
	DuplicateKey               // the key comes again in the list: the last wins
	NumFixes
)

var fixNames = [NumFixes]string{BadField: "bad_field", DuplicateKey: "duplicate_key"}

// String is the value of the label reason.
func (f Repair) String() string {
	if f < NumFixes {
		return fixNames[f]
	}
	return "unknown"
}

// Verdict is what is to be done with a request that can be decoded.
//
// Items are spans, data points and samples; a metric or a profile without any counts as one. Units are what
// the protocol counts: the same, but whole profiles instead of samples.
type Verdict struct {
	// Request has what is sound: the bytes that were given if that is all of them, a copy otherwise.
	Request      []byte
	Items, Units int // in it; if there are none, it is not worth passing on

	Rejected      [NumReasons]uint64 // items that are not in it
	RejectedUnits int
	Fixed         [NumFixes]uint64 // fields that are not in it, of items that are
	// Message tells the sender about both: how much of what, and where the first was. Printable ASCII, of a
	// few kilobytes at most; empty if there is nothing to tell.
	Message string
}

// Received is how many items there were.
func (v *Verdict) Received() int {
	n := v.Items
	for _, rejected := range v.Rejected {
		n += int(rejected)
	}
	return n
}

// Error is why a request cannot be decoded, by us or by anybody.
type Error struct {
	Field string // resource_spans[0].scope_spans[2].spans[17].name; "request" if it is no field of the schema
	Text  string
}

func (e *Error) Error() string { return e.Field + ": " + e.Text }

// maxCuts bounds the memory of a list of what is left out: 12 bytes each, so that a request is refused before
// that takes a fifth of its own bytes. What deserves less than 64 bytes for each of its errors is made up.
func maxCuts(size int) int { return max(1<<16, size/64) }

const tooManyCuts = "too many parts would have to be left out"

// Check is the verdict on an encoded request of less than 4 GiB, or an *Error. The bytes are not written to,
// and the verdict may share them. Beyond them it takes up to one and a half times as much memory.
func Check(signal Signal, encoded []byte) (*Verdict, error) {
	r, root := request(encoded), requests[signal]
	if t := r.decode(root, r.all(), 0); t != nil {
		field := r.path(root, t.at)
		if field == "" {
			field = "request"
		}
		return nil, &Error{Field: field, Text: t.text}
	}
	c := check(signal, r)
	if c.full {
		return nil, &Error{Field: "request", Text: tooManyCuts}
	}
	if c.Request = r; len(c.cuts) > 0 {
		c.Request = r.without(c.cuts)
	}
	c.Message = c.message()
	return &c.Verdict, nil
}

// trouble is what is wrong with a request, and where.
type trouble struct {
	at   uint32 // the offset at which the field begins
	text string
}

// problem is why an item is rejected. Without text there is none.
type problem struct {
	trouble
	reason Reason
}

func (p problem) found() bool { return p.text != "" }

// found is a problem with a field.
func found(reason Reason, at uint32, text string) problem { return problem{trouble{at, text}, reason} }

// checker looks at the items of one request, which was decoded before.
type checker struct {
	Verdict
	request
	signal Signal
	tables [numTables]int // profiles: how many entries each table has
	keys   []key          // scratch of unique
	first  problem        // of those that were rejected
	cuts   []cut          // what is not to be passed on
	full   bool           // there would be too many of them
}

// The envelopes have the same numbers in all signals, see schema.
const (
	tagResources = 1<<3 | wireBytes // of a request
	tagResource  = 1<<3 | wireBytes // of Resource{Spans,Metrics,Profiles}
	tagScopes    = 2<<3 | wireBytes
	tagScope     = 1<<3 | wireBytes // of Scope{Spans,Metrics,Profiles}
	tagItems     = 2<<3 | wireBytes
)

// check looks at everything in a request that was decoded.
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
	return c
}

// resource checks what came with one resource. A problem that it is given is one of everything in it.
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

// saved is where a check was before it came to an envelope or item.
type saved struct {
	items, cuts int
	fixed       [NumFixes]uint64
}

func (c *checker) save() saved { return saved{c.Items, len(c.cuts), c.Fixed} }

// leave takes an envelope out if there is no item in it, or none any more.
func (c *checker) leave(envelope field, on level, before saved) {
	if c.Items == before.items {
		c.drop(envelope, on, before)
	}
}

// drop takes a field out as a whole, so what was taken out of it does not count. Runs of such fields become
// one cut: there are at most as many as fields that are kept.
func (c *checker) drop(f field, on level, before saved) {
	c.cuts, c.Fixed = c.cuts[:before.cuts], before.fixed
	n := len(c.cuts)
	if n > 0 && c.cuts[n-1].level == on && c.cuts[n-1].to == f.whole.from {
		c.cuts[n-1].to = f.whole.to
		return
	}
	c.cut(f.whole, on)
}

// fix takes a field out of something that is kept.
func (c *checker) fix(f part, why Repair) {
	c.cut(f, onInside)
	c.Fixed[why]++
}

func (c *checker) cut(p part, on level) {
	if c.full = c.full || len(c.cuts) >= maxCuts(len(c.request)); !c.full {
		c.cuts = append(c.cuts, cut{p, on})
	}
}

// settle ends the check of an item (or of one whose parts are items): it is kept, or rejected and taken out.
func (c *checker) settle(f field, on level, items int, bad problem, before saved) {
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
	for why, n := range c.Fixed {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d fields ignored: %s", n, Repair(why)))
		}
	}
	return strings.Join(parts, "; ")
}
