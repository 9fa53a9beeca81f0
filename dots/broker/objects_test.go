package broker

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// thing returns an object of about 40 bytes.
func thing(id uint32) *demo.DemoThing {
	return &demo.DemoThing{ID: value.Some(id), Name: value.Some("thirty bytes are in this string")}
}

// event is a struct like DemoThing, without a cache.
var event = func() *schema.Struct {
	s, err := schema.NewStruct("BenchEvent", schema.Flags{}, (&demo.DemoThing{}).Descriptor().Properties, "")
	if err != nil {
		panic(err)
	}
	return s
}()

// eventOf is a DemoThing of that type.
type eventOf struct{ *demo.DemoThing }

func (eventOf) Descriptor() *schema.Struct { return event }

// encoded returns n frames of objects with the first ids, or of events.
func encoded(tb testing.TB, n int, cached bool) (data []byte) {
	tb.Helper()
	var err error
	for i := range n {
		var x Instance = thing(uint32(i))
		if !cached {
			x = eventOf{thing(uint32(i))}
		}
		h := frame.Header{TypeName: []byte(x.Descriptor().Name), SentTime: 1.7e9, Attributes: x.Valid(),
			Set: frame.TypeName | frame.SentTime | frame.Attributes | frame.RemoveObj}
		data, err = frame.Append(data, frame.V2, &h, false, 0, x.AppendInstance(nil, x.Valid()))
		assert.NilError(tb, err)
	}
	return data
}
