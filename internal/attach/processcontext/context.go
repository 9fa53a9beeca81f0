// Package processcontext reads what a process publishes of itself by OpenTelemetry's process context
// (OTEP 4719): who it is, and how its threads publish what they work on (OTEP 4947). It also parses
// what its environment says of the same (OTEL_RESOURCE_ATTRIBUTES).
package processcontext

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"correlator/memread"
)

// HeaderBytes is the size of the header, with which the mapping of a context begins.
const HeaderBytes = 32

// Context is a process context.
type Context struct {
	// Header is the header as it was read. Each update changes it (at least the time in it), so that
	// reading these bytes again tells whether there was one.
	Header [HeaderBytes]byte

	PublishedAt uint64      // CLOCK_BOOTTIME of the last update, ns: differs after each
	Resource    []Attribute // attributes of the resource whose value is text, by their first place; keys are unique
	Schema      string      // threadlocal.schema_version; empty: threads publish nothing

	// Keys is threadlocal.attribute_key_map; nil: there is none (yet). An empty key is one that cannot
	// be used.
	Keys []string
}

// Attribute is a key and its value, both UTF-8.
type Attribute struct{ Key, Value string }

// Schemas of threads' contexts that have the layout of otel_thread_ctx_v1. OTEP 4947 names the first
// "to be changed" to the second; writers have the first. Those of Go (go_pprof_labels_v1) and of
// Node.js (nodejs_v1_dev) are other layouts.
const (
	SchemaTLSDescDev = "tlsdesc_v1_dev"
	SchemaTLS        = "tls_v1"
)

// HasThreadContexts reports whether threads of the process publish otel_thread_ctx_v1.
func (c *Context) HasThreadContexts() bool {
	return c.Schema == SchemaTLSDescDev || c.Schema == SchemaTLS
}

// IsCurrent reports whether a header that was read now is that of the context, or says that an update
// has begun: until its end the context is what the process has published last.
func (c *Context) IsCurrent(now [HeaderBytes]byte) bool {
	h := header(now)
	return now == c.Header || h.time() == 0 && string(h[:sizeOff]) == string(c.Header[:sizeOff])
}

// Value returns an attribute of the resource; empty: it has none of that key.
func (c *Context) Value(key string) string { return Value(c.Resource, key) }

// Value returns the last value of a key; empty: there is none.
func Value(attributes []Attribute, key string) string {
	for _, a := range slices.Backward(attributes) {
		if a.Key == key {
			return a.Value
		}
	}
	return ""
}

var (
	// ErrNoContext: the memory does not begin with the signature. That is also so before the process
	// has written it.
	ErrNoContext = errors.New("no process context")
	// ErrVersion: a layout of another version than 2.
	ErrVersion = errors.New("process context of an unknown version")
	// ErrUpdating: the process was updating its context, each time that it was read. Try again.
	ErrUpdating = errors.New("process context is being updated")
	// ErrMalformed: the payload cannot be decoded or read, or is too long.
	ErrMalformed = errors.New("malformed process context")
)

// Memory is the memory of one process; *memread.Process is one. Requests are served in their order.
type Memory interface {
	ReadBatch(requests []memread.Request) error
}

// The header, in the byte order of the machine (OTEP 4719; otel_process_ctx.c of the reference
// implementation):
//
//	offset  size  field
//	     0     8  signature: "OTEL_CTX"
//	     8     4  version: 2
//	    12     4  size of the payload
//	    16     8  CLOCK_BOOTTIME of the publication or of the last update, ns; 0: it is being updated
//	    24     8  address of the payload
const (
	signature = "OTEL_CTX"

	versionOff = 8
	sizeOff    = 12
	timeOff    = 16
	payloadOff = 24

	version = 2
)

