package spans

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// isText reports whether a value is usable as text: numbers and booleans are rendered.
func (v value) isText() bool { return len(v) > 0 && !v.isContainer() && v[0] != 'n' }

// isPlain reports whether a string stands for what is between its quotes.
func (v value) isPlain() bool { return bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v) }

// appendText appends a value that is usable as text, as valid UTF-8.
func appendText(to []byte, v value) []byte {
	switch {
	case !v.isString():
		return append(to, v...)
	case v.isPlain():
		return append(to, v[1:len(v)-1]...)
	}
	// The error says that there is U+FFFD in place of what is invalid.
	to, _ = jsontext.AppendUnquote(to, v)
	return to
}

// text returns what appendText appends, empty for a value that is not usable as text. It copies to
// the scratch memory only what contains escapes or invalid UTF-8. The bytes are valid until the
// next span.
func (e *encoding) text(v value) []byte {
	switch {
	case !v.isText():
		return nil
	case !v.isString():
		return v
	case v.isPlain():
		return v[1 : len(v)-1]
	}
	from := len(e.scratch)
	e.scratch = appendText(e.scratch, v)
	return e.scratch[from:]
}

// integer returns the integer that a value is. ok is false if it is not one of 64 bits.
// (strconv.ParseInt makes an error of each number with a fraction, on the way of every span.)
func integer(v value) (n int64, ok bool) {
	digits := v
	negative := len(v) > 0 && v[0] == '-'
	if negative {
		digits = v[1:]
	}
	if len(digits) == 0 || len(digits) > 19 {
		return 0, false
	}
	var u uint64 // 19 digits have less than 64 bits
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		u = u*10 + uint64(c-'0')
	}
	switch {
	case u < 1<<63 && !negative:
		return int64(u), true
	case u <= 1<<63 && negative:
		return -int64(u), true
	}
	return 0, false
}

// decimal returns the integer that a text is the usual decimal form of.
func decimal(text []byte) (n int64, ok bool) {
	n, ok = integer(value(text))
	var digits [20]byte
	return n, ok && string(strconv.AppendInt(digits[:0], n, 10)) == string(text)
}
