// Package terminal lays out tables and texts for terminals and files, and makes texts of others
// harmless there.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Control sequences of ECMA-48; hiding the cursor is DEC's.
const (
	hideCursor  = "\x1b[?25l"
	showCursor  = "\x1b[?25h"
	clearScreen = "\x1b[2J"
	home        = "\x1b[H"
	clearLine   = "\x1b[K" // from the cursor on
	clearBelow  = "\x1b[J" // and the lines below
	inverse     = "\x1b[7m"
	positive    = "\x1b[27m"
)

// The size of a terminal that does not say.
const (
	defaultColumns = 80
	defaultRows    = 24
)

// descriptor is an *os.File, or what writes to one.
type descriptor interface{ Fd() uintptr }

// Size returns how many columns and rows a terminal has; 0 when w is none, or does not say.
func Size(w io.Writer) (columns, rows int) {
	if f, ok := w.(descriptor); ok {
		if columns, rows, err := term.GetSize(int(f.Fd())); err == nil {
			return columns, rows
		}
	}
	return 0, 0
}

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	f, ok := w.(descriptor)
	return ok && term.IsTerminal(int(f.Fd()))
}

// canRedraw reports whether w is a terminal on which what is shown can be replaced.
func canRedraw(w io.Writer) bool { return Is(w) && os.Getenv("TERM") != "dumb" }

// Escape replaces characters that do not print by Go's escapes, so that a text that somebody else
// chose can neither break a table nor control the terminal. The result is valid UTF-8.
func Escape(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case unicode.IsGraphic(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// Count returns n with one if it is 1, else with many.
func Count[N int | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}
