// Code generated from odd.dots by correlator/dots/generate. DO NOT EDIT.

package demo

import (
	"fmt"
	"math/bits"
	"strconv"

	"correlator/dots/cbor"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// OddNames is a struct; any property may be unset.
//
// Uses fmt. and bits.
type OddNames struct {
	KeyProperty   value.Opt[uint32] // named like a method
	MergeProperty value.Opt[string]
	X             value.Opt[string]
	Type          value.Opt[int8]
	MaxRssURL     value.Opt[bool]
	// UserID use key instead
	//
	// Deprecated: by its description.
	UserID value.Opt[string]
	Tag23  value.Opt[[]float32]
	Tag24  value.Opt[[]value.UUID]
}

// Properties of OddNames.
const (
	OddNamesKeyProperty   value.PropertySet = 1 << 1
	OddNamesMergeProperty value.PropertySet = 1 << 2
	OddNamesX             value.PropertySet = 1 << 3
	OddNamesType          value.PropertySet = 1 << 4
	OddNamesMaxRssURL     value.PropertySet = 1 << 5
	OddNamesUserID        value.PropertySet = 1 << 6
	OddNamesTag23         value.PropertySet = 1 << 23
	OddNamesTag24         value.PropertySet = 1 << 24
)

// OddNamesKey is the key of objects of type OddNames.
type OddNamesKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *OddNames) Key() OddNamesKey {
	return OddNamesKey{}
}

// Descriptor returns the description of the type.
func (*OddNames) Descriptor() *schema.Struct {
	return descriptorOddNames
}

var descriptorOddNames = schema.MustStruct("odd_names", schema.Flags{Persistent: true, Local: true},
	schema.Property{Name: "key", Tag: 1, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "merge", Tag: 2, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "_", Tag: 3, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "type", Tag: 4, Type: schema.Builtin(schema.Int8)},
	schema.Property{Name: "maxRssUrl", Tag: 5, Type: schema.Builtin(schema.Bool)},
	schema.Property{Name: "user_id", Tag: 6, Deprecated: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "tag23", Tag: 23, Type: schema.MustVector(schema.Builtin(schema.Float32))},
	schema.Property{Name: "tag24", Tag: 24, Type: schema.MustVector(schema.Builtin(schema.UUID))},
)

// Valid returns the properties that are set.
func (x *OddNames) Valid() (set value.PropertySet) {
	if x.KeyProperty.IsSet() {
		set |= OddNamesKeyProperty
	}
	if x.MergeProperty.IsSet() {
		set |= OddNamesMergeProperty
	}
	if x.X.IsSet() {
		set |= OddNamesX
	}
	if x.Type.IsSet() {
		set |= OddNamesType
	}
	if x.MaxRssURL.IsSet() {
		set |= OddNamesMaxRssURL
	}
	if x.UserID.IsSet() {
		set |= OddNamesUserID
	}
	if x.Tag23.IsSet() {
		set |= OddNamesTag23
	}
	if x.Tag24.IsSet() {
		set |= OddNamesTag24
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *OddNames) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&OddNamesKeyProperty != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.KeyProperty.Value()))
	}
	if props&OddNamesMergeProperty != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.MergeProperty.Value())
	}
	if props&OddNamesX != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendString(dst, x.X.Value())
	}
	if props&OddNamesType != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendInt(dst, int64(x.Type.Value()))
	}
	if props&OddNamesMaxRssURL != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendBool(dst, x.MaxRssURL.Value())
	}
	if props&OddNamesUserID != 0 {
		dst = append(dst, 6)
		dst = cbor.AppendString(dst, x.UserID.Value())
	}
	if props&OddNamesTag23 != 0 {
		dst = append(dst, 23)
		v := x.Tag23.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendFloat32(dst, v[i])
		}
	}
	if props&OddNamesTag24 != 0 {
		dst = append(dst, 24, 24)
		v := x.Tag24.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendUUID(dst, v[i])
		}
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *OddNames) DecodeInstance(r *cbor.Reader) {
	*x = OddNames{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.KeyProperty.Set(uint32(r.Uint(32)))
		case 2:
			x.MergeProperty.Set(r.String())
		case 3:
			x.X.Set(r.String())
		case 4:
			x.Type.Set(int8(r.Int(8)))
		case 5:
			x.MaxRssURL.Set(r.Bool())
		case 6:
			x.UserID.Set(r.String())
		case 23:
			n := r.ArrayOf(4)
			v := make([]float32, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.Float32())
			}
			x.Tag23.Set(v)
		case 24:
			n := r.ArrayOf(16)
			v := make([]value.UUID, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.Bytes16())
			}
			x.Tag24.Set(v)
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *OddNames) Merge(from *OddNames, props value.PropertySet) {
	if props&OddNamesKeyProperty != 0 {
		x.KeyProperty = from.KeyProperty
	}
	if props&OddNamesMergeProperty != 0 {
		x.MergeProperty = from.MergeProperty
	}
	if props&OddNamesX != 0 {
		x.X = from.X
	}
	if props&OddNamesType != 0 {
		x.Type = from.Type
	}
	if props&OddNamesMaxRssURL != 0 {
		x.MaxRssURL = from.MaxRssURL
	}
	if props&OddNamesUserID != 0 {
		x.UserID = from.UserID
	}
	if props&OddNamesTag23 != 0 {
		x.Tag23 = from.Tag23
	}
	if props&OddNamesTag24 != 0 {
		x.Tag24 = from.Tag24
	}
}

