package client_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/dots/client"
	"correlator/dots/internal/demo"
	"correlator/dots/system"
	"correlator/dots/value"
)

// levelAbove returns a filter of gadgets. Its leaf has a property that gadgets do not have if it is
// ill-formed: brokers ignore it then, and say nothing.
func levelAbove(level float64, ill bool) *system.DotsFilter {
	tag := uint32(6)
	if ill {
		tag = 30
	}
	f := &system.DotsFilter{}
	f.Predicate.Set(system.DotsPredicate{Nodes: value.Some([]system.DotsPredicateNode{{
		Kind: value.Some(system.DotsPredicateKindLeaf),
		Leaf: value.Some(system.DotsPredicateLeaf{
			PropertyTag: value.Some(tag), Op: value.Some(system.DotsCompareOpGt),
			Value: value.Some(system.DotsPredicateValue{FloatValue: value.Some(level)}),
		}),
	}})})
	return f
}

// TestIgnoredFilter: the replays of others are complete if a broker ignores a filter before them,
// whether they were subscribed to before connecting or after it, with and without preload.
func TestIgnoredFilter(t *testing.T) {
	b, uris := startBroker(t, broker.Options{})
	must(t, b.RegisterType(gadget(0, "").Descriptor()))
	for id := range uint32(3) {
		x := gadget(id, "")
		x.Level.Set(float64(id))
		must(t, b.Publish(x))
	}
	for name, test := range map[string]struct{ noPreload, late bool }{
		"preload": {}, "no preload": {noPreload: true}, "connected": {late: true},
	} {
		c := client.New(client.Options{NoPreload: test.noPreload})
		if test.late {
			dial(t, c, uris["tcp"])
		}
		var subs []*client.Subscription[demo.DemoGadget, demo.DemoGadgetKey]
		for _, filter := range []*system.DotsFilter{levelAbove(0, true), nil, nil, levelAbove(1.5, false), nil} {
			s, err := client.SubscribeFiltered[*demo.DemoGadget](c, filter, nil)
			must(t, err)
			subs = append(subs, s)
		}
		if !test.late {
			dial(t, c, uris["tcp"])
		}
		for i, want := range []int{0, 3, 3, 1, 3} {
			must(t, subs[i].Wait(t.Context()))
			n := subs[i].Len()
			assert.Check(t, n == want, "%s: %d objects of subscription %d", name, n, i)
		}
		must(t, c.Close())
	}
}
