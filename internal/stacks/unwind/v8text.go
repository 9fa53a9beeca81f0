package unwind

import (
	"encoding/binary"
	"io"
	"unicode/utf16"
)

const (
	// maxV8TextBytes is what the engine reads of a name. Only texts of scripts are longer.
	maxV8TextBytes = 1 << 10

	// v8ScopeBytes is what the engine reads of the description of a scope, also of a shorter one, and v8ChunkBytes what
	// V8 takes of the system at a time, in versions that the engine reads. No object is in two of them but large ones.
	v8ScopeBytes, v8ChunkBytes = 16 * 8, 1 << 18

	// maxV8Kinds bounds the types of objects that are known. For a word, some fifty are seen.
	maxV8Kinds = 4 << 10
)

// v8Text gives the engine strings of V8 as it expects all of them, with one byte for each character: names in UTF-8,
// which V8 has in Latin-1 or UTF-16. The text of a script, in which places are counted, stays as long as it is.
//
// It learns from what the engine reads: that of each object begins with its map, which has its type.
type v8Text struct {
	*v8Layout
	kinds map[uint64]uint32 // by map, a tagged word

	at, word uint64 // the last word that was read, and where
	script   uint64 // the last script
	isSource bool   // what is read is its text
	isFile   bool   // what is read is the name of its file
	object   uint64 // the last string with characters behind each other, 0 before
	length   uint64 // as the engine is told it
	text     []byte // nil: as it is in memory
	isWide   bool   // it has two bytes a character
	lost     bool   // a name could not be read: the engine may take a function for one without
}

// newV8Text returns nil where V8 does not say enough.
func newV8Text(l *v8Layout) *v8Text {
	for _, offset := range []uint32{l.stringLength, l.oneByteChars, l.twoByteChars, l.scriptSource, l.scriptName} {
		if offset == 0 || offset >= maxV8Offset {
			return nil
		}
	}
	for _, kind := range []uint32{l.notString, l.encodingMask, l.formMask, l.oneByte, l.typeScript} {
		if kind == 0 || kind >= maxV8Type {
			return nil
		}
	}
	return &v8Text{v8Layout: l, kinds: make(map[uint64]uint32)}
}

// forget forgets what was read.
func (t *v8Text) forget() {
	if t != nil {
		clear(t.kinds)
		*t = v8Text{v8Layout: t.v8Layout, kinds: t.kinds}
	}
}

// read reads from memory.
func (t *v8Text) read(memory io.ReaderAt, b []byte, off int64) (int, error) {
	at, n := uint64(off), uint64(len(b))
	from := at - t.object - uint64(t.oneByteChars)
	isText := t.object != 0 && n > 0 && from < t.length && n <= t.length-from
	if isText { // it is within the string, and not of another object
		switch {
		case t.text != nil && from == 0 && n == t.length:
			return copy(b, t.text), nil
		case t.isWide && t.isSource:
			return t.readWide(memory, b, t.object+uint64(t.twoByteChars)+2*from)
		case t.isWide:
			return 0, errV8Object
		}
	}
	if end := v8ChunkBytes - at%v8ChunkBytes; n == v8ScopeBytes && end < n && !isText {
		// Behind it may be nothing: the engine would take the function for one without a name.
		clear(b[end:])
		_, err := memory.ReadAt(b[:end], off)
		return len(b), err
	}
	read, err := memory.ReadAt(b, off)
	if err != nil {
		return read, err
	}
	switch {
	case len(b) == 8:
		t.at, t.word = at, binary.LittleEndian.Uint64(b)
		if t.script != 0 {
			t.isSource = t.isSource || at == t.script+uint64(t.scriptSource)
			t.isFile = t.isFile && !t.isSource || at == t.script+uint64(t.scriptName)
		}
		if kind, known := t.kinds[t.word]; known {
			t.begin(memory, kind)
		}
	case len(b) == 2 && t.word&v8TagMask == v8Tag && at == t.word-v8Tag+v8TypeOffset:
		kind := uint32(binary.LittleEndian.Uint16(b))
		if len(t.kinds) == maxV8Kinds {
			t.lost = true
			return read, nil
		}
		t.kinds[t.word] = kind
		t.begin(memory, kind)
		if kind < t.notString && kind&t.formMask == 0 && kind&t.encodingMask != t.oneByte {
			binary.LittleEndian.PutUint16(b, uint16(kind&^t.encodingMask|t.oneByte))
		}
	case len(b) == 4 && t.text != nil && at == t.object+uint64(t.stringLength):
		binary.LittleEndian.PutUint32(b, uint32(t.length))
	}
	return read, nil
}

// begin is called when the engine has read the map of an object, in the last word.
func (t *v8Text) begin(memory io.ReaderAt, kind uint32) {
	switch {
	case kind >= t.notString:
		t.object, t.text, t.isWide, t.isSource, t.isFile = 0, nil, false, false, false
		if kind == t.typeScript {
			t.script = t.at
		}
		return
	case kind&t.formMask != 0:
		return // it is made of others
	}
	t.object, t.length, t.text, t.isWide = t.at, 0, nil, kind&t.encodingMask != t.oneByte
	var b [4]byte
	if _, err := memory.ReadAt(b[:], int64(t.at)+int64(t.stringLength)); err != nil {
		t.lost = true
		return
	}
	if t.length = uint64(binary.LittleEndian.Uint32(b[:])); !t.isSource {
		t.lost = !t.readName(memory) && !t.isFile || t.lost
	}
}

// readName reads the string as a name, and reports whether it is one.
func (t *v8Text) readName(memory io.ReaderAt) bool {
	if t.length > maxV8TextBytes {
		return false
	}
	chars, size := t.oneByteChars, uint64(1)
	if t.isWide {
		chars, size = t.twoByteChars, 2
	}
	raw, units := make([]byte, t.length*size), make([]uint16, t.length)
	if _, err := memory.ReadAt(raw, int64(t.object)+int64(chars)); err != nil {
		return false
	}
	for i := range units {
		if units[i] = uint16(raw[uint64(i)*size]); t.isWide {
			units[i] |= uint16(raw[2*i+1]) << 8
		}
	}
	text := []byte(string(utf16.Decode(units)))
	if len(text) > maxV8TextBytes {
		return false
	}
	t.text, t.length = text, uint64(len(text))
	return true
}

// readWide reads characters of two bytes as one each, those that are not of ASCII as question marks.
func (t *v8Text) readWide(memory io.ReaderAt, b []byte, at uint64) (int, error) {
	wide := make([]byte, 2*len(b))
	if n, err := memory.ReadAt(wide, int64(at)); err != nil {
		return n / 2, err
	}
	for i := range b {
		if b[i] = wide[2*i]; wide[2*i+1] != 0 || b[i] >= 0x80 {
			b[i] = '?'
		}
	}
	return len(b), nil
}
