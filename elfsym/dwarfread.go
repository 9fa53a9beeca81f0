package elfsym

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// addressBytes is the size of addresses.
const addressBytes = 8

// dwarfSection is a section of a file. The zero value is an empty one.
type dwarfSection struct {
	source     // of the contents, once it is open
	off, size  uint64
	compressed bool
	err        error // of opening it

	dwarf  *DWARF
	window dwarfReader // that which reader returns
}

// open decompresses a section, if need be, once. Those by other means than zlib are not supported.
//
//	offset  size  field of Elf64_Chdr, elf.h
//	     0     4  ch_type
//	     4     4  reserved
//	     8     8  ch_size, that of the contents
//	    16     8  ch_addralign
func (s *dwarfSection) open() error {
	if !s.compressed || s.err != nil {
		return s.err
	}
	contents, err := s.inflate()
	if err != nil {
		s.err = err
		return err
	}
	s.source, s.compressed = source{bytes.NewReader(contents), uint64(len(contents))}, false
	s.off, s.size = 0, s.source.size
	return nil
}

func (s *dwarfSection) inflate() ([]byte, error) {
	raw := io.NewSectionReader(s.r, int64(s.off), int64(s.size))
	head := make([]byte, 24)
	if _, err := io.ReadFull(raw, head); err != nil {
		return nil, truncated(err)
	}
	size := binary.LittleEndian.Uint64(head[8:])
	switch {
	case elf.CompressionType(binary.LittleEndian.Uint32(head)) != elf.COMPRESS_ZLIB:
		return nil, fmt.Errorf("%w: sections of DWARF are compressed by other means than zlib", ErrLimit)
	case size > s.dwarf.inflated:
		return nil, fmt.Errorf("%w: compressed sections of DWARF have more than %d bytes", ErrLimit, maxInflated)
	}
	s.dwarf.inflated -= size
	contents := make([]byte, size)
	z, err := zlib.NewReader(raw)
	if err == nil {
		_, err = io.ReadFull(z, contents)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: decompressing DWARF: %w", errMalformed, err)
	}
	return contents, nil
}

// reader returns the section's reader, at a position. It is valid until the next call.
func (s *dwarfSection) reader(pos uint64) *dwarfReader {
	r := &s.window
	r.err, r.section, r.pos = s.open(), s, pos
	return r
}

// dwarfReader reads a section a page at a time. After an error, which stays, it reads zeros.
type dwarfReader struct {
	section *dwarfSection
	pos     uint64
	page    []byte
	at      uint64 // position of page
	err     error
}

// fail sets the error, unless there was one.
func (r *dwarfReader) fail(err error) {
	r.err = cmp.Or(r.err, err)
	if d := r.section.dwarf; errors.Is(r.err, ErrLimit) {
		d.limit = cmp.Or(d.limit, r.err)
	}
}

// step takes from the steps that are left.
func (r *dwarfReader) step() { r.spend(1) }

// spend takes so many steps, or what is left.
func (r *dwarfReader) spend(steps uint64) {
	d := r.section.dwarf
	if d.steps < steps {
		d.steps = 0
		r.fail(fmt.Errorf("%w: more than %d entries and attributes of DWARF", ErrLimit, maxDWARFSteps))
		return
	}
	d.steps -= steps
}

// some returns what is next, n bytes or more; nil after an error.
func (r *dwarfReader) some(n uint64) []byte {
	if r.err != nil {
		return nil
	}
	if skipped := r.pos - r.at; r.pos >= r.at && skipped <= uint64(len(r.page)) && n <= uint64(len(r.page))-skipped {
		return r.page[skipped:]
	}
	s, d := r.section, r.section.dwarf
	if r.pos > s.size || n > s.size-r.pos {
		r.fail(fmt.Errorf("%w: %#x in a section of DWARF of %#x bytes", errMalformed, r.pos, s.size))
		return nil
	}
	size := min(pageBytes, s.size-r.pos)
	if size > d.bytes {
		r.fail(fmt.Errorf("%w: more than %d bytes of DWARF", ErrLimit, maxDWARFBytes))
		return nil
	}
	d.bytes -= size
	if r.page == nil {
		r.page = make([]byte, pageBytes)
	}
	r.at, r.page = r.pos, r.page[:size]
	if err := s.read(s.off+r.pos, r.page); err != nil {
		r.page = r.page[:0]
		r.fail(err)
		return nil
	}
	return r.page
}

