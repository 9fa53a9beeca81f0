// Code generated from demo.dots by correlator/dots/generate. DO NOT EDIT.

package demo

import (
	"fmt"
	"math/bits"
	"strconv"

	"correlator/dots/cbor"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// DemoColor is an enum; its values are the tags.
type DemoColor uint32

const (
	DemoColorRed   DemoColor = 1
	DemoColorGreen DemoColor = 2
	DemoColorBlue  DemoColor = 5
)

// String returns the name in the description.
func (x DemoColor) String() string {
	switch x {
	case DemoColorRed:
		return "red"
	case DemoColorGreen:
		return "green"
	case DemoColorBlue:
		return "blue"
	}
	return "DemoColor(" + strconv.FormatUint(uint64(x), 10) + ")"
}

// Value returns the number that the description gives; tags are transmitted instead.
func (x DemoColor) Value() int32 {
	switch x {
	case DemoColorRed:
		return 0
	case DemoColorGreen:
		return 10
	case DemoColorBlue:
		return 4
	}
	return 0
}

// Descriptor returns the description.
func (DemoColor) Descriptor() *schema.Enum {
	return descriptorDemoColor
}

var descriptorDemoColor = schema.MustEnum("DemoColor",
	schema.Element{Name: "red", Tag: 1, Value: 0},
	schema.Element{Name: "green", Tag: 2, Value: 10},
	schema.Element{Name: "blue", Tag: 5, Value: 4},
)

func decodeDemoColor(r *cbor.Reader) DemoColor {
	x := DemoColor(r.Uint(32))
	switch x {
	case DemoColorRed, DemoColorGreen, DemoColorBlue:
		return x
	}
	r.Fail(fmt.Errorf("enumerator DemoColor %d: %w", x, cbor.ErrRange))
	return x
}

// DemoPart is a struct; any property may be unset.
type DemoPart struct {
	Flag  value.Opt[bool]
	Label value.Opt[string]
}

// Properties of DemoPart.
const (
	DemoPartFlag  value.PropertySet = 1 << 1
	DemoPartLabel value.PropertySet = 1 << 2
)

// DemoPartKey is the key of objects of type DemoPart.
type DemoPartKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DemoPart) Key() DemoPartKey {
	return DemoPartKey{}
}

// Descriptor returns the description of the type.
func (*DemoPart) Descriptor() *schema.Struct {
	return descriptorDemoPart
}

