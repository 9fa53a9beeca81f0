package elfsym

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"math"
	"slices"
)

const (
	// maxSymbols bounds the time that a table costs: 100 MB of file, half a second. libjvm.so has
	// 100,000 symbols, a browser with all of them a million.
	maxSymbols = 4 << 20

	// maxNoteSections and maxNoteSectionBytes bound the search for a build id: linkers write up to
	// four sections, of less than 100 bytes each.
	maxNoteSections     = 16
	maxNoteSectionBytes = 64 << 10

	// streamBytes is the unit in which tables are read.
	streamBytes = 64 << 10
)

// SymbolTables is where the symbols of one file are. It goes by the section headers, since no
// program header leads to .symtab. It reads from the reader that it was made with.
type SymbolTables struct {
	Static  *SymbolTable // .symtab, nil when it was stripped
	Dynamic *SymbolTable // .dynsym, nil in a static executable and in a debug file
	BuildID []byte       // the GNU build id; nil when no section of notes has one
}

// ReadSymbolTables reads the section headers of a file, for whichever machine it is. Errors about
// its contents are those of IsContentError, all others come from r.
func ReadSymbolTables(r io.ReaderAt, size int64) (*SymbolTables, error) {
	f := source{r: r, size: uint64(max(size, 0))}
	sections, err := f.sections()
	if err != nil {
		return nil, fmt.Errorf("reading section headers: %w", err)
	}
	s := &SymbolTables{}
	var code []codeSection
	for i, section := range sections {
		if section.flags&uint64(elf.SHF_EXECINSTR) != 0 && section.addr <= math.MaxUint64-section.size {
			code = append(code, codeSection{uint16(i), section.addr + section.size})
		}
	}
	notes := 0
	for _, section := range sections {
		switch section.kind {
		case elf.SHT_SYMTAB:
			s.Static = f.symbolTable(section, sections, code)
		case elf.SHT_DYNSYM:
			s.Dynamic = f.symbolTable(section, sections, code)
		case elf.SHT_NOTE:
			if notes++; s.BuildID == nil && notes <= maxNoteSections && section.size <= maxNoteSectionBytes {
				content := make([]byte, section.size)
				if err := f.read(section.off, content); err == nil {
					s.BuildID = GNUBuildID(content)
				} else if !IsContentError(err) {
					return nil, fmt.Errorf("reading notes: %w", err)
				}
			}
		}
	}
	if s.Dynamic != nil {
		s.Dynamic.partial = true
	}
	return s, nil
}

// SymbolTable is a symbol table of a file. A nil one has no symbols.
type SymbolTable struct {
	source         source
	symbols, names section
	code           []codeSection // by index
	partial        bool          // it lists the exported functions only
}

// codeSection is an executable section.
type codeSection struct {
	index uint16
	end   uint64 // ELF address of the first byte behind it
}

// symbolTable returns nil when the section cannot be read: others may be readable.
func (f source) symbolTable(s section, sections []section, code []codeSection) *SymbolTable {
	if s.entryBytes != symbolBytes || uint64(s.link) >= uint64(len(sections)) {
		return nil
	}
	names := sections[s.link]
	if names.kind != elf.SHT_STRTAB {
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
	count := t.symbols.size / symbolBytes
	if count > maxSymbols {
		return fmt.Errorf("%w: %d symbols, at most %d", ErrLimit, count, maxSymbols)
	}
	r, err := t.source.stream(t.symbols.off, count*symbolBytes)
	if err != nil {
		return err
	}
	var b [symbolBytes]byte
	for range count {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return truncated(err)
		}
		if f, ok := t.function(decodeSymbol(&b)); ok {
			if err := visit(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// function reports whether a symbol names code. What assemblers write can lack the type or the
// size. A symbol without a type has to be global: local ones are labels within functions. One
// without a size reaches to the next symbol, within its section; in a table of the exported
// functions alone, the next can be far behind those between, so there it names nothing.
func (t *SymbolTable) function(sym elf.Sym64) (Function, bool) {
	binding := elf.ST_BIND(sym.Info)
	code, inCode := t.codeSection(sym.Shndx)
	switch elf.ST_TYPE(sym.Info) {
	case elf.STT_FUNC, elf.STT_GNU_IFUNC:
		if elf.SectionIndex(sym.Shndx) == elf.SHN_UNDEF {
			return Function{}, false
		}
	case elf.STT_NOTYPE:
		if !inCode || binding == elf.STB_LOCAL {
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
	if pos >= t.names.size || t.names.off > math.MaxUint64-pos {
		return nil, fmt.Errorf("%w: name at %#x of a string table of %#x bytes", errMalformed, pos, t.names.size)
	}
	off := t.names.off + pos
	if off >= t.source.size {
		return nil, fmt.Errorf("%w: name at %#x", errTruncated, off)
	}
	left := min(t.names.size-pos, t.source.size-off, uint64(len(buf)))
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
