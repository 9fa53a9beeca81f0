package symbols

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"correlator/elfsym"
)

const (
	headerBytes        = 64 // sizeof(Elf64_Ehdr)
	sectionHeaderBytes = 64 // sizeof(Elf64_Shdr)
	symbolBytes        = 24 // sizeof(Elf64_Sym)

	// maxSymbols bounds the time that a table costs: 100 MB of file, half a second. libjvm.so has 100,000
	// symbols, a browser with all of them a million.
	maxSymbols = 4 << 20

	// maxNoteSections and maxNoteBytes bound the search for a build id: linkers write up to four, of
	// less than 100 bytes each.
	maxNoteSections = 16
	maxNoteBytes    = 64 << 10

	// bufferBytes is the unit in which tables are read.
	bufferBytes = 64 << 10
)

// ELF is where the symbols of one file are. Unlike what package elfsym knows of files, it goes by the
// section headers: no program header leads to .symtab. It reads from what it was made with.
type ELF struct {
	Static  *Table // .symtab, nil when it was stripped
	Dynamic *Table // .dynsym, nil in a static executable and in a debug file
	BuildID []byte // the GNU build id; nil when no section of notes has one
}

// ReadELF reads the section headers of a file. Errors about what it says are those of package elfsym, all
// others come from r.
func ReadELF(r io.ReaderAt, size int64) (*ELF, error) {
	f := file{r: r, size: uint64(max(size, 0))}
	sections, err := f.sections()
	if err != nil {
		return nil, fmt.Errorf("reading section headers: %w", err)
	}
	e := &ELF{}
	var code []section
	for i, s := range sections {
		if s.flags&uint64(elf.SHF_EXECINSTR) != 0 && s.addr <= math.MaxUint64-s.size {
			code = append(code, section{index: uint16(i), addr: s.addr, size: s.size})
		}
	}
	notes := 0
	for _, s := range sections {
		switch s.kind {
		case elf.SHT_SYMTAB:
			e.Static = f.table(s, sections, code)
		case elf.SHT_DYNSYM:
			e.Dynamic = f.table(s, sections, code)
		case elf.SHT_NOTE:
			if notes++; e.BuildID == nil && notes <= maxNoteSections && s.size <= maxNoteBytes {
				content := make([]byte, s.size)
				if err := f.read(s.off, content); err == nil {
					e.BuildID = elfsym.GNUBuildID(content)
				} else if !elfsym.IsContentError(err) {
					return nil, fmt.Errorf("reading notes: %w", err)
				}
			}
		}
	}
	if e.Dynamic != nil {
		e.Dynamic.partial = true
	}
	return e, nil
}

// file is what is read, and how much of it there is.
type file struct {
	r    io.ReaderAt
	size uint64
}

// read fills buf. What lies behind the end of the file is elfsym.ErrTruncated.
func (f file) read(off uint64, buf []byte) error {
	if off > f.size || uint64(len(buf)) > f.size-off {
		return fmt.Errorf("%w: %d bytes at %#x of %d", elfsym.ErrTruncated, len(buf), off, f.size)
	}
	n, err := f.r.ReadAt(buf, int64(off))
	if n == len(buf) {
		return nil
	}
	return ended(err)
}

// ended is the error of a file that was cut short after its size was asked for.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return elfsym.ErrTruncated
	}
	return err
}

// stream reads a piece of the file from its start to its end.
func (f file) stream(off, size uint64) (*bufio.Reader, error) {
	if off > f.size || size > f.size-off {
		return nil, fmt.Errorf("%w: %d bytes at %#x of %d", elfsym.ErrTruncated, size, off, f.size)
	}
	return bufio.NewReaderSize(io.NewSectionReader(f.r, int64(off), int64(size)), bufferBytes), nil
}

// section is a section header, as far as it is used. Of those kept as code only the first four fields
// have a meaning.
type section struct {
	index      uint16
	addr, size uint64
	flags      uint64
	kind       elf.SectionType
	off        uint64
	link       uint32
	entryBytes uint64
}