var descriptorDemoPart = schema.MustStruct("DemoPart", schema.Flags{Cached: true, SubstructOnly: true},
	schema.Property{Name: "flag", Tag: 1, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "label", Tag: 2, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *DemoPart) Valid() (set value.PropertySet) {
	if x.Flag.IsSet() {
		set |= DemoPartFlag
	}
	if x.Label.IsSet() {
		set |= DemoPartLabel
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DemoPart) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DemoPartFlag != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendBool(dst, x.Flag.Value())
	}
	if props&DemoPartLabel != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.Label.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DemoPart) DecodeInstance(r *cbor.Reader) {
	*x = DemoPart{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Flag.Set(r.Bool())
		case 2:
			x.Label.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DemoPart) Merge(from *DemoPart, props value.PropertySet) {
	if props&DemoPartFlag != 0 {
		x.Flag = from.Flag
	}
	if props&DemoPartLabel != 0 {
		x.Label = from.Label
	}
}

// DemoGadget is a struct; any property may be unset.
type DemoGadget struct {
	ID      value.Opt[uint32] // key: identifies the object
	Name    value.Opt[string]
	Color   value.Opt[DemoColor]
	Part    value.Opt[DemoPart]
	Numbers value.Opt[[]int32]
	Level   value.Opt[float64]
}

// Properties of DemoGadget.
const (
	DemoGadgetID      value.PropertySet = 1 << 1
	DemoGadgetName    value.PropertySet = 1 << 2
	DemoGadgetColor   value.PropertySet = 1 << 3
	DemoGadgetPart    value.PropertySet = 1 << 4
	DemoGadgetNumbers value.PropertySet = 1 << 5
	DemoGadgetLevel   value.PropertySet = 1 << 6
)

// DemoGadgetKey is the key of objects of type DemoGadget.
type DemoGadgetKey struct {
	ID uint32
}

// Key returns the key; properties that are unset count as zero.
func (x *DemoGadget) Key() DemoGadgetKey {
	return DemoGadgetKey{ID: x.ID.Value()}
}

// Descriptor returns the description of the type.
func (*DemoGadget) Descriptor() *schema.Struct {
	return descriptorDemoGadget
}

var descriptorDemoGadget = schema.MustStruct("DemoGadget", schema.Flags{Cached: true},
	schema.Property{Name: "id", Tag: 1, Key: true, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "name", Tag: 2, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "color", Tag: 3, Type: schema.OfEnum(descriptorDemoColor)},
	schema.Property{Name: "part", Tag: 4, Type: schema.OfStruct(descriptorDemoPart)},
	schema.Property{Name: "numbers", Tag: 5, Type: schema.MustVector(schema.Builtin(schema.Int32))},
	schema.Property{Name: "level", Tag: 6, Type: schema.Builtin(schema.Float64)},
)

// Valid returns the properties that are set.
func (x *DemoGadget) Valid() (set value.PropertySet) {
	if x.ID.IsSet() {
		set |= DemoGadgetID
	}
	if x.Name.IsSet() {
		set |= DemoGadgetName
	}
	if x.Color.IsSet() {
		set |= DemoGadgetColor
	}
	if x.Part.IsSet() {
		set |= DemoGadgetPart
	}
	if x.Numbers.IsSet() {
		set |= DemoGadgetNumbers
	}
	if x.Level.IsSet() {
		set |= DemoGadgetLevel
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DemoGadget) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DemoGadgetID != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.ID.Value()))
	}
	if props&DemoGadgetName != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.Name.Value())
	}
	if props&DemoGadgetColor != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendUint(dst, uint64(x.Color.Value()))
	}
	if props&DemoGadgetPart != 0 {
		dst = append(dst, 4)
		v := x.Part.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	if props&DemoGadgetNumbers != 0 {
		dst = append(dst, 5)
		v := x.Numbers.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendInt(dst, int64(v[i]))
		}
	}
	if props&DemoGadgetLevel != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendFloat64(dst, x.Level.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DemoGadget) DecodeInstance(r *cbor.Reader) {
	*x = DemoGadget{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.ID.Set(uint32(r.Uint(32)))
		case 2:
			x.Name.Set(r.String())
		case 3:
			x.Color.Set(decodeDemoColor(r))
		case 4:
			var v DemoPart
			v.DecodeInstance(r)
			x.Part.Set(v)
		case 5:
			n := r.ArrayOf(4)
			v := make([]int32, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, int32(r.Int(32)))
			}
			x.Numbers.Set(v)
		case 6:
			x.Level.Set(r.Float64())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DemoGadget) Merge(from *DemoGadget, props value.PropertySet) {
	if props&DemoGadgetName != 0 {
		x.Name = from.Name
	}
	if props&DemoGadgetColor != 0 {
		x.Color = from.Color
	}
	if props&DemoGadgetPart != 0 {
		x.Part = from.Part
	}
	if props&DemoGadgetNumbers != 0 {
		x.Numbers = from.Numbers
	}
	if props&DemoGadgetLevel != 0 {
		x.Level = from.Level
	}
}

// DemoSession is a struct; any property may be unset.
type DemoSession struct {
	ID   value.Opt[uint32] // key
	Note value.Opt[string]
}

// Properties of DemoSession.
const (
	DemoSessionID   value.PropertySet = 1 << 1
	DemoSessionNote value.PropertySet = 1 << 2
)

// DemoSessionKey is the key of objects of type DemoSession.
type DemoSessionKey struct {
	ID uint32
}

// Key returns the key; properties that are unset count as zero.
func (x *DemoSession) Key() DemoSessionKey {
	return DemoSessionKey{ID: x.ID.Value()}
}

