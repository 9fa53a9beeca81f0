package broker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/cbor"
	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// sink is a connection that takes everything at once.
type sink struct {
	transport
	data    []byte
	largest int // of what was written at once
}

func (s *sink) tryWrite(list *chunkList, _ bool) (released int, more bool, err error) {
	s.largest = max(s.largest, list.size)
	data := make([]byte, list.size)
	list.read(data)
	s.data = append(s.data, data...)
	return list.consume(list.size), false, nil
}
func (*sink) begin(time.Duration) {}
func (*sink) abort()              {}
func (*sink) linger()             {}
func (*sink) stopReading(*guest)  {}

// connectSink returns a guest whose goroutine is that of the test.
func connectSink(t *testing.T, b *Broker) (*guest, *sink) {
	t.Helper()
	s := &sink{}
	g := &guest{transport: s}
	assert.Assert(t, b.accept(g), "not accepted")
	g.state = connected
	t.Cleanup(func() { disconnect(b, g) })
	s.data, s.largest = nil, 0
	return g, s
}

func disconnect(b *Broker, g *guest) {
	if b.leave(g, EndOfStream, ""); b.guests[g.id] == g {
		g.discard()
		b.remove(g, nil)
	}
}

// frames returns what was written.
func (s *sink) frames(t *testing.T) (out []received) {
	t.Helper()
	for data := s.data; len(data) > 0; {
		var h frame.Header
		instance, n, err := frame.Next(frame.V2, data, frame.DefaultLimit, &h)
		assert.Assert(t, err == nil && n != 0, "%d bytes left: %v", len(data), err)
		out = append(out, received{h, string(h.TypeName), instance, n})
		data = data[n:]
	}
	return out
}

// frameOf returns the frame of an instance.
func frameOf(t *testing.T, x Instance) []byte {
	t.Helper()
	h := frame.Header{TypeName: []byte(x.Descriptor().Name), Set: frame.TypeName}
	data, err := frame.Append(nil, frame.V2, &h, true, 0, x.AppendInstance(nil, x.Valid()))
	assert.NilError(t, err)
	return data
}

func handleAll(t *testing.T, g *guest, data []byte) {
	t.Helper()
	rest, err := g.data(data)
	assert.Assert(t, err == nil && len(rest) == 0, "%d bytes left: %v", len(rest), err)
}

// publishThings publishes objects of the broker.
func publishThings(t *testing.T, b *Broker, n uint32) {
	t.Helper()
	for id := range n {
		assert.NilError(t, b.Publish(thing(id)))
	}
}

func plainJoin(name string) *system.DotsMember {
	return &system.DotsMember{GroupName: value.Some(name), Event: value.Some(system.DotsMemberEventJoin)}
}

func filteredJoin(id uint32, f *system.DotsFilter) *system.DotsMember {
	return &system.DotsMember{GroupName: value.Some("DemoThing"), Event: value.Some(system.DotsMemberEventJoin),
		SubscriptionID: value.Some(id), Filter: value.Some(*f)}
}

// TestFilterSelectsWithoutLock checks that no object is evaluated for a join while the broker is
// locked, and that what is published meanwhile follows the replay.
func TestFilterSelectsWithoutLock(t *testing.T) {
	b := newBroker(t, Options{})
	publishThings(t, b, 10)
	g, s := connectSink(t, b)
	f := filterOf(leaf(1, system.DotsCompareOpIsIn, pvalue{UintValues: value.Some([]uint64{9, 3, 7})}))
	b.lock()
	assert.NilError(t, b.joinFiltered(g, filteredJoin(7, f)))
	if r := g.selecting; r == nil || r.pending == nil || len(r.versions) != 10 {
		t.Fatalf("replay %+v, want one of 10 objects that is pending", r)
	}
	x := &demo.DemoThing{ID: value.Some[uint32](3), Name: value.Some("later")}
	assert.NilError(t, b.publishOwn(b.topics["DemoThing"], x.Valid(), false, x.AppendInstance(nil, x.Valid())))
	g.writers = b.unlock(g.writers)
	if n := len(s.frames(t)); n != 1 { // the description
		t.Errorf("%d frames while the replay is pending", n)
	}
	b.lock()
	b.relock(g)
	g.writers = b.unlock(g.writers)
	var got []string
	for _, r := range s.frames(t)[1:] {
		text := r.name
		if r.name == "DemoThing" {
			var x demo.DemoThing
			decodeInto(t, r.instance, x.DecodeInstance)
			text = fmt.Sprint(x.ID.Value(), r.FromCache, x.Name.Value() == "later", r.SubscriptionID)
		}
		got = append(got, text)
	}
	want := []string{"3 2 false 7", "7 1 false 7", "9 0 false 7", "DotsCacheInfo", "3 0 true 7"}
	assert.Check(t, slices.Equal(got, want), "received %q, want %q", got, want)
}

