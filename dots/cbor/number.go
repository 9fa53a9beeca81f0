package cbor

import "math"

// Uint returns the unsigned integer that a head is, which must be less than 1<<bits.
func (h Head) Uint(bits uint) (uint64, error) {
	if h.First&^31 != majorUint {
		return 0, ErrType
	}
	if h.Arg>>(bits-1)>>1 != 0 {
		return 0, ErrRange
	}
	return h.Arg, nil
}

// Int returns the signed integer of a number of bits that a head is.
func (h Head) Int(bits uint) (int64, error) {
	switch h.First &^ 31 {
	case majorUint:
		if h.Arg>>(bits-1)>>1 != 0 {
			return 0, ErrRange
		}
		return int64(h.Arg) << (64 - bits) >> (64 - bits), nil
	case majorInt:
		if h.Arg>>(bits-1) != 0 {
			return 0, ErrRange
		}
		return ^int64(h.Arg), nil
	}
	return 0, ErrType
}

// Float returns the float of any size that a head is.
func (h Head) Float() (f float64, ok bool) {
	switch h.First {
	case float64Byte:
		return math.Float64frombits(h.Arg), true
	case float32Byte:
		return float64(math.Float32frombits(uint32(h.Arg))), true
	case float16Byte:
		return fromHalf(uint16(h.Arg)), true
	}
	return 0, false
}

// fromHalf returns the value of a float of 16 bits: sign, 5 bits of exponent, 10 of fraction.
func fromHalf(bits uint16) float64 {
	exponent, fraction := int(bits>>10&0x1f), float64(bits&0x3ff)
	var f float64
	switch exponent {
	case 0:
		f = math.Ldexp(fraction, -24)
	case 0x1f:
		f = math.Inf(1)
		if fraction != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(fraction+1024, exponent-25)
	}
	if bits>>15 != 0 {
		return math.Copysign(f, -1)
	}
	return f
}
