// Code generated from bench.dots by correlator/dots/generate. DO NOT EDIT.

package throughput

import (
	"math/bits"

	"correlator/dots/cbor"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// BenchItem is a struct; any property may be unset.
type BenchItem struct {
	Number value.Opt[uint32]
	Level  value.Opt[float64]
	Text   value.Opt[string]
}

// Properties of BenchItem.
const (
	BenchItemNumber value.PropertySet = 1 << 1
	BenchItemLevel  value.PropertySet = 1 << 2
	BenchItemText   value.PropertySet = 1 << 3
)

// BenchItemKey is the key of objects of type BenchItem.
type BenchItemKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *BenchItem) Key() BenchItemKey {
	return BenchItemKey{}
}

// Descriptor returns the description of the type.
func (*BenchItem) Descriptor() *schema.Struct {
	return descriptorBenchItem
}

var descriptorBenchItem = schema.MustStruct("BenchItem", schema.Flags{},
	schema.Property{Name: "number", Tag: 1, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "level", Tag: 2, Type: schema.Builtin(schema.Float64)},
	schema.Property{Name: "text", Tag: 3, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *BenchItem) Valid() (set value.PropertySet) {
	if x.Number.IsSet() {
		set |= BenchItemNumber
	}
	if x.Level.IsSet() {
		set |= BenchItemLevel
	}
	if x.Text.IsSet() {
		set |= BenchItemText
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *BenchItem) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&BenchItemNumber != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.Number.Value()))
	}
	if props&BenchItemLevel != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendFloat64(dst, x.Level.Value())
	}
	if props&BenchItemText != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendString(dst, x.Text.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *BenchItem) DecodeInstance(r *cbor.Reader) {
	*x = BenchItem{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Number.Set(uint32(r.Uint(32)))
		case 2:
			x.Level.Set(r.Float64())
		case 3:
			x.Text.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *BenchItem) Merge(from *BenchItem, props value.PropertySet) {
	if props&BenchItemNumber != 0 {
		x.Number = from.Number
	}
	if props&BenchItemLevel != 0 {
		x.Level = from.Level
	}
	if props&BenchItemText != 0 {
		x.Text = from.Text
	}
}

// BenchObject is a struct; any property may be unset.
type BenchObject struct {
	ID     value.Opt[uint32] // key
	Number value.Opt[uint32]
	Level  value.Opt[float64]
	Text   value.Opt[string]
}

// Properties of BenchObject.
const (
	BenchObjectID     value.PropertySet = 1 << 1
	BenchObjectNumber value.PropertySet = 1 << 2
	BenchObjectLevel  value.PropertySet = 1 << 3
	BenchObjectText   value.PropertySet = 1 << 4
)

// BenchObjectKey is the key of objects of type BenchObject.
type BenchObjectKey struct {
	ID uint32
}

// Key returns the key; properties that are unset count as zero.
func (x *BenchObject) Key() BenchObjectKey {
	return BenchObjectKey{ID: x.ID.Value()}
}

// Descriptor returns the description of the type.
func (*BenchObject) Descriptor() *schema.Struct {
	return descriptorBenchObject
}

var descriptorBenchObject = schema.MustStruct("BenchObject", schema.Flags{Cached: true},
	schema.Property{Name: "id", Tag: 1, Key: true, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "number", Tag: 2, Type: schema.Builtin(schema.Uint32)},
	schema.Property{Name: "level", Tag: 3, Type: schema.Builtin(schema.Float64)},
	schema.Property{Name: "text", Tag: 4, Type: schema.Builtin(schema.String)},
)

// Valid returns the properties that are set.
func (x *BenchObject) Valid() (set value.PropertySet) {
	if x.ID.IsSet() {
		set |= BenchObjectID
	}
	if x.Number.IsSet() {
		set |= BenchObjectNumber
	}
	if x.Level.IsSet() {
		set |= BenchObjectLevel
	}
	if x.Text.IsSet() {
		set |= BenchObjectText
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *BenchObject) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&BenchObjectID != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.ID.Value()))
	}
	if props&BenchObjectNumber != 0 {
		dst = append(dst, 2)
		dst = cbor.AppendUint(dst, uint64(x.Number.Value()))
	}
	if props&BenchObjectLevel != 0 {
		dst = append(dst, 3)
		dst = cbor.AppendFloat64(dst, x.Level.Value())
	}
	if props&BenchObjectText != 0 {
		dst = append(dst, 4)
		dst = cbor.AppendString(dst, x.Text.Value())
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *BenchObject) DecodeInstance(r *cbor.Reader) {
	*x = BenchObject{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.ID.Set(uint32(r.Uint(32)))
		case 2:
			x.Number.Set(uint32(r.Uint(32)))
		case 3:
			x.Level.Set(r.Float64())
		case 4:
			x.Text.Set(r.String())
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *BenchObject) Merge(from *BenchObject, props value.PropertySet) {
	if props&BenchObjectNumber != 0 {
		x.Number = from.Number
	}
	if props&BenchObjectLevel != 0 {
		x.Level = from.Level
	}
	if props&BenchObjectText != 0 {
		x.Text = from.Text
	}
}

// BenchProgress is a struct; any property may be unset.
//
// What a subscriber has received, so that no queue grows without bounds.
type BenchProgress struct {
	Received value.Opt[uint32]
}

// Properties of BenchProgress.
const (
	BenchProgressReceived value.PropertySet = 1 << 1
)

// BenchProgressKey is the key of objects of type BenchProgress.
type BenchProgressKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *BenchProgress) Key() BenchProgressKey {
	return BenchProgressKey{}
}