// OddKeys is a struct; any property may be unset.
type OddKeys struct {
	Color    value.Opt[OddEnum]    // key
	ID       value.Opt[value.UUID] // key
	Part     value.Opt[OddPart]    // key
	Text     value.Opt[string]     // key
	Content  value.Opt[value.Any]
	Contents value.Opt[[]value.Any]
	Sets     value.Opt[[]value.PropertySet]
	Event    value.Opt[OddEnum]
}

// Properties of OddKeys.
const (
	OddKeysColor         value.PropertySet = 1 << 5
	OddKeysID            value.PropertySet = 1 << 4
	OddKeysPart          value.PropertySet = 1 << 3
	OddKeysText          value.PropertySet = 1 << 2
	OddKeysContent       value.PropertySet = 1 << 1
	OddKeysContents      value.PropertySet = 1 << 6
	OddKeysSets          value.PropertySet = 1 << 7
	OddKeysEventProperty value.PropertySet = 1 << 8
)

// OddKeysKey is the key of objects of type OddKeys.
type OddKeysKey struct {
	Color OddEnum
	ID    value.UUID
	Part  OddPart
	Text  string
}

// Key returns the key; properties that are unset count as zero.
func (x *OddKeys) Key() OddKeysKey {
	return OddKeysKey{Color: x.Color.Value(), ID: x.ID.Value(), Part: x.Part.Value(), Text: x.Text.Value()}
}

// Descriptor returns the description of the type.
func (*OddKeys) Descriptor() *schema.Struct {
	return descriptorOddKeys
}

var descriptorOddKeys = schema.MustStruct("OddKeys", schema.Flags{Cached: true},
	schema.Property{Name: "color", Tag: 5, Key: true, Type: schema.OfEnum(descriptorOddEnum)},
	schema.Property{Name: "id", Tag: 4, Key: true, Type: schema.Builtin(schema.UUID)},
	schema.Property{Name: "part", Tag: 3, Key: true, Type: schema.OfStruct(descriptorOddPart)},
	schema.Property{Name: "text", Tag: 2, Key: true, Type: schema.Builtin(schema.String)},
	schema.Property{Name: "content", Tag: 1, Type: schema.Builtin(schema.Any)},
	schema.Property{Name: "contents", Tag: 6, Type: schema.MustVector(schema.Builtin(schema.Any))},
	schema.Property{Name: "sets", Tag: 7, Type: schema.MustVector(schema.Builtin(schema.PropertySet))},
	schema.Property{Name: "event", Tag: 8, Type: schema.OfEnum(descriptorOddEnum)},
)

