package client

import (
	"errors"
	"math"
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/system"
	"correlator/dots/value"
)

// TestPresize: what a broker announces is allocated once and within a bound for all containers of
// a client, whatever it announces how often.
func TestPresize(t *testing.T) {
	budget := presizeBytes
	size := int(unsafe.Sizeof(entry[demo.DemoThing]{}))
	containers := make([]container[demo.DemoThing, demo.DemoThingKey], 3)
	total := 0
	for i := range containers {
		c := &containers[i]
		c.presize(math.MaxUint32, &budget)
		total += len(c.block) * size
		block := len(c.block)
		c.presize(math.MaxUint32, &budget)
		assert.Check(t, len(c.block) == block, "container %d: %d entries, then %d", i, block, len(c.block))
	}
	assert.Check(t, total != 0 && total <= presizeBytes && budget >= 0, "%d bytes, budget %d", total, budget)
	budget = presizeBytes
	var c, few container[demo.DemoThing, demo.DemoThingKey]
	c.presize(99, &budget)
	assert.Check(t, len(c.block) == 100, "%d entries for 100 objects", len(c.block))
	few.presize(1, &budget)
	assert.Check(t, few.block == nil, "%d entries for 2 objects", len(few.block))
}

// TestEntriesReused: objects that come and go take the memory of the most that there were, and
// nothing of one is in the next.
func TestEntriesReused(t *testing.T) {
	c := New(Options{})
	s, err := Subscribe[*demo.DemoGadget](c, nil)
	must(t, err)
	send := func(x *demo.DemoGadget, remove bool) {
		t.Helper()
		instance := x.AppendInstance(nil, x.Valid())
		must(t, s.receive(&frame.Header{RemoveObj: remove, Set: frame.RemoveObj}, instance))
	}
	for round := range uint32(3) {
		for id := range uint32(100) {
			x := &demo.DemoGadget{ID: value.Some(1000*round + id)}
			if round == 0 {
				x.Name = value.Some("old")
			}
			send(x, false)
		}
		for id := range uint32(100) {
			key := demo.DemoGadgetKey{ID: 1000*round + id}
			x, clone, ok := s.GetClone(key)
			assert.Assert(t, ok && x.Name.IsSet() == (round == 0) && clone.LastOperation == Create,
				"round %d: %+v, %+v", round, x, clone)
		}
		for id := range uint32(100) {
			send(&demo.DemoGadget{ID: value.Some(1000*round + id)}, true)
		}
		if n := len(s.container.free); n != 100 || s.Len() != 0 || s.container.bytes != 0 {
			t.Errorf("round %d: %d free entries, %d objects of %d bytes", round, n, s.Len(), s.container.bytes)
		}
	}
}

// TestStream: nothing is kept of what is only followed, and removals of unknown objects are told.
func TestStream(t *testing.T) {
	c := New(Options{})
	_, err := c.Types().AddStruct((&demo.DemoThing{}).Descriptor())
	must(t, err)
	var events []Operation
	s, err := c.Stream("DemoThing", func(e *Event[*Raw]) { events = append(events, e.Operation) })
	must(t, err)
	for id := range uint32(100) {
		x := &demo.DemoThing{ID: value.Some(id)}
		must(t, s.receive(&frame.Header{RemoveObj: id%2 == 1}, x.AppendInstance(nil, x.Valid())))
	}
	if len(events) != 100 || events[0] != Create || events[1] != Remove || s.Len() != 0 || s.container.bytes != 0 {
		t.Errorf("%d events, %d objects", len(events), s.Len())
	}
}

// TestExpect: the group is joined once, what arrives before the description is counted, and the
// subscription that follows is filled at once.
func TestExpect(t *testing.T) {
	c := New(Options{})
	err := c.Expect("DemoThing")
	assert.Check(t, errors.Is(err, ErrNotConnected), err)
	p := readyClient(t, c)
	must(t, c.Expect("DemoThing"))
	must(t, c.Expect("DemoThing"))
	var m system.DotsMember
	if p.read(&m); m.GroupName.Value() != "DemoThing" || m.Event.Value() != system.DotsMemberEventJoin {
		t.Errorf("%+v", m)
	}
	p.send(&demo.DemoThing{ID: value.Some[uint32](1)})
	ping := make(chan error, 1)
	go func() { ping <- c.Ping(t.Context()) }()
	p.pong()
	must(t, <-ping)
	n := c.Counters().Unsubscribed
	assert.Check(t, n == 1, "%d unsubscribed", n)
	s, err := Subscribe[*demo.DemoThing](c, nil)
	must(t, err)
	must(t, s.Wait(t.Context()))
	p.read(&system.StructDescriptorData{})
	must(t, c.Expect("DemoThing"))
	p.send(&demo.DemoThing{ID: value.Some[uint32](2)})
	go func() { ping <- c.Ping(t.Context()) }()
	p.pong() // and no second join before it
	must(t, <-ping)
	assert.Check(t, s.Len() == 1, "%d objects", s.Len())
}
