package unwind

import (
	"debug/elf"
	"encoding/binary"
	"io"
)

// maxNamesBytes is how much the engine reads of the names of a file's symbols. A file with more it refuses, with
// the runtime in it (Node.js 26 has 19 MB): it gets such a file as if they ended there. Symbols that are named
// behind it are not found then.
const maxNamesBytes = 16 << 20

// maxSections bounds the sections that are looked at.
const maxSections = 256

// Of a header of a section, in ELF's 64-bit form.
const (
	sectionBytes  = 64
	sectionType   = 4
	sectionLength = 32
)

// longNames returns where a file has the sizes of sections with more than maxNamesBytes of names.
func longNames(file io.ReaderAt) (at []int64) {
	var header elf.Header64
	head := make([]byte, binary.Size(&header))
	if _, err := file.ReadAt(head, 0); err != nil || string(head[:4]) != elf.ELFMAG {
		return nil
	}
	if _, err := binary.Decode(head, binary.LittleEndian, &header); err != nil || header.Shentsize != sectionBytes {
		return nil
	}
	sections := make([]byte, sectionBytes*min(int(header.Shnum), maxSections))
	if _, err := file.ReadAt(sections, int64(header.Shoff)); err != nil {
		return nil
	}
	for i := 0; i < len(sections); i += sectionBytes {
		section := sections[i:]
		isNames := elf.SectionType(binary.LittleEndian.Uint32(section[sectionType:])) == elf.SHT_STRTAB
		if isNames && binary.LittleEndian.Uint64(section[sectionLength:]) > maxNamesBytes {
			at = append(at, int64(header.Shoff)+int64(i)+sectionLength)
		}
	}
	return at
}

// shorten makes the sizes that are at some places of a file maxNamesBytes in what was read of it.
func shorten(b []byte, at int64, sizes []int64) {
	size := binary.LittleEndian.AppendUint64(nil, maxNamesBytes)
	for _, s := range sizes {
		for i := range size {
			if in := s + int64(i) - at; in >= 0 && in < int64(len(b)) {
				b[in] = size[i]
			}
		}
	}
}
