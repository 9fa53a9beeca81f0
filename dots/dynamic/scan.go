package dynamic

import (
	"fmt"
	"math"
	"unicode/utf8"

	"correlator/dots/cbor"
	"correlator/dots/schema"
)

// maxNesting bounds how deeply structs nest, as a registry of types does more strictly: a type made
// by hand must not overflow the stack either.
const maxNesting = cbor.MaxDepth

// scanner walks through one instance.
type scanner struct {
	data      []byte
	canonical bool
}

// Scan checks the instance of a type that data begins with: the form of every value, the tags of
// enums, the UTF-8 of strings. It says in l where the properties are, and returns the length of the
// instance. Of a property that occurs twice the last one counts; of one that the type lacks only
// the end is looked for. It does not demand key properties.
func Scan(s *schema.Struct, data []byte, l *Layout) (n int, err error) {
	if uint64(len(data)) > math.MaxUint32 { // a Layout cannot say where
		return 0, fmt.Errorf("instance of %s in %d bytes: %w", s.Name, len(data), cbor.ErrRange)
	}
	sc := scanner{data: data, canonical: true}
	l.Set = 0
	n, err = sc.object(s, 0, maxNesting, l)
	if err != nil {
		return 0, fmt.Errorf("decoding an instance of %s: %w", s.Name, err)
	}
	l.Canonical = sc.canonical
	return n, nil
}

// head reads the head at pos.
func (sc *scanner) head(pos int) (cbor.Head, error) {
	h, err := cbor.ReadHead(sc.data[pos:])
	if err == nil && !h.Shortest() {
		sc.canonical = false
	}
	return h, err
}

// count reads the head of a map or an array whose items take at least size bytes.
func (sc *scanner) count(pos int, major byte, size int) (count, next int, err error) {
	if pos < len(sc.data) {
		n := int(sc.data[pos] ^ major<<5)
		if n < 24 && n*size < len(sc.data)-pos {
			return n, pos + 1, nil
		}
	}
	h, err := sc.head(pos)
	if err != nil {
		return 0, 0, err
	}
	if h.Major() != major {
		return 0, 0, cbor.ErrType
	}
	next = pos + h.Size
	if h.Arg > uint64((len(sc.data)-next)/size) {
		return 0, 0, cbor.ErrShort
	}
	return int(h.Arg), next, nil
}

// object scans the map at pos and returns where it ends. It fills l, unless that is nil.
func (sc *scanner) object(s *schema.Struct, pos, depth int, l *Layout) (int, error) {
	if depth <= 0 {
		return 0, cbor.ErrDepth
	}
	count, pos, err := sc.count(pos, majorMap, 2)
	if err != nil {
		return 0, err
	}
	next := 0 // index of the property that a canonical instance may have next
	for range count {
		var tag uint64
		if pos < len(sc.data) && sc.data[pos] < 24 {
			tag = uint64(sc.data[pos])
			pos++
		} else if tag, pos, err = sc.longTag(pos); err != nil {
			return 0, err
		}
		for next < len(s.Properties) && uint64(s.Properties[next].Tag) != tag {
			next++
		}
		var p *schema.Property
		if next < len(s.Properties) {
			p = &s.Properties[next]
			next++
		} else {
			sc.canonical = false
			if p = byTag(s, tag); p == nil {
				n, err := cbor.SkipWithin(sc.data[pos:], depth)
				if err != nil {
					return 0, fmt.Errorf("unknown property %d: %w", tag, err)
				}
				pos += n
				continue
			}
		}
		start := pos
		if end := sc.usual(p.Type, pos); end > 0 {
			pos = end
		} else if pos, err = sc.value(p.Type, pos, depth); err != nil {
			return 0, fmt.Errorf("property %s: %w", p.Name, err)
		}
		if l != nil {
			i := p.Tag & 31
			l.Set |= 1 << i
			l.Start[i], l.End[i] = uint32(start), uint32(pos)
		}
	}
	return pos, nil
}

// byTag returns the property with a tag as it was transmitted.
func byTag(s *schema.Struct, tag uint64) *schema.Property {
	if tag > 31 {
		return nil
	}
	return s.ByTag(uint32(tag))
}

func (sc *scanner) longTag(pos int) (tag uint64, next int, err error) {
	h, err := sc.head(pos)
	if err != nil {
		return 0, 0, err
	}
	if tag, err = h.Uint(64); err != nil {
		return 0, 0, fmt.Errorf("tag: %w", err)
	}
	return tag, pos + h.Size, nil
}

// value scans the value of a type at pos and returns where it ends.
func (sc *scanner) value(t *schema.Type, pos, depth int) (int, error) {
	switch t.Kind {
	case schema.StructKind:
		return sc.object(t.Struct, pos, depth-1, nil)
	case schema.Vector:
		return sc.vector(t.Elem, pos, depth)
	case schema.Any:
		return sc.any(pos)
	}
	h, err := cbor.ReadHead(sc.data[pos:])
	if err != nil {
		return 0, err
	}
	pos += h.Size
	switch t.Kind {
	case schema.Bool:
		if h.First != 0xf4 && h.First != 0xf5 {
			return 0, cbor.ErrType
		}
		return pos, nil
	case schema.Float32, schema.Float64, schema.Timepoint, schema.SteadyTimepoint, schema.Duration:
		return pos, sc.float(t.Kind, h)
	case schema.String:
		return sc.text(h, pos)
	case schema.UUID:
		if h.First != majorBytes<<5|16 {
			return sc.longUUID(h, pos)
		}
		if len(sc.data)-pos < 16 {
			return 0, cbor.ErrShort
		}
		return pos + 16, nil
	}
	if !h.Shortest() {
		sc.canonical = false
	}
	return pos, sc.integer(t, h)
}

