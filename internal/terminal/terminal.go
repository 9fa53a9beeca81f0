// Package terminal is how tables and texts look to whoever reads them on a terminal, or in a file.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// What a terminal does, by ECMA-48; hiding the cursor is DEC's.
const (
	hideCursor  = "\x1b[?25l"
	showCursor  = "\x1b[?25h"
	clearScreen = "\x1b[2J"
	home        = "\x1b[H"
	clearLine   = "\x1b[K" // from the cursor on
	clearBelow  = "\x1b[J" // and the lines below
)

// Of a terminal that does not tell.
const (
	defaultColumns = 80
	defaultRows    = 24
)

// Size is how many columns and rows a terminal has; 0 when w is none, or does not tell.
func Size(w io.Writer) (columns, rows int) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// Is says whether w is a terminal.
func Is(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// CanRedraw says whether w is a terminal that can show something else in place of what it shows.
func CanRedraw(w io.Writer) bool { return Is(w) && os.Getenv("TERM") != "dumb" }

// Escape makes a text that somebody else chose harmless: characters that do not print become their escapes,
// as in Go, so that it can neither break a table nor command the terminal. What it answers is valid UTF-8.
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
