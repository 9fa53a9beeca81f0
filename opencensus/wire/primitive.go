package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
)

// What is wrong with a payload. They are not wrapped: a client may send nothing but such payloads,
// and a message for each would cost more than the check.
var (
	errShort       = errors.New("payload ends early")
	errUvarint     = errors.New("variable-length integer is longer than needed, or exceeds 64 bits")
	errCount       = errors.New("count exceeds what the payload can hold")
	errRest        = errors.New("bytes behind the payload's end")
	errMeasureType = errors.New("unknown type of a measure")
	errLength      = errors.New("payload of the wrong length")
	errNUL         = errors.New("NUL in JSON")
	errJSON        = errors.New("not JSON")
)

// cursor reads a payload. After the first error it is at the end, and all values are 0.
type cursor struct {
	p   []byte // what remains
	err error
}

func (c *cursor) fail(err error) {
	c.p = nil
	if c.err == nil {
		c.err = err
	}
}

// end returns the error; what remains is one.
func (c *cursor) end() error {
	if len(c.p) > 0 {
		c.fail(errRest)
	}
	return c.err
}

func (c *cursor) byte() byte {
	if len(c.p) == 0 {
		c.fail(errShort)
		return 0
	}
	v := c.p[0]
	c.p = c.p[1:]
	return v
}

func (c *cursor) uvarint() uint64 {
	if len(c.p) > 0 && c.p[0] < 0x80 {
		v := c.p[0]
		c.p = c.p[1:]
		return uint64(v)
	}
	return c.longUvarint()
}

func (c *cursor) longUvarint() uint64 {
	v, n := uvarint(c.p)
	switch {
	case n == 0:
		c.fail(errShort)
		return 0
	case n < 0:
		c.fail(errUvarint)
		return 0
	}
	c.p = c.p[n:]
	return v
}

// string returns the bytes of a String.
func (c *cursor) string() []byte {
	n := c.uvarint()
	if n > uint64(len(c.p)) {
		c.fail(errShort)
		return nil
	}
	s := c.p[:n:n]
	c.p = c.p[n:]
	return s
}

func (c *cursor) float64() float64 {
	if len(c.p) < 8 {
		c.fail(errShort)
		return 0
	}
	v := math.Float64frombits(binary.BigEndian.Uint64(c.p))
	c.p = c.p[8:]
	return v
}

// count returns the count of an Array whose items have at least so many bytes.
func (c *cursor) count(itemBytes int) int {
	n := c.uvarint()
	if n > uint64(len(c.p)/itemBytes) {
		c.fail(errCount)
		return 0
	}
	return int(n)
}

// uvarint returns the UVarInt at the beginning of b and its size: 0 if b ends before it does,
// negative if it is not minimal or exceeds 64 bits.
func uvarint(b []byte) (uint64, int) {
	var v uint64
	for i, x := range b {
		if i == 9 && x > 1 {
			return 0, -1
		}
		v |= uint64(x&0x7f) << (7 * i)
		if x < 0x80 {
			if x == 0 && i > 0 {
				return 0, -1
			}
			return v, i + 1
		}
	}
	return 0, 0
}

// ReadID reads the hexadecimal digits of an id, which clients write without leading zeros, and
// reports whether they are one.
func ReadID(id, digits []byte) bool {
	if len(digits) == 0 || len(digits) > 2*len(id) {
		return false
	}
	padded := []byte("00000000000000000000000000000000")[:2*len(id)]
	copy(padded[len(padded)-len(digits):], digits)
	_, err := hex.Decode(id, padded)
	return err == nil && len(bytes.Trim(digits, "0")) > 0
}
