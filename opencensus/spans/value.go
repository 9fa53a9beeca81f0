package spans

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"correlator/otlp/field"
)

// rawValue appends the fields of an AnyValue (common.proto) for a value, which is at a level of the
// JSON if it is a list or an object. It reports false for one that OTLP cannot have: nested too
// deep, with too many keys, or a number out of range.
//
//	field  type     of
//	    1  text     string
//	    2  varint   true, false
//	    3  varint   number that is an integer of 64 bits
//	    4  fixed64  other numbers, as float64
//	    5  message  list: 1 AnyValue
//	    6  message  object: 1 KeyValue
//	none            null
func (e *encoding) rawValue(v value, level int) bool {
	if !v.isContainer() {
		return e.scalar(v)
	}
	r := e.open(v)
	defer e.close()
	return e.anyValue(r, level)
}

// anyValue appends the same for the next value.
func (e *encoding) anyValue(r *reader, level int) bool {
	switch r.kind() {
	case '[':
		return level <= maxLevels && e.listValue(r, level)
	case '{':
		return level <= maxLevels && e.objectValue(r, level)
	}
	v := r.value()
	return !r.bad && e.scalar(v)
}

// scalar appends the same for a value that is neither a list nor an object.
func (e *encoding) scalar(v value) bool {
	switch v[0] {
	case '"':
		out, from := field.Begin(e.out, field.Text)
		e.out = field.End(appendText(out, v), from)
	case 't':
		e.out = appendBool(e.out, 1)
	case 'f':
		e.out = appendBool(e.out, 0)
	case 'n':
	default:
		return e.number(v)
	}
	return true
}

func appendBool(out []byte, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(out, field.Bool, protowire.VarintType), v)
}

// number appends a number. Larger ones than any float64 are out of range.
func (e *encoding) number(v value) bool {
	if n, ok := integer(v); ok {
		e.out = protowire.AppendTag(e.out, field.Int, protowire.VarintType)
		e.out = protowire.AppendVarint(e.out, uint64(n))
		return true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return false
	}
	e.out = field.AppendFixed64(e.out, field.Double, math.Float64bits(f))
	return true
}

// listValue appends the field of an ArrayValue. Elements that are null remain, so that others keep
// their indices.
func (e *encoding) listValue(r *reader, level int) bool {
	out, list := field.Begin(e.out, field.Array)
	e.out = out
	for range r.elements {
		out, element := field.Begin(e.out, 1)
		e.out = out
		if !e.anyValue(r, level+1) {
			return false
		}
		e.out = field.End(e.out, element)
	}
	e.out = field.End(e.out, list)
	return true
}

// objectValue appends the field of a KeyValueList. Members that are null are left out.
func (e *encoding) objectValue(r *reader, level int) bool {
	out, object := field.Begin(e.out, field.KVList)
	e.out = out
	l := e.newList(1, level+1)
	for _, name := range r.elements {
		if r.kind() == 'n' {
			r.value()
			continue
		}
		if len(e.entries)-l.base >= maxAttributes || !e.member(r, &l, name) {
			return false
		}
	}
	e.finish(&l)
	e.out = field.End(e.out, object)
	return true
}

// member appends a KeyValue of a list.
func (e *encoding) member(r *reader, l *attributeList, name value) bool {
	out, added := begin(e.out, l.field, e.text(name))
	out, content := field.Begin(out, 2)
	e.out = out
	if !e.anyValue(r, l.level) {
		return false
	}
	e.out = field.End(e.out, content)
	e.end(added)
	return true
}
