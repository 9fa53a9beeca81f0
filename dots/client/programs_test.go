package client

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/dynamic"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

func latePublisher(t *testing.T, c *Client) {
	ctx := t.Context()
	five, three, four := gadget(5), gadget(3), gadget(4)
	five.Name.Set("five")
	must(t, c.Publish(ctx, five))
	three.Name.Set("three")
	three.Color.Set(demo.DemoColorRed)
	must(t, c.Publish(ctx, three))
	four.Numbers.Set(nil)
	must(t, c.Publish(ctx, four))
	must(t, c.Close())
}

func allTypes(p program) program {
	o := newObserver()
	p.prepare = func(t *testing.T, c *Client) {
		_, err := Subscribe(c, func(e *Event[*demo.DemoSingle]) {
			o.add(e.Operation.String() + " " + e.Updated.Text.Value())
		})
		must(t, err)
	}
	p.run = func(t *testing.T, c *Client) {
		ctx := t.Context()
		must(t, c.Publish(ctx, demoAll()))
		must(t, c.Publish(ctx, &demo.DemoPing{N: value.Some[uint32](7)}))
		must(t, c.Publish(ctx, &demo.DemoSingle{Text: value.Some("one")}))
		o.wait(t, 1)
		must(t, c.Publish(ctx, &demo.DemoSingle{Text: value.Some("two")}))
		o.wait(t, 2)
		must(t, c.Remove(ctx, &demo.DemoSingle{}))
		equal(t, o.wait(t, 3), "create one", "update two", "remove two")
		must(t, c.Close())
	}
	return p
}

func demoAll() *demo.DemoAll {
	return &demo.DemoAll{
		ID: value.Some("all"), B: value.Some(true), I8: value.Some[int8](-5), I16: value.Some[int16](-300),
		I32: value.Some[int32](-70000), I64: value.Some[int64](-5000000000), U8: value.Some[uint8](200),
		U16: value.Some[uint16](60000), U32: value.Some[uint32](4000000000), U64: value.Some(^uint64(0)),
		F32: value.Some[float32](1.5), F64: value.Some(-0.1), Tp: value.Some[value.Timepoint](1700000000.25),
		Stp: value.Some[value.SteadyTimepoint](12345.5), Dur: value.Some[value.Duration](-2.5),
		UID: value.Some(value.UUID{0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99,
			0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}),
		Ps: value.Some[value.PropertySet](0x16), Color: value.Some(demo.DemoColorBlue),
		Part: value.Some(demo.DemoPart{Label: value.Some("nested")}),
		Vb:   value.Some([]bool{true, false}), Vs: value.Some([]string{"a", "ä"}),
		Vc:  value.Some([]demo.DemoColor{demo.DemoColorRed, demo.DemoColorGreen, demo.DemoColorBlue}),
		Vp:  value.Some([]demo.DemoPart{{Flag: value.Some(true)}, {}}),
		Vu8: value.Some([]uint8{1, 255}), Last: value.Some(3.0),
	}
}

func publishSessions(t *testing.T, c *Client) {
	for i, note := range []string{"s1", "s2"} {
		x := demo.DemoSession{ID: value.Some(uint32(i + 1)), Note: value.Some(note)}
		must(t, c.Publish(t.Context(), &x))
	}
}

func watchSessions(p program) program {
	o := newObserver()
	p.prepare = func(t *testing.T, c *Client) {
		_, err := Subscribe(c, func(e *Event[*demo.DemoSession]) {
			o.add(fmt.Sprint(e.Operation, " ", e.Updated.ID.Value(), " ", e.Updated.Note.Value(),
				" by ", e.Header.Sender, " of ", e.Clone.CreatedFrom))
		})
		must(t, err)
	}
	p.run = func(t *testing.T, c *Client) {
		equal(t, o.wait(t, 8), "create 1 s1 by 7 of 7", "create 2 s2 by 7 of 7",
			"remove 1 s1 by 1 of 7", "remove 2 s2 by 1 of 7", "create 1 s1 by 8 of 8", "create 2 s2 by 8 of 8",
			"remove 1 s1 by 1 of 8", "remove 2 s2 by 1 of 8")
		must(t, c.Close())
	}
	return p
}

func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	assert.Check(t, slices.Equal(got, want), "events\n%q\ninstead of\n%q", got, want)
}

// discoverAll subscribes to everything that is described.
func discoverAll(p program) program {
	o := newObserver()
	p.prepare = func(t *testing.T, c *Client) {
		_, err := c.Discover(func(s *schema.Struct) {
			_, err := c.SubscribeType(s.Name, func(e *Event[*Raw]) {
				json, err := dynamic.AppendJSON(nil, e.Updated.Type, e.Updated.Instance)
				must(t, err)
				all := demoAll()
				if bytes.Equal(e.Updated.Instance, all.AppendInstance(nil, all.Valid())) {
					json = []byte("as published")
				}
				o.add(fmt.Sprint(e.Operation, " ", s.Name, " ", string(json)))
			})
			must(t, err)
		})
		must(t, err)
	}
	p.run = func(t *testing.T, c *Client) {
		equal(t, o.wait(t, 4), "create DemoAll as published", `create DemoGadget {"id":5,"name":"five"}`,
			`create DemoGadget {"id":3,"name":"three","color":1}`, `create DemoGadget {"id":4,"numbers":[]}`)
		must(t, c.discover.Wait(t.Context()))
		must(t, c.Close())
	}
	return p
}

// watch subscribes to types of the protocol.
func watch(p program) program {
	o := newObserver()
	var clients *Subscription[system.DotsClient, system.DotsClientKey]
	p.prepare = func(t *testing.T, c *Client) {
		var err error
		clients, err = Subscribe(c, func(e *Event[*system.DotsClient]) { o.add(e.Operation.String()) })
		must(t, err)
		_, err = Subscribe[*system.DotsDaemonStatus](c, nil)
		must(t, err)
	}
	p.run = func(t *testing.T, c *Client) {
		o.wait(t, 24+1)
		must(t, clients.Wait(t.Context()))
		var names []string
		for key, x := range clients.All() {
			names = append(names, fmt.Sprint(key.ID, " ", x.Name.Value(), " ", x.Running.Value(),
				" ", x.ConnectionState.Value()))
		}
		slices.Sort(names)
		equal(t, names, "2 all-types true closed", "4 second-publisher true closed", "5 watcher true connected")
		must(t, c.Close())
	}
	return p
}
