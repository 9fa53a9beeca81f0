package admin

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// emulator is a terminal as its user sees it. It wraps as a VT100 does: after the last column the
// cursor stays where it is, on the last character, and the next one goes to the next line.
type emulator struct {
	t       *testing.T
	cells   [][]rune // 0 is the right half of a wide character
	row     int
	column  int
	pending bool // the next character wraps

	cursorHidden    bool
	wraps, scrolled int
}

func newEmulator(t *testing.T, columns, rows int) *emulator {
	e := &emulator{t: t, cells: make([][]rune, rows)}
	for row := range e.cells {
		e.cells[row] = make([]rune, columns)
	}
	e.clear(0, 0)
	return e
}

// clear blanks a row from a column on, and all rows below.
func (e *emulator) clear(row, column int) {
	for ; row < len(e.cells); row, column = row+1, 0 {
		e.clearRow(row, column)
	}
}

func (e *emulator) clearRow(row, column int) {
	for ; column < len(e.cells[row]); column++ {
		e.cells[row][column] = ' '
	}
}

func (e *emulator) write(text string) {
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexFunc(rest, unicode.IsLetter)
			e.command(rest[:end+1])
			text = rest[end+1:]
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		switch {
		case r == '\r':
			e.column, e.pending = 0, false
		case r == '\n':
			e.lineFeed()
		case r < ' ' || r == utf8.RuneError:
			e.t.Errorf("%q on the screen", r)
		default:
			e.put(r)
		}
	}
}

func (e *emulator) command(name string) {
	switch name {
	case "H":
		e.row, e.column, e.pending = 0, 0, false
	case "K":
		e.clearRow(e.row, e.column) // the character before a wrap included
	case "J":
		e.clear(e.row, e.column)
	case "2J":
		e.clear(0, 0)
	case "?25l", "?25h":
		e.cursorHidden = name == "?25l"
	default:
		e.t.Errorf("unknown command %q", name)
	}
}

func (e *emulator) lineFeed() {
	e.pending = false
	if e.row < len(e.cells)-1 {
		e.row++
		return
	}
	e.scrolled++
	top := e.cells[0]
	copy(e.cells, e.cells[1:])
	e.cells[e.row] = top
	e.clearRow(e.row, 0)
}

func (e *emulator) put(r rune) {
	width := 1
	if r >= 0x3000 && r <= 0x9fff || unicode.Is(unicode.Hangul, r) { // CJK punctuation, kana, Han
		width = 2
	}
	if columns := len(e.cells[0]); e.pending || e.column+width > columns {
		e.wraps++
		e.column = 0
		e.lineFeed()
	}
	copy(e.cells[e.row][e.column:], []rune{r, 0}[:width])
	e.column += width
	if e.column == len(e.cells[0]) {
		e.column, e.pending = e.column-1, true
	}
}

// lines is what is on the screen, without spaces at the ends of lines and empty lines below.
func (e *emulator) lines() []string {
	var lines []string
	for _, cells := range e.cells {
		lines = append(lines, strings.TrimRight(strings.ReplaceAll(string(cells), "\x00", ""), " "))
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func (e *emulator) find(text string) (row, column int) {
	for row, cells := range e.cells {
		if before, _, found := strings.Cut(string(cells), text); found {
			return row, utf8.RuneCountInString(before)
		}
	}
	return -1, -1
}
