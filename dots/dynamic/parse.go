package dynamic

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"correlator/dots/cbor"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// ParseJSON appends the instance that an object of dots-json is, in canonical form, and returns
// which properties it has. Members may have any order; those that the type lacks are skipped, and a
// member that is null is unset. Within a vector, null is a float that is no number.
func ParseJSON(dst []byte, s *schema.Struct, json []byte) ([]byte, value.PropertySet, error) {
	p := newParser(json)
	instance, err := p.object(nil, s, maxNesting)
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return dst, 0, fmt.Errorf("parsing an instance of %s: %w", s.Name, err)
	}
	return finishParsed(dst, s, instance)
}

// finishParsed appends a parsed instance in canonical form.
func finishParsed(
	dst []byte, s *schema.Struct, instance []byte,
) ([]byte, value.PropertySet, error) {
	var l Layout
	if _, err := Scan(s, instance, &l); err != nil {
		return dst, 0, err
	}
	if l.Canonical {
		return append(dst, instance...), l.Set, nil
	}
	dst, err := Canonicalize(dst, s, instance)
	return dst, l.Set, err
}

type parser struct {
	dec       *jsontext.Decoder
	isMessage bool // of a peer: see ParseMessage
	isQuoted  bool // by quoteNumbers
}

// quotedNumber begins the text that stands for a number, see quoteNumbers.
const quotedNumber = "\x00"