// Valid returns the properties that are set.
func (x *OddKeys) Valid() (set value.PropertySet) {
	if x.Color.IsSet() {
		set |= OddKeysColor
	}
	if x.ID.IsSet() {
		set |= OddKeysID
	}
	if x.Part.IsSet() {
		set |= OddKeysPart
	}
	if x.Text.IsSet() {
		set |= OddKeysText
	}
	if x.Content.IsSet() {
		set |= OddKeysContent
	}
	if x.Contents.IsSet() {
		set |= OddKeysContents
	}
	if x.Sets.IsSet() {
		set |= OddKeysSets
	}
	if x.Event.IsSet() {
		set |= OddKeysEventProperty
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *OddKeys) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&OddKeysColor != 0 {
		dst = append(dst, 5)
		dst = cbor.AppendUint(dst, uint64(x.Color.Value()))
	}
	if props&OddKeysID != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendUUID(dst, x.ID.Value())
	}
	if props&OddKeysPart != 0 {
		dst = append(dst, 3)
		v := x.Part.Value()
		dst = v.AppendInstance(dst, ^value.PropertySet(0))
	}
	if props&OddKeysText != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendString(dst, x.Text.Value())
	}
	if props&OddKeysContent != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendAny(dst, x.Content.Value())
	}
	if props&OddKeysContents != 0 {
		dst = append(dst, 6)
		v := x.Contents.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendAny(dst, v[i])
		}
	}
	if props&OddKeysSets != 0 {
		dst = append(dst, 7)
		v := x.Sets.Value()
		dst = cbor.AppendArray(dst, len(v))
		for i := range v {
			dst = cbor.AppendUint(dst, uint64(v[i]))
		}
	}
	if props&OddKeysEventProperty != 0 {
		dst = append(dst, 8)
		dst = cbor.AppendUint(dst, uint64(x.Event.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *OddKeys) DecodeInstance(r *cbor.Reader) {
	*x = OddKeys{}
	for range r.Map() {
		switch r.Uint(64) {
		case 5:
			x.Color.Set(decodeOddEnum(r))
		case 4:
			x.ID.Set(r.Bytes16())
		case 3:
			var v OddPart
			v.DecodeInstance(r)
			x.Part.Set(v)
		case 2:
			x.Text.Set(r.String())
		case 1:
			x.Content.Set(r.Any())
		case 6:
			n := r.ArrayOf(40)
			v := make([]value.Any, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, r.Any())
			}
			x.Contents.Set(v)
		case 7:
			n := r.ArrayOf(4)
			v := make([]value.PropertySet, 0, min(n, 64))
			for range n {
				if r.Err() != nil {
					return
				}
				v = append(v, value.PropertySet(r.Uint(32)))
			}
			x.Sets.Set(v)
		case 8:
			x.Event.Set(decodeOddEnum(r))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *OddKeys) Merge(from *OddKeys, props value.PropertySet) {
	if props&OddKeysContent != 0 {
		x.Content = from.Content
	}
	if props&OddKeysContents != 0 {
		x.Contents = from.Contents
	}
	if props&OddKeysSets != 0 {
		x.Sets = from.Sets
	}
	if props&OddKeysEventProperty != 0 {
		x.Event = from.Event
	}
}

// OddKeysEvent is an enum; its values are the tags.
type OddKeysEvent uint32

const (
	OddKeysEventZero OddKeysEvent = 0
	OddKeysEventMost OddKeysEvent = 4294967295
)

// String returns the name in the description.
func (x OddKeysEvent) String() string {
	switch x {
	case OddKeysEventZero:
		return "zero"
	case OddKeysEventMost:
		return "most"
	}
	return "OddKeysEvent(" + strconv.FormatUint(uint64(x), 10) + ")"
}

// Value returns the number that the description gives; tags are transmitted instead.
func (x OddKeysEvent) Value() int32 {
	switch x {
	case OddKeysEventZero:
		return -1
	case OddKeysEventMost:
		return 7
	}
	return 0
}

// Descriptor returns the description.
func (OddKeysEvent) Descriptor() *schema.Enum {
	return descriptorOddKeysEvent
}

var descriptorOddKeysEvent = schema.MustEnum("OddKeysEvent",
	schema.Element{Name: "zero", Tag: 0, Value: -1},
	schema.Element{Name: "most", Tag: 4294967295, Value: 7},
)

func decodeOddKeysEvent(r *cbor.Reader) OddKeysEvent {
	x := OddKeysEvent(r.Uint(32))
	switch x {
	case OddKeysEventZero, OddKeysEventMost:
		return x
	}
	r.Fail(fmt.Errorf("enumerator OddKeysEvent %d: %w", x, cbor.ErrRange))
	return x
}

// OddPart is a struct; any property may be unset.
type OddPart struct {
	D value.Opt[value.Duration] // key
	E value.Opt[OddEnum]
}

// Properties of OddPart.
const (
	OddPartD value.PropertySet = 1 << 1
	OddPartE value.PropertySet = 1 << 2
)

// OddPartKey is the key of objects of type OddPart.
type OddPartKey struct {
	D value.Duration
}

// Key returns the key; properties that are unset count as zero.
func (x *OddPart) Key() OddPartKey {
	return OddPartKey{D: x.D.Value()}
}

// Descriptor returns the description of the type.
func (*OddPart) Descriptor() *schema.Struct {
	return descriptorOddPart
}

var descriptorOddPart = schema.MustStruct("OddPart", schema.Flags{Cached: true, SubstructOnly: true},
	schema.Property{Name: "d", Tag: 1, Key: true, Type: schema.Builtin(schema.Duration)},
	schema.Property{Name: "e", Tag: 2, Type: schema.OfEnum(descriptorOddEnum)},
)

// Valid returns the properties that are set.
func (x *OddPart) Valid() (set value.PropertySet) {
	if x.D.IsSet() {
		set |= OddPartD
	}
	if x.E.IsSet() {
		set |= OddPartE
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *OddPart) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&OddPartD != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendFloat64(dst, float64(x.D.Value()))
	}
	if props&OddPartE != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, uint64(x.E.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *OddPart) DecodeInstance(r *cbor.Reader) {
	*x = OddPart{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.D.Set(value.Duration(r.Float64()))
		case 2:
			x.E.Set(decodeOddEnum(r))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *OddPart) Merge(from *OddPart, props value.PropertySet) {
	if props&OddPartE != 0 {
		x.E = from.E
	}
}

// OddEnum is an enum; its values are the tags.
type OddEnum uint32

const (
	OddEnumEarlySubscribe OddEnum = 3 // of two words
	OddEnumIsIn           OddEnum = 70
)

// String returns the name in the description.
func (x OddEnum) String() string {
	switch x {
	case OddEnumEarlySubscribe:
		return "early_subscribe"
	case OddEnumIsIn:
		return "isIn"
	}
	return "OddEnum(" + strconv.FormatUint(uint64(x), 10) + ")"
}

// Descriptor returns the description.
func (OddEnum) Descriptor() *schema.Enum {
	return descriptorOddEnum
}

var descriptorOddEnum = schema.MustEnum("OddEnum",
	schema.Element{Name: "early_subscribe", Tag: 3, Value: 2},
	schema.Element{Name: "isIn", Tag: 70, Value: 69},
)

func decodeOddEnum(r *cbor.Reader) OddEnum {
	x := OddEnum(r.Uint(32))
	switch x {
	case OddEnumEarlySubscribe, OddEnumIsIn:
		return x
	}
	r.Fail(fmt.Errorf("enumerator OddEnum %d: %w", x, cbor.ErrRange))
	return x
}
