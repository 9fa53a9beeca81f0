package elfsym

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

const (
	noteHeaderBytes = 12 // sizeof(Elf64_Nhdr)
	noteNameGNU     = "GNU\x00"
	noteTypeBuildID = 3  // NT_GNU_BUILD_ID
	maxBuildIDBytes = 64 // linkers write 8 to 32; --build-id=0x... takes any number

	noteNameGo      = "Go\x00\x00"
	noteTypeGo      = 4
	maxGoBuildBytes = 128 // Go's linker writes 83

	// maxNotes is how many notes of a file are read, so that a file without a build id costs no
	// more than 64 pages, wherever its headers place notes. The most on a Debian machine is 4.
	maxNotes = 64
)

// GNUBuildID returns the first GNU build id in notes outside of a file, nil when there is none:
// those of the kernel and its modules in /sys. They are aligned to 4.
func GNUBuildID(notes []byte) []byte {
	p, err := newPages(bytes.NewReader(notes), int64(len(notes)))
	if err != nil {
		return nil
	}
	n := notesReader{pages: p, left: maxNotes}
	if err := n.search(0, p.size, 4); err != nil {
		return nil
	}
	return n.id
}

// notesReader searches at most left notes of a file for the build ids of GNU and of Go.
type notesReader struct {
	pages *pages
	left  int
	id    []byte // the first one, nil until it is found
	goID  string // the same, as "go tool buildid" prints it
}

// search searches the notes of a segment or of a section. Broken ones have no build id; only errors
// of reading are returned.
func (n *notesReader) search(off, size, align uint64) error {
	err := n.read(off, size, align)
	if err != nil && !IsContentError(err) {
		return fmt.Errorf("reading notes: %w", err)
	}
	return nil
}

// read finds the first ids of a range of notes. Contents of other notes are skipped and not read,
// whatever their length. A note (Elf64_Nhdr in elf.h; all little-endian):
//
//	offset size field
//	     0    4 n_namesz
//	     4    4 n_descsz
//	     8    4 n_type
//	    12      name, padded; contents, padded
func (n *notesReader) read(off, size, align uint64) error {
	notes, err := n.pages.table(off, size)
	if err != nil {
		return err
	}
	if align != 8 {
		align = 4
	}
	padded := func(pos uint64) uint64 { return (pos + align - 1) &^ (align - 1) }

	for pos := uint64(0); n.left > 0 && pos < notes.size && notes.size-pos >= noteHeaderBytes; n.left-- {
		var b [noteHeaderBytes + len(noteNameGNU)]byte
		if err := notes.read(pos, b[:noteHeaderBytes]); err != nil {
			return err
		}
		nameLen := uint64(binary.LittleEndian.Uint32(b[0:]))
		contentLen := uint64(binary.LittleEndian.Uint32(b[4:]))
		kind := binary.LittleEndian.Uint32(b[8:])
		content := padded(pos + noteHeaderBytes + nameLen)

		gnu := n.id == nil && kind == noteTypeBuildID && contentLen <= maxBuildIDBytes
		golang := n.goID == "" && kind == noteTypeGo && contentLen <= maxGoBuildBytes
		if (gnu || golang) && contentLen > 0 && nameLen == uint64(len(noteNameGNU)) {
			if err := notes.read(pos, b[:]); err != nil {
				return err
			}
			name, id := string(b[noteHeaderBytes:]), make([]byte, contentLen)
			if gnu && name == noteNameGNU || golang && name == noteNameGo {
				if err := notes.read(content, id); err != nil {
					return err
				}
			}
			switch {
			case gnu && name == noteNameGNU:
				n.id = id
			case golang && name == noteNameGo && isGraphic(id):
				n.goID = string(id)
			}
		}
		pos = padded(content + contentLen)
	}
	return nil
}

// isGraphic reports whether all bytes are printable ASCII, and no spaces.
func isGraphic(text []byte) bool {
	return !slices.ContainsFunc(text, func(b byte) bool { return b <= ' ' || b >= 0x7f })
}