// Descriptor returns the description of the type.
func (*BenchProgress) Descriptor() *schema.Struct {
	return descriptorBenchProgress
}

var descriptorBenchProgress = schema.MustStruct("BenchProgress", schema.Flags{},
	schema.Property{Name: "received", Tag: 1, Type: schema.Builtin(schema.Uint32)},
)

// Valid returns the properties that are set.
func (x *BenchProgress) Valid() (set value.PropertySet) {
	if x.Received.IsSet() {
		set |= BenchProgressReceived
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *BenchProgress) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&BenchProgressReceived != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.Received.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *BenchProgress) DecodeInstance(r *cbor.Reader) {
	*x = BenchProgress{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Received.Set(uint32(r.Uint(32)))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *BenchProgress) Merge(from *BenchProgress, props value.PropertySet) {
	if props&BenchProgressReceived != 0 {
		x.Received = from.Received
	}
}

// BenchRoundTrip is a struct; any property may be unset.
type BenchRoundTrip struct {
	Number value.Opt[uint32]
}

// Properties of BenchRoundTrip.
const (
	BenchRoundTripNumber value.PropertySet = 1 << 1
)

// BenchRoundTripKey is the key of objects of type BenchRoundTrip.
type BenchRoundTripKey struct{}

// Key returns the key; properties that are unset count as zero.
func (x *BenchRoundTrip) Key() BenchRoundTripKey {
	return BenchRoundTripKey{}
}

// Descriptor returns the description of the type.
func (*BenchRoundTrip) Descriptor() *schema.Struct {
	return descriptorBenchRoundTrip
}

var descriptorBenchRoundTrip = schema.MustStruct("BenchRoundTrip", schema.Flags{},
	schema.Property{Name: "number", Tag: 1, Type: schema.Builtin(schema.Uint32)},
)

// Valid returns the properties that are set.
func (x *BenchRoundTrip) Valid() (set value.PropertySet) {
	if x.Number.IsSet() {
		set |= BenchRoundTripNumber
	}
	return set
}

// AppendInstance appends those of the properties that are set, as a CBOR map.
func (x *BenchRoundTrip) AppendInstance(dst []byte, props value.PropertySet) []byte {
	props &= x.Valid()
	dst = cbor.AppendMap(dst, bits.OnesCount32(uint32(props)))
	if props&BenchRoundTripNumber != 0 {
		dst = append(dst, 1)
		dst = cbor.AppendUint(dst, uint64(x.Number.Value()))
	}
	return dst
}

// DecodeInstance replaces the content by an instance that is read. What is unknown is skipped, and
// of a property that occurs twice the last value counts. Errors are those of the reader; after one,
// the content is meaningless.
func (x *BenchRoundTrip) DecodeInstance(r *cbor.Reader) {
	*x = BenchRoundTrip{}
	for range r.Map() {
		switch r.Uint(64) {
		case 1:
			x.Number.Set(uint32(r.Uint(32)))
		default:
			r.Skip()
		}
	}
}

// Merge takes properties over from another instance, also those that are unset there. Keys stay.
func (x *BenchRoundTrip) Merge(from *BenchRoundTrip, props value.PropertySet) {
	if props&BenchRoundTripNumber != 0 {
		x.Number = from.Number
	}
}