func (r *dwarfReader) skip(n uint64) {
	if n > r.section.size || r.pos > r.section.size-n {
		r.fail(fmt.Errorf("%w: %d bytes at %#x of a section of DWARF", errMalformed, n, r.pos))
		return
	}
	r.pos += n
}

// uint reads a number of up to eight bytes.
func (r *dwarfReader) uint(size uint64) (n uint64) {
	b := r.some(size)
	if r.err != nil {
		return 0
	}
	for i := range size {
		n |= uint64(b[i]) << (8 * i)
	}
	r.pos += size
	return n
}

// uleb reads a number in LEB128 (section 7.6) of up to 64 bits.
func (r *dwarfReader) uleb() (n uint64) {
	for shift := 0; shift < 64; shift += 7 {
		b := r.some(1)
		if r.err != nil {
			return 0
		}
		r.pos++
		n |= uint64(b[0]&0x7f) << shift
		if b[0] < 0x80 {
			return n
		}
	}
	r.fail(fmt.Errorf("%w: a number of DWARF has more than 64 bits", errMalformed))
	return 0
}

// sleb reads a signed number in LEB128, as a two's complement.
func (r *dwarfReader) sleb() uint64 {
	from := r.pos
	n := r.uleb()
	if bits := 7 * (r.pos - from); r.err == nil && bits < 64 && n>>(bits-1)&1 == 1 {
		n |= ^uint64(0) << bits
	}
	return n
}

// text skips a text and its NUL.
func (r *dwarfReader) text() {
	for r.err == nil {
		b := r.some(1)
		if i := bytes.IndexByte(b, 0); i >= 0 {
			r.pos += uint64(i) + 1
			return
		}
		r.pos += uint64(len(b))
	}
}

func (u *dwarfUnit) offsetSize() uint64 {
	if u.is64 {
		return 8
	}
	return 4
}

// offset reads a position in a section.
func (r *dwarfReader) offset(u *dwarfUnit) uint64 { return r.uint(u.offsetSize()) }

// dwarfValue is the value of an attribute.
type dwarfValue struct {
	kind   dwarfClass
	number uint64
}

// dwarfClass is what the number of a value is.
type dwarfClass uint8

const (
	_                 dwarfClass = iota
	dwarfConstant                // itself
	dwarfAddress                 // an ELF address
	dwarfAddressIndex            // in .debug_addr
	dwarfReference               // position in .debug_info of an entry
	dwarfInUnit                  // the same, from the begin of the unit
	dwarfInline                  // of a text in .debug_info
	dwarfString                  // in .debug_str
	dwarfLineString              // in .debug_line_str
	dwarfStringIndex             // in .debug_str_offsets
	dwarfOther                   // nothing that is needed here
)

// dwarfForm is how a value is written.
type dwarfForm struct {
	class    dwarfClass
	encoding dwarfEncoding
	size     uint64
}

type dwarfEncoding uint8

const (
	inBytes  dwarfEncoding = iota // so many
	inULEB                        // a number in LEB128
	inSLEB                        // a signed one
	asOffset                      // of the unit's size
	asText                        // with a NUL
	asBlock                       // with its length before it, in so many bytes, 0: in LEB128
)

