package terminal

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Screen is all that a terminal shows, drawn again and again in place. Where there is no terminal that can
// do it, one drawing follows the other. It is used by one goroutine.
type Screen struct {
	w       io.Writer
	resized chan os.Signal // nil where nothing is drawn in place
}

// OpenScreen clears the terminal, if w is one, and hides its cursor. The caller must Close.
func OpenScreen(w io.Writer) *Screen {
	s := &Screen{w: w}
	if CanRedraw(w) {
		s.resized = make(chan os.Signal, 1)
		signal.Notify(s.resized, unix.SIGWINCH)
		io.WriteString(w, hideCursor+clearScreen)
	}
	return s
}

// Close shows the cursor again, below what was drawn.
func (s *Screen) Close() {
	if s.resized != nil {
		signal.Stop(s.resized)
		io.WriteString(s.w, "\n"+showCursor)
	}
}

// Resized tells that the terminal may have another size, and wants to be drawn on again.
func (s *Screen) Resized() <-chan os.Signal { return s.resized }

// Size is what fits; 0 is any number.
func (s *Screen) Size() (columns, rows int) {
	columns, rows = Size(s.w)
	if s.resized == nil {
		return columns, 0
	}
	return cmp.Or(columns, defaultColumns), cmp.Or(rows, defaultRows)
}

// Draw shows these lines and nothing else, as much of them as fits. They are written at once, so that
// nothing flickers.
func (s *Screen) Draw(lines []string) error {
	var b bytes.Buffer
	if s.resized == nil {
		for _, line := range lines {
			b.WriteString(line + "\n")
		}
		b.WriteString("\n")
	} else {
		// What is there is cleared before a text: after one that fills its line the cursor still stands on the
		// last character.
		columns, rows := s.Size()
		b.WriteString(home)
		last := min(len(lines), rows) - 1
		for i := range last {
			b.WriteString(clearLine + Cut(lines[i], columns) + "\n")
		}
		b.WriteString(clearBelow)
		if last >= 0 {
			b.WriteString(Cut(lines[last], columns))
		}
	}
	_, err := s.w.Write(b.Bytes())
	return err
}
