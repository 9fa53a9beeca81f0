package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"unsafe"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// TestReplayIsWork checks that the objects of a replay count for how long others wait for the lock.
func TestReplayIsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the broker does nothing by its clock
		b := newBroker(t, Options{})
		const objects = 100
		publishThings(t, b, objects)
		g, _ := connectSink(t, b)
		handleAll(t, g, frameOf(t, plainJoin("DemoThing")))
		assert.Check(t, b.batch.work >= objects, "%d steps for a replay of %d objects", b.batch.work, objects)
		g.drain()
	})
}

// full is a connection that takes nothing until it is told to.
type full struct {
	sink
	open chan struct{}
}

func (f *full) tryWrite(list *chunkList, wait bool) (released int, more bool, err error) {
	if !wait {
		return 0, true, nil
	}
	<-f.open
	return f.sink.tryWrite(list, wait)
}

// TestBatchWaitsForReplays checks that the joins of one batch do not queue more replays than the
// guest takes.
func TestBatchWaitsForReplays(t *testing.T) {
	b := newBroker(t, Options{})
	publishThings(t, b, 1)
	g, s := connectSink(t, b)
	f := &full{open: make(chan struct{})}
	g.transport = f
	const joins = 4 * maxReplays
	done := make(chan error)
	go func() {
		_, err := g.data(slices.Repeat(frameOf(t, plainJoin("DemoThing")), joins))
		done <- err
	}()
	replays := func() int {
		g.queueMu.Lock()
		defer g.queueMu.Unlock()
		return len(g.replays)
	}
	eventually(t, "replays are queued", func() bool { return replays() >= maxReplays })
	n := replays()
	assert.Check(t, n <= maxReplays, "%d replays are queued", n)
	close(f.open)
	err := <-done
	assert.Check(t, err)
	g.drain()
	s.data = f.data
	n = len(s.frames(t))
	assert.Check(t, n == 1+2*joins, "%d frames", n)
}

func TestLargeMessage(t *testing.T) {
	_, p, r := limited(t, Options{})
	p.send(&system.DotsClearCache{TypeNames: value.Some([]string{strings.Repeat("x", maxMessage)})})
	p.wantError(1)
	p.conn.Close()
	r.want(t, BadInstance)
}

// largestFilter returns a filter of which everything is evaluated for objects with small ids.
func largestFilter() *system.DotsFilter {
	nodes := []pnode{branch(system.DotsPredicateKindOr, maxNodes-1)}
	for range maxNodes - 1 {
		nodes = append(nodes, leaf(1, system.DotsCompareOpGt, pvalue{UintValue: value.Some[uint64](1 << 40)}))
	}
	return filterOf(nodes...)
}

// TestCostOfFilters checks that what all filters of a guest, and those of a type, compare is bounded,
// and that filters that are left make room.
func TestCostOfFilters(t *testing.T) {
	b := newBroker(t, Options{})
	publishThings(t, b, 1)
	topic := b.topics["DemoThing"]
	full := func() (g *guest, joined int) {
		g, _ = connectSink(t, b)
		for id := range uint32(maxFilters) {
			if _, err := g.data(frameOf(t, filteredJoin(id, largestFilter()))); err != nil {
				return g, joined
			}
			joined++
		}
		return g, joined
	}
	var guests []*guest
	for topic.cost+maxNodes < maxTopic && len(guests) < 100 {
		g, joined := full()
		assert.Assert(t, g.cost <= maxCost && (topic.cost+maxNodes >= maxTopic || joined == maxCost/(maxNodes+1)),
			"%d filters that cost %d", joined, g.cost)
		guests = append(guests, g)
	}
	assert.Check(t, len(guests) >= maxTopic/maxCost && topic.cost <= maxTopic,
		"%d guests have filters that cost %d", len(guests), topic.cost)
	for _, g := range guests {
		disconnect(b, g)
		assert.Check(t, g.cost == 0, "filters that are left cost %d", g.cost)
	}
	assert.Check(t, topic.cost == 0, "filters that are left cost %d", topic.cost)
	long := filterOf(leaf(2, system.DotsCompareOpEq, pvalue{StringValue: value.Some(strings.Repeat("x", 200<<10))}))
	g, _ := connectSink(t, b)
	handleAll(t, g, frameOf(t, filteredJoin(1, long)))
	_, err := g.data(frameOf(t, filteredJoin(2, long)))
	assert.Check(t, err != nil, "comparisons of long texts are not bounded")
}