// Forms of DWARF 5, section 7.5.6, and those before it of GNU's, which are of other files.
const (
	formRefAddr       = 0x10
	formIndirect      = 0x16
	formSecOffset     = 0x17
	formImplicitConst = 0x21
	formGNURefAlt     = 0x1f20
	formGNUStrpAlt    = 0x1f21
)

var dwarfForms = [...]dwarfForm{
	0x01: {dwarfAddress, inBytes, addressBytes}, // addr
	0x03: {dwarfOther, asBlock, 2}, 0x04: {dwarfOther, asBlock, 4},
	0x05: {dwarfConstant, inBytes, 2}, 0x06: {dwarfConstant, inBytes, 4}, 0x07: {dwarfConstant, inBytes, 8}, // data
	0x08: {dwarfInline, asText, 0}, // string
	0x09: {dwarfOther, asBlock, 0}, 0x0a: {dwarfOther, asBlock, 1},
	0x0b: {dwarfConstant, inBytes, 1}, 0x0c: {dwarfConstant, inBytes, 1}, // data1, flag
	0x0d: {dwarfConstant, inSLEB, 0},
	0x0e: {dwarfString, asOffset, 0}, // strp
	0x0f: {dwarfConstant, inULEB, 0},

	formRefAddr: {dwarfReference, asOffset, 0},
	0x11:        {dwarfInUnit, inBytes, 1}, 0x12: {dwarfInUnit, inBytes, 2}, 0x13: {dwarfInUnit, inBytes, 4},
	0x14: {dwarfInUnit, inBytes, 8}, 0x15: {dwarfInUnit, inULEB, 0},

	formSecOffset: {dwarfOther, asOffset, 0},
	0x18:          {dwarfOther, asBlock, 0},       // exprloc
	0x19:          {dwarfOther, inBytes, 0},       // flag_present
	0x1a:          {dwarfStringIndex, inULEB, 0},  // strx
	0x1b:          {dwarfAddressIndex, inULEB, 0}, // addrx
	0x1c:          {dwarfOther, inBytes, 4},       // ref_sup4
	0x1d:          {dwarfOther, asOffset, 0},      // strp_sup
	0x1e:          {dwarfOther, inBytes, 16},      // data16
	0x1f:          {dwarfLineString, asOffset, 0}, // line_strp
	0x20:          {dwarfOther, inBytes, 8},       // ref_sig8
	0x22:          {dwarfOther, inULEB, 0},        // loclistx
	0x23:          {dwarfOther, inULEB, 0},        // rnglistx
	0x24:          {dwarfOther, inBytes, 8},       // ref_sup8
	0x25:          {dwarfStringIndex, inBytes, 1}, // strx1 to strx4
	0x26:          {dwarfStringIndex, inBytes, 2}, 0x27: {dwarfStringIndex, inBytes, 3},
	0x28: {dwarfStringIndex, inBytes, 4},
	0x29: {dwarfAddressIndex, inBytes, 1}, 0x2a: {dwarfAddressIndex, inBytes, 2}, // addrx1 to addrx4
	0x2b: {dwarfAddressIndex, inBytes, 3}, 0x2c: {dwarfAddressIndex, inBytes, 4},
}

// value reads a value of a unit. A constant is that of an abbreviation.
func (r *dwarfReader) value(u *dwarfUnit, form uint64, constant uint64) dwarfValue {
	if form == formImplicitConst {
		return dwarfValue{dwarfConstant, constant}
	}
	for form == formIndirect && r.err == nil {
		r.step()
		form = r.uleb()
	}
	if form == formGNURefAlt || form == formGNUStrpAlt {
		form = formSecOffset
	}
	if form >= uint64(len(dwarfForms)) || dwarfForms[form].class == 0 {
		r.fail(fmt.Errorf("%w: form %#x of DWARF", errMalformed, form))
		return dwarfValue{}
	}
	f := dwarfForms[form]
	if form == formRefAddr && u.version == 2 {
		f.encoding, f.size = inBytes, addressBytes
	}
	v := dwarfValue{kind: f.class}
	switch f.encoding {
	case inBytes:
		if f.size > addressBytes {
			r.skip(f.size)
			break
		}
		v.number = r.uint(f.size)
	case inULEB:
		v.number = r.uleb()
	case inSLEB:
		v.number = r.sleb()
	case asOffset:
		v.number = r.offset(u)
	case asText:
		v.number = r.pos
		r.text()
	case asBlock:
		length := r.uint(f.size)
		if f.size == 0 {
			length = r.uleb()
		}
		r.skip(length)
	}
	if f.class == dwarfInUnit {
		v.kind, v.number = dwarfReference, v.number+u.start
	}
	return v
}

