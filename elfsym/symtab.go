package elfsym

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
)

// maxSymbols bounds the time that a table costs: 100 MB of file, half a second. libjvm.so has
// 100,000 symbols, a browser with all of them a million.
const maxSymbols = 4 << 20

// maxSections bounds the memory that section headers take: 8 MiB. Linked files have forty, but one of each function
// where the linker was told to keep them apart (-r, --unique).
const maxSections = 128 << 10

// SymbolTables is where the symbols of one file are. It goes by the section headers, since no
// program header leads to .symtab. It reads from the reader that it was made with.
type SymbolTables struct {
	Static  *SymbolTable // .symtab, nil when it was stripped
	Dynamic *SymbolTable // .dynsym, nil in a static executable and in a debug file
	BuildID []byte       // the GNU build id; nil when no section of notes has one
	// DebugData is the section .gnu_debugdata, compressed: an ELF file with a .symtab of the functions
	// that Dynamic lacks. nil: there is none.
	DebugData *io.SectionReader
	DebugLink DebugLink
	DWARF     *DWARF       // nil without .debug_info
	Go        *GoFunctions // nil with Static, too
	// Partial is why there may be more than Dynamic: the file was cut behind that. nil: nothing.
	Partial error
}

// DebugLink is the section .gnu_debuglink: the name of a file with the symbols that this one lacks.
type DebugLink struct {
	Name string // without a directory; empty: there is none
	CRC  uint32 // CRC-32 (IEEE) of that file
}

// Names of these sections, which have no type of their own.
const (
	debugDataName = ".gnu_debugdata"
	debugLinkName = ".gnu_debuglink"
	debugInfoName = ".debug_info"
)

// ReadSymbolTables reads the section headers of a file for any machine; those of exported functions by PT_DYNAMIC where
// there are none (any more). More of them than maxSections are ErrLimit. Errors about its contents are those of
// IsContentError, all others come from r.
func ReadSymbolTables(r io.ReaderAt, size int64) (*SymbolTables, error) {
	p, err := newPages(r, size)
	if err != nil {
		return nil, err
	}
	s := &SymbolTables{}
	sections, err := p.sections()
	if err != nil {
		s.Partial = fmt.Errorf("reading section headers: %w", err)
	}
	if len(sections) == 0 {
		dynamic, err := p.dynamicTable()
		if s.Dynamic = dynamic; dynamic == nil && cmp.Or(s.Partial, err) != nil {
			return nil, cmp.Or(s.Partial, err)
		}
		return s, nil
	}
	var code []codeSection
	for i, section := range sections {
		if section.Flags&uint64(elf.SHF_EXECINSTR) != 0 && section.Addr <= math.MaxUint64-section.Size &&
			i < int(elf.SHN_LORESERVE) { // symbols in those behind are known by their type alone
			code = append(code, codeSection{uint16(i), section.Addr + section.Size})
		}
	}
	notes := notesReader{pages: p, left: maxNotes}
	dwarf := newDWARF()
	for _, section := range sections {
		switch elf.SectionType(section.Type) {
		case elf.SHT_PROGBITS:
			if section.Flags&uint64(elf.SHF_ALLOC) != 0 {
				continue
			}
			switch name := p.name(section, sections); {
			case name == debugDataName:
				s.DebugData = io.NewSectionReader(p.r, int64(section.Off), int64(section.Size))
			case name == debugLinkName && section.Size <= maxDebugLink:
				s.DebugLink = p.debugLink(section)
			default:
				dwarf.add(name, p.source, section)
			}
		case elf.SHT_SYMTAB:
			s.Static = p.symbolTable(section, sections, code)
		case elf.SHT_DYNSYM:
			s.Dynamic = p.symbolTable(section, sections, code)
		case elf.SHT_NOTE:
			if err := notes.search(section.Off, section.Size, section.Addralign); err != nil {
				return nil, err
			}
		}
	}
	s.BuildID = notes.id
	if dwarf.info.size > 0 {
		s.DWARF = dwarf
	}
	if s.Static == nil {
		s.Go = p.goFunctions(sections)
	}
	if s.Dynamic != nil {
		s.Dynamic.partial = true
	}
	return s, nil
}

