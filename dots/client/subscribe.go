package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"correlator/dots/cbor"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// Object is what a pointer to a generated type T with a key K is.
type Object[T any, K comparable] interface {
	Instance
	Key() K
	DecodeInstance(r *cbor.Reader)
	Merge(from *T, props value.PropertySet)
}

// Subscription is the subscription to a type, and the container of its objects, which stays empty
// if the type is uncached.
type Subscription[T any, K comparable] struct {
	*subscription
	container container[T, K]
}

// subscription is what does not depend on the type.
type subscription struct {
	c       *Client
	typ     *schema.Struct
	id      uint32 // of a filtered one, else 0
	filter  *system.DotsFilter
	receive func(h *frame.Header, instance []byte) error

	preloaded bool // joined before the end of the preload, which says that it is filled; protected by mu

	started    atomic.Bool // transmissions are for it; until then, for others of the same type
	closed     atomic.Bool // only its replay is awaited, which is for nobody
	filledOnce sync.Once
	filled     chan struct{} // closed when everything cached has arrived
}

// Subscribe subscribes to a type. The handler is called for every change. It may be nil, then the
// type must be said:
//
//	client.Subscribe(c, func(e *client.Event[*home.Room]) { ... })
//	client.Subscribe[*home.Room](c, nil)
//
// Before Connect, the subscription is only noted. After Connect, Wait tells when the container is
// filled.
func Subscribe[O Object[T, K], T any, K comparable](
	c *Client, handler func(*Event[O]),
) (*Subscription[T, K], error) {
	return SubscribeFiltered(c, nil, handler)
}

// SubscribeFiltered subscribes to the objects of a type that match a filter, of which the container
// has the properties that the filter selects. Brokers need not know filters: then the error is
// ErrUnsupported, that of Connect if the subscription is older. A nil filter selects everything.
func SubscribeFiltered[O Object[T, K], T any, K comparable](
	c *Client, filter *system.DotsFilter, handler func(*Event[O]),
) (*Subscription[T, K], error) {
	t := &typed[O, T, K]{}
	x, ok := any(&t.scratch).(O)
	if !ok {
		return nil, fmt.Errorf("%T is no pointer to %T", *new(O), t.scratch)
	}
	t.x, t.typ = x, x.Descriptor()
	s := &Subscription[T, K]{}
	s.container.objects = make(map[K]*entry[T])
	s.subscription = &subscription{c: c, typ: t.typ, filter: filter, receive: t.receive}
	t.table = table[O, T, K]{
		container: &s.container, c: c, name: t.typ.Name, handler: handler,
		merge: func(into, from *T, props value.PropertySet) error {
			object[O](into).Merge(from, props)
			return nil
		},
		size: func(x *T) int { return len(object[O](x).AppendInstance(nil, t.typ.All())) },
	}
	return s, c.subscribe(s.subscription)
}

// typed receives objects of a generated type.
type typed[O Object[T, K], T any, K comparable] struct {
	table[O, T, K]
	typ     *schema.Struct
	scratch T
	x       O // scratch
	reader  cbor.Reader
}

func (t *typed[O, T, K]) receive(h *frame.Header, instance []byte) error {
	x := t.x
	t.reader = cbor.NewReader(instance)
	x.DecodeInstance(&t.reader)
	if err := decoded(t.typ, &t.reader); err != nil {
		return err
	}
	valid, keys := x.Valid(), t.typ.Keys()
	if keys&^valid != 0 {
		return fmt.Errorf("%w: %w: %s", ErrProtocol, ErrNoKey, t.typ.Name)
	}
	completeAttributes(h, valid, keys)
	if excess := valid &^ h.Attributes; excess != 0 {
		t.reader = cbor.NewReader(x.AppendInstance(nil, h.Attributes))
		x.DecodeInstance(&t.reader)
	}
	if !t.typ.Flags.Cached {
		t.uncached(h, &t.scratch)
		return nil
	}
	key := x.Key()
	if !same(key, key) { // it would never be found again
		t.c.counters.keysRefused.Add(1)
		return nil
	}
	return t.apply(h, key, &t.scratch, len(instance))
}

// same reports whether two keys are equal. A key with NaN does not equal itself.
func same[K comparable](a, b K) bool { return a == b }

// decoded returns an error if an instance was wrong, or did not end where its frame does.
func decoded(typ *schema.Struct, r *cbor.Reader) error {
	err := r.Err()
	if err == nil && r.Len() != 0 {
		err = fmt.Errorf("%d bytes after the instance", r.Len())
	}
	if err != nil {
		return fmt.Errorf("%w: decoding an instance of %s: %w", ErrProtocol, typ.Name, err)
	}
	return nil
}

// completeAttributes adds what a header lacks if the broker does not complete it.
func completeAttributes(h *frame.Header, valid, keys value.PropertySet) {
	if h.Set&frame.Attributes == 0 {
		h.Attributes = valid
	}
	h.Attributes |= keys
}

