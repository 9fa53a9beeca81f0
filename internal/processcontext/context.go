// Package processcontext reads what a process publishes of itself by OpenTelemetry's process context
// (OTEP 4719): who it is, and how its threads publish what they work on (OTEP 4947).
package processcontext

import (
	"errors"

	"correlator/memread"
)

// Context is a process context.
type Context struct {
	PublishedAt uint64      // CLOCK_BOOTTIME of the last update, ns: differs after each
	Resource    []Attribute // attributes of the resource whose value is text, in their order
	Schema      string      // threadlocal.schema_version; empty: threads publish nothing
	Keys        []string    // threadlocal.attribute_key_map; nil: there is none (yet)
}

// Attribute is a key and its value, both UTF-8.
type Attribute struct{ Key, Value string }

var (
	// ErrNoContext: the memory does not begin with the signature.
	ErrNoContext = errors.New("no process context")
	// ErrVersion: a layout of another version than 2.
	ErrVersion = errors.New("process context of an unknown version")
	// ErrUpdating: the process was updating its context, each time that it was read. Try again.
	ErrUpdating = errors.New("process context is being updated")
	// ErrMalformed: the payload cannot be decoded, or is too long.
	ErrMalformed = errors.New("malformed process context")
)

// Memory is the memory of one process; *memread.Process is one.
type Memory interface {
	ReadBatch(requests []memread.Request) error
}