// dwarfTable is a table of abbreviations: which attributes entries have, and how.
type dwarfTable struct {
	kinds      []dwarfKind // by code
	attributes []dwarfAttribute
}

type dwarfKind struct {
	code, tag  uint64
	first, end uint32 // of attributes
}

type dwarfAttribute struct {
	name, form uint16
	constant   uint64
}

// kind returns the abbreviation with a code. Compilers count from 1.
func (t *dwarfTable) kind(code uint64) (dwarfKind, bool) {
	if i := code - 1; i < uint64(len(t.kinds)) && t.kinds[i].code == code {
		return t.kinds[i], true
	}
	i, is := slices.BinarySearchFunc(t.kinds, code, func(k dwarfKind, code uint64) int {
		return cmp.Compare(k.code, code)
	})
	if !is {
		return dwarfKind{}, false
	}
	return t.kinds[i], true
}

// table returns the table at a position in .debug_abbrev (section 7.5.3). Those that were needed
// are kept until there are too many.
func (d *DWARF) table(at uint64) (*dwarfTable, error) {
	if t, known := d.tables[at]; known {
		return t, nil
	}
	t, r := &dwarfTable{}, d.abbrev.reader(at)
	for code := r.uleb(); code != 0 && r.err == nil; code = r.uleb() {
		kind := dwarfKind{code: code, tag: r.uleb(), first: uint32(len(t.attributes))}
		r.skip(1) // whether entries have children
		for r.err == nil {
			r.step()
			name, form, constant := r.uleb(), r.uleb(), uint64(0)
			if form == formImplicitConst {
				constant = r.sleb()
			}
			if name == 0 && form == 0 {
				break
			}
			const isUnknown = 0xffff // of another producer
			attribute := dwarfAttribute{uint16(min(name, isUnknown)), uint16(min(form, isUnknown)), constant}
			t.attributes = append(t.attributes, attribute)
			r.limit(len(t.attributes) + len(t.kinds))
		}
		kind.end = uint32(len(t.attributes))
		t.kinds = append(t.kinds, kind)
		r.limit(len(t.attributes) + len(t.kinds))
	}
	if r.err != nil {
		return nil, r.err
	}
	byCode := func(a, b dwarfKind) int { return cmp.Compare(a.code, b.code) }
	if !slices.IsSortedFunc(t.kinds, byCode) { // compilers sort them
		if r.spend(uint64(len(t.kinds)) * sortSteps); r.err != nil {
			return nil, r.err
		}
		slices.SortStableFunc(t.kinds, byCode)
	}
	size := 1 + len(t.attributes) + len(t.kinds)
	if d.abbreviations += size; d.abbreviations > maxAbbreviations {
		clear(d.tables)
		d.abbreviations = size
	}
	d.tables[at] = t
	return t, nil
}

// sortSteps is what it takes to sort an abbreviation: a microsecond at most, as some 30 steps.
const sortSteps = 30

// limit fails where a table of abbreviations has too many.
func (r *dwarfReader) limit(n int) {
	if n >= maxAbbreviations {
		r.fail(fmt.Errorf("%w: more than %d abbreviations of DWARF and their attributes", ErrLimit, maxAbbreviations))
	}
}