// bareNumber is a number that JSON does not have, as strtod(3) reads it. What else is in a text is matched, too, so
// that no number is found in it.
var bareNumber = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[-+]?(?i:\binf(?:inity)?\b|\bnan\b(?:\(\w*\))?)`)

// quoteNumbers returns a message with texts for numbers that JSON does not have, nil if there are none.
func quoteNumbers(message []byte) []byte {
	found := false
	quoted := bareNumber.ReplaceAllFunc(message, func(token []byte) []byte {
		if token[0] == '"' {
			return token
		}
		found = true
		text, _, _ := bytes.Cut(token, []byte{'('})
		return fmt.Appendf(nil, `"\u0000%s"`, text)
	})
	if !found {
		return nil
	}
	return quoted
}

// bareFloat returns the number that a text stands for.
func bareFloat(text string) (f float64, is bool) {
	text, is = strings.CutPrefix(text, quotedNumber)
	if !is {
		return 0, false
	}
	if strings.HasSuffix(strings.ToLower(text), "nan") {
		return math.NaN(), true
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil
}

func newParser(json []byte) parser {
	return parser{dec: jsontext.NewDecoder(bytes.NewReader(json))}
}

// end demands that nothing but white space is left.
func (p parser) end() error {
	_, err := p.dec.ReadToken()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return ErrExcess
	}
	return err
}

// open reads a token that must be of a kind.
func (p parser) open(kind jsontext.Kind) error {
	token, err := p.dec.ReadToken()
	if err != nil {
		return err
	}
	if token.Kind() != kind {
		return fmt.Errorf("%v instead of %v: %w", token.Kind(), kind, cbor.ErrType)
	}
	return nil
}

// object appends an object as a map of the properties that it has, in the order it has them.
func (p parser) object(dst []byte, s *schema.Struct, depth int) ([]byte, error) {
	if depth <= 0 {
		return dst, cbor.ErrDepth
	}
	if err := p.open('{'); err != nil {
		return dst, err
	}
	var body []byte
	n := 0
	for p.dec.PeekKind() == '"' {
		token, err := p.dec.ReadToken()
		if err != nil {
			return dst, err
		}
		property := s.ByName(token.String())
		if property == nil || p.dec.PeekKind() == 'n' {
			if err := p.dec.SkipValue(); err != nil {
				return dst, err
			}
			continue
		}
		name := property.Name
		body = cbor.AppendUint(body, uint64(property.Tag))
		if body, err = p.value(body, property.Type, depth); err != nil {
			return dst, fmt.Errorf("property %s: %w", name, err)
		}
		n++
	}
	if err := p.open('}'); err != nil {
		return dst, err
	}
	return append(cbor.AppendMap(dst, n), body...), nil
}

// value appends the next value, which must be of a type.
func (p parser) value(dst []byte, t *schema.Type, depth int) ([]byte, error) {
	switch t.Kind {
	case schema.StructKind:
		return p.object(dst, t.Struct, depth-1)
	case schema.Vector:
		return p.vector(dst, t.Elem, depth)
	case schema.Any:
		return p.any(dst)
	}
	token, err := p.dec.ReadToken()
	if err != nil {
		return dst, err
	}
	if p.isQuoted && token.Kind() == '"' {
		if f, is := bareFloat(token.String()); is {
			return appendFloat(dst, t, f)
		}
	}
	switch kind := token.Kind(); {
	case kind == '"' && !p.isMessage && (t.Kind == schema.Float32 || isFloat(t.Kind)):
		f, is := textFloats[token.String()]
		if !is {
			return dst, fmt.Errorf("text for %s: %w", t.Name, cbor.ErrType)
		}
		return appendFloat(dst, t, f)
	case t.Kind == schema.Bool && (kind == 't' || kind == 'f'):
		return cbor.AppendBool(dst, token.Bool()), nil
	case t.Kind == schema.String && kind == '"':
		return cbor.AppendString(dst, token.String()), nil
	case t.Kind == schema.UUID && kind == '"':
		u, err := ParseUUID(token.String())
		return cbor.AppendUUID(dst, u), err
	case kind == '0':
		return p.number(dst, t, token.String())
	case kind == 'n' && t.Kind == schema.Float32:
		return cbor.AppendFloat32(dst, float32(math.NaN())), nil
	case kind == 'n' && isFloat(t.Kind):
		return cbor.AppendFloat64(dst, math.NaN()), nil
	default:
		return dst, fmt.Errorf("%v for %s: %w", kind, t.Name, cbor.ErrType)
	}
}

// appendFloat appends a number as the type of float that is asked for.
func appendFloat(dst []byte, t *schema.Type, f float64) ([]byte, error) {
	switch {
	case t.Kind == schema.Float32:
		return cbor.AppendFloat32(dst, float32(f)), nil
	case isFloat(t.Kind):
		return cbor.AppendFloat64(dst, f), nil
	}
	return dst, fmt.Errorf("%v for %s: %w", f, t.Name, cbor.ErrType)
}

// isFloat reports whether values of a kind are transmitted as float64.
func isFloat(k schema.Kind) bool {
	switch k {
	case schema.Float64, schema.Timepoint, schema.SteadyTimepoint, schema.Duration:
		return true
	}
	return false
}

// number appends a number of JSON as the number type that is asked for.
func (p parser) number(dst []byte, t *schema.Type, text string) ([]byte, error) {
	bits := 64
	if t.Kind == schema.Float32 {
		bits = 32
	}
	if t.Kind == schema.Float32 || isFloat(t.Kind) {
		f, err := strconv.ParseFloat(text, bits)
		if p.isMessage && errors.Is(err, strconv.ErrRange) {
			err = nil // f is infinite
		}
		if err != nil {
			return dst, err
		}
		return appendFloat(dst, t, f)
	}
	size, signed := width(t.Kind)
	switch {
	case size == 0:
		return dst, fmt.Errorf("number for %s: %w", t.Name, cbor.ErrType)
	case signed:
		v, err := strconv.ParseInt(text, 10, int(size))
		return cbor.AppendInt(dst, v), err
	}
	v, err := strconv.ParseUint(text, 10, int(size))
	return cbor.AppendUint(dst, v), err
}

func (p parser) vector(dst []byte, elem *schema.Type, depth int) ([]byte, error) {
	if err := p.open('['); err != nil {
		return dst, err
	}
	var body []byte
	n := 0
	for p.dec.PeekKind() != ']' {
		var err error
		if body, err = p.value(body, elem, depth-1); err != nil {
			return dst, err
		}
		n++
	}
	if err := p.open(']'); err != nil {
		return dst, err
	}
	return append(cbor.AppendArray(dst, n), body...), nil
}

func (p parser) any(dst []byte) ([]byte, error) {
	if err := p.open('['); err != nil {
		return dst, err
	}
	dst = cbor.AppendArray(dst, 2)
	for i := range 2 {
		token, err := p.dec.ReadToken()
		if err != nil {
			return dst, err
		}
		if token.Kind() != '"' {
			return dst, fmt.Errorf("%v in an any: %w", token.Kind(), cbor.ErrType)
		}
		if i == 0 {
			dst = cbor.AppendString(dst, token.String())
			continue
		}
		content, err := base64.StdEncoding.DecodeString(token.String())
		if err != nil {
			return dst, err
		}
		dst = cbor.AppendBytes(dst, content)
	}
	return dst, p.open(']')
}