const (
	// maxPayloadBytes is the limit of OpenTelemetry's profiler. Known writers publish some hundred
	// bytes.
	maxPayloadBytes = 64 << 10
	// maxTries is how often a context is read that changes meanwhile. An update takes microseconds;
	// honest processes make one within seconds.
	maxTries = 3
)

// Read reads the context whose mapping begins at addr: the header, and in one call the payload and
// the header again. Only if both headers are the same is anything concluded from them. A process may
// free its old payload when it publishes a new one, so that a read that fails says nothing if the
// header has changed.
//
// Other errors are those of reading memory (memread.ErrUnmapped of the header, memread.ErrGone).
func Read(mem Memory, addr uint64) (Context, error) {
	var h header
	if err := readAll(mem, memread.Request{Addr: addr, Buf: h[:]}); err != nil {
		return Context{}, fmt.Errorf("reading header of process context: %w", err)
	}
	for range maxTries {
		if err := h.check(); err != nil {
			return Context{}, err
		}
		payload, payloadErr, again, err := h.readPayload(mem, addr)
		if err != nil {
			return Context{}, err
		}
		before := h
		h = again
		switch {
		case before != again || before.time() == 0:
			continue
		case payloadErr != nil:
			return Context{}, fmt.Errorf("%w: %w", ErrMalformed, payloadErr)
		}
		c, err := decode(payload)
		if err != nil {
			return Context{}, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		c.Header, c.PublishedAt = before, before.time()
		return c, nil
	}
	return Context{}, ErrUpdating
}

// header is the header of a context. It may be in part from before an update.
type header [HeaderBytes]byte

func (h *header) version() uint32 { return binary.NativeEndian.Uint32(h[versionOff:]) }
func (h *header) size() uint32    { return binary.NativeEndian.Uint32(h[sizeOff:]) }
func (h *header) time() uint64    { return binary.NativeEndian.Uint64(h[timeOff:]) }
func (h *header) payload() uint64 { return binary.NativeEndian.Uint64(h[payloadOff:]) }

// check checks what no update changes. A version of 0 without a time has not been written yet.
func (h *header) check() error {
	if string(h[:versionOff]) != signature {
		return ErrNoContext
	}
	if v := h.version(); v != version && (v != 0 || h.time() != 0) {
		return fmt.Errorf("%w: %d", ErrVersion, v)
	}
	return nil
}

var (
	errSize    = fmt.Errorf("its payload has not 1 to %d bytes", maxPayloadBytes)
	errPointer = errors.New("its payload is at the address 0")
)

// readPayload reads the payload, if there can be one, and the header again. payloadErr is nothing
// but a guess if the header has changed.
func (h *header) readPayload(mem Memory, addr uint64) (payload []byte, payloadErr error, again header, err error) {
	var room [2]memread.Request
	reads := room[:0]
	switch size := h.size(); {
	case h.time() == 0: // being updated
	case size == 0 || size > maxPayloadBytes:
		payloadErr = fmt.Errorf("%w: %d", errSize, size)
	case h.payload() == 0:
		payloadErr = errPointer
	default:
		payload = make([]byte, size)
		reads = append(reads, memread.Request{Addr: h.payload(), Buf: payload})
	}
	reads = append(reads, memread.Request{Addr: addr, Buf: again[:]})
	if err := mem.ReadBatch(reads); err != nil {
		return nil, nil, header{}, fmt.Errorf("reading process context: %w", err)
	}
	if err := reads[len(reads)-1].Err; err != nil {
		return nil, nil, header{}, fmt.Errorf("reading header of process context again: %w", err)
	}
	if len(reads) > 1 && reads[0].Err != nil {
		payloadErr = fmt.Errorf("reading payload of %d bytes at %#x: %w", len(payload), h.payload(), reads[0].Err)
	}
	return payload, payloadErr, again, nil
}

func readAll(mem Memory, r memread.Request) error {
	reads := [...]memread.Request{r}
	if err := mem.ReadBatch(reads[:]); err != nil {
		return err
	}
	return reads[0].Err
}
