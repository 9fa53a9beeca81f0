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
func (r *dwarfReader) step() {
	d := r.section.dwarf
	if d.steps == 0 {
		r.fail(fmt.Errorf("%w: more than %d entries and attributes of DWARF", ErrLimit, maxDWARFSteps))
		return
	}
	d.steps--
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
	dwarfInline                  // of a text in .debug_info
	dwarfString                  // in .debug_str
	dwarfLineString              // in .debug_line_str
	dwarfStringIndex             // in .debug_str_offsets
	dwarfOther                   // nothing that is needed here
)

// Forms of DWARF 5, section 7.5.6, and those before it of GNU's.
const (
	formAddr          = 0x01
	formBlock2        = 0x03
	formBlock4        = 0x04
	formData2         = 0x05
	formData4         = 0x06
	formData8         = 0x07
	formString        = 0x08
	formBlock         = 0x09
	formBlock1        = 0x0a
	formData1         = 0x0b
	formFlag          = 0x0c
	formSdata         = 0x0d
	formStrp          = 0x0e
	formUdata         = 0x0f
	formRefAddr       = 0x10
	formRef1          = 0x11
	formRef2          = 0x12
	formRef4          = 0x13
	formRef8          = 0x14
	formRefUdata      = 0x15
	formIndirect      = 0x16
	formSecOffset     = 0x17
	formExprloc       = 0x18
	formFlagPresent   = 0x19
	formStrx          = 0x1a
	formAddrx         = 0x1b
	formRefSup4       = 0x1c
	formStrpSup       = 0x1d
	formData16        = 0x1e
	formLineStrp      = 0x1f
	formRefSig8       = 0x20
	formImplicitConst = 0x21
	formLoclistx      = 0x22
	formRnglistx      = 0x23
	formRefSup8       = 0x24
	formStrx1         = 0x25
	formStrx2         = 0x26
	formStrx3         = 0x27
	formStrx4         = 0x28
	formAddrx1        = 0x29
	formAddrx2        = 0x2a
	formAddrx3        = 0x2b
	formAddrx4        = 0x2c
	formGNURefAlt     = 0x1f20
	formGNUStrpAlt    = 0x1f21
)

// value reads a value of a unit. A constant is that of an abbreviation.
func (r *dwarfReader) value(u *dwarfUnit, form uint64, constant uint64) dwarfValue {
	for form == formIndirect && r.err == nil {
		r.step()
		if form = r.uleb(); form == formImplicitConst {
			r.fail(fmt.Errorf("%w: a constant of DWARF without a value", errMalformed))
		}
	}
	switch form {
	case formAddr:
		return dwarfValue{dwarfAddress, r.uint(addressBytes)}
	case formAddrx:
		return dwarfValue{dwarfAddressIndex, r.uleb()}
	case formAddrx1, formAddrx2, formAddrx3, formAddrx4:
		return dwarfValue{dwarfAddressIndex, r.uint(form - formAddrx1 + 1)}
	case formData1, formFlag:
		return dwarfValue{dwarfConstant, r.uint(1)}
	case formData2:
		return dwarfValue{dwarfConstant, r.uint(2)}
	case formData4:
		return dwarfValue{dwarfConstant, r.uint(4)}
	case formData8:
		return dwarfValue{dwarfConstant, r.uint(8)}
	case formUdata:
		return dwarfValue{dwarfConstant, r.uleb()}
	case formSdata:
		return dwarfValue{dwarfConstant, r.sleb()}
	case formImplicitConst:
		return dwarfValue{dwarfConstant, constant}
	case formRef1:
		return dwarfValue{dwarfReference, u.start + r.uint(1)}
	case formRef2:
		return dwarfValue{dwarfReference, u.start + r.uint(2)}
	case formRef4:
		return dwarfValue{dwarfReference, u.start + r.uint(4)}
	case formRef8:
		return dwarfValue{dwarfReference, u.start + r.uint(8)}
	case formRefUdata:
		return dwarfValue{dwarfReference, u.start + r.uleb()}
	case formRefAddr:
		if u.version == 2 { // the size is that of addresses
			return dwarfValue{dwarfReference, r.uint(addressBytes)}
		}
		return dwarfValue{dwarfReference, r.offset(u)}
	case formString:
		at := r.pos
		r.text()
		return dwarfValue{dwarfInline, at}
	case formStrp:
		return dwarfValue{dwarfString, r.offset(u)}
	case formLineStrp:
		return dwarfValue{dwarfLineString, r.offset(u)}
	case formStrx:
		return dwarfValue{dwarfStringIndex, r.uleb()}
	case formStrx1, formStrx2, formStrx3, formStrx4:
		return dwarfValue{dwarfStringIndex, r.uint(form - formStrx1 + 1)}
	case formSecOffset:
		return dwarfValue{dwarfOther, r.offset(u)}
	case formStrpSup, formGNURefAlt, formGNUStrpAlt:
		r.offset(u)
	case formLoclistx, formRnglistx:
		r.uleb()
	case formRefSup4:
		r.skip(4)
	case formRefSig8, formRefSup8:
		r.skip(8)
	case formData16:
		r.skip(16)
	case formBlock, formExprloc:
		r.skip(r.uleb())
	case formBlock1:
		r.skip(r.uint(1))
	case formBlock2:
		r.skip(r.uint(2))
	case formBlock4:
		r.skip(r.uint(4))
	case formFlagPresent:
	default:
		r.fail(fmt.Errorf("%w: form %#x of DWARF", errMalformed, form))
	}
	return dwarfValue{kind: dwarfOther}
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

// table returns the table at a position in .debug_abbrev (section 7.5.3). Those that were needed are kept until there
// are too many.
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
			t.attributes = append(t.attributes, dwarfAttribute{uint16(min(name, isUnknown)), uint16(min(form, isUnknown)),
				constant})
			r.limit(len(t.attributes) + len(t.kinds))
		}
		kind.end = uint32(len(t.attributes))
		t.kinds = append(t.kinds, kind)
		r.limit(len(t.attributes) + len(t.kinds))
	}
	if r.err != nil {
		return nil, r.err
	}
	slices.SortStableFunc(t.kinds, func(a, b dwarfKind) int { return cmp.Compare(a.code, b.code) })
	size := 1 + len(t.attributes) + len(t.kinds)
	if d.abbreviations += size; d.abbreviations > maxAbbreviations {
		clear(d.tables)
		d.abbreviations = size
	}
	d.tables[at] = t
	return t, nil
}

// limit fails where a table of abbreviations has too many.
func (r *dwarfReader) limit(n int) {
	if n >= maxAbbreviations {
		r.fail(fmt.Errorf("%w: more than %d abbreviations of DWARF and their attributes", ErrLimit, maxAbbreviations))
	}
}
