package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
)

// image reads a file as the loader sees it: by ELF address.
type image struct {
	pages    *pages
	segments []Segment
}

// at returns the file's bytes from an address to the end of its segment. Where segments overlap the
// last one counts: the loader maps it over the others.
func (m image) at(addr uint64) (table, error) {
	for _, s := range slices.Backward(m.segments) {
		if pos := addr - s.Vaddr; addr >= s.Vaddr && pos < s.Filesz {
			return m.pages.table(s.Off+pos, s.Filesz-pos)
		}
	}
	return table{}, fmt.Errorf("%w: address %#x is in no segment of the file", errMalformed, addr)
}

// contains reports whether all bytes are in the memory of one segment, from the file or zeroed by
// the loader.
func (m image) contains(addr, lenBytes uint64) bool {
	return slices.ContainsFunc(m.segments, func(s Segment) bool {
		pos := addr - s.Vaddr
		return addr >= s.Vaddr && pos < s.Memsz && lenBytes <= s.Memsz-pos
	})
}

const (
	dynamicBytes = 16 // sizeof(Elf64_Dyn)

	// maxDynamicEntries bounds the entries of PT_DYNAMIC that are read. There are fewer than a
	// hundred tags, of which only DT_NEEDED repeats; the longest table on a Debian machine has 45
	// entries.
	maxDynamicEntries = 1024
)

// dynamic holds the entries of PT_DYNAMIC that are used. An address of 0 means that there is no
// such table: the ELF header is at 0. Where a tag repeats, the last one counts, as for the loaders.
type dynamic struct {
	symtab, strtab, strsz uint64
	gnuHash, sysvHash     uint64
	jmprel, pltrelsz      uint64
	rela, relasz          uint64
}

// readDynamic reads PT_DYNAMIC up to DT_NULL. An entry (Elf64_Dyn in elf.h) is
// d_tag and d_val, eight bytes little-endian each.
func readDynamic(m image, program elf.Prog64) (dynamic, error) {
	var d dynamic
	entries, err := m.at(program.Vaddr)
	if err != nil {
		return d, err
	}
	for i := range uint64(maxDynamicEntries) {
		var b [dynamicBytes]byte
		if err := entries.read(i*dynamicBytes, b[:]); err != nil {
			return d, err
		}
		tag := elf.DynTag(binary.LittleEndian.Uint64(b[0:]))
		if tag == elf.DT_NULL {
			return d, nil
		}
		if err := d.set(tag, binary.LittleEndian.Uint64(b[8:])); err != nil {
			return d, err
		}
	}
	return d, fmt.Errorf("%w: no end of PT_DYNAMIC in %d entries", ErrLimit, maxDynamicEntries)
}

func (d *dynamic) set(tag elf.DynTag, value uint64) error {
	expected := value
	switch tag {
	case elf.DT_SYMTAB:
		d.symtab = value
	case elf.DT_STRTAB:
		d.strtab = value
	case elf.DT_STRSZ:
		d.strsz = value
	case elf.DT_GNU_HASH:
		d.gnuHash = value
	case elf.DT_HASH:
		d.sysvHash = value
	case elf.DT_JMPREL:
		d.jmprel = value
	case elf.DT_PLTRELSZ:
		d.pltrelsz = value
	case elf.DT_RELA:
		d.rela = value
	case elf.DT_RELASZ:
		d.relasz = value
	case elf.DT_SYMENT:
		expected = symbolBytes
	case elf.DT_RELAENT:
		expected = relaBytes
	case elf.DT_PLTREL:
		expected = uint64(elf.DT_RELA)
	}
	if value != expected {
		return fmt.Errorf("%w: %v is %d instead of %d", errMalformed, tag, value, expected)
	}
	return nil
}
