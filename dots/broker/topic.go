package broker

import (
	"strings"
	"unicode/utf8"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// maxName bounds the names of groups, as package schema bounds those of types.
const maxName = schema.MaxName

// topic is a type, its group and its container. A group may exist before its type is known.
type topic struct {
	name      string
	s         *schema.Struct // nil while it is not known
	service   service
	container *container // of a cached type
	members   []member
	filtered  []*subscription
	cost      int // of their filters
}

// What is counted for guests besides what waits for them: maps have room for more than is in them.
const (
	groupMemory = 256 // of a member of a group, and of a group, besides its name
	typeMemory  = 64  // of a type that was exchanged, or published
)

// membership is where a guest is in a group.
type membership struct {
	*topic
	at int // in members
}

// member is a guest in a group.
type member struct {
	g         *guest
	described bool // the type was exchanged on its connection
}

// subscription is a filtered subscription.
type subscription struct {
	member
	t      *topic
	at     int // in the topic's list
	id     uint32
	filter *filter
}

// addTopic returns the topic of a name, and makes it if there is none.
func (b *Broker) addTopic(name string) *topic {
	t := b.topics[name]
	if t == nil {
		t = &topic{name: strings.Clone(name), service: services[name]}
		b.topics[t.name] = t
	}
	return t
}

// describe says what the type of a topic is.
func (t *topic) describe(s *schema.Struct) {
	t.s = s
	if s.Flags.Cached {
		t.container = newContainer()
	}
}

// dropTopic removes a topic that is a mere name without members.
func (b *Broker) dropTopic(t *topic) {
	if t.s == nil && len(t.members)+len(t.filtered) == 0 {
		delete(b.topics, t.name)
	}
}

// size returns how many members a group has, those with filters included.
func (t *topic) size() int { return len(t.members) + len(t.filtered) }

// membersChanged says that a guest has joined or left a group.
func (b *Broker) membersChanged(t *topic, g *guest) {
	b.groupsChanged(g)
	if b.options.Events != nil {
		b.options.Events.Members(t.name, t.size())
	}
}

// join adds a guest to a group, and replays the container.
func (b *Broker) join(g *guest, name string) error {
	if len(name) > maxName {
		return fail(BadInstance, "name of a group has %d bytes", len(name))
	}
	if name == recordType {
		b.listGroups()
	}
	if _, in := g.groups[name]; !in {
		if g.subs >= b.options.Limits.Groups {
			return fail(TooManyGroups, "too many groups")
		}
		t := b.addTopic(name)
		t.members = append(t.members, member{g: g})
		if g.groups == nil {
			g.groups = map[string]membership{}
		}
		g.groups[t.name] = membership{t, len(t.members) - 1}
		g.subs++
		b.use(g, groupMemory+len(name))
		b.membersChanged(t, g)
	}
	t := g.groups[name]
	if t.container == nil {
		return nil
	}
	m := &t.members[t.at]
	if !m.described && len(t.container.objects) > 0 {
		b.describe(g, t.s)
		m.described = true
	}
	b.replay(g, t.topic)
	b.reply(g, &system.DotsCacheInfo{TypeName: value.Some(name), EndTransmission: value.Some(true)})
	return nil
}

// leaveGroup removes a guest from a group. The last member takes its place.
func (b *Broker) leaveGroup(g *guest, name string) {
	p, in := g.groups[name]
	if !in {
		return
	}
	t, last := p.topic, len(p.members)-1
	if moved := t.members[last]; p.at < last {
		t.members[p.at] = moved
		moved.g.groups[t.name] = p
	}
	t.members[last] = member{}
	t.members = t.members[:last]
	delete(g.groups, t.name)
	g.subs--
	g.account(-groupMemory - len(t.name))
	b.membersChanged(t, g)
	b.dropTopic(t)
}

// leaveAll removes a guest from all groups.
func (b *Broker) leaveAll(g *guest) {
	for name := range g.groups {
		b.leaveGroup(g, name)
	}
	for i := len(g.filtered) - 1; i >= 0; i-- {
		b.endSubscription(g, i)
	}
}

// replayedSet are the members of the header of replayed objects.
const replayedSet = frame.TypeName | frame.SentTime | frame.ServerSentTime | frame.Attributes |
	frame.Sender | frame.FromCache | frame.RemoveObj

// replay queues a snapshot of the container of a topic for a guest.
func (b *Broker) replay(g *guest, t *topic) {
	if g.dead || len(t.container.objects) == 0 {
		return
	}
	b.queueReplay(g, &replay{s: t.s, versions: t.container.snapshot()})
}

// queueReplay queues a replay behind what is queued.
func (b *Broker) queueReplay(g *guest, r *replay) {
	const pointer = 8
	r.size += len(r.versions) * pointer
	r.header.TypeName = []byte(r.s.Name)
	r.header.Set |= replayedSet
	b.sentFrames += uint64(len(r.versions))
	g.traffic.sentFrames += uint64(len(r.versions))
	b.batch.work += len(r.versions) // which were listed
	b.fill(g)
	g.replays = append(g.replays, r)
	r.g, r.container = g, b.topics[r.s.Name].container
	r.container.follow(r)
	b.use(g, r.size)
}

// describe sends the descriptions of a struct and of what it depends on, as far as they were not
// exchanged on the guest's connection.
func (b *Broker) describe(g *guest, s *schema.Struct) {
	if s.Flags.Internal {
		return
	}
	if _, known := g.known[s.Name]; known {
		return
	}
	b.describeDependencies(g, s)
	b.describeType(g, schema.OfStruct(s))
}

// describeWhole sends the description of a type with what it depends on. It precedes descriptions
// of guests, which may differ from what is known.
func (b *Broker) describeWhole(g *guest, t *schema.Type) {
	if t.Struct != nil {
		b.describe(g, t.Struct)
	} else {
		b.describeType(g, t)
	}
}

// describeDependencies sends the descriptions of the types that a struct depends on.
func (b *Broker) describeDependencies(g *guest, s *schema.Struct) {
	for _, t := range schema.Dependencies(s) {
		if t.Struct == nil || !t.Struct.Flags.Internal {
			b.describeType(g, t)
		}
	}
}

// describeType sends the description of one type, unless it was exchanged.
func (b *Broker) describeType(g *guest, t *schema.Type) {
	if _, known := g.known[t.Name]; known || g.dead {
		return
	}
	const work = 16 // times that of a transmission
	b.batch.work += work
	b.learn(g, t.Name)
	instance, typeName, props := system.AppendDescription(nil, t)
	b.sendPlain(g, typeName, props, instance)
}

// learn notes that a type was exchanged on the guest's connection. The name is the type's own.
func (b *Broker) learn(g *guest, typeName string) {
	if _, known := g.known[typeName]; known {
		return
	}
	if g.known == nil {
		g.known = map[string]struct{}{}
	}
	g.known[typeName] = struct{}{}
	b.use(g, typeMemory)
}

// printable returns a name that a peer sent, for an error text.
func printable(name []byte) string {
	if len(name) > maxName {
		name = name[:maxName]
	}
	if utf8.Valid(name) {
		return string(name)
	}
	return strings.ToValidUTF8(string(name), "\uFFFD")
}

// layoutOf scans a stored instance.
func layoutOf(s *schema.Struct, instance []byte, l *dynamic.Layout) bool {
	_, err := dynamic.Scan(s, instance, l)
	return err == nil // always: it was scanned before it was stored
}
