package profiles

import (
	"encoding/binary"
	"encoding/hex"

	"google.golang.org/protobuf/encoding/protowire"

	"correlator/otlp/field"
)

// The numbers of all fields are below 16, as package field requires of those whose size it returns.

// appendIndices appends a packed list, which ends with encoded ones.
func appendIndices(b []byte, number protowire.Number, indices []int32, encoded ...string) []byte {
	size := packedSize(indices)
	for _, list := range encoded {
		size += len(list)
	}
	if size == 0 {
		return b
	}
	b = field.AppendHeader(b, number, size)
	for _, i := range indices {
		b = protowire.AppendVarint(b, uint64(i))
	}
	for _, list := range encoded {
		b = append(b, list...)
	}
	return b
}

func packedSize(indices []int32) (n int) {
	for _, i := range indices {
		n += protowire.SizeVarint(uint64(i))
	}
	return n
}

// appendIDValue appends the text of an id: its 16 hexadecimal digits.
func appendIDValue(b []byte, number protowire.Number, id uint64) []byte {
	const digits = 16
	b = field.AppendHeader(b, number, field.Size(digits))
	b = field.AppendHeader(b, field.Text, digits)
	var bytes [digits / 2]byte
	binary.BigEndian.PutUint64(bytes[:], id)
	return hex.AppendEncode(b, bytes[:])
}