// dynamicTable returns the table by which the loader finds functions, nil if there is none.
func (p *pages) dynamicTable() (*SymbolTable, error) {
	h := headers{pages: p}
	programs, err := h.readHeader()
	if err == nil {
		err = h.readProgramHeaders(programs)
	}
	if err != nil || elf.ProgType(h.dynamic.Type) != elf.PT_DYNAMIC {
		return nil, err
	}
	m := image{pages: p, segments: h.file.Segments}
	d, err := readDynamic(m, h.dynamic)
	if err != nil {
		return nil, err
	}
	exported, ok, err := openExports(m, d)
	if err != nil || !ok {
		return nil, err
	}
	count, err := exported.count()
	if err != nil {
		return nil, err
	}
	entries, names := exported.entries, exported.names
	return &SymbolTable{
		source: p.source, partial: true,
		symbols: elf.Section64{Off: entries.off, Size: count * symbolBytes},
		names:   elf.Section64{Off: names.off, Size: names.size},
	}, nil
}

// sections reads the section headers. Where there are too many for the ELF header, the first of them has their number
// in place of its size.
func (p *pages) sections() ([]elf.Section64, error) {
	header, err := p.header()
	if err != nil || header.Shoff == 0 {
		return nil, err
	}
	count := uint64(header.Shnum)
	if count == 0 {
		first, err := p.headers(header.Shoff, 1, header.Shentsize, sectionHeaderBytes)
		var s elf.Section64
		if err == nil {
			err = first.decode(0, &s)
		}
		if err != nil && !IsContentError(err) {
			return nil, err
		}
		if count = s.Size; err != nil || count < uint64(elf.SHN_LORESERVE) {
			return []elf.Section64{}, nil // what tools leave that remove the headers
		}
	} else if header.Shentsize != sectionHeaderBytes {
		return nil, fmt.Errorf("%w: headers of %d bytes", errMalformed, header.Shentsize)
	}
	if count > maxSections {
		return nil, fmt.Errorf("%w: %d sections, at most %d", ErrLimit, count, maxSections)
	}
	r, err := p.stream(header.Shoff, count*sectionHeaderBytes)
	if err != nil {
		return nil, err
	}
	sections := make([]elf.Section64, count)
	for i := range sections {
		if err := binary.Read(r, binary.LittleEndian, &sections[i]); err != nil {
			return nil, truncated(err)
		}
	}
	return sections, nil
}

// name returns the name of a section, cut off behind those that are looked for, and none where the section is not
// within the file.
func (p *pages) name(section elf.Section64, sections []elf.Section64) string {
	header, err := p.header()
	index := uint32(header.Shstrndx)
	if elf.SectionIndex(index) == elf.SHN_XINDEX {
		index = sections[0].Link
	}
	if err != nil || int64(index) >= int64(len(sections)) || p.check(section.Off, section.Size) != nil {
		return ""
	}
	names := sections[index]
	if uint64(section.Name) >= names.Size || names.Off > p.size || uint64(section.Name) >= p.size-names.Off {
		return ""
	}
	at := names.Off + uint64(section.Name)
	const longest = len(".data.rel.ro.gopclntab\x00")
	found := make([]byte, min(uint64(longest), p.size-at))
	if p.source.read(at, found) != nil {
		return ""
	}
	if name, _, terminated := bytes.Cut(found, []byte{0}); terminated {
		return string(name)
	}
	return ""
}

// maxDebugLink is the size of a .gnu_debuglink with the longest name that a file can have.
const maxDebugLink = 256 + 4

// debugLink reads the section: a name with its NUL, padded to 4 bytes, and a checksum. It returns none where it is
// anything else.
func (p *pages) debugLink(section elf.Section64) (link DebugLink) {
	b := make([]byte, section.Size)
	if p.source.read(section.Off, b) != nil {
		return link
	}
	name, _, terminated := bytes.Cut(b, []byte{0})
	at := (len(name) + 4) &^ 3
	if !terminated || len(b) < at+4 || len(name) == 0 || bytes.IndexByte(name, '/') >= 0 || string(name) == "." ||
		string(name) == ".." {
		return link
	}
	return DebugLink{string(name), binary.LittleEndian.Uint32(b[at:])}
}

// SymbolTable is a symbol table of a file. A nil one has no symbols.
type SymbolTable struct {
	source         source // names and symbols are read past the cache, which bounds the reads
	symbols, names elf.Section64
	code           []codeSection // by index
	partial        bool          // it lists the exported functions only
}

// codeSection is an executable section.
type codeSection struct {
	index uint16
	end   uint64 // ELF address of the first byte behind it
}

// symbolTable returns nil when the section cannot be read: others may be readable.
func (f source) symbolTable(s elf.Section64, sections []elf.Section64, code []codeSection) *SymbolTable {
	if s.Entsize != symbolBytes || uint64(s.Link) >= uint64(len(sections)) {
		return nil
	}
	names := sections[s.Link]
	if elf.SectionType(names.Type) != elf.SHT_STRTAB {
		return nil
	}
	return &SymbolTable{source: f, symbols: s, names: names, code: code}
}

