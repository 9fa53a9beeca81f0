package broker

import (
	"cmp"
	"slices"

	"correlator/dots/cbor"
	"correlator/dots/dynamic"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// operand is a value that is compared: exactly one field is used, which the class says.
type operand struct {
	class class
	i     int64
	u     uint64
	f     float64 // also times and durations
	s     string
	id    value.UUID
}

// class is which values can be compared with each other.
type class uint8

const (
	classNone class = iota
	classBool
	classInt
	classUint
	classFloat
	classString
	classTimepoint
	classDuration
	classUUID
)

// comparison compares a property with constants.
type comparison struct {
	tag    uint32
	kind   schema.Kind
	op     system.DotsCompareOp
	values []operand // of a list: sorted, without what is no number
}

// classOf returns the class of the values of a kind.
func classOf(k schema.Kind) class {
	switch k {
	case schema.Bool:
		return classBool
	case schema.Int8, schema.Int16, schema.Int32, schema.Int64:
		return classInt
	case schema.Uint8, schema.Uint16, schema.Uint32, schema.Uint64:
		return classUint
	case schema.Float32, schema.Float64:
		return classFloat
	case schema.String:
		return classString
	case schema.Timepoint, schema.SteadyTimepoint:
		return classTimepoint
	case schema.Duration:
		return classDuration
	case schema.UUID:
		return classUUID
	}
	return classNone
}

// compileLeaf checks a comparison for a type.
func compileLeaf(s *schema.Struct, leaf *system.DotsPredicateLeaf) (c comparison, err error) {
	tag := leaf.PropertyTag.Value()
	if tag > schema.MaxTag || s.ByTag(tag) == nil {
		return c, errFilter
	}
	c = comparison{tag: tag, kind: s.ByTag(tag).Type.Kind, op: leaf.Op.Value()}
	if c.op == system.DotsCompareOpIsNull || c.op == system.DotsCompareOpNotNull {
		return c, nil
	}
	v := leaf.Value.Value()
	c.values = operands(&v) // their number is bounded
	list := c.op == system.DotsCompareOpIsIn || c.op == system.DotsCompareOpNotIn
	cl := classOf(c.kind)
	if members(&v) != 1 || cl == classNone || !list && len(c.values) != 1 || list == single(&v) {
		return c, errFilter
	}
	for i := range c.values {
		if c.values[i].class != cl {
			return c, errFilter
		}
	}
	if list {
		c.values = slices.DeleteFunc(c.values, func(o operand) bool { return o.f != o.f })
		slices.SortFunc(c.values, order)
	}
	ordered := cl != classBool && cl != classUUID
	switch c.op {
	case system.DotsCompareOpEq, system.DotsCompareOpNeq, system.DotsCompareOpIsIn, system.DotsCompareOpNotIn:
	case system.DotsCompareOpLt, system.DotsCompareOpLe, system.DotsCompareOpGt, system.DotsCompareOpGe:
		if !ordered {
			return c, errFilter
		}
	default:
		return c, errFilter
	}
	return c, nil
}

// countOperands returns how many constants a value has, at least.
func countOperands(v *system.DotsPredicateValue) int {
	return 1 + len(v.IntValues.Value()) + len(v.UintValues.Value()) + len(v.FloatValues.Value()) +
		len(v.StringValues.Value()) + len(v.TimepointValues.Value()) + len(v.UUIDValues.Value())
}

// order orders numbers and other values of one class.
func order(a, b operand) int {
	n, _ := a.compare(&b)
	return n
}

// members returns how many members of a value are set.
func members(v *system.DotsPredicateValue) int { return v.Valid().Len() }

// single reports whether the member that is set is no vector.
func single(v *system.DotsPredicateValue) bool {
	const firstVector = 20
	return v.Valid() < 1<<firstVector
}

// operands returns the constants of a value.
func operands(v *system.DotsPredicateValue) []operand {
	out := make([]operand, 0, countOperands(v))
	if x, ok := v.BoolValue.Get(); ok {
		o := operand{class: classBool}
		if x {
			o.u = 1
		}
		out = append(out, o)
	}
	for _, x := range all(v.IntValue, v.IntValues) {
		out = append(out, operand{class: classInt, i: x})
	}
	for _, x := range all(v.UintValue, v.UintValues) {
		out = append(out, operand{class: classUint, u: x})
	}
	for _, x := range all(v.FloatValue, v.FloatValues) {
		out = append(out, operand{class: classFloat, f: x})
	}
	for _, x := range all(v.StringValue, v.StringValues) {
		out = append(out, operand{class: classString, s: x})
	}
	for _, x := range all(v.TimepointValue, v.TimepointValues) {
		out = append(out, operand{class: classTimepoint, f: float64(x)})
	}
	if x, ok := v.DurationValue.Get(); ok {
		out = append(out, operand{class: classDuration, f: float64(x)})
	}
	for _, x := range all(v.UUIDValue, v.UUIDValues) {
		out = append(out, operand{class: classUUID, id: x})
	}
	return out
}

// all returns one value, or several ones.
func all[T any](one value.Opt[T], several value.Opt[[]T]) []T {
	if x, ok := one.Get(); ok {
		return append(slices.Clone(several.Value()), x)
	}
	return several.Value()
}

// holds reports whether an object meets the comparison. An unset property meets none but isNull.
func (c *comparison) holds(instance []byte, l *dynamic.Layout) bool {
	set := l.Set.Has(c.tag)
	switch {
	case c.op == system.DotsCompareOpIsNull:
		return !set
	case !set:
		return false
	case c.op == system.DotsCompareOpNotNull:
		return true
	}
	v := read(c.kind, l.Value(instance, c.tag))
	switch c.op {
	case system.DotsCompareOpIsIn:
		return c.lists(v)
	case system.DotsCompareOpNotIn:
		return !c.lists(v)
	case system.DotsCompareOpEq:
		return v.equal(c.values[0])
	case system.DotsCompareOpNeq:
		return !v.equal(c.values[0])
	}
	order, ok := v.compare(&c.values[0])
	if !ok {
		return false
	}
	switch c.op {
	case system.DotsCompareOpLt:
		return order < 0
	case system.DotsCompareOpLe:
		return order <= 0
	case system.DotsCompareOpGt:
		return order > 0
	}
	return order >= 0
}

// lists reports whether a value is one of the constants.
func (c *comparison) lists(v operand) bool {
	_, found := slices.BinarySearchFunc(c.values, v, order)
	return found && v.f == v.f // what is no number equals nothing
}

// read decodes the value of a property.
func read(k schema.Kind, data []byte) (o operand) {
	r := cbor.NewReader(data)
	o.class = classOf(k)
	switch o.class {
	case classBool:
		if r.Bool() {
			o.u = 1
		}
	case classInt:
		o.i = r.Int(64)
	case classUint:
		o.u = r.Uint(64)
	case classString:
		o.s = r.String()
	case classUUID:
		o.id = r.Bytes16()
	default:
		o.f = r.Float64()
	}
	return o
}

// equal reports whether values of one class are equal. What is no number equals nothing.
func (o *operand) equal(other operand) bool {
	order, ok := o.compare(&other)
	return ok && order == 0
}

// compare compares values of one class.
func (o *operand) compare(other *operand) (order int, ok bool) {
	switch o.class {
	case classInt:
		return cmp.Compare(o.i, other.i), true
	case classBool, classUint:
		return cmp.Compare(o.u, other.u), true
	case classString:
		return cmp.Compare(o.s, other.s), true
	case classUUID:
		return slices.Compare(o.id[:], other.id[:]), true
	}
	return cmp.Compare(o.f, other.f), o.f == o.f && other.f == other.f
}