// TestFiltersOfUnchangedProperties checks that the stored object is evaluated for no filter that an
// update cannot concern.
func TestFiltersOfUnchangedProperties(t *testing.T) {
	b := newBroker(t, Options{})
	publishThings(t, b, 1)
	g, s := connectSink(t, b)
	byID := filterOf(leaf(1, system.DotsCompareOpLt, pvalue{UintValue: value.Some[uint64](5)}))
	byName := filterOf(leaf(2, system.DotsCompareOpNeq, pvalue{StringValue: value.Some("other")}))
	for id, f := range []*system.DotsFilter{byID, byName} {
		handleAll(t, g, frameOf(t, filteredJoin(uint32(id), f)))
	}
	s.data = nil
	update := &demo.DemoThing{ID: value.Some[uint32](0), Name: value.Some("other")}
	instance := update.AppendInstance(nil, update.Valid())
	b.lock()
	assert.Check(t, b.publishOwn(b.topics["DemoThing"], update.Valid(), false, instance))
	if want := 3 * 2; b.batch.work != want { // two comparisons of the new state, one of the old one
		t.Errorf("%d steps, want %d", b.batch.work, want)
	}
	b.unlock(nil)
	r := s.frames(t)
	if len(r) != 2 || r[0].SubscriptionID != 0 || r[0].RemoveObj || r[1].SubscriptionID != 1 || !r[1].RemoveObj {
		t.Errorf("received %+v, want an update and a removal", r)
	}
}

// TestMemoryOfGuests checks that what is kept for a guest as long as it is connected is counted, about
// as much as it takes, and released: by itself, and with the connection.
func TestMemoryOfGuests(t *testing.T) {
	b := newBroker(t, Options{})
	publishThings(t, b, 1)
	list := filterOf(leaf(1, system.DotsCompareOpIsIn, pvalue{UintValues: value.Some(make([]uint64, 4000))}))
	g, _ := connectSink(t, b)
	handleAll(t, g, frameOf(t, filteredJoin(0, list))) // with the description of the type
	eventually(t, "written", func() bool { return g.queued.Load() == 0 })
	b.lock()
	before := g.memory.Load()
	b.leaveFiltered(g, "DemoThing", 0)
	released := before - g.memory.Load()
	b.unlock(nil)
	if least := int64(4000 * unsafe.Sizeof(operand{})); released < least || released > least*5/4 {
		t.Errorf("%d bytes were counted for a filter of %d", released, least)
	}
	const groups = 100
	name := func(i int) string { return fmt.Sprintf("%s%03d", strings.Repeat("g", 250), i) }
	before = g.memory.Load()
	for i := range groups {
		handleAll(t, g, frameOf(t, plainJoin(name(i))))
		handleAll(t, g, frameOf(t, plainJoin(name(i))))
	}
	n := (g.memory.Load() - before) / groups
	assert.Check(t, n >= 256+250 && n <= 1000, "%d bytes were counted for a group", n)
	for i := range groups {
		leave := plainJoin(name(i))
		leave.Event.Set(system.DotsMemberEventLeave)
		handleAll(t, g, frameOf(t, leave))
	}
	n = g.memory.Load()
	assert.Check(t, n == before, "%d bytes are counted, want %d", n, before)
	s := plain(t, "New", schema.Flags{})
	instance, typeName, _ := system.AppendDescription(nil, schema.OfStruct(s))
	publish := func(typeName string, instance []byte) (counted int64) {
		before := g.memory.Load()
		h := frame.Header{TypeName: []byte(typeName), Set: frame.TypeName}
		data, err := frame.Append(nil, frame.V2, &h, true, 0, instance)
		assert.NilError(t, err)
		handleAll(t, g, slices.Repeat(data, 2))
		return g.memory.Load() - before
	}
	n = publish(typeName, instance)
	assert.Check(t, n == typeMemory, "%d bytes were counted for a type that was described", n)
	n = publish(s.Name, []byte{0xa1, 1, 0})
	assert.Check(t, n == typeMemory, "%d bytes were counted for a type that is published", n)
}

// TestMemoryOfFilters checks that who has too many filters is disconnected.
func TestMemoryOfFilters(t *testing.T) {
	b, p, r := limited(t, Options{Limits: Limits{Memory: 1 << 20}})
	publishThings(t, b, 1)
	list := filterOf(leaf(1, system.DotsCompareOpIsIn, pvalue{UintValues: value.Some(make([]uint64, 4000))}))
	var joins []byte // in one write: there may be nobody to read another one
	for id := range uint32(10) {
		joins = append(joins, frameOf(t, filteredJoin(id, list))...)
	}
	p.write(joins)
	r.want(t, MemoryFull)
	gone(t, b, p.id)
}
