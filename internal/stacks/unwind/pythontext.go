package unwind

import (
	"encoding/binary"
	"fmt"
	"io"
	"unicode/utf8"
)

// textBytes is how much the engine reads at the place of a text, of which it takes what is before the first zero.
const textBytes = 1024

// pythonText gives the engine texts of CPython as it expects all of them, in ASCII or what has it in common with UTF-8:
// those with other letters are elsewhere in their objects, with 1, 2 or 4 bytes each (PEP 393).
//
//	offset  of a PyUnicodeObject, 64 bits
//	16      length     uint64  letters
//	32      state      uint32  interned, in the first 2 bits, since 3.14 in 16; then kind:3, compact:1, ascii:1
//	40      text, if ascii is set; before 3.12 at 48, behind a pointer
//	56      text otherwise, behind its length and a pointer to it in UTF-8; before 3.12 at 72
//
// (Include/cpython/unicodeobject.h)
type pythonText struct{ ascii, other, kind int64 } // offsets; kind in bits

// newPythonText returns the offsets of a version, as the engine names it; nil if it is none of CPython.
func newPythonText(version string) *pythonText {
	var minor int
	if _, err := fmt.Sscanf(version, "Python 3.%d", &minor); err != nil {
		return nil
	}
	switch {
	case minor < 12:
		return &pythonText{48, 72, 2}
	case minor < 14:
		return &pythonText{40, 56, 2}
	default:
		return &pythonText{40, 56, 16}
	}
}

// read reads from memory; in place of what is behind the head of an object with letters that are not of ASCII, these.
func (t *pythonText) read(memory io.ReaderAt, b []byte, at int64) (n int, err error) {
	n, err = memory.ReadAt(b, at)
	if t == nil || len(b) != textBytes {
		return n, err
	}
	var head [36]byte
	object := at - t.ascii
	if _, headErr := memory.ReadAt(head[:], object); headErr != nil {
		return n, err // as it is
	}
	length, state := binary.LittleEndian.Uint64(head[16:]), binary.LittleEndian.Uint32(head[32:])>>t.kind
	size, compact, ascii := int(state&7), state&8 != 0, state&16 != 0
	if ascii || !compact || length == 0 || length > textBytes || size != 1 && size != 2 && size != 4 {
		return n, err
	}
	letters := make([]byte, int(length)*size)
	if _, lettersErr := memory.ReadAt(letters, object+t.other); lettersErr != nil {
		return n, err
	}
	return copy(b, append(utf8Of(letters, size), 0)), nil
}

// utf8Of returns letters of so many bytes each in UTF-8, with room for a zero behind what the engine reads.
func utf8Of(letters []byte, size int) (text []byte) {
	for ; len(letters) > 0; letters = letters[size:] {
		var wide [4]byte
		copy(wide[:], letters[:size])
		letter := rune(binary.LittleEndian.Uint32(wide[:]))
		if letter == 0 {
			letter = utf8.RuneError
		}
		if text = utf8.AppendRune(text, letter); len(text) >= textBytes-utf8.UTFMax {
			break
		}
	}
	return text
}
