package broker

import (
	"errors"
	"slices"
	"strings"

	"correlator/dots/cbor"
	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// service is what the broker does with the instances of a type.
type service uint8

const (
	serviceNone service = iota // they are only published
	serviceConnect
	serviceError
	serviceHandshake // messages that guests never send
	serviceMember
	serviceDescribe
	serviceStruct
	serviceEnum
	serviceEcho
	serviceClear
	serviceClient
	serviceRule // of authentication
)

// maxMessage bounds messages to the broker, which are decoded while it is locked.
const maxMessage = 256 << 10

var services = map[string]service{
	"DotsMsgHello": serviceHandshake, "DotsMsgConnectResponse": serviceHandshake,
	"DotsMsgConnect": serviceConnect, "DotsMsgError": serviceError, "DotsMember": serviceMember,
	"DotsDescriptorRequest": serviceDescribe, "StructDescriptorData": serviceStruct,
	"EnumDescriptorData": serviceEnum, "DotsEcho": serviceEcho, "DotsClearCache": serviceClear,
	"DotsClient": serviceClient, "DotsAuthentication": serviceRule, "DotsAuthenticationPolicy": serviceRule,
}

// Instance is an object as generated code has it.
type Instance interface {
	Descriptor() *schema.Struct
	Valid() value.PropertySet
	AppendInstance(dst []byte, props value.PropertySet) []byte
}

// reply sends an instance to one guest.
func (b *Broker) reply(g *guest, x Instance) {
	b.send(g, x.Descriptor().Name, x.Valid(), x.AppendInstance(nil, x.Valid()))
}

// decode decodes the instance of a service.
func decode(instance []byte, into func(*cbor.Reader)) error {
	r := cbor.NewReader(instance)
	if into(&r); r.Err() != nil {
		return fail(BadInstance, "decoding a message: %v", r.Err())
	}
	return nil
}

// serve handles a message to the broker. It reports whether the message is to be published, too.
func (b *Broker) serve(
	g *guest, t *topic, h *frame.Header, instance []byte, l *dynamic.Layout,
) (publish bool, err error) {
	switch t.service {
	case serviceConnect:
		return false, b.handleConnect(g, instance)
	case serviceError:
		return false, b.handleError(instance)
	case serviceHandshake:
		return false, fail(HandshakeViolation, "unexpected %s", t.name)
	case serviceMember:
		if filterTag := uint32(5); l.Set.Has(filterTag) && nodesIn(l.Value(instance, filterTag)) > maxNodes {
			b.count.ignored.Add(1)
			return false, nil
		}
		return false, b.handleMember(g, instance)
	case serviceDescribe:
		return false, b.handleDescriptorRequest(g, instance)
	case serviceStruct:
		return true, b.handleStruct(g, instance)
	case serviceEnum:
		return true, b.handleEnum(g, instance)
	case serviceEcho:
		return false, b.handleEcho(g, instance)
	case serviceClear:
		// Released meanwhile, the lock leaves nothing of what the buffers of the batch contain.
		kept := slices.Clone(instance)
		if err := b.handleClear(g, kept); err != nil {
			return false, err
		}
		if _, err := dynamic.Scan(t.s, kept, l); err != nil {
			return false, err // impossible: it was scanned before
		}
		copy(instance, kept)
	case serviceRule:
		return true, b.checkRule(t, h, instance, l)
	}
	return true, nil
}

func (b *Broker) handleError(instance []byte) error {
	var m system.DotsMsgError
	if err := decode(instance, m.DecodeInstance); err != nil {
		return err
	}
	if code := m.ErrorCode.Or(1); code != 0 {
		return fail(GuestError, "%s", "")
	}
	return fail(Goodbye, "")
}

func (b *Broker) handleMember(g *guest, instance []byte) error {
	var m system.DotsMember
	if err := decode(instance, m.DecodeInstance); err != nil {
		return err
	}
	if !m.GroupName.IsSet() || !m.Event.IsSet() {
		return fail(BadInstance, "DotsMember instance is missing expected properties")
	}
	name := m.GroupName.Value()
	switch m.Event.Value() {
	case system.DotsMemberEventJoin:
		if m.SubscriptionID.IsSet() || m.Filter.IsSet() {
			return b.joinFiltered(g, &m)
		}
		return b.join(g, name)
	case system.DotsMemberEventLeave:
		if id, ok := m.SubscriptionID.Get(); ok {
			b.leaveFiltered(g, name, id)
		} else {
			b.leaveGroup(g, name)
		}
	default: // kill is reserved
		b.count.ignored.Add(1)
	}
	return nil
}

func (b *Broker) handleDescriptorRequest(g *guest, instance []byte) error {
	var m system.DotsDescriptorRequest
	if err := decode(instance, m.DecodeInstance); err != nil {
		return err
	}
	white, black := nameSet(m.Whitelist.Value()), nameSet(m.Blacklist.Value())
	for at := 0; at < len(b.types) && !g.dead; at++ {
		t := b.types[at]
		_, listed := white[t.Name]
		_, excluded := black[t.Name]
		if !excluded && (len(white) == 0 || listed) {
			b.describeWhole(g, t)
		}
		if b.batch.work++; b.batch.work > maxWork {
			b.relock(g)
			at, _ = b.findType(t.Name) // others may have been added
		}
	}
	b.reply(g, &system.DotsCacheInfo{EndDescriptorRequest: value.Some(true)})
	return nil
}

func nameSet(names []string) map[string]struct{} {
	set := make(map[string]struct{}, len(names))
	for _, name := range names {
		set[name] = struct{}{}
	}
	return set
}

// findType returns where a type is in the list of types, or would be.
func (b *Broker) findType(name string) (at int, found bool) {
	return slices.BinarySearchFunc(b.types, name, func(t *schema.Type, name string) int {
		return strings.Compare(t.Name, name)
	})
}

// addType adds a type to the list of those that guests are told about.
func (b *Broker) addType(t *schema.Type) (added bool) {
	at, found := b.findType(t.Name)
	if !found {
		b.types = slices.Insert(b.types, at, t)
	}
	return !found
}

// mayDescribe reports whether a guest may describe the type in an instance: another type than those
// that are known only while it has added few, so that it leaves room for the types of others.
func (b *Broker) mayDescribe(g *guest, instance []byte) error {
	const nameTag, shares = 1, 4
	r := cbor.NewReader(b.batch.layout.Value(instance, nameTag))
	name := r.String()
	if _, err := b.registry.ResolveType(name); err != nil && g.types >= max(b.options.Limits.Types/shares, 1) {
		return fail(TooManyTypes, "type %s: too many types", printable([]byte(name)))
	}
	return nil
}

// handleStruct registers a described struct.
func (b *Broker) handleStruct(g *guest, instance []byte) error {
	if err := b.mayDescribe(g, instance); err != nil {
		return err
	}
	s, err := system.LearnStruct(b.registry, instance)
	name, err := b.learned(g, instance, err)
	if err != nil || s == nil || name == "" {
		return err
	}
	if t := b.addTopic(name); t.s == nil {
		b.userTypes++
		t.describe(s)
	}
	return nil
}

// handleEnum registers a described enum.
func (b *Broker) handleEnum(g *guest, instance []byte) error {
	if err := b.mayDescribe(g, instance); err != nil {
		return err
	}
	_, err := system.LearnEnum(b.registry, instance)
	_, err = b.learned(g, instance, err)
	return err
}

// learned notes that a guest knows the type that it described. For a type that differs from what is
// known, which is ignored, the name is empty.
func (b *Broker) learned(g *guest, instance []byte, err error) (name string, _ error) {
	const nameTag = 1
	l := &b.batch.layout
	r := cbor.NewReader(l.Value(instance, nameTag))
	name = r.String()
	b.lastLearned, _ = b.registry.ResolveType(name)
	switch {
	case errors.Is(err, schema.ErrConflict):
		b.count.conflicts.Add(1)
		if b.options.Events != nil {
			b.options.Events.TypeConflict(g.id, name)
		}
		return "", nil
	case errors.Is(err, schema.ErrFull):
		return "", fail(TooManyTypes, "%v", err)
	case err != nil:
		return "", fail(BadDescriptor, "%v", err)
	}
	known := b.lastLearned
	if b.learn(g, known.Name); !b.internal(known) && b.addType(known) {
		g.types++
	}
	return name, nil
}

func (b *Broker) handleEcho(g *guest, instance []byte) error {
	var m system.DotsEcho
	if err := decode(instance, m.DecodeInstance); err != nil {
		return err
	}
	if !m.Request.Value() {
		b.count.ignored.Add(1)
		return nil
	}
	m.Request.Set(false)
	b.reply(g, &m)
	return nil
}

// handleClear removes the objects of types: those that there are now.
func (b *Broker) handleClear(g *guest, instance []byte) error {
	if b.options.ReadOnly {
		return fail(ReadOnly, "this server accepts no changes by guests")
	}
	var m system.DotsClearCache
	if err := decode(instance, m.DecodeInstance); err != nil {
		return err
	}
	if !m.TypeNames.IsSet() {
		return fail(BadInstance, "DotsClearCache instance is missing expected properties: typeNames")
	}
	for _, name := range m.TypeNames.Value() {
		if t := b.topics[name]; t != nil && t.container != nil {
			b.removeObjects(g, t, slices.Clone(t.container.inOrder()))
		}
	}
	return nil
}

// removeSlice is how many objects are removed before others get the lock: their removals are queued for
// each member of the group.
const removeSlice = 1000

// removeObjects removes objects on behalf of a guest, in slices: between them others get the lock, and
// what is queued is written.
func (b *Broker) removeObjects(g *guest, t *topic, objects []*object) {
	for i, o := range objects {
		if o.now != nil { // otherwise others have removed it meanwhile
			b.removeOwn(t, o)
		}
		if i%removeSlice == removeSlice-1 {
			b.relock(g)
		}
	}
}

// sendPlain sends a description with the header that C++ programs send with them.
func (b *Broker) sendPlain(g *guest, typeName string, props value.PropertySet, instance []byte) {
	h := frame.Header{TypeName: []byte(typeName), Attributes: props, Set: frame.TypeName | frame.Attributes,
		ServerSentTime: b.batch.now}
	b.batch.own = encode(b.batch.own[:0], g.format, &h, b.topics[typeName].s, instance)
	b.enqueue(g, b.batch.own)
}

// mayPublish reports whether a guest of a read-only broker may publish an instance.
func (b *Broker) mayPublish(g *guest, t *topic, instance []byte, l *dynamic.Layout) bool {
	const idTag = 1
	switch t.service {
	case serviceStruct, serviceEnum:
		return true
	case serviceClient:
		r := cbor.NewReader(l.Value(instance, idTag))
		return r.Uint(32) == uint64(g.id)
	}
	return false
}
