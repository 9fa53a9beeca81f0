package elfsym

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"math"
	"slices"
)

const (
	// maxDWARFBytes bounds the section .debug_info, and also what is read of all sections of a file.
	// This program has 13 MB of .debug_info.
	maxDWARFBytes = 128 << 20

	// maxDWARFSteps bounds the entries, attributes, and abbreviations of a file that are looked at: a
	// second of work, at 25 ns. In this program they take five bytes on average, but may take none.
	maxDWARFSteps = 32 << 20

	// maxDWARFUnits bounds the units that a file may have, of which eight bytes are kept each. This
	// program has 600.
	maxDWARFUnits = 128 << 10

	// maxAbbreviations bounds the abbreviations, with their attributes, that are kept: 4 MB. Compilers
	// number those of a unit from 1, in one or two bytes.
	maxAbbreviations = 1 << 17

	// maxOrigins is how many entries refer to each other until one has a function's name: a copy of
	// code refers to the abstract function, with LTO that of another unit, and that to its
	// declaration.
	maxOrigins = 8

	// maxInflated bounds what the compressed sections of a file are decompressed to, together, as that
	// of .gnu_debugdata is.
	maxInflated = 16 << 20
)

// Tags and attributes of DWARF 5, sections 7.5.3 and 7.5.4, and what compilers of DWARF 2 and 3 write.
const (
	tagSubprogram = 0x2e

	attrName           = 0x03
	attrLowPC          = 0x11
	attrHighPC         = 0x12
	attrAbstractOrigin = 0x31
	attrSpecification  = 0x47
	attrLinkageName    = 0x6e
	attrStrOffsetsBase = 0x72
	attrAddrBase       = 0x73
	attrMIPSLinkage    = 0x2007
)

// DWARF is what a file's debugging information (DWARF 2 to 5) says of functions: those with one
// range of addresses. Of others (DW_AT_ranges), and of what is in other files (.dwo, dwz), it knows
// nothing. It reads from the reader that SymbolTables was made with, and is not safe for concurrent
// use.
type DWARF struct {
	info, abbrev, str, lineStr, strOffsets, addr dwarfSection

	units         []uint64               // where they begin
	unit          dwarfUnit              // the last that was needed
	tables        map[uint64]*dwarfTable // of abbreviations, by position
	abbreviations int                    // in them
	steps, bytes  uint64                 // that are left
	inflated      uint64                 // bytes that are left for compressed sections
	limit         error                  // the first limit that was reached
}

// dwarfUnit is the header of a unit of .debug_info, and what its first entry says:
//
//	size    field
//	4 or 12 length of what follows; in 12 bytes, of which the first 4 are ff, offsets have 8 bytes
//	2       version
//	1       version 5: type of the unit
//	1       version 5: size of addresses
//	4 or 8  position of its abbreviations in .debug_abbrev
//	1       before version 5: size of addresses
//	…       version 5: the number of a type unit and a position in it, or that of a skeleton
type dwarfUnit struct {
	start, entries, end uint64 // the first byte, the first entry, the first byte behind it
	is64                bool
	version             uint16
	table               *dwarfTable
	addrBase, strBase   uint64 // 0: not known
}

// dwarfEntry is what is taken of an entry. A value of kind 0 is none.
type dwarfEntry struct {
	tag                   uint64
	name, linkageName     dwarfValue
	low, high             dwarfValue
	specification, origin dwarfValue
	addrBase, strBase     dwarfValue
}

func newDWARF() *DWARF {
	d := &DWARF{}
	for _, s := range []*dwarfSection{&d.info, &d.abbrev, &d.str, &d.lineStr, &d.strOffsets, &d.addr} {
		s.dwarf = d
	}
	return d
}

// add adds a section, if it is needed. The first of a name is.
func (d *DWARF) add(name string, from source, section elf.Section64) {
	into := map[string]*dwarfSection{
		debugInfoName: &d.info, ".debug_abbrev": &d.abbrev, ".debug_str": &d.str, ".debug_line_str": &d.lineStr,
		".debug_str_offsets": &d.strOffsets, ".debug_addr": &d.addr,
	}[name]
	if into == nil || into.size > 0 {
		return
	}
	into.source, into.off, into.size = from, section.Off, section.Size
	into.compressed = section.Flags&uint64(elf.SHF_COMPRESSED) != 0
}

// reset begins a reading.
func (d *DWARF) reset() {
	d.units, d.unit, d.tables, d.abbreviations = nil, dwarfUnit{}, make(map[uint64]*dwarfTable), 0
	d.steps, d.bytes, d.inflated, d.limit = maxDWARFSteps, maxDWARFBytes, maxInflated, nil
}

