package profiles

import (
	"encoding/binary"
	"encoding/hex"

	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of all fields are below 16, so a tag is one byte.
const tagBytes = 1

// appendMessage appends a field with a length: a message, a text, bytes.
func appendMessage[T []byte | string](b []byte, field protowire.Number, content T) []byte {
	return append(appendHeader(b, field, len(content)), content...)
}

// appendHeader appends what precedes the content of such a field.
func appendHeader(b []byte, field protowire.Number, length int) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(length))
}

// messageSize returns the size of such a field.
func messageSize(length int) int { return tagBytes + protowire.SizeVarint(uint64(length)) + length }

// appendVarint appends a number, unless it is 0: then the field is left out.
func appendVarint(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func varintSize(n uint64) int {
	if n == 0 {
		return 0
	}
	return tagBytes + protowire.SizeVarint(n)
}

func appendFixed(b []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), n)
}

const fixedSize = tagBytes + 8

// appendIndices appends a packed list, which ends with encoded ones.
func appendIndices(b []byte, field protowire.Number, indices []int32, encoded string) []byte {
	if len(indices) == 0 && encoded == "" {
		return b
	}
	b = appendHeader(b, field, packedSize(indices)+len(encoded))
	for _, i := range indices {
		b = protowire.AppendVarint(b, uint64(i))
	}
	return append(b, encoded...)
}

func packedSize(indices []int32) (n int) {
	for _, i := range indices {
		n += protowire.SizeVarint(uint64(i))
	}
	return n
}

// An AnyValue is a message with one field: 1 for text, 3 for a number.

func appendTextValue(b []byte, field protowire.Number, text string) []byte {
	b = appendHeader(b, field, messageSize(len(text)))
	return appendMessage(b, 1, text)
}

// appendIDValue appends the text of an id: its 16 hexadecimal digits.
func appendIDValue(b []byte, field protowire.Number, id uint64) []byte {
	const digits = 16
	b = appendHeader(b, field, messageSize(digits))
	b = appendHeader(b, 1, digits)
	var bytes [digits / 2]byte
	binary.BigEndian.PutUint64(bytes[:], id)
	return hex.AppendEncode(b, bytes[:])
}

func appendNumberValue(b []byte, field protowire.Number, n uint64) []byte {
	b = appendHeader(b, field, tagBytes+protowire.SizeVarint(n))
	return protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), n) // also 0: a oneof must be set
}
