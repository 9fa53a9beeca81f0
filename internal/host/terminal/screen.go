package terminal

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"
)

// Screen is the whole screen of a terminal, redrawn in place. Where the output is no terminal that
// can do that, one drawing follows the other. It must be used by one goroutine.
type Screen struct {
	w       io.Writer
	resized chan os.Signal // nil where nothing is drawn in place
}

// OpenScreen clears the terminal, if w is one, and hides its cursor. The caller must Close.
func OpenScreen(w io.Writer) *Screen {
	s := &Screen{w: w}
	if canRedraw(w) {
		s.resized = make(chan os.Signal, 1)
		signal.Notify(s.resized, unix.SIGWINCH)
		fmt.Fprint(w, hideCursor+clearScreen)
	}
	return s
}

// Close shows the cursor again, below what was drawn.
func (s *Screen) Close() {
	if s.resized != nil {
		signal.Stop(s.resized)
		fmt.Fprint(s.w, "\n"+showCursor)
	}
}

// Resized receives a signal when the size of the terminal may have changed, after which Draw should
// be called.
func (s *Screen) Resized() <-chan os.Signal { return s.resized }

// Size returns how much fits; 0 is no limit.
func (s *Screen) Size() (columns, rows int) {
	columns, rows = Size(s.w)
	if s.resized == nil {
		return columns, 0
	}
	return cmp.Or(columns, defaultColumns), cmp.Or(rows, defaultRows)
}

// Draw replaces what is shown by lines, as many as fit. They are written at once, to avoid flicker.
func (s *Screen) Draw(lines []string) error { return s.DrawMarked(lines, -1) }

// DrawMarked is Draw with one of the lines in inverse video, if it is drawn in place.
func (s *Screen) DrawMarked(lines []string, marked int) error {
	var b bytes.Buffer
	if s.resized == nil {
		for _, line := range lines {
			b.WriteString(line + "\n")
		}
		b.WriteString("\n")
	} else {
		// A line is cleared before its text: after a text that fills the line the cursor is still
		// on the last character.
		columns, rows := s.Size()
		b.WriteString(home)
		last := min(len(lines), rows) - 1
		text := func(i int) string {
			line := Cut(lines[i], columns)
			if i == marked {
				line = inverse + line + strings.Repeat(" ", columns-Width(line)) + positive
			}
			return line
		}
		for i := range last {
			b.WriteString(clearLine + text(i) + "\n")
		}
		b.WriteString(clearBelow)
		if last >= 0 {
			b.WriteString(text(last))
		}
	}
	_, err := s.w.Write(b.Bytes())
	return err
}
