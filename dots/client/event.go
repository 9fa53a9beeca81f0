package client

import (
	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// Operation is what a transmission did to an object.
type Operation = system.DotsMt

// The operations.
const (
	Create = system.DotsMtCreate // also every transmission of an uncached type
	Update = system.DotsMtUpdate
	Remove = system.DotsMtRemove
)

// Clone says where the state of an object came from. Times are those of the guests that sent it.
type Clone struct {
	LastOperation  Operation
	CreatedFrom    uint32 // client id
	LastUpdateFrom uint32 // client id
	Created        value.Timepoint
	Modified       value.Timepoint
	LocalUpdate    value.Timepoint // when it arrived here
}

// Event is a change of an object; O is the pointer to a generated type, or *Raw. Handlers must not
// change it, and what it points to is valid only until the handler returns; slices of objects of
// generated types may be kept.
//
// The container is changed before the handler is called: an object that is removed is no longer in
// it.
type Event[O any] struct {
	Operation   Operation
	Own         bool          // this client has published it
	Transmitted O             // what was transmitted: of an update, some of the properties
	Updated     O             // the object now, or its last state if it is removed
	Header      *frame.Header // Sender, SentTime and Attributes are set always
	Clone       Clone
}

// Raw is an object of a type that is known at run time only, encoded canonically.
type Raw struct {
	Type     *schema.Struct
	Instance []byte
}

// Object decodes the object.
func (r *Raw) Object() (*dynamic.Object, error) {
	o, _, err := dynamic.Decode(r.Type, r.Instance)
	return o, err
}

// update notes a transmission.
func (c *Clone) update(op Operation, h *frame.Header, now value.Timepoint) {
	if op == Create {
		c.Created, c.CreatedFrom = h.SentTime, h.Sender
	}
	c.LastOperation, c.LastUpdateFrom, c.Modified, c.LocalUpdate = op, h.Sender, h.SentTime, now
}
