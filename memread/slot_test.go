package memread

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// unhex takes hex with blanks between the fields.
func unhex(text string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		panic(err)
	}
	return b
}

func pointer(addr uint64) []byte { return binary.NativeEndian.AppendUint64(nil, addr) }

// demoPointers is a page's beginning: a thread's variable and the pointer to the process storage,
// with demoSlot at 0x100 and demoStorage at 0x200.
func demoPointers(base uint64) []byte {
	return append(pointer(base+0x100), pointer(base+0x200)...)
}

var (
	demoSlot = unhex(`0100 01 01 01
		0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 00f067aa0ba902b7`)
	demoSlotDecoded = Slot{
		MinorVersion: 1,
		Valid:        true,
		TracePresent: true,
		TraceFlags:   1,
		TraceID: [16]byte{0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80,
			0x31, 0x9c},
		SpanID:        [8]byte{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31},
		TransactionID: [8]byte{0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7},
	}
)

// The hex is little-endian, as both architectures are.
var slotTests = []struct {
	name string
	hex  string
	want Slot
	err  error
}{
	{"sampled trace", "0100 01 01 01 0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 00f067aa0ba902b7",
		demoSlotDecoded, nil},
	{"newer minor version, other flags",
		"0702 01 01 fe 01000000000000000000000000000000 0200000000000000 0300000000000000",
		Slot{MinorVersion: 0x207, Valid: true, TracePresent: true, TraceFlags: 0xfe, TraceID: [16]byte{1},
			SpanID: [8]byte{2}, TransactionID: [8]byte{3}}, nil},
	{"valid is anything but 0", "0100 80 01 00 01000000000000000000000000000000 0200000000000000 0300000000000000",
		Slot{MinorVersion: 1, Valid: true, TracePresent: true, TraceID: [16]byte{1}, SpanID: [8]byte{2},
			TransactionID: [8]byte{3}}, nil},
	{"no trace", "0100 01 00 01 0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 00f067aa0ba902b7",
		Slot{MinorVersion: 1, Valid: true}, nil},
	{"trace-present is 1 or nothing",
		"0100 01 02 01 0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 00f067aa0ba902b7",
		Slot{MinorVersion: 1, Valid: true}, nil},
	{"being updated", "0100 00 01 01 0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 00f067aa0ba902b7", Slot{}, nil},
	{"fresh memory", "0000 00 00 00 00000000000000000000000000000000 0000000000000000 0000000000000000", Slot{}, nil},
	{"version 0", "0000 01 01 01 0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 00f067aa0ba902b7", Slot{},
		ErrVersion},
}

func TestDecodeSlot(t *testing.T) {
	for _, c := range slotTests {
		got, err := decodeSlot((*[slotBytes]byte)(unhex(c.hex)))
		assert.Check(t, got == c.want && errors.Is(err, c.err),
			"%s: %+v, %v; want %+v, %v", c.name, got, err, c.want, c.err)
	}
}

// encodeSlot is the other direction, as the specification has it.
func encodeSlot(s Slot) []byte {
	b := binary.NativeEndian.AppendUint16(nil, s.MinorVersion)
	var valid, present byte
	if s.Valid {
		valid = 1
	}
	if s.TracePresent {
		present = 1
	}
	b = append(b, valid, present, s.TraceFlags)
	b = append(b, s.TraceID[:]...)
	b = append(b, s.SpanID[:]...)
	return append(b, s.TransactionID[:]...)
}

func FuzzDecodeSlot(f *testing.F) {
	for _, c := range slotTests {
		f.Add(unhex(c.hex))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < slotBytes {
			return
		}
		b := [slotBytes]byte(data)
		s, err := decodeSlot(&b)
		if err != nil || !s.Valid {
			assert.Assert(t, s == Slot{}, "%+v, %v", s, err)
			return
		}
		assert.Assert(t, s.MinorVersion != 0, "accepted version 0: %+v", s)
		// What the decoder takes for meaningless must be, and everything else must be kept.
		b[slotValidOff] = 1
		if b[slotTracePresentOff] != 1 {
			clear(b[slotTracePresentOff:])
		}
		got := encodeSlot(s)
		assert.Assert(t, string(got) == string(b[:]), "%+v encodes to\n%x, not\n%x", s, got, b)
	})
}