// Functions calls visit with the functions that have code, until it returns an error; their names
// are those of Name afterwards. Limits are ErrLimit: of the bytes, entries, attributes, units, and
// abbreviations that are read, of memory for compressed sections.
func (d *DWARF) Functions(visit func(Function) error) error {
	if d == nil {
		return nil
	}
	d.reset()
	if err := cmp.Or(d.functions(visit), d.limit); err != nil {
		return fmt.Errorf("reading DWARF: %w", err)
	}
	return nil
}

func (d *DWARF) functions(visit func(Function) error) error {
	if d.info.size > maxDWARFBytes {
		return fmt.Errorf("%w: %d bytes of .debug_info, at most %d", ErrLimit, d.info.size, maxDWARFBytes)
	}
	r := &dwarfReader{section: &d.info, err: d.info.open()}
	for r.err == nil && r.pos < d.info.size {
		if len(d.units) == maxDWARFUnits {
			return fmt.Errorf("%w: more than %d units of DWARF", ErrLimit, maxDWARFUnits)
		}
		d.units = append(d.units, r.pos)
		if err := d.openUnit(r); err != nil {
			return err
		}
		for r.pos < d.unit.end && r.err == nil {
			at := r.pos
			entry := d.entry(r)
			f, is := d.function(entry)
			if !is || r.err != nil {
				continue
			}
			f.Name = uint32(at)
			unit := d.unit
			if err := visit(f); err != nil {
				return err
			}
			d.unit = unit // names may have been asked for
		}
	}
	return r.err
}

// function returns where the code of an entry's function is, and false where it has none. What a
// linker has left out is at 0 or at the end of memory.
func (d *DWARF) function(e dwarfEntry) (Function, bool) {
	if e.tag != tagSubprogram {
		return Function{}, false
	}
	low, known := d.address(e.low)
	high, isAddress := d.address(e.high)
	if e.high.kind == dwarfConstant {
		high = low + e.high.number
		isAddress = e.high.number <= math.MaxUint64-low
	}
	return Function{Start: low, End: high, Sized: true}, known && isAddress && low != 0 && low < high
}

// address returns the address that a value of the current unit is.
func (d *DWARF) address(v dwarfValue) (uint64, bool) {
	switch v.kind {
	case dwarfAddress:
		return v.number, true
	case dwarfAddressIndex:
		return d.indexed(&d.addr, d.unit.addrBase, v.number, addressBytes)
	}
	return 0, false
}

// indexed returns a number of the current unit's table in a section.
func (d *DWARF) indexed(s *dwarfSection, base, index, size uint64) (uint64, bool) {
	r := s.reader(base)
	if base == 0 || r.err != nil || base > s.size || index > (s.size-base)/size {
		return 0, false
	}
	r.pos += index * size
	number := r.uint(size)
	return number, r.err == nil
}

// openUnit reads the unit at a reader's position, and leaves the reader at its first entry.
func (d *DWARF) openUnit(r *dwarfReader) error {
	u := dwarfUnit{start: r.pos}
	length := r.uint(4)
	if u.is64 = length == math.MaxUint32; u.is64 {
		length = r.uint(8)
	}
	if r.err == nil && length > d.info.size-r.pos {
		return fmt.Errorf("%w: a unit of DWARF ends after its section", errMalformed)
	}
	u.end = r.pos + length
	u.version = uint16(r.uint(2))
	addressSize, table := uint64(0), uint64(0)
	switch {
	case u.version >= 2 && u.version <= 4:
		table, addressSize = r.offset(&u), r.uint(1)
	case u.version == 5:
		const isType, isSkeleton, isSplit, isSplitType = 2, 4, 5, 6
		kind := r.uint(1)
		addressSize, table = r.uint(1), r.offset(&u)
		switch kind {
		case isType, isSplitType:
			r.skip(8)
			r.offset(&u)
		case isSkeleton, isSplit:
			r.skip(8)
		}
	}
	if r.err == nil && (addressSize != addressBytes || r.pos > u.end) {
		return fmt.Errorf("%w: unit of DWARF %d with addresses of %d bytes", errMalformed, u.version, addressSize)
	}
	u.entries = r.pos
	var err error
	if r.err != nil {
		return r.err
	}
	if u.table, err = d.table(table); err != nil {
		return err
	}
	d.unit = u
	if u.entries < u.end {
		first := d.entry(r)
		d.unit.addrBase, d.unit.strBase = first.addrBase.number, first.strBase.number
		r.pos = u.entries
	}
	return r.err
}

