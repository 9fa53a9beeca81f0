// Package textcut shortens texts.
package textcut

import "unicode/utf8"

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
