// Package field appends the fields of protobuf messages, for messages that are written directly to
// the bytes of a request. A message whose size is known is written behind AppendHeader, another one
// between Begin and End.
package field

import "google.golang.org/protobuf/encoding/protowire"

// TagBytes is the size of a tag whose number is below 16.
const TagBytes = 1

// Append appends a field with a length: a message, a text, bytes.
func Append[T []byte | string](b []byte, number protowire.Number, content T) []byte {
	return append(AppendHeader(b, number, len(content)), content...)
}

// AppendHeader appends what precedes the content of such a field.
func AppendHeader(b []byte, number protowire.Number, length int) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(length))
}

// Size returns the size of such a field, whose number is below 16.
func Size(length int) int { return TagBytes + protowire.SizeVarint(uint64(length)) + length }

// Begin appends what precedes the content of a field whose length is not known yet. Its content is
// what is appended until End, which is given the second result.
func Begin(b []byte, number protowire.Number) ([]byte, int) {
	b = append(protowire.AppendTag(b, number, protowire.BytesType), 0)
	return b, len(b)
}

// End sets the length of the field whose content begins at the offset from. Begin leaves one byte
// for it: the content of 128 bytes and more is moved.
func End(b []byte, from int) []byte {
	length := len(b) - from
	if length < 1<<7 {
		b[from-1] = byte(length)
		return b
	}
	var more [9]byte
	n := protowire.SizeVarint(uint64(length))
	b = append(b, more[:n-1]...)
	copy(b[from+n-1:], b[from:from+length])
	protowire.AppendVarint(b[:from-1], uint64(length))
	return b
}

// AppendVarint appends a number, unless it is 0: then the field is left out.
func AppendVarint(b []byte, number protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), n)
}

// VarintSize returns the size of such a field, whose number is below 16.
func VarintSize(n uint64) int {
	if n == 0 {
		return 0
	}
	return TagBytes + protowire.SizeVarint(n)
}

// AppendFixed64 appends a number of 64 bits, also 0.
func AppendFixed64(b []byte, number protowire.Number, n uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, number, protowire.Fixed64Type), n)
}

// Fixed64Size is the size of such a field, whose number is below 16.
const Fixed64Size = TagBytes + 8

// The fields of AnyValue (common.proto), a oneof.
const (
	Text   protowire.Number = 1
	Bool   protowire.Number = 2
	Int    protowire.Number = 3
	Double protowire.Number = 4
	Array  protowire.Number = 5
	KVList protowire.Number = 6
)

// AppendTextValue appends a field that is an AnyValue with a text.
func AppendTextValue[T []byte | string](b []byte, number protowire.Number, text T) []byte {
	return Append(AppendHeader(b, number, Size(len(text))), Text, text)
}

// AppendIntValue appends a field that is an AnyValue with an integer; a negative one is given in
// two's complement.
func AppendIntValue(b []byte, number protowire.Number, n uint64) []byte {
	b = AppendHeader(b, number, TagBytes+protowire.SizeVarint(n))
	return protowire.AppendVarint(protowire.AppendTag(b, Int, protowire.VarintType), n) // also 0: a oneof must be set
}

// AppendTextAttribute appends a field that is a KeyValue (common.proto) with a text.
func AppendTextAttribute[K, T []byte | string](b []byte, number protowire.Number, key K, text T) []byte {
	b = AppendHeader(b, number, Size(len(key))+Size(Size(len(text))))
	return AppendTextValue(Append(b, 1, key), 2, text)
}

// TextAttributeSize returns the size of such a field, whose number is below 16, given the lengths of
// key and text.
func TextAttributeSize(key, text int) int { return Size(Size(key) + Size(Size(text))) }

// AppendIntAttribute appends a field that is a KeyValue with an integer, as AppendIntValue does.
func AppendIntAttribute(b []byte, number protowire.Number, key string, n uint64) []byte {
	b = AppendHeader(b, number, Size(len(key))+Size(TagBytes+protowire.SizeVarint(n)))
	return AppendIntValue(Append(b, 1, key), 2, n)
}
