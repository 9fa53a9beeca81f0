package check

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"correlator/internal/terminal"
)

// Style is how a table is written.
type Style struct {
	Width  int  // of the terminal, in columns; 0: lines are as long as they get
	Colour bool // status words are coloured, by the escapes of ECMA-48
}

const (
	statusWidth = len(Degraded)
	// leastDetail is the narrowest column of details; on a terminal without room for it beside the names
	// they begin on a line of their own.
	leastDetail = 24
	// wide is from where on names of all groups are aligned, instead of each group for itself.
	wide   = 100
	indent = "    " // of what has a line of its own
)

var colours = map[Status]string{OK: "\x1b[32m", Degraded: "\x1b[33m", Missing: "\x1b[31m"}

// WriteTable writes a line for each requirement, by group, with the remedy below unless all is well, and
// the verdict at the end. A remedy that was told already is not told again.
func WriteTable(w io.Writer, results []Result, style Style) error {
	t := table{Writer: bufio.NewWriter(w), Style: style}
	group := ""
	told := make(map[string]bool)
	for _, r := range results {
		if r.Group != group {
			if group != "" {
				fmt.Fprintln(t)
			}
			group = r.Group
			fmt.Fprintln(t, group)
			t.nameWidth = t.widest(results, group)
		}
		t.row(r)
		if r.Remedy != "" && !told[r.Remedy] {
			told[r.Remedy] = true
			t.paragraph(indent+"-> ", len(indent)+3, r.Remedy)
		}
	}
	fmt.Fprintln(t)
	t.paragraph("", 0, Verdict(results))
	return t.Flush()
}

type table struct {
	*bufio.Writer
	Style
	nameWidth int
}

// widest is the length of the longest name that a group's are aligned with.
func (t *table) widest(results []Result, group string) (width int) {
	for _, r := range results {
		if r.Group == group || t.Width == 0 || t.Width >= wide {
			width = max(width, len(r.Name))
		}
	}
	return width
}

func (t *table) row(r Result) {
	status := fmt.Sprintf("%-*s", statusWidth, r.Status)
	if t.Colour {
		status = colours[r.Status] + status + "\x1b[0m"
	}
	begin := fmt.Sprintf("  %s  %-*s  ", status, t.nameWidth, r.Name)
	column := 2 + statusWidth + 2 + t.nameWidth + 2
	if t.Width > 0 && t.Width-column < leastDetail {
		fmt.Fprintln(t, strings.TrimRight(begin, " "))
		begin, column = indent, len(indent)
	}
	t.paragraph(begin, column, r.Detail)
}

// paragraph writes a text behind what begins in its first line and takes column columns, and breaks it
// between words where the terminal ends. What does not print is shown by its escapes: paths and errors may
// hold anything.
func (t *table) paragraph(begin string, column int, text string) {
	t.WriteString(begin)
	at := column
	for i, word := range strings.Fields(terminal.Escape(text)) {
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case t.Width > 0 && at+1+length > t.Width:
			t.WriteString("\n" + strings.Repeat(" ", column))
			at = column
		default:
			t.WriteByte(' ')
			at++
		}
		t.WriteString(word)
		at += length
	}
	t.WriteByte('\n')
}
