package cbor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Sentinels of what is wrong with an encoding.
var (
	ErrShort = errors.New("data ends within a value")
	ErrType  = errors.New("value of another type")
	ErrRange = errors.New("value out of range")
	ErrDepth = errors.New("values nested too deeply")
)

// MaxDepth is how deeply the values may be nested that Skip passes. Types nest far less; the bound
// keeps the stack small whatever a peer sends.
const MaxDepth = 32

// Head is the first part of a value: its major type and argument.
type Head struct {
	First byte   // first byte: the major type, and how the argument is encoded
	Arg   uint64 // argument: a number, a length, a count, or the bits of a float
	Size  int    // bytes the head takes
}

// Major returns the major type, 0 to 7.
func (h Head) Major() byte { return h.First >> 5 }

// Shortest reports whether no shorter form has the same argument.
func (h Head) Shortest() bool {
	switch h.First & 31 {
	case 24:
		return h.Arg >= 24
	case 25:
		return h.Arg > math.MaxUint8
	case 26:
		return h.Arg > math.MaxUint16
	case 27:
		return h.Arg > math.MaxUint32
	}
	return true
}

// ReadHead reads the head of the value that data begins with. It refuses indefinite lengths.
func ReadHead(data []byte) (Head, error) {
	if len(data) == 0 {
		return Head{}, ErrShort
	}
	first := data[0]
	info := first & 31
	if info < 24 {
		return Head{First: first, Arg: uint64(info), Size: 1}, nil
	}
	if info > 27 {
		return Head{}, fmt.Errorf("byte %#02x: %w", first, ErrType)
	}
	size := 1 + 1<<(info-24)
	if len(data) < size {
		return Head{}, ErrShort
	}
	h := Head{First: first, Size: size}
	switch info {
	case 24:
		h.Arg = uint64(data[1])
	case 25:
		h.Arg = uint64(binary.BigEndian.Uint16(data[1:]))
	case 26:
		h.Arg = uint64(binary.BigEndian.Uint32(data[1:]))
	default:
		h.Arg = binary.BigEndian.Uint64(data[1:])
	}
	return h, nil
}

// Skip returns the length of the value that data begins with.
func Skip(data []byte) (int, error) { return SkipWithin(data, MaxDepth) }

// SkipWithin is Skip for a value that may be nested a number of levels deep, because it is within
// others itself.
func SkipWithin(data []byte, depth int) (int, error) {
	h, err := ReadHead(data)
	if err != nil {
		return 0, err
	}
	left := uint64(len(data) - h.Size)
	switch h.First &^ 31 {
	case majorUint, majorInt:
		return h.Size, nil
	case majorBytes, majorText:
		if h.Arg > left {
			return 0, ErrShort
		}
		return h.Size + int(h.Arg), nil
	case majorArray:
		return skipItems(data, h, h.Arg, depth)
	case majorMap:
		if h.Arg > left/2 {
			return 0, ErrShort
		}
		return skipItems(data, h, 2*h.Arg, depth)
	case majorOther:
		switch h.First {
		case falseByte, trueByte, float16Byte, float32Byte, float64Byte:
			return h.Size, nil
		}
	}
	return 0, fmt.Errorf("byte %#02x: %w", h.First, ErrType)
}

// skipItems skips the items of an array or a map.
func skipItems(data []byte, h Head, items uint64, depth int) (int, error) {
	if items > uint64(len(data)-h.Size) {
		return 0, ErrShort
	}
	if depth <= 0 {
		return 0, ErrDepth
	}
	pos := h.Size
	for range items {
		n, err := SkipWithin(data[pos:], depth-1)
		if err != nil {
			return 0, err
		}
		pos += n
	}
	return pos, nil
}
