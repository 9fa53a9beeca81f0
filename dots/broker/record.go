package broker

import (
	"maps"
	"slices"

	"correlator/dots/system"
	"correlator/dots/value"
)

// recordInterval is how often the groups of one guest are published because they change, in
// seconds: a guest may be in thousands of them, and join them one by one.
const recordInterval value.Timepoint = 1

// publishState publishes the DotsClient of a guest.
func (b *Broker) publishState(g *guest) {
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
	if g.state == closed && g.listed > 0 {
		props |= system.DotsClientSubscribedTypes // which are unset
	}
	_ = b.publishOwn(b.topics[recordType], props, false, x.AppendInstance(nil, x.Valid()))
}

// recordType is the type of the objects that say which guests there are.
const recordType = "DotsClient"

// groupsChanged notes that the record of a guest does not list the groups that it is in. That costs
// little while nobody looks at it.
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

// listGroupsOf publishes which groups a guest is in.
func (b *Broker) listGroupsOf(g *guest) {
	delete(b.unlisted, g)
	names := slices.Collect(maps.Keys(g.groups))
	for _, s := range g.filtered {
		names = append(names, s.t.name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	x := system.DotsClient{ID: value.Some(g.id), SubscribedTypes: value.Some(names)}
	g.listed = b.batch.now
	_ = b.publishOwn(b.topics[recordType], x.Valid(), false, x.AppendInstance(nil, x.Valid()))
}
