package profile

import (
	"encoding/binary"
	"math/bits"
)

// fnv128 is the state of FNV-1a with 128 bits. hash/fnv computes the same at half the speed, and
// through an interface, which costs an allocation for each frame.
type fnv128 struct{ hi, lo uint64 }

const (
	fnvOffsetHi, fnvOffsetLo = 0x6c62272e07bb0142, 0x62b821756295c58d

	// The prime is 2^88 + 0x13b: multiplying by it is one multiplication and a shift.
	fnvPrimeLow   = 0x13b
	fnvPrimeShift = 88
)

func newFNV() fnv128 { return fnv128{fnvOffsetHi, fnvOffsetLo} }

// add returns the state after hashing b.
func (h fnv128) add(b []byte) fnv128 {
	hi, lo := h.hi, h.lo
	for _, c := range b {
		lo ^= uint64(c)
		carry, product := bits.Mul64(lo, fnvPrimeLow)
		hi = hi*fnvPrimeLow + carry + lo<<(fnvPrimeShift-64)
		lo = product
	}
	return fnv128{hi, lo}
}

// sum returns the hash, most significant byte first.
func (h fnv128) sum() (b [16]byte) {
	binary.BigEndian.PutUint64(b[:8], h.hi)
	binary.BigEndian.PutUint64(b[8:], h.lo)
	return b
}
