package process

import (
	"errors"
	"slices"

	"correlator/internal/attach/processcontext"
	"correlator/internal/worker/access"
	"correlator/memread"
	"correlator/procscan"
)

// This file is what a process publishes by OpenTelemetry's standards: of itself its process context,
// of each thread a record that the variable otel_thread_ctx_v1 points to.

// MaxAttributes is how many attributes of a record are read at most: see bpf.TargetRules.
const MaxAttributes = 8

// otelPublication is what a process publishes by these standards.
type otelPublication struct {
	mappings []procscan.Mapping // that are named like a process context, so far as known
	headers  []polledHeader     // what is there, as it was read last
	lost     bool               // one of them is not what it was: what is mapped must be read again

	context *processcontext.Context // nil: none is published
	addr    uint64                  // of the mapping that has it

	variable variable // known after a search
	search   variableSearch
}

// polledHeader is the beginning of a mapping.
type polledHeader struct {
	bytes    [processcontext.HeaderBytes]byte
	readable bool
}

// HasContext reports whether the last Probe found a process context.
func (t *Target) HasContext() bool { return t.otel.context != nil }

// Context returns the process context that the last Probe found, or nil. It must not be changed.
func (t *Target) Context() *processcontext.Context { return t.otel.context }

// setMappings sets which mappings are named like a process context. The variable is where it was, if
// the words of its relocation are what they were.
func (o *otelPublication) setMappings(mappings []procscan.Mapping) {
	o.mappings, o.headers, o.lost = mappings, nil, false
}

// withdraw forgets what was published. The variable is where it was.
func (o *otelPublication) withdraw() { o.context, o.addr = nil, 0 }

// forgetVariable has the variable searched, and its rule made, again. A search that was in vain is
// not repeated earlier.
func (o *otelPublication) forgetVariable() {
	if o.variable.file != nil {
		o.variable, o.search.pause = variable{}, 0
	}
}

// readContext reads the process context, and reports whether that is new. Nothing published is
// memread.ErrNotPublished. While the process updates its context, the former one counts.
func (t *Target) readContext() (changed bool, err error) {
	o := &t.otel
	if len(o.mappings) == 0 {
		changed = o.context != nil
		o.withdraw()
		return changed, memread.ErrNotPublished
	}
	if err := t.readHeaders(); err != nil {
		return false, err
	}
	err = memread.ErrNotPublished
	for i, mapping := range o.mappings {
		if o.context != nil && o.addr == mapping.Start && o.headers[i].bytes == o.context.Header {
			return false, nil
		}
	}
	for i, mapping := range o.mappings {
		context, readErr := processcontext.Read(t.memory, mapping.Start)
		switch {
		case readErr == nil:
			o.withdraw()
			o.context, o.addr, o.headers[i].bytes = &context, mapping.Start, context.Header
			return true, nil
		case access.TellsNothing(readErr):
			return false, readErr
		case errors.Is(readErr, processcontext.ErrUpdating) && o.context != nil && o.addr == mapping.Start:
			return false, nil
		case errors.Is(readErr, processcontext.ErrNoContext),
			errors.Is(readErr, memread.ErrUnmapped) && !errors.Is(readErr, processcontext.ErrMalformed):
		case errors.Is(err, memread.ErrNotPublished): // one in trouble matters more than one that is none
			err = WithReason(ReasonContextUnreadable, readErr)
		}
	}
	changed = o.context != nil
	o.withdraw()
	return changed, err
}

// readHeaders reads the beginnings of all mappings that may be a process context.
func (t *Target) readHeaders() error {
	o := &t.otel
	requests := make([]memread.Request, len(o.mappings))
	headers := make([]polledHeader, len(o.mappings))
	for i, mapping := range o.mappings {
		requests[i] = memread.Request{Addr: mapping.Start, Buf: headers[i].bytes[:]}
	}
	if err := t.memory.ReadBatch(requests); err != nil {
		return WithReason(ReasonContextUnreadable, err)
	}
	for i := range requests {
		if headers[i].readable = requests[i].Err == nil; !headers[i].readable {
			o.lost = true
		}
	}
	o.headers = headers
	return nil
}

// hasRule reports whether it is known where the threads have their records.
func (o *otelPublication) hasRule() bool {
	return o.ofThreads() && o.variable.file != nil && o.variable.err == nil
}

// ofThreads reports whether the process says that its threads publish records.
func (o *otelPublication) ofThreads() bool { return o.context != nil && o.context.HasThreadContexts() }

// wanted returns the indexes of attributes in the key map.
func (o *otelPublication) wanted(keys []string) (indexes []uint8) {
	for i, key := range o.context.Keys {
		if i > 255 || len(indexes) == MaxAttributes {
			break
		}
		if slices.Contains(keys, key) {
			indexes = append(indexes, uint8(i))
		}
	}
	return indexes
}
