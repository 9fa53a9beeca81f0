// Package cbor encodes and decodes values as DOTS transmits them, a subset of RFC 8949: integers,
// byte and text strings, arrays, maps, booleans and floats, of definite lengths.
//
//	type                          bytes                              example
//	bool                          F4 or F5                           true: F5
//	uint8 to uint64, enum tags,   major type 0, shortest form        200: 18 C8
//	  property sets, tags
//	int8 to int64                 major type 0, or 1 with -1-n       -5: 24
//	float32                       FA and 4 bytes, big-endian         1.5: FA 3F C0 00 00
//	float64, times, durations     FB and 8 bytes, big-endian         -2.5: FB C0 04 00 ...
//	uuid                          byte string of 16 bytes            50 00 11 22 ...
//	string                        text string                        "a": 61 61
//	vector                        array                              {1, 255}: 82 01 18 FF
//	struct                        map from tag to value              {1: true}: A1 01 F5
//
// The functions Append... write exactly these forms. A Reader accepts more, as far as other
// implementations do: integers in longer forms, integers of signed types as the unsigned ones of
// the same bits, and floats of a smaller size. CBOR tags, null, undefined and indefinite lengths
// are errors, also in values that are skipped.
package cbor

import (
	"encoding/binary"
	"math"

	"correlator/dots/value"
)

// Major types, as the upper 3 bits of the first byte of a value.
const (
	majorUint  = 0 << 5
	majorInt   = 1 << 5
	majorBytes = 2 << 5
	majorText  = 3 << 5
	majorArray = 4 << 5
	majorMap   = 5 << 5
	majorTag   = 6 << 5
	majorOther = 7 << 5
)

// First bytes of values that have no argument, or one of a fixed size.
const (
	falseByte   = 0xf4
	trueByte    = 0xf5
	float16Byte = 0xf9
	float32Byte = 0xfa
	float64Byte = 0xfb
)

// AppendMap appends the head of a map of n properties: n times a tag and a value follow.
func AppendMap(dst []byte, n int) []byte {
	if uint(n) < 24 {
		return append(dst, majorMap|byte(n))
	}
	return appendHead(dst, majorMap, uint64(n))
}

// AppendArray appends the head of an array: n values follow.
func AppendArray(dst []byte, n int) []byte {
	if uint(n) < 24 {
		return append(dst, majorArray|byte(n))
	}
	return appendHead(dst, majorArray, uint64(n))
}

// AppendUint appends an unsigned integer, which may be a tag, an enumerator or a property set.
func AppendUint(dst []byte, v uint64) []byte {
	if v < 24 {
		return append(dst, byte(v))
	}
	return appendHead(dst, majorUint, v)
}

// AppendInt appends a signed integer.
func AppendInt(dst []byte, v int64) []byte {
	if v < 0 {
		return appendHead(dst, majorInt, uint64(^v))
	}
	return appendHead(dst, majorUint, uint64(v))
}

// AppendBool appends a boolean.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, trueByte)
	}
	return append(dst, falseByte)
}

// AppendFloat32 appends a float32.
func AppendFloat32(dst []byte, v float32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, float32Byte), math.Float32bits(v))
}

// AppendFloat64 appends a float64, a time or a duration.
func AppendFloat64(dst []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, float64Byte), math.Float64bits(v))
}

// AppendString appends a text string. Some receivers refuse one that is not UTF-8.
func AppendString(dst []byte, v string) []byte {
	return append(appendHead(dst, majorText, uint64(len(v))), v...)
}

// AppendText appends a text string, as AppendString does.
func AppendText(dst []byte, v []byte) []byte {
	return append(appendHead(dst, majorText, uint64(len(v))), v...)
}

// AppendBytes appends a byte string.
func AppendBytes(dst []byte, v []byte) []byte {
	return append(appendHead(dst, majorBytes, uint64(len(v))), v...)
}

// AppendUUID appends a UUID.
func AppendUUID(dst []byte, v value.UUID) []byte {
	return append(append(dst, majorBytes|byte(len(v))), v[:]...)
}

// appendHead appends a major type and its argument in the shortest form.
func appendHead(dst []byte, major byte, v uint64) []byte {
	switch {
	case v < 24:
		return append(dst, major|byte(v))
	case v <= math.MaxUint8:
		return append(dst, major|24, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|27), v)
}
