package client

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/internal/recordings"
	"correlator/dots/system"
	"correlator/dots/value"
)

// belowHundred is the filter of the recorded client: DemoThing.id < 100, of which the id.
func belowHundred() *system.DotsFilter {
	f := &system.DotsFilter{PropertyMask: value.Some[value.PropertySet](2)}
	f.Predicate.Set(system.DotsPredicate{Nodes: value.Some([]system.DotsPredicateNode{{
		Kind: value.Some(system.DotsPredicateKindLeaf),
		Leaf: value.Some(system.DotsPredicateLeaf{
			PropertyTag: value.Some[uint32](1), Op: value.Some(system.DotsCompareOpLt),
			Value: value.Some(system.DotsPredicateValue{UintValue: value.Some[uint64](100)}),
		}),
	}})})
	return f
}

// FuzzBroker lets a broker send anything, from the hello on.
func FuzzBroker(f *testing.F) {
	for _, rec := range recordings.All(f) {
		var all []byte
		for _, frame := range rec.Frames {
			if frame.From == recordings.Broker && !rec.WebSocket {
				all = append(all, frame.Data...)
			}
		}
		f.Add(all, rec.Format == frame.V1)
	}
	f.Fuzz(func(t *testing.T, data []byte, v1 bool) {
		c := New(Options{Objects: 10, ObjectBytes: 1000, FrameBytes: 1 << 16, Name: "fuzz", Secret: "s"})
		if v1 {
			c.format = frame.V1
		}
		gadgets, err := Subscribe(c, func(e *Event[*demo.DemoGadget]) {
			assert.Check(t, e.Updated.ID.IsSet(), "%s of an object without key", e.Operation)
		})
		must(t, err)
		if len(data)%2 == 1 { // it ends the connection to a broker without filters
			_, err = SubscribeFiltered[*demo.DemoThing](c, belowHundred(), nil)
			must(t, err)
		}
		_, err = c.Discover(nil)
		must(t, err)
		_, err = c.registry.AddStruct((*demo.DemoAll)(nil).Descriptor())
		must(t, err)
		_, err = c.SubscribeType("DemoAll", func(e *Event[*Raw]) {
			o, err := e.Updated.Object()
			assert.Check(t, err == nil && bytes.Equal(o.Append(nil, ^value.PropertySet(0)), e.Updated.Instance),
				"%x: %v", e.Updated.Instance, err)
		})
		must(t, err)
		c.state = waitHello
		_, err = c.handleBatch(data)
		if n := gadgets.Len(); n > 10 || gadgets.container.bytes > 1000 && err == nil {
			t.Errorf("%d objects, %d bytes", n, gadgets.container.bytes)
		}
	})
}
