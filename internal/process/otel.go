package process

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"correlator/elfsym"
	"correlator/internal/access"
	"correlator/internal/processcontext"
	"correlator/memread"
	"correlator/procscan"
	"correlator/tlsdesc"
)

// This file is what a process publishes by OpenTelemetry's standards: of itself its process context,
// of each thread a record that the variable otel_thread_ctx_v1 points to.

const (
	// MaxAttributes is how many attributes of a record are read at most: see bpf.TargetRules.
	MaxAttributes = 8

	// A process that says that its threads publish, and maps no file with the variable, may load one
	// later. Its files are searched again at intervals that double between these.
	searchMin = 200 * time.Millisecond
	searchMax = 30 * time.Second
)

// errNoVariable: no file that the process maps has the variable. It is a tlsdesc.ErrUnresolved.
var errNoVariable = fmt.Errorf("no mapped file has otel_thread_ctx_v1: %w", tlsdesc.ErrUnresolved)

// otelPublication is what a process publishes by these standards.
type otelPublication struct {
	mappings []procscan.Mapping                 // that are named like a process context, so far as known
	headers  [][processcontext.HeaderBytes]byte // what is there, as it was read last
	lost     bool                               // one of them is not what it was: what is mapped must be read again

	context *processcontext.Context // nil: none is published
	addr    uint64                  // of the mapping that has it

	variable variable // known after a search
	searched time.Time
	pause    time.Duration // until the next search; 0: at once
}

// HasContext reports whether the last Probe found a process context.
func (t *Target) HasContext() bool { return t.otel.context != nil }

// Context returns the process context that the last Probe found, or nil. It must not be changed.
func (t *Target) Context() *processcontext.Context { return t.otel.context }

// setMappings sets which mappings are named like a process context.
func (o *otelPublication) setMappings(mappings []procscan.Mapping) {
	o.mappings, o.headers, o.lost = mappings, nil, false
}

// withdraw forgets what was published.
func (o *otelPublication) withdraw() {
	o.context, o.addr = nil, 0
	o.variable, o.pause = variable{}, 0
}

// forgetVariable has the variable searched, and its rule made, again. A search that was in vain is
// not repeated earlier.
func (o *otelPublication) forgetVariable() {
	if o.variable.file != nil {
		o.variable, o.pause = variable{}, 0
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
		if o.context != nil && o.addr == mapping.Start && o.headers[i] == o.context.Header {
			return false, nil
		}
	}
	for i, mapping := range o.mappings {
		context, readErr := processcontext.Read(t.memory, mapping.Start)
		switch {
		case readErr == nil:
			o.withdraw()
			o.context, o.addr, o.headers[i] = &context, mapping.Start, context.Header
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
	headers := make([][processcontext.HeaderBytes]byte, len(o.mappings))
	for i, mapping := range o.mappings {
		requests[i] = memread.Request{Addr: mapping.Start, Buf: headers[i][:]}
	}
	if err := t.memory.ReadBatch(requests); err != nil {
		return WithReason(ReasonContextUnreadable, err)
	}
	for i := range requests {
		if requests[i].Err != nil {
			o.lost = true
		}
	}
	o.headers = headers
	return nil
}

// resolveOTel finds where the threads have their records, if the process says that they publish any.
func (t *Target) resolveOTel() error {
	o := &t.otel
	if o.context == nil || !o.context.HasThreadContexts() {
		return nil
	}
	if o.variable.file == nil {
		if err := t.searchVariable(); err != nil {
			return err
		}
	}
	return o.variable.resolve(t)
}

// SearchPause returns how long to wait before the files of the process are searched for the variable
// again; 0: they need not be.
func (t *Target) SearchPause() time.Duration {
	if t.otel.context == nil || !t.otel.context.HasThreadContexts() || t.otel.variable.file != nil {
		return 0
	}
	return max(time.Until(t.otel.searched.Add(t.otel.pause)), time.Millisecond)
}

// searchVariable searches the files that the process maps for the variable.
func (t *Target) searchVariable() error {
	o := &t.otel
	if time.Since(o.searched) < o.pause {
		return errNoVariable
	}
	o.searched, o.pause = time.Now(), min(max(2*o.pause, searchMin), searchMax)
	mappings, err := t.handle.ExecutableMappings()
	if err != nil && !errors.Is(err, procscan.ErrTooMany) {
		return err
	}
	type place struct{ dev, ino, base uint64 }
	known := make(map[place]struct{})
	mappings = slices.DeleteFunc(mappings, func(m procscan.Mapping) bool { // parts of one image
		at := place{m.Dev, m.Ino, m.Start - m.Offset}
		_, again := known[at]
		known[at] = struct{}{}
		return again
	})
	var firstErr error
	for i, result := range t.access.ThreadContexts(mappings) {
		switch {
		case errors.Is(result.Err, elfsym.ErrNoSymbols):
		case result.Err != nil:
			if access.TellsNothing(result.Err) {
				return result.Err
			}
			if firstErr == nil && !errors.Is(result.Err, procscan.ErrNotRegular) {
				firstErr = fmt.Errorf("searching %q: %w", mappings[i].Path, result.Err)
			}
		default:
			bias, ok := result.Variable.Bias(mappings[i].Start, mappings[i].Offset)
			if ok {
				o.variable.set(result.Variable, bias)
				return nil
			}
		}
	}
	if firstErr != nil { // the file with the variable may be one that could not be read
		return fmt.Errorf("%w; %w", errNoVariable, firstErr)
	}
	return errNoVariable
}

// hasRule reports whether it is known where the threads have their records.
func (o *otelPublication) hasRule() bool {
	return o.context != nil && o.variable.file != nil && o.variable.err == nil
}

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
