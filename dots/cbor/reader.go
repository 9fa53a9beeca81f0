package cbor

import (
	"encoding/binary"
	"fmt"
	"math"

	"correlator/dots/value"
)

// Reader reads values one after another. After an error, which Err returns, all methods return
// zero values, so that a decoder checks for errors once, at its end, and loops over counts end.
type Reader struct {
	data []byte
	pos  int
	err  error

	elements int // memory that the elements of vectors take
}

// NewReader returns a Reader of data, which it does not copy.
func NewReader(data []byte) Reader { return Reader{data: data} }

// Reset makes the Reader begin with data.
func (r *Reader) Reset(data []byte) { *r = Reader{data: data} }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Pos returns how many bytes were read. After an error it means nothing.
func (r *Reader) Pos() int { return r.pos }

// Len returns how many bytes are left: none after an error.
func (r *Reader) Len() int { return len(r.data) - r.pos }

// Fail makes the Reader return an error from now on, unless it does already. Decoders report with
// it what is wrong with a value for a reason of their own.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = fmt.Errorf("decoding at byte %d: %w", r.pos, err)
	}
	r.data, r.pos = nil, 0
}

// Map reads the head of a map and returns how many properties it has. What is left is long enough
// for as many.
func (r *Reader) Map() int {
	if r.pos < len(r.data) {
		if n := int(r.data[r.pos] ^ majorMap); n < 24 && 2*n < len(r.data)-r.pos {
			r.pos++
			return n
		}
	}
	return r.count(majorMap, 2)
}

// Array reads the head of an array and returns how many values it has. What is left is long enough
// for as many of one byte; a decoder whose elements take more memory than that lets its slice grow.
func (r *Reader) Array() int { return r.count(majorArray, 1) }

// MaxElements is how many bytes of memory the elements of all vectors that a Reader reads may take
// once they are decoded. A peer may send a struct of 600 bytes, with nothing set, as a single byte;
// the bound is 8 bytes for each of 64 MiB, and so allows any numbers in the largest frame.
const MaxElements = 512 << 20

// ArrayOf is Array for elements that take a number of bytes in memory. It fails where the elements
// would take more than MaxElements.
func (r *Reader) ArrayOf(size int) int {
	n := r.Array()
	if n > (MaxElements-r.elements)/size {
		r.Fail(fmt.Errorf("vector of %d elements: %w", n, ErrRange))
		return 0
	}
	r.elements += n * size
	return n
}

// Uint reads an unsigned integer, which must be less than 1<<bits.
func (r *Reader) Uint(bits uint) uint64 {
	if r.pos < len(r.data) {
		if b := r.data[r.pos]; b < 24 {
			r.pos++
			return uint64(b)
		}
	}
	return r.longUint(bits)
}

// Int reads a signed integer of 8, 16, 32 or 64 bits. An unsigned integer of as many bits is the
// signed one of the same bits.
func (r *Reader) Int(bits uint) int64 {
	if r.pos < len(r.data) {
		if b := r.data[r.pos]; b < 24 {
			r.pos++
			return int64(b)
		}
	}
	return r.longInt(bits)
}

// Bool reads a boolean.
func (r *Reader) Bool() bool {
	if r.pos < len(r.data) && r.data[r.pos]&^1 == falseByte {
		r.pos++
		return r.data[r.pos-1] == trueByte
	}
	r.failType()
	return false
}

// Float32 reads a float32, or one of 16 bits.
func (r *Reader) Float32() float32 {
	if rest := r.data[r.pos:]; len(rest) >= 5 && rest[0] == float32Byte {
		r.pos += 5
		return math.Float32frombits(binary.BigEndian.Uint32(rest[1:]))
	}
	h := r.head()
	switch h.First {
	case float32Byte:
		return math.Float32frombits(uint32(h.Arg))
	case float16Byte:
		return float32(fromHalf(uint16(h.Arg)))
	}
	r.failType()
	return 0
}

// Float64 reads a float64, or one of 16 or 32 bits.
func (r *Reader) Float64() float64 {
	if rest := r.data[r.pos:]; len(rest) >= 9 && rest[0] == float64Byte {
		r.pos += 9
		return math.Float64frombits(binary.BigEndian.Uint64(rest[1:]))
	}
	h := r.head()
	f, ok := h.Float()
	if !ok {
		r.failType()
	}
	return f
}

// String reads a text string. Whether it is UTF-8 is not checked.
func (r *Reader) String() string { return string(r.Text()) }

// Text reads a text string, and returns it as a part of the data.
func (r *Reader) Text() []byte { return r.bytes(majorText) }

// Bytes reads a byte string, and returns it as a part of the data.
func (r *Reader) Bytes() []byte { return r.bytes(majorBytes) }

// Bytes16 reads a UUID.
func (r *Reader) Bytes16() (u value.UUID) {
	b := r.bytes(majorBytes)
	if r.err == nil && len(b) != len(u) {
		r.Fail(fmt.Errorf("UUID of %d bytes: %w", len(b), ErrRange))
		return u
	}
	copy(u[:], b)
	return u
}

// Skip passes a value of any type.
func (r *Reader) Skip() {
	if r.err != nil {
		return
	}
	n, err := Skip(r.data[r.pos:])
	if err != nil {
		r.Fail(err)
		return
	}
	r.pos += n
}

// Value passes a value of any type, and returns its encoding as a part of the data.
func (r *Reader) Value() []byte {
	start := r.pos
	r.Skip()
	if r.err != nil {
		return nil
	}
	return r.data[start:r.pos:r.pos]
}

// head reads a head; after an error it returns one of major type 0.
func (r *Reader) head() Head {
	if r.err != nil {
		return Head{}
	}
	h, err := ReadHead(r.data[r.pos:])
	if err != nil {
		r.Fail(err)
		return Head{}
	}
	r.pos += h.Size
	return h
}

func (r *Reader) failType() { r.Fail(ErrType) }

// count reads the head of a map or an array whose items take at least size bytes.
func (r *Reader) count(major byte, size int) int {
	h := r.head()
	if r.err != nil {
		return 0
	}
	if h.First&^31 != major {
		r.failType()
		return 0
	}
	if h.Arg > uint64(r.Len()/size) {
		r.Fail(ErrShort)
		return 0
	}
	return int(h.Arg)
}

func (r *Reader) bytes(major byte) []byte {
	if rest := r.data[r.pos:]; len(rest) > 0 {
		if n := int(rest[0] ^ major); n < 24 && n < len(rest) {
			r.pos += 1 + n
			return rest[1 : 1+n : 1+n]
		}
	}
	h := r.head()
	if r.err != nil {
		return nil
	}
	if h.First&^31 != major {
		r.failType()
		return nil
	}
	if h.Arg > uint64(r.Len()) {
		r.Fail(ErrShort)
		return nil
	}
	start := r.pos
	r.pos += int(h.Arg)
	return r.data[start:r.pos:r.pos]
}

func (r *Reader) longUint(bits uint) uint64 {
	h := r.head()
	if r.err != nil {
		return 0
	}
	v, err := h.Uint(bits)
	if err != nil {
		r.Fail(err)
	}
	return v
}

func (r *Reader) longInt(bits uint) int64 {
	h := r.head()
	if r.err != nil {
		return 0
	}
	v, err := h.Int(bits)
	if err != nil {
		r.Fail(err)
	}
	return v
}