// Descriptor returns the description of the type.
func (*DemoSession) Descriptor() *schema.Struct {
	return descriptorDemoSession
}

var descriptorDemoSession = schema.MustStruct("DemoSession", schema.Flags{Cached: true, Cleanup: true},
	schema.Property{Name: "id", Tag: 1, Key: true, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "note", Tag: 2, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *DemoSession) Valid() (set value.PropertySet) {
	if x.ID.IsSet() {
		set |= DemoSessionID
	}
	if x.Note.IsSet() {
		set |= DemoSessionNote
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DemoSession) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DemoSessionID != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.ID.Value()))
	}
	if props&DemoSessionNote != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.Note.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DemoSession) DecodeInstance(r *cbor.Reader) {
	*x = DemoSession{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.ID.Set(uint32(r.Uint(32)))
		case 2:
			x.Note.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DemoSession) Merge(from *DemoSession, props value.PropertySet) {
	if props&DemoSessionNote != 0 {
		x.Note = from.Note
	}
}

// DemoPing is a struct; any property may be unset.
type DemoPing struct {
	N value.Opt[uint32]
	T value.Opt[value.Timepoint]
}

// Properties of DemoPing.
const (
	DemoPingN value.PropertySet = 1 << 1
	DemoPingT value.PropertySet = 1 << 2
)

// DemoPingKey is the key of objects of type DemoPing.
type DemoPingKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DemoPing) Key() DemoPingKey {
	return DemoPingKey{}
}

// Descriptor returns the description of the type.
func (*DemoPing) Descriptor() *schema.Struct {
	return descriptorDemoPing
}

var descriptorDemoPing = schema.MustStruct("DemoPing", schema.Flags{},
	schema.Property{Name: "n", Tag: 1, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "t", Tag: 2, Type: schema.Builtin(schema.Timepoint)},
)

