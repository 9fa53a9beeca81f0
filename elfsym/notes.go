package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

const (
	noteHeaderBytes = 12 // sizeof(Elf64_Nhdr)
	noteNameGNU     = "GNU\x00"
	noteTypeBuildID = 3  // NT_GNU_BUILD_ID
	maxBuildIDBytes = 64 // linkers write 8 to 32; --build-id=0x... takes any number

	// maxNotes is how many notes of a file are read, so that a file without a build id costs no
	// more than 64 pages, wherever its headers place notes. The most on a Debian machine is 4.
	maxNotes = 64
)

// GNUBuildID returns the first GNU build id in notes outside of a file, nil when there is none:
// those of the kernel and its modules in /sys, or of a section. They are aligned to 4.
func GNUBuildID(notes []byte) []byte {
	p, err := newPages(bytes.NewReader(notes), int64(len(notes)))
	if err != nil {
		return nil
	}
	n := notesReader{pages: p, left: maxNotes}
	id, err := n.buildID(elf.Prog64{Filesz: uint64(len(notes)), Align: 4})
	if err != nil {
		return nil
	}
	return id
}

// notesReader reads at most left notes of a file.
type notesReader struct {
	pages *pages
	left  int
}

// buildID returns the first GNU build id of a PT_NOTE segment, nil when it has none. Contents of
// other notes are skipped and not read, whatever their length. A note (Elf64_Nhdr in elf.h; all
// little-endian):
//
//	offset size field
//	     0    4 n_namesz
//	     4    4 n_descsz
//	     8    4 n_type
//	    12      name, padded; contents, padded
func (n *notesReader) buildID(program elf.Prog64) ([]byte, error) {
	segment, err := n.pages.table(program.Off, program.Filesz)
	if err != nil {
		return nil, err
	}
	align := uint64(4)
	if program.Align == 8 {
		align = 8
	}
	padded := func(pos uint64) uint64 { return (pos + align - 1) &^ (align - 1) }

	for pos := uint64(0); n.left > 0 && pos < segment.size && segment.size-pos >= noteHeaderBytes; n.left-- {
		var b [noteHeaderBytes + len(noteNameGNU)]byte
		if err := segment.read(pos, b[:noteHeaderBytes]); err != nil {
			return nil, err
		}
		nameLen := uint64(binary.LittleEndian.Uint32(b[0:]))
		contentLen := uint64(binary.LittleEndian.Uint32(b[4:]))
		kind := binary.LittleEndian.Uint32(b[8:])
		content := padded(pos + noteHeaderBytes + nameLen)

		if kind == noteTypeBuildID && nameLen == uint64(len(noteNameGNU)) &&
			contentLen > 0 && contentLen <= maxBuildIDBytes {
			if err := segment.read(pos, b[:]); err != nil {
				return nil, err
			}
			if string(b[noteHeaderBytes:]) == noteNameGNU {
				id := make([]byte, contentLen)
				return id, segment.read(content, id)
			}
		}
		pos = padded(content + contentLen)
	}
	return nil, nil
}