// Type returns the type.
func (s *subscription) Type() *schema.Struct { return s.typ }

// Wait waits until everything is in the container that the broker had cached. It must not be called
// by a handler.
func (s *subscription) Wait(ctx context.Context) error {
	if s.isFilled() {
		return nil // select would take any of what is ready, and then ask the broker
	}
	select {
	case <-s.filled:
		return nil
	case <-s.c.ready:
	case <-s.c.done:
		return s.c.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	// A broker that knows the type as uncached does not say that there is nothing.
	pinged := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { pinged <- s.c.Ping(ctx) }()
	select {
	case <-s.filled:
		return nil
	case err := <-pinged:
		return err
	}
}

// setFilled marks the container as filled. If the subscription is closed, nothing is awaited for it
// any more. The caller holds mu.
func (c *Client) setFilled(s *subscription) {
	s.started.Store(true)
	if s.closed.Load() {
		c.removeRoute(s)
	}
	s.filledOnce.Do(func() { close(s.filled) })
}

func (s *subscription) isFilled() bool {
	select {
	case <-s.filled:
		return true
	default:
		return false
	}
}

// subscribe adds a subscription, and joins the group if there is a connection.
func (c *Client) subscribe(s *subscription) error {
	if s.typ.Flags.SubstructOnly {
		return fmt.Errorf("%w: %s", ErrSubstruct, s.typ.Name)
	}
	s.filled = make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if s.filter != nil {
		c.filters++
		s.id = c.filters
	}
	live := c.state >= early
	if live && s.filter != nil && !c.filtersKnown() {
		return ErrUnsupported
	}
	first := s.id != 0 || !c.left[s.typ.Name] && !c.hasUnfiltered(s.typ.Name)
	s.started.Store(first)
	c.addRoute(s)
	if !live {
		return nil
	}
	if first && c.expected[s.typ.Name] && s.id == 0 {
		delete(c.expected, s.typ.Name)
		c.setFilled(s) // nothing was cached when the group was joined
		return c.describeNow(s.typ)
	}
	if err := c.join(s); err != nil {
		return err
	}
	if !first || s.filter != nil {
		return c.startAfterPing(s)
	}
	return nil
}

// describeNow describes a type to the broker. The caller holds mu.
func (c *Client) describeNow(s *schema.Struct) error {
	if err := c.out.beginNow(); err != nil {
		return err
	}
	defer c.out.end()
	return c.describe(s)
}

func (c *Client) filtersKnown() bool { return c.capabilities.FilteredSubscriptions.Value() }

// startAfterPing has a subscription started, and no more wait for a replay, at the latest when the
// broker has answered everything sent so far, in case that it does not replay the type: it knows it as
// uncached, or ignores the filter. Otherwise the end of the next replay, which does not say of which
// subscription it is, would be taken for that of this one. The caller holds mu.
func (c *Client) startAfterPing(s *subscription) error {
	return c.pingLocked(func() { c.setFilled(s) })
}

// join joins a group. The caller holds mu, or is the reading goroutine before the connection
// stands.
func (c *Client) join(s *subscription) error {
	var m system.DotsMember
	m.GroupName.Set(s.typ.Name)
	m.Event.Set(system.DotsMemberEventJoin)
	if s.filter != nil {
		m.SubscriptionID.Set(s.id)
		m.Filter.Set(*s.filter)
	}
	if err := c.out.beginNow(); err != nil {
		return err
	}
	defer c.out.end()
	if err := c.describe(s.typ); err != nil {
		return err
	}
	if !s.typ.Flags.Cached {
		c.setFilled(s)
	}
	return c.append(&m, true)
}

// Close ends the subscription. The container stays as it is; handlers may be called until the
// broker's earlier transmissions are handled. Closing again does nothing.
func (s *subscription) Close() error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.closed.Load() || !slices.Contains(c.subs, s) {
		return nil
	}
	if c.state < early || c.err != nil {
		c.removeRoute(s)
		return nil
	}
	if err := c.leave(s); err != nil && !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// leave ends a subscription that was joined. While its replay may still arrive it keeps its place
// among those that wait for one. The caller holds mu.
func (c *Client) leave(s *subscription) error {
	s.closed.Store(true)
	if s.id != 0 || !c.hasUnfiltered(s.typ.Name) {
		var m system.DotsMember
		m.GroupName.Set(s.typ.Name)
		m.Event.Set(system.DotsMemberEventLeave)
		if s.id != 0 {
			m.SubscriptionID.Set(s.id)
		} else {
			c.left[s.typ.Name] = true
		}
		if err := c.send(&m); err != nil {
			c.removeRoute(s)
			return err
		}
	}
	if s.isFilled() {
		c.removeRoute(s)
		return nil
	}
	return c.startAfterPing(s) // then the replay has arrived, or there is none
}
