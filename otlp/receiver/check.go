package receiver

import (
	"correlator/otlp"
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
	numReasons
)

var reasonNames = [numReasons]string{
	BadID: "bad_id", BadTime: "bad_time", BadValue: "bad_value", BadShape: "bad_shape", BadIndex: "bad_index",
	BadAttributes: "bad_attributes",
}

// String is the value of the label reason.
func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Fix is why a field of an item was taken out, and the item passed on without it.
type Fix uint8

const (
	BadField     Fix = iota // belongs to profiles, in another signal
	DuplicateKey            // the key comes again in the list: the last wins
	numFixes
)

var fixNames = [numFixes]string{BadField: "bad_field", DuplicateKey: "duplicate_key"}

// String is the value of the label reason.
func (f Fix) String() string {
	if f < numFixes {
		return fixNames[f]
	}
	return "unknown"
}

// problem is why an item is rejected. Without text there is none.
type problem struct {
	trouble
	reason Reason
}

func (p problem) found() bool { return p.text != "" }

// found is a problem with a field.
func found(reason Reason, at uint32, text string) problem { return problem{trouble{at, text}, reason} }

// verdict is what a check found.
type verdict struct {
	kept     int // items
	rejected [numReasons]uint64
	fixes    [numFixes]uint64
	// refused is how many are rejected in the unit of the protocol: spans, data points, whole profiles.
	refused int64
	total   int64   // of them, with those that are kept
	first   problem // of those that were rejected
	cuts    []cut   // what is not to be passed on
}

// items is how many there were.
func (v *verdict) items() int {
	n := v.kept
	for _, rejected := range v.rejected {
		n += int(rejected)
	}
	return n
}

// checker looks at the items of one request, which was decoded before.
type checker struct {
	request
	verdict
	signal otlp.Signal
	tables [numTables]int // profiles: how many entries each table has
	keys   []key          // scratch of unique
}

// The envelopes have the same numbers in all signals, see schema.
const (
	tagResources = 1<<3 | wireBytes // of a request
	tagResource  = 1<<3 | wireBytes // of Resource{Spans,Metrics,Profiles}
	tagScopes    = 2<<3 | wireBytes
	tagScope     = 1<<3 | wireBytes // of Scope{Spans,Metrics,Profiles}
	tagItems     = 2<<3 | wireBytes
)

// check is the verdict on a request that was decoded.
func check(signal otlp.Signal, r request) *verdict {
	c := &checker{request: r, signal: signal}
	var bad problem
	if signal == otlp.Profiles {
		bad = c.dictionary()
	}
	for f := range c.fields(r.all()) {
		if f.tag == tagResources {
			c.resource(f, bad)
		}
	}
	return &c.verdict
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
		case otlp.Traces:
			c.span(f, bad)
		case otlp.Metrics:
			c.metric(f, bad)
		case otlp.Profiles:
			c.profile(f, bad)
		}
	}
	c.leave(envelope, onScope, before)
}

// saved is where a check was before it came to an envelope or item.
type saved struct {
	kept, cuts int
	fixes      [numFixes]uint64
}

func (c *checker) save() saved { return saved{c.kept, len(c.cuts), c.fixes} }

// leave takes an envelope out if there is no item in it, or none any more.
func (c *checker) leave(envelope field, on level, before saved) {
	if c.kept == before.kept {
		c.drop(envelope, on, before)
	}
}

// drop takes a field out as a whole, so what was taken out of it does not count. Runs of such fields become
// one cut: there are at most as many as fields that are kept.
func (c *checker) drop(f field, on level, before saved) {
	c.cuts, c.fixes = c.cuts[:before.cuts], before.fixes
	n := len(c.cuts)
	if n > 0 && c.cuts[n-1].level == on && c.cuts[n-1].to == f.whole.from {
		c.cuts[n-1].to = f.whole.to
		return
	}
	c.cuts = append(c.cuts, cut{f.whole, on})
}

// fix takes a field out of something that is kept.
func (c *checker) fix(f part, why Fix) {
	c.cuts = append(c.cuts, cut{f, onInside})
	c.fixes[why]++
}

// settle ends the check of an item (or of one whose parts are items): it is kept, or rejected and taken out.
func (c *checker) settle(f field, on level, items int, bad problem, before saved) {
	c.total++
	if !bad.found() {
		c.kept += items
		return
	}
	if c.refused == 0 {
		c.first = bad
	}
	c.refused++
	c.rejected[bad.reason] += uint64(items)
	c.drop(f, on, before)
}