// Valid returns the properties that are set.
func (x *DemoPing) Valid() (set value.PropertySet) {
	if x.N.IsSet() {
		set |= DemoPingN
	}
	if x.T.IsSet() {
		set |= DemoPingT
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DemoPing) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DemoPingN != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.N.Value()))
	}
	if props&DemoPingT != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendFloat64(dst, float64(x.T.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DemoPing) DecodeInstance(r *cbor.Reader) {
	*x = DemoPing{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.N.Set(uint32(r.Uint(32)))
		case 2:
			x.T.Set(value.Timepoint(r.Float64()))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DemoPing) Merge(from *DemoPing, props value.PropertySet) {
	if props&DemoPingN != 0 {
		x.N = from.N
	}
	if props&DemoPingT != 0 {
		x.T = from.T
	}
}

// DemoAll is a struct; any property may be unset.
type DemoAll struct {
	ID    value.Opt[string] // key
	B     value.Opt[bool]
	I8    value.Opt[int8]
	I16   value.Opt[int16]
	I32   value.Opt[int32]
	I64   value.Opt[int64]
	U8    value.Opt[uint8]
	U16   value.Opt[uint16]
	U32   value.Opt[uint32]
	U64   value.Opt[uint64]
	F32   value.Opt[float32]
	F64   value.Opt[float64]
	Tp    value.Opt[value.Timepoint]
	Stp   value.Opt[value.SteadyTimepoint]
	Dur   value.Opt[value.Duration]
	UID   value.Opt[value.UUID]
	Ps    value.Opt[value.PropertySet]
	Color value.Opt[DemoColor]
	Part  value.Opt[DemoPart]
	Vb    value.Opt[[]bool]
	Vs    value.Opt[[]string]
	Vc    value.Opt[[]DemoColor]
	Vp    value.Opt[[]DemoPart]
	Vu8   value.Opt[[]uint8]
	Last  value.Opt[float64]
}

// Properties of DemoAll.
const (
	DemoAllID    value.PropertySet = 1 << 1
	DemoAllB     value.PropertySet = 1 << 2
	DemoAllI8    value.PropertySet = 1 << 3
	DemoAllI16   value.PropertySet = 1 << 4
	DemoAllI32   value.PropertySet = 1 << 5
	DemoAllI64   value.PropertySet = 1 << 6
	DemoAllU8    value.PropertySet = 1 << 7
	DemoAllU16   value.PropertySet = 1 << 8
	DemoAllU32   value.PropertySet = 1 << 9
	DemoAllU64   value.PropertySet = 1 << 10
	DemoAllF32   value.PropertySet = 1 << 11
	DemoAllF64   value.PropertySet = 1 << 12
	DemoAllTp    value.PropertySet = 1 << 13
	DemoAllStp   value.PropertySet = 1 << 14
	DemoAllDur   value.PropertySet = 1 << 15
	DemoAllUID   value.PropertySet = 1 << 16
	DemoAllPs    value.PropertySet = 1 << 17
	DemoAllColor value.PropertySet = 1 << 18
	DemoAllPart  value.PropertySet = 1 << 19
	DemoAllVb    value.PropertySet = 1 << 20
	DemoAllVs    value.PropertySet = 1 << 21
	DemoAllVc    value.PropertySet = 1 << 22
	DemoAllVp    value.PropertySet = 1 << 23
	DemoAllVu8   value.PropertySet = 1 << 24
	DemoAllLast  value.PropertySet = 1 << 31
)

// DemoAllKey is the key of objects of type DemoAll.
type DemoAllKey struct {
	ID string
}

// Key returns the key; properties that are unset count as zero.
func (x *DemoAll) Key() DemoAllKey {
	return DemoAllKey{ID: x.ID.Value()}
}

// Descriptor returns the description of the type.
func (*DemoAll) Descriptor() *schema.Struct {
	return descriptorDemoAll
}

var descriptorDemoAll = schema.MustStruct("DemoAll", schema.Flags{Cached: true},
	schema.Property{Name: "id", Tag: 1, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "b", Tag: 2, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "i8", Tag: 3, Type: schema.Builtin(schema.Int8)},
	schema.Property{Name: "i16", Tag: 4, Type: schema.Builtin(schema.Int16)},
	schema.Property{Name: "i32", Tag: 5, Type: schema.Builtin(schema.Int32)},
	schema.Property{Name: "i64", Tag: 6, Type: schema.Builtin(schema.Int64)},
	schema.Property{Name: "u8", Tag: 7, Type: schema.Builtin(schema.Uint8)},
	schema.Property{Name: "u16", Tag: 8, Type: schema.Builtin(schema.Uint16)},
	schema.Property{Name: "u32", Tag: 9, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "u64", Tag: 10, Type: schema.Builtin(schema.Uint64)},
	schema.Property{Name: "f32", Tag: 11, Type: schema.Builtin(schema.Float32)},
	schema.Property{Name: "f64", Tag: 12, Type: schema.Builtin(schema.Float64)},
	schema.Property{Name: "tp", Tag: 13, Type: schema.Builtin(schema.Timepoint)},
	schema.Property{Name: "stp", Tag: 14, Type: schema.Builtin(schema.SteadyTimepoint)},
	schema.Property{Name: "dur", Tag: 15, Type: schema.Builtin(schema.Duration)},
	schema.Property{Name: "uid", Tag: 16, Type: schema.Builtin(schema.UUID)},
	schema.Property{Name: "ps", Tag: 17, Type: schema.Builtin(schema.PropertySet)},
	schema.Property{Name: "color", Tag: 18, Type: schema.OfEnum(descriptorDemoColor)},
	schema.Property{Name: "part", Tag: 19, Type: schema.OfStruct(descriptorDemoPart)},
	schema.Property{Name: "vb", Tag: 20, Type: schema.MustVector(schema.Builtin(schema.Bool))},
	schema.Property{Name: "vs", Tag: 21, Type: schema.MustVector(schema.Builtin(schema.String))},
	schema.Property{Name: "vc", Tag: 22, Type: schema.MustVector(schema.OfEnum(descriptorDemoColor))},
	schema.Property{Name: "vp", Tag: 23, Type: schema.MustVector(schema.OfStruct(descriptorDemoPart))},
	schema.Property{Name: "vu8", Tag: 24, Type: schema.MustVector(schema.Builtin(schema.Uint8))},
	schema.Property{Name: "last", Tag: 31, Type: schema.Builtin(schema.Float64)},
)

// Valid returns the properties that are set.
func (x *DemoAll) Valid() (set value.PropertySet) {
	if x.ID.IsSet() {
		set |= DemoAllID
	}
	if x.B.IsSet() {
		set |= DemoAllB
	}
	if x.I8.IsSet() {
		set |= DemoAllI8
	}
	if x.I16.IsSet() {
		set |= DemoAllI16
	}
	if x.I32.IsSet() {
		set |= DemoAllI32
	}
	if x.I64.IsSet() {
		set |= DemoAllI64
	}
	if x.U8.IsSet() {
		set |= DemoAllU8
	}
	if x.U16.IsSet() {
		set |= DemoAllU16
	}
	if x.U32.IsSet() {
		set |= DemoAllU32
	}
	if x.U64.IsSet() {
		set |= DemoAllU64
	}
	if x.F32.IsSet() {
		set |= DemoAllF32
	}
	if x.F64.IsSet() {
		set |= DemoAllF64
	}
	if x.Tp.IsSet() {
		set |= DemoAllTp
	}
	if x.Stp.IsSet() {
		set |= DemoAllStp
	}
	if x.Dur.IsSet() {
		set |= DemoAllDur
	}
	if x.UID.IsSet() {
		set |= DemoAllUID
	}
	if x.Ps.IsSet() {
		set |= DemoAllPs
	}
	if x.Color.IsSet() {
		set |= DemoAllColor
	}
	if x.Part.IsSet() {
		set |= DemoAllPart
	}
	if x.Vb.IsSet() {
		set |= DemoAllVb
	}
	if x.Vs.IsSet() {
		set |= DemoAllVs
	}
	if x.Vc.IsSet() {
		set |= DemoAllVc
	}
	if x.Vp.IsSet() {
		set |= DemoAllVp
	}
	if x.Vu8.IsSet() {
		set |= DemoAllVu8
	}
	if x.Last.IsSet() {
		set |= DemoAllLast
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DemoAll) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DemoAllID != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.ID.Value())
	}
	if props&DemoAllB != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendBool(dst, x.B.Value())
	}
	if props&DemoAllI8 != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendInt(dst, int64(x.I8.Value()))
	}
	if props&DemoAllI16 != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendInt(dst, int64(x.I16.Value()))
	}
	if props&DemoAllI32 != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendInt(dst, int64(x.I32.Value()))
	}
	if props&DemoAllI64 != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendInt(dst, x.I64.Value())
	}
	if props&DemoAllU8 != 0 {
		dst = append(dst, 7)
		dst = cbor.AppendUint(dst, uint64(x.U8.Value()))
	}
	if props&DemoAllU16 != 0 {
		dst = append(dst, 8)
		dst = cbor.AppendUint(dst, uint64(x.U16.Value()))
	}
	if props&DemoAllU32 != 0 {
		dst = append(dst, 9)
		dst = cbor.AppendUint(dst, uint64(x.U32.Value()))
	}
	if props&DemoAllU64 != 0 {
		dst = append(dst, 10)
		dst = cbor.AppendUint(dst, x.U64.Value())
	}
	if props&DemoAllF32 != 0 {
		dst = append(dst, 11)
		dst = cbor.AppendFloat32(dst, x.F32.Value())
	}
	if props&DemoAllF64 != 0 {
		dst = append(dst, 12)
		dst = cbor.AppendFloat64(dst, x.F64.Value())
	}
	if props&DemoAllTp != 0 {
		dst = append(dst, 13)
		dst = cbor.AppendFloat64(dst, float64(x.Tp.Value()))
	}
	if props&DemoAllStp != 0 {
		dst = append(dst, 14)
		dst = cbor.AppendFloat64(dst, float64(x.Stp.Value()))
	}
	if props&DemoAllDur != 0 {
		dst = append(dst, 15)
		dst = cbor.AppendFloat64(dst, float64(x.Dur.Value()))
	}
	if props&DemoAllUID != 0 {
		dst = append(dst, 16)
		dst = cbor.AppendUUID(dst, x.UID.Value())
	}
	if props&DemoAllPs != 0 {
		dst = append(dst, 17)
		dst = cbor.AppendUint(dst, uint64(x.Ps.Value()))
	}
	if props&DemoAllColor != 0 {
		dst = append(dst, 18)
		dst = cbor.AppendUint(dst, uint64(x.Color.Value()))
	}
	if props&DemoAllPart != 0 {
		dst = append(dst, 19)
		v := x.Part.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	if props&DemoAllVb != 0 {
		dst = append(dst, 20)
		v := x.Vb.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendBool(dst, v[i])
		}
	}
	if props&DemoAllVs != 0 {
		dst = append(dst, 21)
		v := x.Vs.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendString(dst, v[i])
		}
	}
	if props&DemoAllVc != 0 {
		dst = append(dst, 22)
		v := x.Vc.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendUint(dst, uint64(v[i]))
		}
	}
	if props&DemoAllVp != 0 {
		dst = append(dst, 23)
		v := x.Vp.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = v[i].AppendInstance(dst, ^value.PropertySet(0))
		}
	}
	if props&DemoAllVu8 != 0 {
		dst = append(dst, 24, 24)
		v := x.Vu8.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendUint(dst, uint64(v[i]))
		}
	}
	if props&DemoAllLast != 0 {
		dst = append(dst, 24, 31)
		dst = cbor.AppendFloat64(dst, x.Last.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DemoAll) DecodeInstance(r *cbor.Reader) {
	*x = DemoAll{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.ID.Set(r.String())
		case 2:
			x.B.Set(r.Bool())
		case 3:
			x.I8.Set(int8(r.Int(8)))
		case 4:
			x.I16.Set(int16(r.Int(16)))
		case 5:
			x.I32.Set(int32(r.Int(32)))
		case 6:
			x.I64.Set(r.Int(64))
		case 7:
			x.U8.Set(uint8(r.Uint(8)))
		case 8:
			x.U16.Set(uint16(r.Uint(16)))
		case 9:
			x.U32.Set(uint32(r.Uint(32)))
		case 10:
			x.U64.Set(r.Uint(64))
		case 11:
			x.F32.Set(r.Float32())
		case 12:
			x.F64.Set(r.Float64())
		case 13:
			x.Tp.Set(value.Timepoint(r.Float64()))
		case 14:
			x.Stp.Set(value.SteadyTimepoint(r.Float64()))
		case 15:
			x.Dur.Set(value.Duration(r.Float64()))
		case 16:
			x.UID.Set(r.Bytes16())
		case 17:
			x.Ps.Set(value.PropertySet(r.Uint(32)))
		case 18:
			x.Color.Set(decodeDemoColor(r))
		case 19:
			var v DemoPart
			v.DecodeInstance(r)
			x.Part.Set(v)
		case 20:
			n := r.ArrayOf(1)
			v := make([]bool, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.Bool())
			}
			x.Vb.Set(v)
		case 21:
			n := r.ArrayOf(16)
			v := make([]string, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.String())
			}
			x.Vs.Set(v)
		case 22:
			n := r.ArrayOf(4)
			v := make([]DemoColor, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, decodeDemoColor(r))
			}
			x.Vc.Set(v)
		case 23:
			var v []DemoPart
			for range r.ArrayOf(40) {
				if r.Err() != nil {
					return
				}
				v = append(v, DemoPart{})
				v[len(v)-1].DecodeInstance(r)
			}
			x.Vp.Set(v)
		case 24:
			n := r.ArrayOf(1)
			v := make([]uint8, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, uint8(r.Uint(8)))
			}
			x.Vu8.Set(v)
		case 31:
			x.Last.Set(r.Float64())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DemoAll) Merge(from *DemoAll, props value.PropertySet) {
	if props&DemoAllB != 0 {
		x.B = from.B
	}
	if props&DemoAllI8 != 0 {
		x.I8 = from.I8
	}
	if props&DemoAllI16 != 0 {
		x.I16 = from.I16
	}
	if props&DemoAllI32 != 0 {
		x.I32 = from.I32
	}
	if props&DemoAllI64 != 0 {
		x.I64 = from.I64
	}
	if props&DemoAllU8 != 0 {
		x.U8 = from.U8
	}
	if props&DemoAllU16 != 0 {
		x.U16 = from.U16
	}
	if props&DemoAllU32 != 0 {
		x.U32 = from.U32
	}
	if props&DemoAllU64 != 0 {
		x.U64 = from.U64
	}
	if props&DemoAllF32 != 0 {
		x.F32 = from.F32
	}
	if props&DemoAllF64 != 0 {
		x.F64 = from.F64
	}
	if props&DemoAllTp != 0 {
		x.Tp = from.Tp
	}
	if props&DemoAllStp != 0 {
		x.Stp = from.Stp
	}
	if props&DemoAllDur != 0 {
		x.Dur = from.Dur
	}
	if props&DemoAllUID != 0 {
		x.UID = from.UID
	}
	if props&DemoAllPs != 0 {
		x.Ps = from.Ps
	}
	if props&DemoAllColor != 0 {
		x.Color = from.Color
	}
	if props&DemoAllPart != 0 {
		x.Part = from.Part
	}
	if props&DemoAllVb != 0 {
		x.Vb = from.Vb
	}
	if props&DemoAllVs != 0 {
		x.Vs = from.Vs
	}
	if props&DemoAllVc != 0 {
		x.Vc = from.Vc
	}
	if props&DemoAllVp != 0 {
		x.Vp = from.Vp
	}
	if props&DemoAllVu8 != 0 {
		x.Vu8 = from.Vu8
	}
	if props&DemoAllLast != 0 {
		x.Last = from.Last
	}
}

