package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// Discovery learns all types that other guests describe to the broker.
type Discovery struct {
	c       *Client
	handler func(*schema.Struct)
	seen    map[string]bool // of the reading goroutine
	once    sync.Once
	done    chan struct{}
}

// Discover asks the broker for all types, and to be told of new ones. The handler is called by the
// reading goroutine, once for each struct that can be subscribed to, except those of the protocol.
// It may call SubscribeType. Types are also in Types. Discover may be called once, before Connect.
func (c *Client) Discover(handler func(*schema.Struct)) (*Discovery, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != unconnected || c.discover != nil {
		return nil, ErrUsed
	}
	c.discover = &Discovery{c: c, handler: handler, seen: make(map[string]bool), done: make(chan struct{})}
	return c.discover, nil
}

// Wait waits until the types have arrived that the broker knew at the beginning. It must not be
// called by a handler.
func (d *Discovery) Wait(ctx context.Context) error {
	select {
	case <-d.done:
		return nil
	case <-d.c.done:
		return d.c.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// joinDescriptors joins the groups of descriptors. The caller holds mu.
func (c *Client) joinDescriptors() error {
	for _, name := range []string{"EnumDescriptorData", "StructDescriptorData"} {
		var m system.DotsMember
		m.GroupName.Set(name)
		m.Event.Set(system.DotsMemberEventJoin)
		if err := c.send(&m); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) endDiscovery() {
	c.mu.Lock()
	d := c.discover
	c.mu.Unlock()
	if d != nil {
		d.once.Do(func() { close(d.done) })
	}
}

// discovered tells of a type that was described.
func (c *Client) discovered(s *schema.Struct) {
	c.mu.Lock()
	d := c.discover
	c.mu.Unlock()
	if d == nil || d.seen[s.Name] || s.Flags.SubstructOnly || s.Flags.Internal {
		return
	}
	d.seen[s.Name] = true
	if d.handler != nil {
		d.handler(s)
	}
}

// markDescribed notes that the broker knows a type of this name.
func (c *Client) markDescribed(name string) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.exchange.described[name] = true
}

// countType counts what became of a description.
func (c *Client) countType(err error) {
	switch {
	case err == nil:
	case errors.Is(err, schema.ErrConflict):
		c.counters.typeConflicts.Add(1)
	default:
		c.counters.typesRefused.Add(1)
	}
}

// Expect joins the group of a type that nobody has described to the broker yet. A subscription that
// the handler of Discover then makes misses nothing: brokers send the description before anything
// else of the type. What arrives without a subscription is counted as Unsubscribed. Expect is called
// after Connect; for a type with a subscription it does nothing.
func (c *Client) Expect(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err
	case c.state < early:
		return ErrNotConnected
	case c.expected[name] || c.hasUnfiltered(name):
		return nil
	}
	var m system.DotsMember
	m.GroupName.Set(name)
	m.Event.Set(system.DotsMemberEventJoin)
	c.expected[name] = true
	return c.send(&m)
}

// Stream is SubscribeType without a container: every transmission is an event, and is forgotten.
// Objects that the broker has cached are such events, too.
func (c *Client) Stream(name string, handler func(*Event[*Raw])) (*Subscription[Raw, string], error) {
	return c.subscribeType(name, nil, true, handler)
}

// SubscribeType subscribes to a type that is known at run time only: because the broker has
// described it, or it was added to Types. The keys of the container are the encoded keys of the
// objects.
func (c *Client) SubscribeType(name string, handler func(*Event[*Raw])) (*Subscription[Raw, string], error) {
	return c.SubscribeTypeFiltered(name, nil, handler)
}

// SubscribeTypeFiltered is SubscribeType with a filter, as SubscribeFiltered has it.
func (c *Client) SubscribeTypeFiltered(
	name string, filter *system.DotsFilter, handler func(*Event[*Raw]),
) (*Subscription[Raw, string], error) {
	return c.subscribeType(name, filter, false, handler)
}

func (c *Client) subscribeType(
	name string, filter *system.DotsFilter, stream bool, handler func(*Event[*Raw]),
) (*Subscription[Raw, string], error) {
	typ := c.registry.Struct(name)
	if typ == nil {
		return nil, fmt.Errorf("%w: %.255q", ErrUnknownType, name)
	}
	s := &Subscription[Raw, string]{}
	s.container.objects = make(map[string]*entry[Raw])
	s.subscription = &subscription{c: c, typ: typ, filter: filter}
	u := &untyped{typ: typ, stream: stream || !typ.Flags.Cached, transmitted: Raw{Type: typ}}
	u.table = table[*Raw, Raw, string]{
		container: &s.container, c: c, name: name, handler: handler,
		merge: u.mergeInto,
		size:  func(x *Raw) int { return len(x.Instance) },
	}
	s.receive = u.receive
	return s, c.subscribe(s.subscription)
}

// untyped receives objects of a type that is known at run time only.
type untyped struct {
	table[*Raw, Raw, string]
	typ         *schema.Struct
	stream      bool // nothing is kept
	transmitted Raw
	layout      dynamic.Layout
	old         dynamic.Layout
	merged      dynamic.Layout
	canonical   []byte
	selected    []byte
	key         []byte
}

func (u *untyped) receive(h *frame.Header, instance []byte) error {
	n, err := dynamic.Scan(u.typ, instance, &u.layout)
	if err == nil && n != len(instance) {
		err = dynamic.ErrExcess
	}
	if err == nil && !u.layout.Canonical {
		if u.canonical, err = dynamic.Canonicalize(u.canonical[:0], u.typ, instance); err == nil {
			instance = u.canonical
			_, err = dynamic.Scan(u.typ, instance, &u.layout)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: decoding an instance of %s: %w", ErrProtocol, u.typ.Name, err)
	}
	keys := u.typ.Keys()
	if keys&^u.layout.Set != 0 {
		return fmt.Errorf("%w: %w: %s", ErrProtocol, ErrNoKey, u.typ.Name)
	}
	completeAttributes(h, u.layout.Set, keys)
	if u.layout.Set&^h.Attributes != 0 {
		u.selected = dynamic.AppendSelected(u.selected[:0], u.typ, instance, &u.layout, h.Attributes)
		instance = u.selected
		if _, err := dynamic.Scan(u.typ, instance, &u.layout); err != nil {
			return err
		}
	}
	u.transmitted.Instance = instance
	if u.stream {
		u.uncached(h, &u.transmitted)
		return nil
	}
	u.key = dynamic.AppendKey(u.key[:0], u.typ, instance, &u.layout)
	return u.applyRaw(h)
}

// applyRaw applies what is in transmitted. What is kept must be a copy.
func (u *untyped) applyRaw(h *frame.Header) error {
	x := &u.transmitted
	if _, known := u.objects[string(u.key)]; !known && !h.RemoveObj {
		kept := Raw{Type: u.typ, Instance: append([]byte(nil), x.Instance...)}
		return u.apply(h, string(u.key), &kept, len(x.Instance))
	}
	return u.apply(h, string(u.key), x, len(x.Instance))
}

// mergeInto makes a new instance, as the old one may have been given to others.
func (u *untyped) mergeInto(into, from *Raw, props value.PropertySet) error {
	if _, err := dynamic.Scan(u.typ, into.Instance, &u.old); err != nil {
		return fmt.Errorf("merging %s: %w", u.typ.Name, err)
	}
	size := len(into.Instance) + len(from.Instance)
	into.Instance = dynamic.AppendMerged(
		make([]byte, 0, size), u.typ, into.Instance, &u.old, from.Instance, &u.layout, props, &u.merged)
	return nil
}
