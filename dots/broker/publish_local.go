package broker

import (
	"errors"
	"fmt"
	"slices"

	"correlator/dots/cbor"
	"correlator/dots/dynamic"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// RegisterType makes a struct known, and what it depends on. The error wraps schema.ErrConflict if
// another type of the name is known.
func (b *Broker) RegisterType(s *schema.Struct) error {
	b.lock()
	defer b.unlock(nil)
	return b.register(s)
}

func (b *Broker) register(s *schema.Struct) error {
	if t := b.topics[s.Name]; t != nil && t.s == s {
		return nil
	}
	known, err := b.registry.AddStruct(s)
	if err != nil {
		return fmt.Errorf("registering a type: %w", err)
	}
	for _, d := range append(schema.Dependencies(known), schema.OfStruct(known)) {
		if !b.internal(d) {
			b.addType(d)
		}
		if d.Struct == nil {
			continue
		}
		if t := b.addTopic(d.Name); t.s == nil {
			b.userTypes++
			t.describe(d.Struct)
		}
	}
	return nil
}

// A Change is a publication of the embedding program, whose sender is the broker.
type Change struct {
	Object Instance
	// Properties are published of the object, those that it lacks as unset. Its key need not be
	// among them.
	Properties value.PropertySet
	Remove     bool  // publish the removal of the object, of which only the key counts
	Err        error // why Apply did not publish it
}

// Apply publishes changes in their order, with the broker locked once, and sets the Err of each.
// The types need not have been registered. It does not wait for guests. The error is ErrClosed, or
// nil.
func (b *Broker) Apply(changes []Change) error {
	b.lock()
	defer b.unlock(nil)
	if b.closed {
		return ErrClosed
	}
	var buf []byte
	for i := range changes {
		buf, changes[i].Err = b.apply(&changes[i], buf)
	}
	return nil
}

// apply publishes a change, and returns the buffer that it has used.
func (b *Broker) apply(c *Change, buf []byte) ([]byte, error) {
	s := c.Object.Descriptor()
	if err := b.register(s); err != nil {
		return buf, err
	}
	t := b.topics[s.Name]
	props := c.Properties
	if c.Remove {
		if t.container == nil {
			return buf, fmt.Errorf("removing an object of the uncached type %s", s.Name)
		}
		props = 0
	}
	props |= t.s.Keys()
	buf = c.Object.AppendInstance(buf[:0], props)
	if err := b.publishOwn(t, props, c.Remove, buf); err != nil {
		return buf, fmt.Errorf("publishing %s: %w", s.Name, err)
	}
	return buf, nil
}

// Publish publishes objects of the embedding program with all their properties: the sender is the
// broker. Their types need not have been registered. It does not wait for guests.
func (b *Broker) Publish(objects ...Instance) error {
	changes := make([]Change, len(objects))
	for i, x := range objects {
		changes[i] = Change{Object: x, Properties: x.Valid()}
	}
	return b.applyAll(changes)
}

// PublishProperties publishes some properties of an object: those that it lacks are unset. Its key
// need not be among them.
func (b *Broker) PublishProperties(object Instance, props value.PropertySet) error {
	return b.applyAll([]Change{{Object: object, Properties: props}})
}

// Remove publishes the removal of objects, of which only the keys count.
func (b *Broker) Remove(objects ...Instance) error {
	changes := make([]Change, len(objects))
	for i, x := range objects {
		changes[i] = Change{Object: x, Remove: true}
	}
	return b.applyAll(changes)
}

func (b *Broker) applyAll(changes []Change) error {
	if err := b.Apply(changes); err != nil {
		return err
	}
	var errs []error
	for i := range changes {
		errs = append(errs, changes[i].Err)
	}
	return errors.Join(errs...)
}

// Members returns how many guests are in a group.
func (b *Broker) Members(typeName string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.topics[typeName]; t != nil {
		return t.size()
	}
	return 0
}

// Selects reports whether a guest has joined objects such as x: without a filter, or with one that selects
// it.
func (b *Broker) Selects(x Instance) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[x.Descriptor().Name]
	switch {
	case t == nil || t.s == nil:
		return false
	case len(t.members) > 0 || len(t.filtered) == 0:
		return len(t.members) > 0
	}
	var l dynamic.Layout
	instance := x.AppendInstance(nil, x.Valid())
	return layoutOf(t.s, instance, &l) && slices.ContainsFunc(t.filtered, func(s *subscription) bool {
		return !s.g.dead && s.filter.matches(instance, &l)
	})
}

// Objects calls f with the instances of a cached type, by ascending key, as long as it returns
// true. The reader ends with the call.
func (b *Broker) Objects(typeName string, f func(r *cbor.Reader) bool) {
	b.lock()
	b.listGroups()
	var versions []*version
	if t := b.topics[typeName]; t != nil && t.container != nil {
		versions = t.container.snapshot()
	}
	b.unlock(nil)
	for _, v := range versions {
		if r := cbor.NewReader(v.data); !f(&r) {
			return
		}
	}
}