// TestFilterSelectsNothing checks a replay of which nothing is left.
func TestFilterSelectsNothing(t *testing.T) {
	b := newBroker(t, Options{})
	publishThings(t, b, 3)
	g, s := connectSink(t, b)
	f := filterOf(leaf(1, system.DotsCompareOpEq, pvalue{UintValue: value.Some[uint64](100)}))
	handleAll(t, g, frameOf(t, filteredJoin(7, f)))
	r := s.frames(t)
	assert.Check(t, len(r) == 2 && r[1].name == "DotsCacheInfo", "received %+v", r)
}

func TestFilterOperands(t *testing.T) {
	list := func(n int) pnode {
		return leaf(1, system.DotsCompareOpIsIn, pvalue{StringValues: value.Some(make([]string, n))})
	}
	s := (&demo.DemoAll{}).Descriptor()
	or := branch(system.DotsPredicateKindOr, 2)
	_, err := compileFilter(s, filterOf(or, list(2000), list(2000)))
	assert.Check(t, err)
	_, err = compileFilter(s, filterOf(or, list(2100), list(2100)))
	assert.Check(t, err != nil, "4200 operands are accepted")
	x := filterOf(or, list(5), list(5))
	n := nodesIn(x.AppendInstance(nil, x.Valid()))
	assert.Check(t, n == 3, "%d nodes, want 3", n)
}

func TestFilterSubscriptions(t *testing.T) {
	b := newBroker(t, Options{})
	publishThings(t, b, 1)
	g, _ := connectSink(t, b)
	for id := range uint32(maxFilters) {
		handleAll(t, g, frameOf(t, filteredJoin(id, filterOf())))
	}
	handleAll(t, g, frameOf(t, filteredJoin(3, filterOf()))) // again
	_, err := g.data(frameOf(t, filteredJoin(1000, filterOf())))
	assert.Check(t, err != nil, "one more is accepted")
	disconnect(b, g)
	n := b.Members("DemoThing")
	assert.Check(t, n == 0, "%d members remain", n)
}

// TestBatchOfRequests checks that others get the lock during a batch in which much is done.
func TestBatchOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the broker does nothing by its clock
		b := newBroker(t, Options{})
		const types, requests = 100, 2000
		for i := types - 1; i >= 0; i-- {
			assert.NilError(t, b.RegisterType(plain(t, fmt.Sprintf("T%03d", i), schema.Flags{})))
		}
		g, s := connectSink(t, b)
		request := frameOf(t, &system.DotsDescriptorRequest{})
		handleAll(t, g, slices.Repeat(request, requests))
		assert.Check(t, b.batch.work <= maxWork+types, "%d steps in one batch", b.batch.work)
		for i, r := range s.frames(t)[:types] {
			var x system.StructDescriptorData
			decodeInto(t, r.instance, x.DecodeInstance)
			if name := fmt.Sprintf("T%03d", i); x.Name.Value() != name {
				t.Fatalf("%s is described instead of %s", x.Name.Value(), name)
			}
		}
	})
}

// TestBatchToMany checks the same for transmissions to many members.
func TestBatchToMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the broker does nothing by its clock
		b := newBroker(t, Options{})
		const members, transmissions = 100, 300
		for range members {
			g, _ := connectSink(t, b)
			handleAll(t, g, frameOf(t, plainJoin("DotsClearCache")))
		}
		g, _ := connectSink(t, b)
		request := frameOf(t, &system.DotsClearCache{TypeNames: value.Some([]string{})})
		handleAll(t, g, slices.Repeat(request, transmissions))
		assert.Check(t, b.batch.work <= maxWork+members, "%d steps in one batch", b.batch.work)
	})
}

// plain returns a type with a key and a text.
func plain(t *testing.T, name string, f schema.Flags) *schema.Struct {
	t.Helper()
	s, err := schema.NewStruct(name, f, []schema.Property{
		{Tag: 1, Name: "a", Key: true, Type: schema.Builtin(schema.Uint32)},
		{Tag: 2, Name: "b", Type: schema.Builtin(schema.String)},
	}, "")
	assert.NilError(t, err)
	return s
}

// TestRulesAreKept checks that published rules are decoded after a change only, and bounded.
func TestRulesAreKept(t *testing.T) {
	b := newBroker(t, Options{})
	g, _ := connectSink(t, b)
	ruleOf := func(i int) []byte {
		return frameOf(t, &system.DotsAuthentication{
			NameSpace: value.Some(""), ClientName: value.Some(fmt.Sprint(i)), Priority: value.Some(uint16(i)),
			Accept: value.Some(true), Network: value.Some(system.DotsNetwork{
				Network: value.Some("1.2.3.4"), Prefix: value.Some(uint8(32))}),
		})
	}
	for i := range maxRules {
		handleAll(t, g, ruleOf(i))
	}
	first, _ := b.present()
	again, _ := b.present()
	assert.Check(t, len(first) == maxRules && &again[0] == &first[0], "%d rules, decoded each time", len(first))
	handleAll(t, g, ruleOf(5))
	changed, _ := b.present()
	assert.Check(t, &changed[0] != &first[0], "a change has no effect")
	_, err := g.data(ruleOf(maxRules))
	assert.Check(t, err != nil, "one rule more is accepted")
	handleAll(t, g, frameOf(t, &system.DotsClearCache{TypeNames: value.Some([]string{"DotsAuthentication"})}))
	rules, _ := b.present()
	assert.Check(t, len(rules) == 0, "%d rules are left", len(rules))
}

