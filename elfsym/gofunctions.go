package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// The beginning of the section with the functions (runtime.pcHeader), since Go 1.18:
//
//	offset  size  field
//	     0     4  magic
//	     7     1  size of a pointer
//	     8     8  number of functions
//	    24     8  address of the text; 0 since Go 1.26, and in programs at any address
//	    32     8  offset of the names, each with a NUL at its end
//	    40     8  offset of what follows them
//	    64     8  offset of the functions
//
// The functions are a table of their addresses, counted from the text, and of the places where they are described,
// counted from the table: 4 bytes each. Last comes the end of the last one. A description (runtime._func) has at 4
// where the name is, counted from the names.
const (
	functionsMagic118 = 0xfffffff0
	functionsMagic    = 0xfffffff1 // since Go 1.20
	functionsBytes    = 72

	goEntryBytes = 8
	goNameAt     = 4

	// goModuleTextAt is where Go's description of a program (.go.module, since Go 1.26) has the address of the text.
	goModuleTextAt = 22 * 8
)

// functionsNames are the names of that section, in programs at a fixed and at any address.
var functionsNames = []string{".gopclntab", ".data.rel.ro.gopclntab"}

// GoFunctions are the functions of a Go program, which it needs itself: it has them also when it was stripped. Package
// runtime knows them by the same names. A nil one has none.
type GoFunctions struct {
	source          source
	off, size       uint64 // of the section
	text            uint64
	count, table    uint64
	names, namesEnd uint64
}

// goFunctions returns nil if a file has no table that can be read.
func (p *pages) goFunctions(sections []elf.Section64) *GoFunctions {
	s, ok := p.loaded(sections, functionsNames...)
	var header [functionsBytes]byte
	if !ok || s.Size < functionsBytes || p.source.read(s.Off, header[:]) != nil {
		return nil
	}
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(header[at:]) }
	magic := binary.LittleEndian.Uint32(header[:])
	g := &GoFunctions{source: p.source, off: s.Off, size: s.Size, count: word(8), text: word(24), names: word(32),
		namesEnd: word(40), table: word(64)}
	if magic != functionsMagic118 && magic != functionsMagic || header[7] != 8 || g.names > g.namesEnd ||
		g.namesEnd > g.size || g.table > g.size || g.count >= (g.size-g.table)/goEntryBytes {
		return nil
	}
	if g.text == 0 {
		if module, ok := p.loaded(sections, ".go.module"); ok && module.Size >= goModuleTextAt+8 {
			var b [8]byte
			if p.source.read(module.Off+goModuleTextAt, b[:]) == nil {
				g.text = binary.LittleEndian.Uint64(b[:])
			}
		}
	}
	if text, ok := p.loaded(sections, ".text"); ok && g.text == 0 && g.startsAt(p, text.Addr) {
		g.text = text.Addr
	}
	if g.text == 0 || g.text > math.MaxUint64-math.MaxUint32 {
		return nil
	}
	return g
}

// loaded returns the first section with one of these names that is loaded.
func (p *pages) loaded(sections []elf.Section64, names ...string) (elf.Section64, bool) {
	for _, s := range sections {
		if elf.SectionType(s.Type) == elf.SHT_PROGBITS && s.Flags&uint64(elf.SHF_ALLOC) != 0 &&
			slices.Contains(names, p.name(s, sections)) {
			return s, true
		}
	}
	return elf.Section64{}, false
}

// startsAt reports whether the program starts in a function of Go's that is for that, if its text is at an address.
// Programs that the system's linker has linked do not.
func (g *GoFunctions) startsAt(p *pages, text uint64) bool {
	header, err := p.header()
	if err != nil {
		return false
	}
	g.text = text
	defer func() { g.text = 0 }()
	found := false
	_ = g.Functions(func(f Function) error {
		if f.Start == header.Entry {
			name, err := g.Name(f.Name, make([]byte, len("_rt0_")))
			found = err == nil && string(name) == "_rt0_"
		}
		return nil
	})
	return found
}

// Functions calls visit with every function, until it returns an error. It reads the whole table of addresses; more
// than maxSymbols functions are ErrLimit.
func (g *GoFunctions) Functions(visit func(Function) error) error {
	if g == nil {
		return nil
	}
	if err := g.functions(visit); err != nil {
		return fmt.Errorf("reading Go's functions: %w", err)
	}
	return nil
}

func (g *GoFunctions) functions(visit func(Function) error) error {
	if g.count > maxSymbols {
		return fmt.Errorf("%w: %d functions, at most %d", ErrLimit, g.count, maxSymbols)
	}
	r, err := g.source.stream(g.off+g.table, g.count*goEntryBytes+goEntryBytes/2)
	if err != nil {
		return err
	}
	for range g.count {
		b, err := r.Peek(goEntryBytes + goEntryBytes/2)
		if err != nil {
			return truncated(err)
		}
		f := Function{Start: g.text + uint64(binary.LittleEndian.Uint32(b)), Sized: true, Rank: 3,
			Name: binary.LittleEndian.Uint32(b[4:]), End: g.text + uint64(binary.LittleEndian.Uint32(b[goEntryBytes:]))}
		if f.Start < f.End {
			if err := visit(f); err != nil {
				return err
			}
		}
		_, _ = r.Discard(goEntryBytes) // it is there
	}
	return nil
}

// Name reads the name of a function into buf. A longer one is cut off.
func (g *GoFunctions) Name(pos uint32, buf []byte) ([]byte, error) {
	name, err := g.name(uint64(pos), buf)
	if err != nil {
		return nil, fmt.Errorf("reading the name of a Go function: %w", err)
	}
	return name, nil
}

func (g *GoFunctions) name(pos uint64, buf []byte) ([]byte, error) {
	var b [4]byte
	if left := g.size - g.table; pos > left || left-pos < goNameAt+4 {
		return nil, fmt.Errorf("%w: function at %#x of %#x bytes", errMalformed, pos, left)
	}
	if err := g.source.read(g.off+g.table+pos+goNameAt, b[:]); err != nil {
		return nil, err
	}
	at := uint64(binary.LittleEndian.Uint32(b[:]))
	if at >= g.namesEnd-g.names {
		return nil, fmt.Errorf("%w: name at %#x of %#x bytes", errMalformed, at, g.namesEnd-g.names)
	}
	buf = buf[:min(uint64(len(buf)), g.namesEnd-g.names-at)]
	if err := g.source.read(g.off+g.names+at, buf); err != nil {
		return nil, err
	}
	name, _, _ := bytes.Cut(buf, []byte{0})
	return name, nil
}