// usual returns where the value at pos ends, if it is one of the most frequent: a small number, a
// float of its size, a short string of ASCII. It returns 0 for all others, which value looks at.
func (sc *scanner) usual(t *schema.Type, pos int) (end int) {
	rest := sc.data[pos:]
	if len(rest) == 0 {
		return 0
	}
	first := rest[0]
	switch t.Kind {
	case schema.EnumKind:
		if first < 24 && t.Enum.Has(uint32(first)) {
			return pos + 1
		}
	case schema.Float32:
		if first == 0xfa && len(rest) >= 5 {
			return pos + 5
		}
	case schema.Float64, schema.Timepoint, schema.Duration:
		if first == 0xfb && len(rest) >= 9 {
			return pos + 9
		}
	case schema.String:
		size := 1 + int(first^majorText<<5)
		if size > 24 || len(rest) < size {
			return 0
		}
		for _, c := range rest[1:size] {
			if c >= utf8.RuneSelf {
				return 0
			}
		}
		return pos + size
	default:
		if first < 24 && isNumber[t.Kind&31] {
			return pos + 1
		}
	}
	return 0
}

// integer checks an integer, a property set or the tag of an enumerator.
func (sc *scanner) integer(t *schema.Type, h cbor.Head) error {
	bits, signed := width(t.Kind)
	if bits == 0 {
		return fmt.Errorf("type %s: %w", t.Name, cbor.ErrType)
	}
	if signed {
		v, err := h.Int(bits)
		if v < 0 && h.Major() == majorUint {
			sc.canonical = false
		}
		return err
	}
	v, err := h.Uint(bits)
	if err == nil && t.Kind == schema.EnumKind && !t.Enum.Has(uint32(v)) {
		return fmt.Errorf("%d of %s: %w", v, t.Name, ErrEnum)
	}
	return err
}

// isNumber says which kinds take any small number.
var isNumber = [32]bool{
	schema.Int8: true, schema.Int16: true, schema.Int32: true, schema.Int64: true,
	schema.Uint8: true, schema.Uint16: true, schema.Uint32: true, schema.Uint64: true,
	schema.PropertySet: true,
}

// width returns how many bits an integer type has: none if it is another one.
func width(k schema.Kind) (bits uint, signed bool) {
	switch k {
	case schema.Int8, schema.Int16, schema.Int32, schema.Int64:
		return 8 << (k - schema.Int8), true
	case schema.Uint8, schema.Uint16, schema.Uint32, schema.Uint64:
		return 8 << (k - schema.Uint8), false
	case schema.PropertySet, schema.EnumKind:
		return 32, false
	}
	return 0, false
}

func (sc *scanner) float(k schema.Kind, h cbor.Head) error {
	if k == schema.Float32 {
		switch h.First {
		case 0xf9:
			sc.canonical = false
			return nil
		case 0xfa:
			return nil
		}
		return cbor.ErrType
	}
	if h.First == 0xfb {
		return nil
	}
	sc.canonical = false
	if _, ok := h.Float(); !ok {
		return cbor.ErrType
	}
	return nil
}

func (sc *scanner) text(h cbor.Head, pos int) (int, error) {
	if h.Major() != majorText {
		return 0, cbor.ErrType
	}
	if h.Arg > uint64(len(sc.data)-pos) {
		return 0, cbor.ErrShort
	}
	if !h.Shortest() {
		sc.canonical = false
	}
	end := pos + int(h.Arg)
	if !utf8.Valid(sc.data[pos:end]) {
		return 0, ErrUTF8
	}
	return end, nil
}

// longUUID scans a UUID whose length is not encoded in the shortest form.
func (sc *scanner) longUUID(h cbor.Head, pos int) (int, error) {
	if h.Major() != majorBytes {
		return 0, cbor.ErrType
	}
	if h.Arg != 16 {
		return 0, fmt.Errorf("UUID of %d bytes: %w", h.Arg, cbor.ErrRange)
	}
	if len(sc.data)-pos < 16 {
		return 0, cbor.ErrShort
	}
	sc.canonical = false
	return pos + 16, nil
}

func (sc *scanner) vector(elem *schema.Type, pos, depth int) (int, error) {
	if depth <= 0 {
		return 0, cbor.ErrDepth
	}
	count, pos, err := sc.count(pos, majorArray, 1)
	if err != nil {
		return 0, err
	}
	for range count {
		if end := sc.usual(elem, pos); end > 0 {
			pos = end
		} else if pos, err = sc.value(elem, pos, depth-1); err != nil {
			return 0, err
		}
	}
	return pos, nil
}

// any scans a value with its type: an array of the type's name and the instance as a byte string.
func (sc *scanner) any(pos int) (int, error) {
	count, pos, err := sc.count(pos, majorArray, 1)
	if err != nil {
		return 0, err
	}
	if count != 2 {
		return 0, fmt.Errorf("any of %d values: %w", count, cbor.ErrRange)
	}
	h, err := sc.head(pos)
	if err != nil {
		return 0, err
	}
	if pos, err = sc.text(h, pos+h.Size); err != nil {
		return 0, err
	}
	if h, err = sc.head(pos); err != nil {
		return 0, err
	}
	if h.Major() != majorBytes {
		return 0, cbor.ErrType
	}
	if pos += h.Size; h.Arg > uint64(len(sc.data)-pos) {
		return 0, cbor.ErrShort
	}
	return pos + int(h.Arg), nil
}
