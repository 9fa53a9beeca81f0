package dynamic

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"correlator/dots/cbor"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// AppendJSON appends an instance as an object of dots-json, whose members have the names of the
// properties, in the order of declaration:
//
//	type                        JSON
//	bool, integers, floats      as such; a float that is no number, or infinite: "NaN", "Infinity", "-Infinity"
//	times, durations            number of seconds
//	property_set                number
//	enum                        number, its tag
//	uuid                        text, lower case with hyphens
//	string                      text
//	vector                      array
//	struct                      object
//	any                         array of the type's name and base64 of the instance; peers of
//	                            dots-json have no such type
func AppendJSON(dst []byte, s *schema.Struct, instance []byte) ([]byte, error) {
	return AppendJSONWithin(dst, s, instance, math.MaxInt)
}

// ErrLimit is the error of instances that are too long as JSON.
var ErrLimit = errors.New("too long as JSON")

// AppendJSONWithin is AppendJSON for about as many bytes as the limit, with those of dst: a struct of
// 3 bytes may become hundreds, which have the name of its property. More are an error before they are
// made.
func AppendJSONWithin(dst []byte, s *schema.Struct, instance []byte, limit int) ([]byte, error) {
	return appendJSON(dst, s, instance, &jsonWriter{limit: limit})
}

// jsonWriter is how instances are written.
type jsonWriter struct {
	limit   int
	numbers Numbers // that JSON has not; of AppendJSON: all are texts
	wanted  bool    // numbers is set
	unset   int     // floats that were written as null
}

// Numbers is how floats are written that JSON does not have. Infinite ones are 1e999, which all parsers
// read so.
type Numbers uint8

const (
	// BareNumbers: no number is nan, as peers write it that are no browsers.
	BareNumbers Numbers = iota
	// NoNumbers: no number is null, which is unset, for browsers.
	NoNumbers
)

// textFloats are texts of AppendJSON and ParseJSON for floats that JSON does not have: those of JSON of protobuf.
var textFloats = map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}

func appendJSON(dst []byte, s *schema.Struct, instance []byte, w *jsonWriter) ([]byte, error) {
	var l Layout
	n, err := Scan(s, instance, &l)
	if err != nil {
		return dst, err
	}
	if n != len(instance) || !l.Canonical {
		if instance, err = Canonicalize(nil, s, instance); err != nil {
			return dst, err
		}
	}
	r := cbor.NewReader(instance)
	result := w.object(dst, s, &r)
	if err := r.Err(); err != nil {
		return dst, fmt.Errorf("decoding an instance of %s: %w", s.Name, err)
	}
	return result, nil
}

func (w *jsonWriter) object(dst []byte, s *schema.Struct, r *cbor.Reader) []byte {
	dst = append(dst, '{')
	for i, n := 0, r.Map(); i < n; i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		p := byTag(s, r.Uint(64))
		if p == nil {
			r.Fail(cbor.ErrType)
			return dst
		}
		dst = w.text(dst, p.Name, r)
		dst = w.value(append(dst, ':'), p.Type, r)
	}
	return append(dst, '}')
}

func (w *jsonWriter) text(dst []byte, text string, r *cbor.Reader) []byte {
	const longest = 6 // of a character: \u001f
	if room := w.limit - len(dst); len(text) > room || len(text) > room/longest && quotedSize(text) > room {
		r.Fail(ErrLimit)
		return dst
	}
	dst, err := jsontext.AppendQuote(dst, text)
	if err != nil {
		r.Fail(fmt.Errorf("%w: %w", ErrUTF8, err))
	}
	return dst
}

// quotedSize returns how long a text is as JSON, at most.
func quotedSize(text string) (n int) {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ':
			n += 6
		case c == '"' || c == '\\':
			n += 2
		default:
			n++
		}
	}
	return n
}

func (w *jsonWriter) value(dst []byte, t *schema.Type, r *cbor.Reader) []byte {
	if len(dst) > w.limit {
		r.Fail(ErrLimit)
		return dst
	}
	switch t.Kind {
	case schema.StructKind:
		return w.object(dst, t.Struct, r)
	case schema.Vector:
		dst = append(dst, '[')
		for i, n := 0, r.Array(); i < n && r.Err() == nil; i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = w.value(dst, t.Elem, r)
		}
		return append(dst, ']')
	case schema.Any:
		r.Array()
		dst = w.text(append(dst, '['), r.String(), r)
		data := r.Bytes()
		if base64.StdEncoding.EncodedLen(len(data)) > w.limit-len(dst) {
			r.Fail(ErrLimit)
			return dst
		}
		dst = base64.StdEncoding.AppendEncode(append(dst, `,"`...), data)
		return append(dst, `"]`...)
	case schema.Bool:
		return strconv.AppendBool(dst, r.Bool())
	case schema.Float32:
		return w.float(dst, float64(r.Float32()), 32)
	case schema.Float64, schema.Timepoint, schema.SteadyTimepoint, schema.Duration:
		return w.float(dst, r.Float64(), 64)
	case schema.String:
		return w.text(dst, r.String(), r)
	case schema.UUID:
		dst = AppendUUID(append(dst, '"'), r.Bytes16())
		return append(dst, '"')
	}
	bits, signed := width(t.Kind)
	if signed {
		return strconv.AppendInt(dst, r.Int(bits), 10)
	}
	return strconv.AppendUint(dst, r.Uint(bits), 10)
}

// float appends the shortest number that is read as f, without an exponent unless it
// would be long.
func (w *jsonWriter) float(dst []byte, f float64, bits int) []byte {
	switch isInf := math.IsInf(f, 0); {
	case isInf && w.wanted:
		return append(dst, map[bool]string{false: "1e999", true: "-1e999"}[f < 0]...)
	case math.IsNaN(f) && w.wanted && w.numbers == BareNumbers:
		return append(dst, "nan"...)
	case math.IsNaN(f) && w.wanted:
		w.unset++
		return append(dst, "null"...)
	case isInf || math.IsNaN(f):
		for text, number := range textFloats {
			if f == number || f != f && number != number {
				dst = append(append(append(dst, '"'), text...), '"')
			}
		}
		return dst
	}
	format := byte('f')
	if size := math.Abs(f); size != 0 && (size < 1e-6 || size >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, bits)
}

// AppendUUID appends a UUID as text, in lower case with hyphens.
func AppendUUID(dst []byte, u value.UUID) []byte {
	for i, part := range [][]byte{u[0:4], u[4:6], u[6:8], u[8:10], u[10:16]} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, part)
	}
	return dst
}

// ParseUUID returns the UUID that a text is, in either case.
func ParseUUID(text string) (u value.UUID, err error) {
	const size = 36
	if len(text) != size || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return u, fmt.Errorf("UUID of %d characters: %w", len(text), cbor.ErrRange)
	}
	digits := text[0:8] + text[9:13] + text[14:18] + text[19:23] + text[24:]
	if _, err := hex.Decode(u[:], []byte(digits)); err != nil {
		return value.UUID{}, fmt.Errorf("UUID: %w", err)
	}
	return u, nil
}