// TestRemovalsInSlices checks that the removals of many objects are not queued all at once, neither
// those of DotsClearCache nor those of a guest that leaves.
func TestRemovalsInSlices(t *testing.T) {
	const objects = 4 * removeSlice
	for _, how := range []string{"clear", "leave"} {
		b := newBroker(t, Options{})
		s := plain(t, "Many", schema.Flags{Cached: true, Cleanup: true})
		assert.NilError(t, b.RegisterType(s))
		g, _ := connectSink(t, b)
		other, out := connectSink(t, b)
		handleAll(t, other, frameOf(t, plainJoin("Many")))
		for i := range objects {
			h := frame.Header{TypeName: []byte("Many"), Set: frame.TypeName}
			data, err := frame.Append(nil, frame.V2, &h, false, 0, cbor.AppendUint([]byte{0xa1, 1}, uint64(i)))
			assert.NilError(t, err)
			handleAll(t, g, data)
		}
		out.data, out.largest = nil, 0
		if how == "clear" {
			handleAll(t, g, frameOf(t, &system.DotsClearCache{TypeNames: value.Some([]string{"Many"})}))
		} else {
			disconnect(b, g)
		}
		removed := 0
		for _, r := range out.frames(t) {
			if r.name == "Many" && r.RemoveObj {
				removed++
			}
		}
		assert.Check(t, removed == objects && out.largest <= len(out.data)/3,
			"%s: %d of %d removed, %d of %d bytes at once", how, removed, objects, out.largest, len(out.data))
		assert.Check(t, len(b.topics["Many"].container.objects) == 0 && len(b.owned) == 0, "%s: objects remain", how)
	}
}

// TestGroupPlaces checks that members find their place after others have left.
func TestGroupPlaces(t *testing.T) {
	b := newBroker(t, Options{})
	var guests []*guest
	for range 5 {
		g, _ := connectSink(t, b)
		handleAll(t, g, frameOf(t, plainJoin("x")))
		guests = append(guests, g)
	}
	for n, i := range []int{1, 4, 0, 3, 2} {
		disconnect(b, guests[i])
		topic := b.topics["x"]
		if topic == nil {
			assert.Assert(t, n == 4, "the group is gone")
			continue
		}
		for at, m := range topic.members {
			if p := m.g.groups["x"]; m.g.left || p.at != at || p.topic != topic {
				t.Fatalf("member %d of %d has place %d, has left: %v", at, len(topic.members), p.at, m.g.left)
			}
		}
	}
}

// TestShares checks that a guest leaves room for others, also after it has left.
func TestShares(t *testing.T) {
	t.Parallel()
	b, p, r := limited(t, Options{Limits: Limits{Types: 8, Cache: 64 << 10}})
	cached := schema.Flags{Cached: true}
	p.describe(plain(t, "T0", cached))
	p.describe(plain(t, "T1", cached))
	p.describe(plain(t, "T1", cached)) // is known
	p.barrier()
	p.describe(plain(t, "T2", cached))
	p.wantError(1)
	r.want(t, TooManyTypes)
	addr := p.conn.RemoteAddr()
	p = connect(t, addr, frame.V2)
	for id := range byte(3) {
		p.raw("T0", false, frame.Header{}, cbor.AppendString([]byte{0xa2, 1, id, 2}, strings.Repeat("a", 7<<10)))
	}
	p.wantError(1)
	r.want(t, CacheFull)
	p = connect(t, addr, frame.V2)
	p.describe(plain(t, "T2", cached))
	p.raw("T2", false, frame.Header{}, cbor.AppendString([]byte{0xa2, 1, 0, 2}, strings.Repeat("a", 7<<10)))
	p.barrier()
	n := b.Counters().Objects
	assert.Check(t, n >= 3, "%d objects", n)
}

// TestCacheReserve checks that records of guests have room when guests have filled the cache.
func TestCacheReserve(t *testing.T) {
	b := newBroker(t, Options{Limits: Limits{Cache: 64 << 10}})
	limit := b.options.Limits.Cache
	b.cacheBytes += limit - limit/cacheReserve
	defer func() { b.cacheBytes -= limit - limit/cacheReserve }()
	assert.Check(t, !b.mayCache(2, 2, 1) && b.mayCache(ownID, ownID, 1),
		"guests use the reserve, or the broker does not")
}

func TestClientIDsEnd(t *testing.T) {
	b := newBroker(t, Options{})
	b.lastID = math.MaxUint32
	dial(t, listenUnix(t, b, frame.V2), frame.V2).end()
}
