package broker

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/cbor"
	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// groupsOf returns the groups in the stored record of a guest.
func groupsOf(b *Broker, id uint32) (names []string, listed bool) {
	b.Objects(recordType, func(r *cbor.Reader) bool {
		var x system.DotsClient
		if x.DecodeInstance(r); x.ID.Value() == id {
			names, listed = x.SubscribedTypes.Get()
			return false
		}
		return true
	})
	return names, listed
}

// wantGroups waits for a record of a guest that lists certain groups.
func (p *peer) wantGroups(id uint32, want ...string) {
	p.tb.Helper()
	for {
		var x system.DotsClient
		decodeInto(p.tb, p.expect(recordType).instance, x.DecodeInstance)
		if names, ok := x.SubscribedTypes.Get(); ok && x.ID.Value() == id && slices.Equal(names, want) {
			return
		}
	}
}

// TestSubscribedTypes checks that records list groups for those who join later and, as they change,
// for those who watch, and that nothing is published when nobody does.
func TestSubscribedTypes(t *testing.T) {
	t.Parallel()
	b := newBroker(t, Options{})
	addr := listenUnix(t, b, frame.V2)
	p := connect(t, addr, frame.V2)
	p.describe((&demo.DemoThing{}).Descriptor())
	p.join("unknown")
	p.join("DemoThing")
	p.expect("DotsCacheInfo")
	p.send(&system.DotsMember{GroupName: value.Some("DemoThing"), Event: value.Some(system.DotsMemberEventJoin),
		SubscriptionID: value.Some[uint32](1), Filter: value.Some(system.DotsFilter{})})
	p.expect("DotsCacheInfo")
	p.barrier()
	watcher := connect(t, addr, frame.V2)
	_, listed := groupsOf(b, watcher.id)
	assert.Check(t, !listed, "the groups of a guest that never joined one are listed")
	watcher.join(recordType)
	watcher.wantGroups(p.id, "DemoThing", "unknown") // replayed
	watcher.expect(recordType)                       // its own
	watcher.expect("DotsCacheInfo")
	watcher.barrier() // it is told nothing, as only it watches
	names, _ := groupsOf(b, watcher.id)
	assert.Check(t, slices.Equal(names, []string{recordType}), "watcher is in %q", names)
	watcher.wantGroups(watcher.id, recordType) // updated because it was read

	p.member("unknown", system.DotsMemberEventLeave)
	watcher.wantGroups(p.id, "DemoThing") // now or a second later
	p.member("DemoThing", system.DotsMemberEventLeave)
	p.send(&system.DotsMember{GroupName: value.Some("DemoThing"), Event: value.Some(system.DotsMemberEventLeave),
		SubscriptionID: value.Some[uint32](1)})
	watcher.wantGroups(p.id)

	p.join("other")
	p.conn.Close()
	gone(t, b, p.id)
	for { // with or without a record that lists the last group
		r := watcher.expect(recordType)
		var x system.DotsClient
		decodeInto(t, r.instance, x.DecodeInstance)
		if x.ConnectionState.Value() != system.DotsConnectionStateClosed {
			continue
		}
		assert.Check(t, r.Attributes&system.DotsClientSubscribedTypes != 0 && !x.SubscribedTypes.IsSet(),
			"closed: %#x %+v", r.Attributes, x)
		break
	}
	names, listed = groupsOf(b, p.id)
	assert.Check(t, !listed, "a guest that is gone is in %q", names)
}

// TestPublishedTypes checks that records list what guests publish, without the types of the
// protocol, up to a limit, and no longer than they are connected.
func TestPublishedTypes(t *testing.T) {
	b := newBroker(t, Options{Limits: Limits{Groups: 2}})
	for _, name := range []string{"C", "B", "A"} {
		assert.NilError(t, b.RegisterType(plain(t, name, schema.Flags{})))
	}
	p := connect(t, listenUnix(t, b, frame.V2), frame.V2)
	published := func() (names []string, listed bool) {
		b.Objects(recordType, func(r *cbor.Reader) bool {
			var x system.DotsClient
			if x.DecodeInstance(r); x.ID.Value() == p.id {
				names, listed = x.PublishedTypes.Get()
			}
			return true
		})
		return names, listed
	}
	publish := func(names ...string) {
		for _, name := range names {
			p.raw(name, false, frame.Header{}, []byte{0xa1, 1, 0})
		}
		p.barrier()
	}
	p.join("A")
	p.send(&system.DotsClient{ID: value.Some(p.id), Running: value.Some(true)})
	p.barrier()
	names, listed := published()
	assert.Check(t, !listed, "%q are listed, and nothing was published", names)
	p.member("A", system.DotsMemberEventLeave)
	publish("C", "B", "C")
	names, _ = published()
	assert.Check(t, slices.Equal(names, []string{"B", "C"}), "%q are listed, want B and C", names)
	publish("A")
	names, _ = published()
	assert.Check(t, len(names) == 2, "%q are listed, want two", names)
	p.conn.Close()
	gone(t, b, p.id)
	names, listed = published()
	assert.Check(t, !listed, "%q are listed of a guest that is gone", names)
}
