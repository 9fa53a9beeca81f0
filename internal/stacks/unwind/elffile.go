package unwind

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"unsafe"
)

const (
	// maxNamesBytes is how much the engine reads of the names of a file's symbols. A file with more it refuses, with
	// the runtime in it (Node.js 26 has 19 MB): it gets such a file as if they ended there. Symbols that are named
	// behind it are not found then.
	maxNamesBytes = 16 << 20

	// maxNotesBytes bounds the notes of a file, for the contents of which the engine allocates what their headers say.
	// Programs have some hundred bytes of them. Those beyond, and beyond a quarter in one place, are none.
	maxNotesBytes = 256 << 10

	// maxDynamicBytes bounds the entries of PT_DYNAMIC: the engine keeps each library that one needs. Programs have
	// some ten of them, and some hundred bytes of others.
	maxDynamicBytes = 64 << 10

	// maxZeroBytes bounds the memory behind what segments have in the file, which is read without reading: a chain of
	// symbols there has no end. Programs have some hundred kB of which anything is looked up.
	maxZeroBytes = 1 << 20

	// maxHeaders bounds the headers of segments, and those of sections. A file with more is refused:
	// linkers make 15 and 40.
	maxHeaders = 4096
)

var (
	errHeaders = errors.New("an ELF file has more headers than programs have")
	errOverlap = errors.New("headers of an ELF file overlap")
)

// noteHeader is Elf64_Nhdr.
type noteHeader struct{ NameBytes, Bytes, Type uint32 }

// A patch is what the engine gets of a file at a place.
type patch struct {
	at    int64
	bytes []byte
}

func (p patch) overlaps(other patch) bool {
	return max(p.at, other.at) < min(p.at+int64(len(p.bytes)), other.at+int64(len(other.bytes)))
}

// elfPatches returns what the engine is to get instead of a file's headers and notes. It is what they have now, so that
// nobody can change what was checked; with sizes that are bounded.
func elfPatches(file io.ReaderAt) ([]patch, error) {
	var header elf.Header64
	head := make([]byte, binary.Size(&header))
	if _, err := file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	patches := []patch{{0, head}}
	if _, err := binary.Decode(head, binary.LittleEndian, &header); err != nil {
		return nil, err
	}
	if string(head[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return patches, nil // which the engine says itself
	}
	if header.Phnum > maxHeaders || header.Shnum > maxHeaders {
		return nil, errHeaders
	}
	var none elf.Section64
	segments := make([]byte, int(header.Phnum)*binary.Size(elf.Prog64{}))
	sections := make([]byte, int(header.Shnum)*binary.Size(none))
	if _, err := file.ReadAt(segments, int64(header.Phoff)); err != nil {
		return nil, err
	}
	if _, err := file.ReadAt(sections, int64(header.Shoff)); err != nil {
		clear(head[unsafe.Offsetof(header.Shnum):][:2]) // they are not in memory, for example
		sections = nil
	}
	for _, p := range []patch{{int64(header.Phoff), segments}, {int64(header.Shoff), sections}} {
		if slices.ContainsFunc(patches, p.overlaps) {
			return nil, errOverlap // a size in both would be bounded in one
		}
		patches = append(patches, p)
	}
	left, headers := uint64(maxNotesBytes), len(patches)
	notes := func(offset uint64, size []byte) {
		n := min(binary.LittleEndian.Uint64(size), left, maxNotesBytes/4)
		left -= n
		p := patch{at: int64(offset), bytes: make([]byte, n)}
		read, _ := file.ReadAt(p.bytes, p.at)
		apply(patches, p.bytes[:read], p.at)
		p.bytes = wholeNotes(p.bytes[:read])
		for _, header := range patches[:headers] { // whose sizes would be notes
			if p.overlaps(header) {
				p.bytes = nil
			}
		}
		binary.LittleEndian.PutUint64(size, uint64(len(p.bytes)))
		if len(p.bytes) > 0 {
			patches = append(patches, p)
		}
	}
	dynamic, zero := uint64(maxDynamicBytes), uint64(maxZeroBytes)
	for ; len(segments) > 0; segments = segments[binary.Size(elf.Prog64{}):] {
		var segment elf.Prog64
		_, _ = binary.Decode(segments, binary.LittleEndian, &segment)
		size := segments[unsafe.Offsetof(segment.Filesz):][:8]
		switch elf.ProgType(segment.Type) {
		case elf.PT_NOTE:
			notes(segment.Off, size)
		case elf.PT_DYNAMIC:
			n := min(segment.Filesz, dynamic)
			binary.LittleEndian.PutUint64(size, n)
			dynamic -= n
		case elf.PT_LOAD:
			inFile := min(segment.Memsz, segment.Filesz)
			n := min(segment.Memsz-inFile, zero)
			binary.LittleEndian.PutUint64(segments[unsafe.Offsetof(segment.Memsz):], inFile+n)
			zero -= n
		}
	}
	for ; len(sections) > 0; sections = sections[binary.Size(none):] {
		var section elf.Section64
		_, _ = binary.Decode(sections, binary.LittleEndian, &section)
		size := sections[unsafe.Offsetof(section.Size):][:8]
		switch elf.SectionType(section.Type) {
		case elf.SHT_STRTAB:
			binary.LittleEndian.PutUint64(size, min(section.Size, maxNamesBytes))
		case elf.SHT_NOTE:
			notes(section.Off, size)
		}
	}
	return patches, nil
}

// wholeNotes returns the notes up to the first that says that it has more than is there.
func wholeNotes(all []byte) []byte {
	end := uint64(0)
	for {
		var header noteHeader
		if _, err := binary.Decode(all[end:], binary.LittleEndian, &header); err != nil {
			return all[:end]
		}
		whole := end + uint64(binary.Size(header)) + aligned(header.NameBytes) + aligned(header.Bytes)
		if whole > uint64(len(all)) {
			return all[:end]
		}
		end = whole
	}
}

// aligned returns how much room a name or a description of a note takes.
func aligned(n uint32) uint64 { return (uint64(n) + 3) &^ 3 }

// apply puts patches over what was read at a place. Where two overlap, they are the same: elfPatches
// sees to that.
func apply(patches []patch, b []byte, at int64) {
	for _, p := range patches {
		from, to := max(at, p.at), min(at+int64(len(b)), p.at+int64(len(p.bytes)))
		if from < to {
			copy(b[from-at:to-at], p.bytes[from-p.at:])
		}
	}
}
