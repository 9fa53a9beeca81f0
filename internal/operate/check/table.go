package check

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"correlator/internal/host/terminal"
)

// Style is the style of a table.
type Style struct {
	Width int  // of the terminal, in columns; 0: lines are not broken
	Color bool // statuses are colored, by the escapes of ECMA-48
}

const (
	statusWidth = len(Degraded)
	// leastDetail is the minimal width of the column of details. If the terminal has no room for it
	// beside the names, details begin on a line of their own.
	leastDetail = 24
	// wide is the width from which the names of all groups are aligned, instead of each group for
	// itself.
	wide   = 100
	indent = "    " // of remedies, and of details on a line of their own
)

var colors = map[Status]string{OK: "\x1b[32m", Degraded: "\x1b[33m", Missing: "\x1b[31m"}

// WriteTable writes a line for each result, by group, with its remedy below, and the verdict at the
// end. A remedy that several results have is written once.
func WriteTable(w io.Writer, results []Result, style Style) error {
	t := table{Writer: bufio.NewWriter(w), Style: style}
	group := ""
	written := make(map[string]bool)
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
		if r.Remedy != "" && !written[r.Remedy] {
			written[r.Remedy] = true
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

// widest returns the length of the longest name that those of a group are aligned with.
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
	if t.Color {
		status = colors[r.Status] + status + "\x1b[0m"
	}
	begin := fmt.Sprintf("  %s  %-*s  ", status, t.nameWidth, r.Name)
	column := 2 + statusWidth + 2 + t.nameWidth + 2
	if t.Width > 0 && t.Width-column < leastDetail {
		fmt.Fprintln(t, strings.TrimRight(begin, " "))
		begin, column = indent, len(indent)
	}
	t.paragraph(begin, column, r.Detail)
}

// paragraph writes begin, which takes column columns, and the text, which it breaks between words
// at the width of the terminal. Unprintable characters are escaped, since paths and errors may have
// any.
func (t *table) paragraph(begin string, column int, text string) {
	fmt.Fprint(t, terminal.Wrap(terminal.Escape(text), begin, column, column, t.Width))
}
