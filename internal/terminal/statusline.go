package terminal

import (
	"cmp"
	"fmt"
	"io"
	"sync"
)

const startLine = "\r" + clearLine

// StatusLine is a line that is redrawn in place at the end of what a terminal shows. What is written through
// it goes above the line. Where there is no terminal there is no such line. It is safe for concurrent use.
type StatusLine struct {
	w       io.Writer
	inPlace bool

	mu    sync.Mutex
	shown string
}

// NewStatusLine returns a line that shows nothing yet.
func NewStatusLine(w io.Writer) *StatusLine {
	return &StatusLine{w: w, inPlace: CanRedraw(w)}
}

// Plain writes a line where there is no terminal.
func (s *StatusLine) Plain(format string, args ...any) {
	if !s.inPlace {
		fmt.Fprintf(s.w, format+"\n", args...)
	}
}

// Set shows a text, as much of it as fits.
func (s *StatusLine) Set(text string) {
	if !s.inPlace {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	columns, _ := Size(s.w)
	s.shown = Cut(text, cmp.Or(columns, defaultColumns)-1)
	io.WriteString(s.w, startLine+s.shown)
}

// InPlace says whether there is such a line.
func (s *StatusLine) InPlace() bool { return s.inPlace }

// Clear takes the line away.
func (s *StatusLine) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown != "" {
		s.shown = ""
		io.WriteString(s.w, startLine)
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
