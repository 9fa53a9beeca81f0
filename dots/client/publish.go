package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// Instance is an object that can be published: a pointer to a generated struct, or a
// *dynamic.Object by way of Dynamic.
type Instance interface {
	Descriptor() *schema.Struct
	Valid() value.PropertySet
	AppendInstance(dst []byte, props value.PropertySet) []byte
}

// exchange is what has been said about types on a connection, and how to publish them.
type exchange struct {
	layout    dynamic.Layout  // of what is checked
	described map[string]bool // names of types that were described, by either side
	published map[*schema.Struct]*publication
	last      *publication
}

// publication is what is the same in all publications of a type.
type publication struct {
	typ    *schema.Struct
	header frame.Header
	checks checks
	err    error // it cannot be published
}

func (x *exchange) init() {
	x.described = make(map[string]bool)
	x.published = make(map[*schema.Struct]*publication)
}

// Publish publishes all properties of an object that are set. It returns when the object is in the
// buffer of the connection. If that is full, it waits until the context ends. The error wraps
// ErrInvalid if the object has what no broker accepts: a string that is not UTF-8, a number that is
// no enumerator, a key with NaN.
func (c *Client) Publish(ctx context.Context, x Instance) error {
	return c.publish(ctx, x, x.Valid(), false)
}

// PublishProperties publishes only the properties in a set, and the key. Those that the object
// lacks are unset at all guests.
func (c *Client) PublishProperties(ctx context.Context, x Instance, props value.PropertySet) error {
	return c.publish(ctx, x, props, false)
}

// Remove removes the object that has the key of x.
func (c *Client) Remove(ctx context.Context, x Instance) error {
	return c.publish(ctx, x, 0, true)
}

func (c *Client) publish(ctx context.Context, x Instance, props value.PropertySet, remove bool) error {
	typ := x.Descriptor()
	if err := c.out.begin(ctx); err != nil {
		return err
	}
	defer c.out.end()
	p := c.exchange.last
	if p == nil || p.typ != typ {
		p = c.publicationOf(typ)
	}
	keys := typ.Keys()
	switch {
	case p.err != nil:
		return p.err
	case keys&^x.Valid() != 0:
		return fmt.Errorf("%w: %s", ErrNoKey, typ.Name)
	case remove && !typ.Flags.Cached:
		return fmt.Errorf("%w: %s", ErrUncached, typ.Name)
	}
	now := value.TimepointOf(time.Now())
	h := &p.header
	h.SentTime, h.Attributes, h.RemoveObj = now, props&typ.All()|keys, remove
	return c.appendInstance(h, x, now, &p.checks)
}

// publicationOf finds out how to publish a type, and describes it to the broker. The caller holds
// the lock of the output.
func (c *Client) publicationOf(typ *schema.Struct) *publication {
	if c.id.Load() == 0 {
		return &publication{typ: typ, err: ErrNotConnected}
	}
	p := c.exchange.published[typ]
	if p == nil {
		p = &publication{typ: typ, header: frame.Header{
			TypeName: []byte(typ.Name),
			Set:      frame.TypeName | frame.SentTime | frame.Attributes | frame.RemoveObj,
		}, checks: checksOf(typ)}
		if typ.Flags.SubstructOnly {
			p.err = fmt.Errorf("%w: %s", ErrSubstruct, typ.Name)
		} else {
			p.err = c.describe(typ)
		}
		c.exchange.published[typ] = p
	}
	c.exchange.last = p
	return p
}

// appendInstance appends a frame, or nothing if there is an error. The caller holds the lock of the
// output.
func (c *Client) appendInstance(h *frame.Header, x Instance, now value.Timepoint, checks *checks) error {
	buf, f := frame.Begin(c.out.buf, c.format, h, x.Descriptor().Flags.Internal, now)
	start := len(buf)
	buf = x.AppendInstance(buf, h.Attributes)
	if err := checks.check(x.Descriptor(), buf[start:], &c.exchange.layout); err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	buf, err := frame.End(buf, f)
	c.out.buf = buf
	if err != nil {
		return fmt.Errorf("publishing %s: %w", x.Descriptor().Name, err)
	}
	c.out.frames++
	return nil
}

// send sends a message of the protocol itself, with all its properties. It does not wait for room,
// so that it may be called with locks.
func (c *Client) send(x Instance) error {
	if err := c.out.beginNow(); err != nil {
		return err
	}
	defer c.out.end()
	return c.append(x, true)
}

// append appends a message of the protocol. Descriptors are sent without time and removeObj, as C++
// clients do. The caller holds the lock of the output.
func (c *Client) append(x Instance, timed bool) error {
	h := frame.Header{
		TypeName:   []byte(x.Descriptor().Name),
		Attributes: x.Valid(),
		Set:        frame.TypeName | frame.Attributes,
	}
	now := value.TimepointOf(time.Now())
	if timed {
		h.SentTime = now
		h.Set |= frame.SentTime | frame.RemoveObj
	}
	return c.appendInstance(&h, x, now, &checks{})
}

// internal are the types that are never described.
var internal = system.NewRegistry()

// describe describes a type to the broker, and before it the types that it depends on, as far as
// neither side has on this connection. The caller holds the lock of the output.
func (c *Client) describe(typ *schema.Struct) error {
	if _, err := c.registry.AddStruct(typ); errors.Is(err, schema.ErrConflict) {
		c.counters.typeConflicts.Add(1) // the own definition is used, the broker keeps the first one
	} else if err != nil {
		return fmt.Errorf("describing %s: %w", typ.Name, err)
	}
	if typ.Flags.Internal {
		return nil // everybody knows it, and what it depends on
	}
	for _, t := range append(schema.Dependencies(typ), schema.OfStruct(typ)) {
		if c.exchange.described[t.Name] || internal.Struct(t.Name) != nil || internal.Enum(t.Name) != nil {
			continue
		}
		var description Instance
		if t.Kind == schema.EnumKind {
			description = system.DescribeEnum(t.Enum)
		} else {
			description = system.DescribeStruct(t.Struct)
		}
		if err := c.append(description, false); err != nil {
			return err
		}
		c.exchange.described[t.Name] = true
	}
	return nil
}

// Describe describes types to the broker that are going to be published. Without it, a type is
// described before its first object.
func (c *Client) Describe(types ...*schema.Struct) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state < early {
		c.types = append(c.types, types...)
		return nil
	}
	return c.describeAll(types)
}

func (c *Client) describeAll(types []*schema.Struct) error {
	if err := c.out.beginNow(); err != nil {
		return err
	}
	defer c.out.end()
	for _, typ := range types {
		if err := c.describe(typ); err != nil {
			return err
		}
	}
	return nil
}

// Dynamic makes an object of a type that is known at run time an Instance.
type Dynamic struct{ *dynamic.Object }

// Descriptor returns the type.
func (d Dynamic) Descriptor() *schema.Struct { return d.Type }

// AppendInstance appends the properties that are set and in a set.
func (d Dynamic) AppendInstance(dst []byte, props value.PropertySet) []byte {
	return d.Append(dst, props)
}
