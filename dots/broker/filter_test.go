package broker

import (
	"math"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/system"
	"correlator/dots/value"
)

type (
	pnode  = system.DotsPredicateNode
	pvalue = system.DotsPredicateValue
)

func leaf(tag uint32, op system.DotsCompareOp, v pvalue) pnode {
	return pnode{Kind: value.Some(system.DotsPredicateKindLeaf), Leaf: value.Some(system.DotsPredicateLeaf{
		PropertyTag: value.Some(tag), Op: value.Some(op), Value: value.Some(v)})}
}

func branch(kind system.DotsPredicateKind, arity uint32) pnode {
	return pnode{Kind: value.Some(kind), Arity: value.Some(arity)}
}

func filterOf(nodes ...pnode) *system.DotsFilter {
	return &system.DotsFilter{Predicate: value.Some(system.DotsPredicate{Nodes: value.Some(nodes)})}
}

func allThings() *demo.DemoAll {
	return &demo.DemoAll{
		ID: value.Some("b"), B: value.Some(true), I8: value.Some[int8](-5), U16: value.Some[uint16](60000),
		U64: value.Some[uint64](math.MaxUint64), F32: value.Some[float32](1.5), F64: value.Some(math.NaN()),
		Tp: value.Some[value.Timepoint](17), Dur: value.Some[value.Duration](-2),
		UID: value.Some(value.UUID{1, 2}), Color: value.Some(demo.DemoColorBlue),
	}
}