// sections reads the ELF header and the section headers. The fields of the ELF header (Elf64_Ehdr in
// elf.h; all little-endian):
//
//	offset size field
//	     0    4 magic number
//	     4    1 EI_CLASS
//	     5    1 EI_DATA
//	    40    8 e_shoff
//	    58    2 e_shentsize
//	    60    2 e_shnum
func (f file) sections() ([]section, error) {
	var b [headerBytes]byte
	if err := f.read(0, b[:]); err != nil {
		return nil, err
	}
	if string(b[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return nil, elfsym.ErrNotELF
	}
	if elf.Class(b[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(b[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, elfsym.ErrClass
	}
	// No more than e_shnum can say by itself, 65535 at most: linked files have some forty. Only object
	// files, which nobody maps, can have more.
	off, count := binary.LittleEndian.Uint64(b[40:]), binary.LittleEndian.Uint16(b[60:])
	if off == 0 || count == 0 {
		return nil, nil
	}
	if entry := binary.LittleEndian.Uint16(b[58:]); entry != sectionHeaderBytes {
		return nil, fmt.Errorf("%w: section headers of %d bytes", elfsym.ErrMalformed, entry)
	}
	r, err := f.stream(off, uint64(count)*sectionHeaderBytes)
	if err != nil {
		return nil, err
	}
	sections := make([]section, count)
	var header [sectionHeaderBytes]byte
	for i := range sections {
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return nil, ended(err)
		}
		sections[i] = decodeSection(&header)
	}
	return sections, nil
}

// decodeSection decodes an Elf64_Shdr (elf.h; all little-endian):
//
//	offset size field
//	     0    4 sh_name, not used
//	     4    4 sh_type
//	     8    8 sh_flags
//	    16    8 sh_addr
//	    24    8 sh_offset
//	    32    8 sh_size
//	    40    4 sh_link
//	    44    4 sh_info, not used
//	    48    8 sh_addralign, not used
//	    56    8 sh_entsize
func decodeSection(b *[sectionHeaderBytes]byte) section {
	return section{
		kind:       elf.SectionType(binary.LittleEndian.Uint32(b[4:])),
		flags:      binary.LittleEndian.Uint64(b[8:]),
		addr:       binary.LittleEndian.Uint64(b[16:]),
		off:        binary.LittleEndian.Uint64(b[24:]),
		size:       binary.LittleEndian.Uint64(b[32:]),
		link:       binary.LittleEndian.Uint32(b[40:]),
		entryBytes: binary.LittleEndian.Uint64(b[56:]),
	}
}

// Table is a symbol table of a file. A nil one names nothing.
type Table struct {
	file           file
	symbols, names section
	code           []section // by index
	partial        bool      // it lists the exported functions only
}

// table is nil when the section is none that can be read: then others may still be.
func (f file) table(s section, sections, code []section) *Table {
	if s.entryBytes != symbolBytes || uint64(s.link) >= uint64(len(sections)) {
		return nil
	}
	names := sections[s.link]
	if names.kind != elf.SHT_STRTAB {
		return nil
	}
	return &Table{file: f, symbols: s, names: names, code: code}
}

// Name names what in a query has no name yet; its addresses are ELF addresses. Errors are those of
// ReadELF; what was found before stays. It reads the whole table, which is maxSymbols entries at most.
func (t *Table) Name(q *Query) error {
	if t == nil {
		return nil
	}
	addrs, places := q.unnamed()
	if len(addrs) == 0 {
		return nil
	}
	m := newMatcher(addrs)
	err := t.match(m)
	buf := make([]byte, maxNameBytes)
	texts := make(map[uint64]string) // by st_name: a function has many addresses
	for i, s := range m.found() {
		if !s.known {
			continue
		}
		text, known := texts[s.name]
		if !known {
			name, nameErr := t.name(s.name, buf)
			if nameErr == nil {
				text, nameErr = q.text(withoutVersion(name))
			} else if elfsym.IsContentError(nameErr) {
				nameErr = nil
			}
			if nameErr != nil {
				return fmt.Errorf("reading symbol names: %w", nameErr)
			}
			texts[s.name] = text
		}
		q.names[places[i]] = text
	}
	return err
}

// withoutVersion cuts off what the linker adds to the names of versioned symbols in .symtab:
// memcpy@@GLIBC_2.14.
func withoutVersion(name []byte) []byte {
	if at := bytes.IndexByte(name, '@'); at > 0 {
		return name[:at]
	}
	return name
}

// match reads the symbols (Elf64_Sym in elf.h; all little-endian):
//
//	offset size field
//	     0    4 st_name
//	     4    1 st_info
//	     5    1 st_other, not used
//	     6    2 st_shndx
//	     8    8 st_value
//	    16    8 st_size
func (t *Table) match(m *matcher) error {
	count := t.symbols.size / symbolBytes
	if count > maxSymbols {
		return fmt.Errorf("%w: %d symbols, at most %d", elfsym.ErrLimit, count, maxSymbols)
	}
	r, err := t.file.stream(t.symbols.off, count*symbolBytes)
	if err != nil {
		return fmt.Errorf("reading symbol table: %w", err)
	}
	var b [symbolBytes]byte
	for range count {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return fmt.Errorf("reading symbol table: %w", ended(err))
		}
		s, ok := t.function(elf.Sym64{
			Name:  binary.LittleEndian.Uint32(b[0:]),
			Info:  b[4],
			Shndx: binary.LittleEndian.Uint16(b[6:]),
			Value: binary.LittleEndian.Uint64(b[8:]),
			Size:  binary.LittleEndian.Uint64(b[16:]),
		})
		if !ok {
			continue
		}
		if _, err := m.offer(s); err != nil {
			return fmt.Errorf("reading symbol table: %w", err)
		}
	}
	return nil
}

// function answers whether a symbol names code. What assemblers write can lack the type or the size. A
// symbol without a type has to be global: local ones are labels within functions. One without a size
// reaches to the next symbol, within its section; in a table of the exported functions alone, the next
// can be far behind those between, so there it names nothing.
func (t *Table) function(sym elf.Sym64) (symbol, bool) {
	binding := elf.ST_BIND(sym.Info)
	code, inCode := t.codeSection(sym.Shndx)
	switch elf.ST_TYPE(sym.Info) {
	case elf.STT_FUNC, elf.STT_GNU_IFUNC:
		if elf.SectionIndex(sym.Shndx) == elf.SHN_UNDEF {
			return symbol{}, false
		}
	case elf.STT_NOTYPE:
		if !inCode || binding == elf.STB_LOCAL {
			return symbol{}, false
		}
	default:
		return symbol{}, false
	}
	if sym.Name == 0 || sym.Value > math.MaxUint64-sym.Size {
		return symbol{}, false
	}
	s := symbol{start: sym.Value, end: sym.Value + sym.Size, name: uint64(sym.Name)}
	switch binding {
	case elf.STB_GLOBAL:
		s.rank = 2
	case elf.STB_WEAK:
		s.rank = 1
	}
	if sym.Size > 0 {
		s.rank += 3
		return s, true
	}
	s.open, s.end = true, code.addr+code.size
	return s, inCode && !t.partial
}

// codeSection returns the executable section of an index.
func (t *Table) codeSection(index uint16) (section, bool) {
	i, found := slices.BinarySearchFunc(t.code, index, func(s section, index uint16) int {
		return int(s.index) - int(index)
	})
	if !found {
		return section{}, false
	}
	return t.code[i], true
}

// name reads a name of the string table into buf, which holds maxNameBytes.
func (t *Table) name(pos uint64, buf []byte) ([]byte, error) {
	if pos >= t.names.size || t.names.off > math.MaxUint64-pos {
		return nil, fmt.Errorf("%w: name at %#x of a string table of %#x bytes", elfsym.ErrMalformed, pos, t.names.size)
	}
	off := t.names.off + pos
	if off >= t.file.size {
		return nil, fmt.Errorf("%w: name at %#x", elfsym.ErrTruncated, off)
	}
	left := min(t.names.size-pos, t.file.size-off, maxNameBytes)
	for n := min(128, left); ; n = min(2*n, left) {
		if err := t.file.read(off, buf[:n]); err != nil {
			return nil, err
		}
		if end := bytes.IndexByte(buf[:n], 0); end >= 0 {
			return buf[:end], nil
		}
		if n == left {
			return buf[:n], nil
		}
	}
}