// entry reads the entry at a reader's position, which is in the current unit. The end of a list of
// entries is one without a tag.
func (d *DWARF) entry(r *dwarfReader) (e dwarfEntry) {
	r.step()
	code := r.uleb()
	if code == 0 || r.err != nil {
		return e
	}
	kind, known := d.unit.table.kind(code)
	if !known {
		r.fail(fmt.Errorf("%w: no abbreviation %d of DWARF", errMalformed, code))
		return e
	}
	e.tag = kind.tag
	for _, a := range d.unit.table.attributes[kind.first:kind.end] {
		r.step()
		v := r.value(&d.unit, uint64(a.form), a.constant)
		if r.pos > d.unit.end {
			r.fail(fmt.Errorf("%w: an entry of DWARF is longer than its unit", errMalformed))
		}
		if r.err != nil {
			return dwarfEntry{}
		}
		switch a.name {
		case attrName:
			e.name = v
		case attrLinkageName, attrMIPSLinkage:
			e.linkageName = v
		case attrLowPC:
			e.low = v
		case attrHighPC:
			e.high = v
		case attrAbstractOrigin:
			e.origin = v
		case attrSpecification:
			e.specification = v
		case attrAddrBase:
			e.addrBase = v
		case attrStrOffsetsBase:
			e.strBase = v
		}
	}
	return e
}

// Name reads the name of a function into buf: that which a linker would use, else that in the
// source, of its entry or of those that this one refers to; none where there is none. A longer one
// is cut off.
func (d *DWARF) Name(at uint32, buf []byte) ([]byte, error) {
	name, err := d.name(uint64(at), buf)
	if err = cmp.Or(err, d.limit); err != nil {
		return nil, fmt.Errorf("reading DWARF: %w", err)
	}
	return name, nil
}

func (d *DWARF) name(at uint64, buf []byte) ([]byte, error) {
	r := d.info.reader(at)
	found := buf[:0]
	for range maxOrigins {
		if err := d.find(r, at); err != nil {
			return nil, err
		}
		e := d.entry(r)
		if r.err != nil {
			return nil, r.err
		}
		if e.linkageName.kind != 0 {
			name, err := d.text(e.linkageName, buf)
			if err != nil || len(name) > 0 {
				return name, err
			}
		}
		if len(found) == 0 && e.name.kind != 0 {
			var err error
			if found, err = d.text(e.name, buf); err != nil {
				return nil, err
			}
		}
		next := e.origin
		if next.kind != dwarfReference {
			next = e.specification
		}
		if next.kind != dwarfReference {
			break
		}
		found, at = bytes.Clone(found), next.number // the next one is read into buf, too
	}
	return found, nil
}

// find sets a reader to an entry, of whose unit it reads the header unless it is the current one.
func (d *DWARF) find(r *dwarfReader, at uint64) error {
	i, is := slices.BinarySearch(d.units, at)
	if !is {
		i--
	}
	if i < 0 {
		return fmt.Errorf("%w: entry of DWARF at %#x", errMalformed, at)
	}
	if d.units[i] != d.unit.start || d.unit.end == 0 {
		r.pos = d.units[i]
		if err := d.openUnit(r); err != nil {
			return err
		}
	}
	if at < d.unit.entries || at >= d.unit.end {
		return fmt.Errorf("%w: entry of DWARF at %#x", errMalformed, at)
	}
	r.pos = at
	return nil
}

// text reads a name that a value of the current unit is. Without one, it is in no section of the
// file.
func (d *DWARF) text(v dwarfValue, buf []byte) ([]byte, error) {
	from, at := &d.str, v.number
	switch v.kind {
	case dwarfInline:
		from = &d.info
	case dwarfString:
	case dwarfLineString:
		from = &d.lineStr
	case dwarfStringIndex:
		var known bool
		if at, known = d.indexed(&d.strOffsets, d.unit.strBase, v.number, d.unit.offsetSize()); !known {
			return nil, nil
		}
	default:
		return nil, nil
	}
	r := from.reader(at)
	name := buf[:0]
	for len(name) < len(buf) {
		b := r.some(1)
		if r.err != nil {
			return nil, r.err
		}
		b = b[:min(len(b), len(buf)-len(name))]
		part, _, terminated := bytes.Cut(b, []byte{0})
		name = append(name, part...)
		if terminated {
			break
		}
		r.pos += uint64(len(b))
	}
	return name, nil
}