func TestFilterComparisons(t *testing.T) {
	const (
		eq, neq = system.DotsCompareOpEq, system.DotsCompareOpNeq
		lt, le  = system.DotsCompareOpLt, system.DotsCompareOpLe
		gt, ge  = system.DotsCompareOpGt, system.DotsCompareOpGe
		in, out = system.DotsCompareOpIsIn, system.DotsCompareOpNotIn
		null    = system.DotsCompareOpIsNull
		notNull = system.DotsCompareOpNotNull
	)
	integer := func(i int64) pvalue { return pvalue{IntValue: value.Some(i)} }
	float := func(f float64) pvalue { return pvalue{FloatValue: value.Some(f)} }
	and, or, not := system.DotsPredicateKindAnd, system.DotsPredicateKindOr, system.DotsPredicateKindNot
	yes, no := leaf(1, notNull, pvalue{}), leaf(1, null, pvalue{})
	tests := []struct {
		name  string
		nodes []pnode
		want  bool
	}{
		{"empty", nil, true},
		{"string", []pnode{leaf(1, eq, pvalue{StringValue: value.Some("b")})}, true},
		{"string less", []pnode{leaf(1, lt, pvalue{StringValue: value.Some("c")})}, true},
		{"bool", []pnode{leaf(2, eq, pvalue{BoolValue: value.Some(true)})}, true},
		{"bool not", []pnode{leaf(2, neq, pvalue{BoolValue: value.Some(true)})}, false},
		{"negative", []pnode{leaf(3, lt, integer(-4))}, true},
		{"greater", []pnode{leaf(3, gt, integer(-5))}, false},
		{"greater or equal", []pnode{leaf(3, ge, integer(-5))}, true},
		{"unsigned", []pnode{leaf(8, le, pvalue{UintValue: value.Some[uint64](60000)})}, true},
		{"largest", []pnode{leaf(10, eq, pvalue{UintValue: value.Some[uint64](math.MaxUint64)})}, true},
		{"float32", []pnode{leaf(11, eq, float(1.5))}, true},
		{"not a number", []pnode{leaf(12, ge, float(0))}, false},
		{"timepoint", []pnode{leaf(13, gt, pvalue{TimepointValue: value.Some[value.Timepoint](16)})}, true},
		{"duration", []pnode{leaf(15, lt, pvalue{DurationValue: value.Some[value.Duration](0)})}, true},
		{"uuid", []pnode{leaf(16, eq, pvalue{UUIDValue: value.Some(value.UUID{1, 2})})}, true},
		{"in", []pnode{leaf(3, in, pvalue{IntValues: value.Some([]int64{1, -5})})}, true},
		{"in none", []pnode{leaf(3, in, pvalue{IntValues: value.Some([]int64{})})}, false},
		{"not in", []pnode{leaf(3, out, pvalue{IntValues: value.Some([]int64{1, -5})})}, false},
		{"null", []pnode{leaf(4, null, pvalue{})}, true},
		{"not null", []pnode{leaf(4, notNull, pvalue{})}, false},
		{"unset is not unequal", []pnode{leaf(4, neq, integer(1))}, false},
		{"unset is not outside", []pnode{leaf(4, out, pvalue{IntValues: value.Some([]int64{1})})}, false},
		{"enum that is set", []pnode{leaf(18, notNull, pvalue{})}, true},
		{"not", []pnode{branch(not, 1), no}, true},
		{"and", []pnode{branch(and, 3), yes, branch(not, 1), yes, yes}, false},
		{"or", []pnode{branch(or, 3), no, branch(and, 2), yes, no, yes}, true},
		{"or of nothing", []pnode{branch(or, 0)}, false},
		{"and of nothing", []pnode{branch(and, 0)}, true},
	}
	x := allThings()
	s := x.Descriptor()
	instance := x.AppendInstance(nil, x.Valid())
	var l dynamic.Layout
	_, err := dynamic.Scan(s, instance, &l)
	assert.NilError(t, err)
	for _, tt := range tests {
		f, err := compileFilter(s, filterOf(tt.nodes...))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		} else if got := f.matches(instance, &l); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestFilterRefuses(t *testing.T) {
	eq := system.DotsCompareOpEq
	one := pvalue{IntValue: value.Some[int64](1)}
	and, not := system.DotsPredicateKindAnd, system.DotsPredicateKindNot
	many := make([]pnode, maxNodes+1)
	for i := range many {
		many[i] = branch(not, 1)
	}
	tests := map[string][]pnode{
		"unknown tag":       {leaf(30, eq, one)},
		"tag 99":            {leaf(99, eq, one)},
		"another class":     {leaf(1, eq, one)},
		"no value":          {leaf(3, eq, pvalue{})},
		"two values":        {leaf(3, eq, pvalue{IntValue: one.IntValue, UintValue: value.Some[uint64](1)})},
		"vector for eq":     {leaf(3, eq, pvalue{IntValues: value.Some([]int64{1})})},
		"one for isIn":      {leaf(3, system.DotsCompareOpIsIn, one)},
		"order of uuids":    {leaf(16, system.DotsCompareOpLt, pvalue{UUIDValue: value.Some(value.UUID{})})},
		"order of bools":    {leaf(2, system.DotsCompareOpGe, pvalue{BoolValue: value.Some(true)})},
		"enum":              {leaf(18, eq, pvalue{UintValue: value.Some[uint64](1)})},
		"nested struct":     {leaf(19, eq, one)},
		"missing subtree":   {branch(and, 2), leaf(3, eq, one)},
		"not of two":        {branch(not, 2), leaf(3, eq, one), leaf(3, eq, one)},
		"nodes behind":      {leaf(3, eq, one), leaf(3, eq, one)},
		"huge arity":        {branch(and, math.MaxUint32)},
		"too many nodes":    many,
		"no kind":           {{}},
		"leaf without leaf": {{Kind: value.Some(system.DotsPredicateKindLeaf)}},
	}
	for name, nodes := range tests {
		_, err := compileFilter((&demo.DemoAll{}).Descriptor(), filterOf(nodes...))
		assert.Check(t, err != nil, "%s: accepted", name)
	}
}

// TestFilterMergedObject checks that a filter sees whole objects: an update without the compared
// property does not hide the object, and one that makes it visible sends all of it.
func TestFilterMergedObject(t *testing.T) {
	b := newBroker(t, Options{})
	addr := listenUnix(t, b, frame.V2)
	publisher, p := connect(t, addr, frame.V2), connect(t, addr, frame.V2)
	publisher.describe((&demo.DemoGadget{}).Descriptor())
	publisher.barrier()
	join := func(filter *system.DotsFilter) {
		p.send(&system.DotsMember{GroupName: value.Some("DemoGadget"), Event: value.Some(system.DotsMemberEventJoin),
			SubscriptionID: value.Some[uint32](7), Filter: value.Some(*filter)})
	}
	join(filterOf(leaf(99, system.DotsCompareOpEq, pvalue{}))) // no answer
	join(filterOf(leaf(6, system.DotsCompareOpGt, pvalue{FloatValue: value.Some(1.0)})))
	p.expect("DotsCacheInfo")
	publisher.send(&demo.DemoGadget{ID: value.Some[uint32](1), Name: value.Some("a"), Level: value.Some(0.5)})
	publisher.send(&demo.DemoGadget{ID: value.Some[uint32](1), Level: value.Some(2.0)})
	for range 3 {
		p.tb.Helper()
		r, err := p.next()
		assert.Assert(t, err == nil && r.name != "DemoGadget", "received %+v %v, want descriptions", r, err)
	}
	const id, name, level = 1 << 1, 1 << 2, 1 << 6
	p.want("DemoGadget", id|name|level, publisher.id, false, "a3 0101 026161 06fb4000000000000000")
	publisher.send(&demo.DemoGadget{ID: value.Some[uint32](1), Name: value.Some("b")})
	p.want("DemoGadget", id|name, publisher.id, false, "a2 0101 026162")
	publisher.send(&demo.DemoGadget{ID: value.Some[uint32](1), Level: value.Some(0.0)})
	p.want("DemoGadget", id, publisher.id, true, "a1 0101")
	publisher.send(&demo.DemoGadget{ID: value.Some[uint32](1), Name: value.Some("c")})
	publisher.barrier()
	p.barrier()
	n := b.Counters().IgnoredMessages
	assert.Check(t, n == 1, "%d ignored messages", n)
}
