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

// dynamic holds the entries of PT_DYNAMIC by tag. An address of 0 means that there is no such
// table: the ELF header is at 0. Where a tag repeats, the last one counts, as for the loaders.
type dynamic map[elf.DynTag]uint64

// dynamicValues holds the only values of some tags that loaders take.
var dynamicValues = dynamic{
	elf.DT_SYMENT: symbolBytes, elf.DT_RELAENT: relaBytes, elf.DT_PLTREL: uint64(elf.DT_RELA),
}

// readDynamic reads PT_DYNAMIC up to DT_NULL. An entry (Elf64_Dyn in elf.h) is d_tag and d_val,
// eight bytes little-endian each.
func readDynamic(m image, program elf.Prog64) (dynamic, error) {
	d := make(dynamic, 32) // what linkers write
	entries, err := m.at(program.Vaddr)
	if err != nil {
		return nil, err
	}
	for i := range uint64(maxDynamicEntries) {
		var b [dynamicBytes]byte
		if err := entries.read(i*dynamicBytes, b[:]); err != nil {
			return nil, err
		}
		tag, value := elf.DynTag(binary.LittleEndian.Uint64(b[0:])), binary.LittleEndian.Uint64(b[8:])
		if tag == elf.DT_NULL {
			return d, nil
		}
		if want, ok := dynamicValues[tag]; ok && value != want {
			return nil, fmt.Errorf("%w: %v is %d instead of %d", errMalformed, tag, value, want)
		}
		d[tag] = value
	}
	return nil, fmt.Errorf("%w: no end of PT_DYNAMIC in %d entries", ErrLimit, maxDynamicEntries)
}
