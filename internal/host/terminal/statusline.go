package terminal

import (
	"cmp"
	"fmt"
	"io"
	"sync"
)

const startLine = "\r" + clearLine

// StatusLine is a line that is redrawn in place at the end of a terminal's output. What is written
// to it goes above the line. Without a terminal there is no such line. It is safe for concurrent
// use.
type StatusLine struct {
	w       io.Writer
	inPlace bool

	mu    sync.Mutex
	shown string
}

// NewStatusLine returns an empty line.
func NewStatusLine(w io.Writer) *StatusLine {
	return &StatusLine{w: w, inPlace: canRedraw(w)}
}

// Plain writes an ordinary line if there is no terminal.
func (s *StatusLine) Plain(format string, args ...any) {
	if !s.inPlace {
		fmt.Fprintf(s, format+"\n", args...)
	}
}

// Set replaces the text, of which it shows what fits.
func (s *StatusLine) Set(text string) {
	if !s.inPlace {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	columns, _ := Size(s.w)
	s.shown = Cut(text, cmp.Or(columns, defaultColumns)-1)
	fmt.Fprint(s.w, startLine+s.shown)
}

// InPlace reports whether there is such a line.
func (s *StatusLine) InPlace() bool { return s.inPlace }

// Clear removes the line.
func (s *StatusLine) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown != "" {
		s.shown = ""
		fmt.Fprint(s.w, startLine)
	}
}

// Write writes above the line.
func (s *StatusLine) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown == "" {
		return s.w.Write(line)
	}
	if _, err := io.WriteString(s.w, startLine); err != nil {
		return 0, err
	}
	n, err := s.w.Write(line)
	if err == nil {
		_, err = io.WriteString(s.w, s.shown)
	}
	return n, err
}