// DemoSingle is a struct; any property may be unset.
type DemoSingle struct {
	Text value.Opt[string]
}

// Properties of DemoSingle.
const (
	DemoSingleText value.PropertySet = 1 << 1
)

// DemoSingleKey is the key of objects of type DemoSingle.
type DemoSingleKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DemoSingle) Key() DemoSingleKey {
	return DemoSingleKey{}
}

// Descriptor returns the description of the type.
func (*DemoSingle) Descriptor() *schema.Struct {
	return descriptorDemoSingle
}

var descriptorDemoSingle = schema.MustStruct("DemoSingle", schema.Flags{Cached: true},
	schema.Property{Name: "text", Tag: 1, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *DemoSingle) Valid() (set value.PropertySet) {
	if x.Text.IsSet() {
		set |= DemoSingleText
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DemoSingle) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DemoSingleText != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendString(dst, x.Text.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DemoSingle) DecodeInstance(r *cbor.Reader) {
	*x = DemoSingle{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Text.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DemoSingle) Merge(from *DemoSingle, props value.PropertySet) {
	if props&DemoSingleText != 0 {
		x.Text = from.Text
	}
}

// RoundtripData is a struct; any property may be unset.
type RoundtripData struct {
	ID         value.Opt[uint32] // key
	SomeString value.Opt[string]
	SomeFloat  value.Opt[float32]
}

// Properties of RoundtripData.
const (
	RoundtripDataID         value.PropertySet = 1 << 1
	RoundtripDataSomeString value.PropertySet = 1 << 2
	RoundtripDataSomeFloat  value.PropertySet = 1 << 3
)

// RoundtripDataKey is the key of objects of type RoundtripData.
type RoundtripDataKey struct {
	ID uint32
}

// Key returns the key; properties that are unset count as zero.
func (x *RoundtripData) Key() RoundtripDataKey {
	return RoundtripDataKey{ID: x.ID.Value()}
}

// Descriptor returns the description of the type.
func (*RoundtripData) Descriptor() *schema.Struct {
	return descriptorRoundtripData
}

var descriptorRoundtripData = schema.MustStruct("RoundtripData", schema.Flags{Cached: true},
	schema.Property{Name: "id", Tag: 1, Key: true, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "someString", Tag: 2, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "someFloat", Tag: 3, Type: schema.Builtin(schema.Float32)},
)

// Valid returns the properties that are set.
func (x *RoundtripData) Valid() (set value.PropertySet) {
	if x.ID.IsSet() {
		set |= RoundtripDataID
	}
	if x.SomeString.IsSet() {
		set |= RoundtripDataSomeString
	}
	if x.SomeFloat.IsSet() {
		set |= RoundtripDataSomeFloat
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *RoundtripData) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&RoundtripDataID != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.ID.Value()))
	}
	if props&RoundtripDataSomeString != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.SomeString.Value())
	}
	if props&RoundtripDataSomeFloat != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendFloat32(dst, x.SomeFloat.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *RoundtripData) DecodeInstance(r *cbor.Reader) {
	*x = RoundtripData{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.ID.Set(uint32(r.Uint(32)))
		case 2:
			x.SomeString.Set(r.String())
		case 3:
			x.SomeFloat.Set(r.Float32())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *RoundtripData) Merge(from *RoundtripData, props value.PropertySet) {
	if props&RoundtripDataSomeString != 0 {
		x.SomeString = from.SomeString
	}
	if props&RoundtripDataSomeFloat != 0 {
		x.SomeFloat = from.SomeFloat
	}
}

// DemoThing is a struct; any property may be unset.
type DemoThing struct {
	ID   value.Opt[uint32] // key
	Name value.Opt[string]
}

// Properties of DemoThing.
const (
	DemoThingID   value.PropertySet = 1 << 1
	DemoThingName value.PropertySet = 1 << 2
)

// DemoThingKey is the key of objects of type DemoThing.
type DemoThingKey struct {
	ID uint32
}

// Key returns the key; properties that are unset count as zero.
func (x *DemoThing) Key() DemoThingKey {
	return DemoThingKey{ID: x.ID.Value()}
}

// Descriptor returns the description of the type.
func (*DemoThing) Descriptor() *schema.Struct {
	return descriptorDemoThing
}

var descriptorDemoThing = schema.MustStruct("DemoThing", schema.Flags{Cached: true},
	schema.Property{Name: "id", Tag: 1, Key: true, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "name", Tag: 2, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *DemoThing) Valid() (set value.PropertySet) {
	if x.ID.IsSet() {
		set |= DemoThingID
	}
	if x.Name.IsSet() {
		set |= DemoThingName
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DemoThing) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DemoThingID != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.ID.Value()))
	}
	if props&DemoThingName != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.Name.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DemoThing) DecodeInstance(r *cbor.Reader) {
	*x = DemoThing{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.ID.Set(uint32(r.Uint(32)))
		case 2:
			x.Name.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DemoThing) Merge(from *DemoThing, props value.PropertySet) {
	if props&DemoThingName != 0 {
		x.Name = from.Name
	}
}

// DemoEvent is a struct; any property may be unset.
type DemoEvent struct {
	N value.Opt[uint32]
}

// Properties of DemoEvent.
const (
	DemoEventN value.PropertySet = 1 << 1
)

// DemoEventKey is the key of objects of type DemoEvent.
type DemoEventKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *DemoEvent) Key() DemoEventKey {
	return DemoEventKey{}
}

// Descriptor returns the description of the type.
func (*DemoEvent) Descriptor() *schema.Struct {
	return descriptorDemoEvent
}

var descriptorDemoEvent = schema.MustStruct("DemoEvent", schema.Flags{},
	schema.Property{Name: "n", Tag: 1, Type: schema.Builtin(schema.Uint32)},
)

// Valid returns the properties that are set.
func (x *DemoEvent) Valid() (set value.PropertySet) {
	if x.N.IsSet() {
		set |= DemoEventN
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *DemoEvent) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&DemoEventN != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.N.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *DemoEvent) DecodeInstance(r *cbor.Reader) {
	*x = DemoEvent{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.N.Set(uint32(r.Uint(32)))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *DemoEvent) Merge(from *DemoEvent, props value.PropertySet) {
	if props&DemoEventN != 0 {
		x.N = from.N
	}
}