// Function is a symbol that names code.
type Function struct {
	Start uint64 // ELF address
	End   uint64 // the first address behind it
	// Sized is false for a function without a size: it ends where the next symbol begins, at End,
	// which is that of its section, at the latest.
	Sized bool
	// Rank orders the symbols of one address: those with a size come before those without, and
	// global ones before weak ones before local ones.
	Rank uint8
	Name uint32 // position for SymbolTable.Name
}

// Functions calls visit with every symbol that names code, until it returns an error. It reads the
// whole table; more than maxSymbols entries are ErrLimit.
func (t *SymbolTable) Functions(visit func(Function) error) error {
	if t == nil {
		return nil
	}
	if err := t.functions(visit); err != nil {
		return fmt.Errorf("reading symbol table: %w", err)
	}
	return nil
}

func (t *SymbolTable) functions(visit func(Function) error) error {
	return t.each(maxSymbols, func(sym elf.Sym64) error {
		if f, ok := t.function(sym); ok {
			return visit(f)
		}
		return nil
	})
}

// each calls visit with every symbol of the table, until it returns an error. More than limit are
// ErrLimit.
func (t *SymbolTable) each(limit uint64, visit func(elf.Sym64) error) error {
	count := t.symbols.Size / symbolBytes
	if count > limit {
		return fmt.Errorf("%w: %d symbols, at most %d", ErrLimit, count, limit)
	}
	r, err := t.source.stream(t.symbols.Off, count*symbolBytes)
	if err != nil {
		return err
	}
	for range count {
		b, err := r.Peek(symbolBytes)
		if err != nil {
			return truncated(err)
		}
		if err := visit(decodeSymbol((*[symbolBytes]byte)(b))); err != nil {
			return err
		}
		_, _ = r.Discard(symbolBytes) // it is there
	}
	return nil
}

// function reports whether a symbol names code. What assemblers write can lack the type or the
// size. A symbol without a type has to be global: local ones are labels within functions. One
// without a size reaches to the next symbol, within its section; in a table of the exported
// functions alone, the next can be far behind those between, so there it names nothing.
func (t *SymbolTable) function(sym elf.Sym64) (Function, bool) {
	binding := elf.ST_BIND(sym.Info)
	switch elf.ST_TYPE(sym.Info) {
	case elf.STT_FUNC, elf.STT_GNU_IFUNC:
		if elf.SectionIndex(sym.Shndx) == elf.SHN_UNDEF {
			return Function{}, false
		}
	case elf.STT_NOTYPE:
		if _, inCode := t.codeSection(sym.Shndx); !inCode || binding == elf.STB_LOCAL {
			return Function{}, false
		}
	default:
		return Function{}, false
	}
	if sym.Name == 0 || sym.Value > math.MaxUint64-sym.Size {
		return Function{}, false
	}
	f := Function{Start: sym.Value, End: sym.Value + sym.Size, Sized: true, Name: sym.Name}
	switch binding {
	case elf.STB_GLOBAL:
		f.Rank = 2
	case elf.STB_WEAK:
		f.Rank = 1
	}
	if sym.Size > 0 {
		f.Rank += 3
		return f, true
	}
	code, inCode := t.codeSection(sym.Shndx)
	f.Sized, f.End = false, code.end
	return f, inCode && !t.partial
}

// codeSection returns the executable section of an index.
func (t *SymbolTable) codeSection(index uint16) (codeSection, bool) {
	i, found := slices.BinarySearchFunc(t.code, index, func(s codeSection, index uint16) int {
		return int(s.index) - int(index)
	})
	if !found {
		return codeSection{}, false
	}
	return t.code[i], true
}

// Name reads a name of the string table into buf. A longer one is cut off.
func (t *SymbolTable) Name(pos uint32, buf []byte) ([]byte, error) {
	name, err := t.name(uint64(pos), buf)
	if err != nil {
		return nil, fmt.Errorf("reading symbol name: %w", err)
	}
	return name, nil
}

func (t *SymbolTable) name(pos uint64, buf []byte) ([]byte, error) {
	if pos >= t.names.Size || t.names.Off > math.MaxUint64-pos {
		return nil, fmt.Errorf("%w: name at %#x of a string table of %#x bytes", errMalformed, pos, t.names.Size)
	}
	off := t.names.Off + pos
	if err := t.source.check(off, 1); err != nil {
		return nil, err
	}
	left := min(t.names.Size-pos, t.source.size-off, uint64(len(buf)))
	for n := min(128, left); ; n = min(2*n, left) {
		if err := t.source.read(off, buf[:n]); err != nil {
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
