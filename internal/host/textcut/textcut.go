// Package textcut shortens texts.
package textcut

import (
	"strings"
	"unicode/utf8"
)

// Clean returns the beginning of a text as UTF-8 of at most n bytes, with U+FFFD for what is invalid. It reads
// no more of the text than that.
func Clean(s string, n int) string { return At(strings.ToValidUTF8(At(s, n), "\uFFFD"), n) }

// Mark is at the end of a text that was cut.
const Mark = "…"

// Marked returns a text, or its beginning and Mark, at most n bytes together.
func Marked(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return At(s, n-len(Mark)) + Mark
}

// At returns the beginning of a text, at most n bytes, without a part of a character at its end. What it
// returns shares the memory of s. Invalid UTF-8 may be cut anywhere.
func At[T string | []byte](s T, n int) T {
	if len(s) <= n {
		return s
	}
	for i := n; i > n-utf8.UTFMax && i >= 0; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n]
}
