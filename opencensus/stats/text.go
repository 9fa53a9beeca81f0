package stats

import (
	"strings"
	"unicode/utf8"

	"correlator/internal/host/textcut"
)

// valid makes a text UTF-8: otherwise a request would be undecodable.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// text returns a copy of a description or unit as it is kept.
func (s *State) text(raw string) string {
	if len(raw) > maxText {
		s.counts.Lost[TextCut]++
	}
	return strings.Clone(valid(textcut.At(raw, maxText)))
}

// appendValid appends a text as UTF-8, as valid does, without allocating more than dst needs.
func appendValid(dst, text []byte) []byte {
	invalid := false // the text before ended with invalid bytes
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r != utf8.RuneError || n > 1:
			dst = append(dst, text[:n]...)
			invalid = false
		case !invalid:
			dst = append(dst, "\ufffd"...)
			invalid = true
		}
		text = text[n:]
	}
	return dst
}
