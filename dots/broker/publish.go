package broker

import (
	"fmt"

	"correlator/dots/cbor"
	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// handle handles a transmission of a guest. An error is a failure, for which the guest is to be
// disconnected.
func (b *Broker) handle(g *guest, h *frame.Header, instance []byte) error {
	t := g.lastTopic
	if t == nil || t.name != string(h.TypeName) {
		if t = b.topics[string(h.TypeName)]; t == nil || t.s == nil {
			return b.unknownType(g, h)
		}
		g.lastTopic = t
	}
	if g.state == connecting && t.service != serviceConnect && t.service != serviceError {
		return fail(HandshakeViolation, "unexpected message")
	}
	if t.service != serviceNone && len(instance) > maxMessage {
		return fail(BadInstance, "%s instance has %d bytes", t.name, len(instance))
	}
	if len(instance) > largeInstance {
		return b.handleLarge(g, t, h, instance)
	}
	l := &b.batch.layout
	if err := scan(t.s, instance, l); err != nil {
		return err
	}
	if !l.Canonical {
		var err error
		if instance, err = b.canonicalize(t.s, instance, b.batch.instance[:0], l); err != nil {
			return err
		}
		b.batch.instance = instance
	}
	return b.handleChecked(g, t, h, instance, l)
}

// largeInstance is the length of instances that take so long to be checked that others get the lock
// meanwhile. Where the properties of such an instance are is remembered while it is cached.
const largeInstance = 64 << 10

// maxKey bounds keys, which are made of instances while the broker is locked.
const maxKey = 64 << 10

// handleLarge handles a large instance, for whose type nothing changes while the broker is not locked.
func (b *Broker) handleLarge(g *guest, t *topic, h *frame.Header, instance []byte) error {
	g.writers = b.unlock(g.writers)
	canonical, l, err := b.checkLarge(t.s, instance)
	b.lock()
	switch {
	case g.dead:
		return fail(g.reason, "")
	case err != nil:
		return err
	}
	if !l.Canonical {
		b.use(g, cap(canonical))
		defer g.account(-cap(canonical))
		l.Canonical = true
	}
	b.batch.layout = *l
	return b.handleChecked(g, t, h, canonical, &b.batch.layout)
}

// checkLarge checks a large instance, and returns its canonical form. In the layout Canonical is as
// it was. The broker is not locked.
func (b *Broker) checkLarge(s *schema.Struct, instance []byte) ([]byte, *dynamic.Layout, error) {
	l := &dynamic.Layout{}
	if err := scan(s, instance, l); err != nil {
		return nil, nil, err
	}
	size := 0
	for tag := range uint32(schema.MaxTag + 1) {
		if (s.Keys() & l.Set).Has(tag) {
			size += int(l.End[tag] - l.Start[tag])
		}
	}
	if size > maxKey {
		return nil, nil, fail(BadInstance, "%s instance has a key of %d bytes", s.Name, size)
	}
	if l.Canonical {
		return instance, l, nil
	}
	b.canonicalizing.Lock() // how much memory they take is known only afterwards
	defer b.canonicalizing.Unlock()
	canonical, err := b.canonicalize(s, instance, nil, l)
	l.Canonical = false
	return canonical, l, err
}

// scan checks an instance that a guest has sent.
func scan(s *schema.Struct, instance []byte, l *dynamic.Layout) error {
	n, err := dynamic.Scan(s, instance, l)
	if err != nil {
		return fail(BadInstance, "%v", err)
	}
	if n != len(instance) {
		return fail(BadFrame, "%d bytes after an instance of %s", len(instance)-n, s.Name)
	}
	if missing := s.Keys() &^ l.Set; missing != 0 {
		return fail(MissingKey, "%s instance is missing expected properties: %s", s.Name, names(s, missing))
	}
	return nil
}

// handleChecked handles a transmission whose instance was checked.
func (b *Broker) handleChecked(
	g *guest, t *topic, h *frame.Header, instance []byte, l *dynamic.Layout,
) error {
	if t.service != serviceNone {
		proceed, err := b.serve(g, t, h, instance, l)
		if g.selecting != nil {
			b.relock(g)
		}
		if err != nil || !proceed {
			return err
		}
	}
	return b.publishOf(g, t, h, instance, l)
}

func (b *Broker) unknownType(g *guest, h *frame.Header) error {
	if g.state == connecting {
		return fail(HandshakeViolation, "unexpected message")
	}
	return fail(UnknownType, "no type registered with name1: %s", printable(h.TypeName))
}

// canonicalize appends an instance as a strict encoder encodes it. C++ subscribers cannot pass some of
// the properties that they do not know. It may be longer than it was: floats were shorter.
func (b *Broker) canonicalize(s *schema.Struct, instance, dst []byte, l *dynamic.Layout) ([]byte, error) {
	canonical, err := dynamic.Canonicalize(dst, s, instance)
	if err == nil {
		_, err = dynamic.Scan(s, canonical, l)
	}
	if err != nil {
		return nil, fail(BadInstance, "%v", err)
	}
	if len(canonical)+maxHeader > b.options.Limits.Frame {
		return nil, errTooLong
	}
	return canonical, nil
}

// publishOf publishes a checked instance of a guest.
func (b *Broker) publishOf(g *guest, t *topic, h *frame.Header, instance []byte, l *dynamic.Layout) error {
	if b.options.ReadOnly && !b.mayPublish(g, t, instance, l) {
		return fail(ReadOnly, "this server accepts no objects of guests")
	}
	if h.Set&frame.RemoveObj == 0 {
		h.RemoveObj = false
	}
	if h.RemoveObj && t.container == nil {
		return fail(RemoveUncached, "cannot remove uncached instance for type: %s", t.name)
	}
	if h.Set&frame.Attributes == 0 {
		h.Attributes = l.Set
	}
	h.Attributes = (h.Attributes | t.s.Keys()) & t.s.All()
	if h.Set&frame.SentTime == 0 {
		h.SentTime = b.batch.now
	}
	if g.publisher != t {
		b.notePublished(g, t)
	}
	h.ServerSentTime, h.Sender, h.IsFromMyself = b.batch.now, g.id, false
	h.Set = forwarded
	if l.Set&^h.Attributes != 0 {
		instance = b.selected(t.s, instance, l, h.Attributes)
	}
	return b.distribute(t, h, instance, l)
}

// forwarded are the members of the header of forwarded transmissions.
const forwarded = frame.TypeName | frame.SentTime | frame.ServerSentTime | frame.Attributes |
	frame.Sender | frame.RemoveObj | frame.IsFromMyself

// selected returns the instance with some of its properties, and makes its layout.
func (b *Broker) selected(s *schema.Struct, instance []byte, l *dynamic.Layout, props value.PropertySet) []byte {
	props &= l.Set
	dst := cbor.AppendMap(b.batch.selected[:0], props.Len())
	l.Set = 0
	for i := range s.Properties {
		if tag := s.Properties[i].Tag; props.Has(tag) {
			dst = l.Append(dst, tag, l.Value(instance, tag))
		}
	}
	b.batch.selected = dst
	return dst
}

// distribute stores a normalised transmission, and sends it to the members of its group.
func (b *Broker) distribute(t *topic, h *frame.Header, instance []byte, l *dynamic.Layout) error {
	if t.container == nil {
		b.forward(t, h, instance)
		b.forwardFiltered(t, h, instance, l, nil)
		return nil
	}
	if t.service == serviceRule {
		b.published.stale = true
	}
	b.batch.key = dynamic.AppendKey(b.batch.key[:0], t.s, instance, l)
	tr := transmission{
		key: b.batch.key, instance: instance, set: l.Set, attributes: h.Attributes, from: h.Sender,
		sent: h.SentTime, remove: h.RemoveObj,
	}
	var before *version
	if len(t.filtered) > 0 {
		if o := t.container.objects[string(tr.key)]; o != nil {
			b.batch.previous = append(b.batch.previous[:0], o.now.data...)
			before = &version{data: b.batch.previous, layout: o.now.layout}
		}
	}
	if err := b.store(t, &tr, l); err != nil {
		return err
	}
	b.forward(t, h, instance)
	b.forwardFiltered(t, h, instance, l, before)
	return nil
}

// forward sends a transmission to the members of its group, encoded once for each format.
func (b *Broker) forward(t *topic, h *frame.Header, instance []byte) {
	var done [numFormats]bool
	var described *schema.Type
	if t.service == serviceStruct || t.service == serviceEnum {
		described = b.lastLearned
	}
	b.batch.work += len(t.members)
	for i := range t.members {
		m := &t.members[i]
		g := m.g
		if g.dead {
			continue
		}
		if !m.described {
			b.describe(g, t.s)
			m.described = true
		}
		if described != nil {
			b.describeWhole(g, described)
		}
		if !done[g.format] {
			b.batch.frames[g.format] = encode(b.batch.frames[g.format][:0], g.format, h, t.s, instance)
			done[g.format] = true
		}
		b.enqueue(g, b.batch.frames[g.format])
	}
}

// encode appends a transmission as it is queued for guests of a format.
func encode(dst []byte, f format, h *frame.Header, s *schema.Struct, instance []byte) []byte {
	start := len(dst)
	dst, err := frame.Append(dst, frame.Format(f), h, s.Flags.Internal, h.ServerSentTime, instance)
	if err != nil {
		return dst[:start] // impossible: names and frames are bounded
	}
	return dst
}

// send sends a message of the broker to one guest. Its instance is canonical.
func (b *Broker) send(g *guest, typeName string, props value.PropertySet, instance []byte) {
	t := b.topics[typeName]
	h := frame.Header{
		TypeName: []byte(typeName), SentTime: b.batch.now, ServerSentTime: b.batch.now, Attributes: props,
		Set: frame.TypeName | frame.SentTime | frame.Attributes | frame.RemoveObj,
	}
	b.batch.own = encode(b.batch.own[:0], g.format, &h, t.s, instance)
	b.enqueue(g, b.batch.own)
}

// publishOwn publishes an object of the broker itself. Its instance is canonical.
func (b *Broker) publishOwn(t *topic, props value.PropertySet, remove bool, instance []byte) error {
	l := &dynamic.Layout{} // that of the batch may be in use
	if n, err := dynamic.Scan(t.s, instance, l); err != nil {
		return err
	} else if n != len(instance) || !l.Canonical {
		return fmt.Errorf("instance of %s is not encoded strictly", t.name)
	}
	if missing := t.s.Keys() &^ l.Set; missing != 0 {
		return fmt.Errorf("%s lacks its key: %s", t.name, names(t.s, missing))
	}
	h := frame.Header{
		TypeName: []byte(t.name), SentTime: b.batch.now, ServerSentTime: b.batch.now,
		Attributes: (props | t.s.Keys()) & t.s.All(), Sender: ownID, RemoveObj: remove, Set: forwarded,
	}
	return b.distribute(t, &h, instance, l)
}

// removeOwn publishes the removal of a cached object.
func (b *Broker) removeOwn(t *topic, o *object) {
	var l dynamic.Layout
	o.now.scan(t.s, &l)
	keys := t.s.Keys()
	instance := dynamic.AppendSelected(nil, t.s, o.now.data, &l, keys)
	_ = b.publishOwn(t, keys, true, instance)
}

// names lists properties.
func names(s *schema.Struct, props value.PropertySet) string {
	text := ""
	for i := range s.Properties {
		if p := &s.Properties[i]; props.Has(p.Tag) {
			if text != "" {
				text += ", "
			}
			text += p.Name
		}
	}
	return text
}
