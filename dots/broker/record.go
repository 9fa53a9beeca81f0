package broker

import (
	"maps"
	"slices"

	"correlator/dots/system"
	"correlator/dots/value"
)

// recordInterval is how often the groups and types of one guest are published because they change,
// in seconds: there may be thousands of them, joined one by one.
const recordInterval value.Timepoint = 1

// publishState publishes the DotsClient of a guest.
func (b *Broker) publishState(g *guest) {
	g.recorded = true
	x := system.DotsClient{
		ID: value.Some(g.id), Name: value.Some(g.name),
		ConnectionState: value.Some(system.DotsConnectionState(g.state)),
	}
	switch g.state {
	case earlySubscribe, connected:
		x.Running.Set(true)
	case closed:
		x.Running.Set(false)
	}
	props := x.Valid()
	if g.state == closed && g.listed > 0 { // the record may remain for long: the lists are unset
		props |= system.DotsClientSubscribedTypes | system.DotsClientPublishedTypes
	}
	_ = b.publishOwn(b.topics[recordType], props, false, x.AppendInstance(nil, x.Valid()))
}

// recordType is the type of the objects that say which guests there are.
const recordType = "DotsClient"

// notePublished notes that a guest publishes a type, unless that is one of the protocol, or one too
// many.
func (b *Broker) notePublished(g *guest, t *topic) {
	g.publisher = t
	if _, known := g.published[t]; known || t.s.Flags.Internal || len(g.published) >= b.options.Limits.Groups {
		return
	}
	if g.published == nil {
		g.published = map[*topic]struct{}{}
	}
	g.published[t] = struct{}{}
	b.use(g, typeMemory)
	b.groupsChanged(g)
}

// groupsChanged notes that the record of a guest does not list the groups that it is in, or the
// types that it publishes. That costs little while nobody looks at it.
func (b *Broker) groupsChanged(g *guest) {
	if !g.left {
		b.unlisted[g] = struct{}{}
	}
}

// listGroups updates all records. It precedes everything that reads stored records.
func (b *Broker) listGroups() {
	for g := range b.unlisted {
		b.listGroupsOf(g)
	}
}

// publishGroups updates the records of guests that others watch, of each as often as the interval
// says.
func (b *Broker) publishGroups(interval value.Timepoint) {
	t := b.topics[recordType]
	if len(b.unlisted) == 0 || t.size() == 0 {
		return
	}
	for g := range b.unlisted {
		own := 0
		if _, in := g.groups[recordType]; in {
			own++
		}
		for _, s := range g.filtered {
			if s.t == t {
				own++
			}
		}
		if since := b.batch.now - g.listed; t.size() > own && (since >= interval || since < 0) {
			b.listGroupsOf(g)
		}
	}
}

// listGroupsOf publishes which groups a guest is in, and which types it publishes.
func (b *Broker) listGroupsOf(g *guest) {
	delete(b.unlisted, g)
	names := slices.Collect(maps.Keys(g.groups))
	for _, s := range g.filtered {
		names = append(names, s.t.name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	x := system.DotsClient{ID: value.Some(g.id), SubscribedTypes: value.Some(names)}
	if len(g.published) > 0 {
		types := make([]string, 0, len(g.published))
		for t := range g.published {
			types = append(types, t.name)
		}
		slices.Sort(types)
		x.PublishedTypes.Set(types)
	}
	g.listed = b.batch.now
	_ = b.publishOwn(b.topics[recordType], x.Valid(), false, x.AppendInstance(nil, x.Valid()))
}
