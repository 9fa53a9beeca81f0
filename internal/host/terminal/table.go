package terminal

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	gap = 2 // spaces between columns

	// narrow is the width that a shrinking column keeps while others can be left out instead.
	// narrowest is the smallest width: enough to tell names apart.
	narrow    = 16
	narrowest = 8

	// widestCut is the largest width of a column that may shrink, also where there is no terminal: a
	// single text of 16 KiB would widen every row.
	widestCut = 256
)

// Column describes a column.
type Column struct {
	Title  string
	Right  bool // numbers are aligned to the right
	Shrink bool // texts may be cut: to 256 columns, and where the terminal is too narrow
	Spare  int  // rank for being left out where that is not enough, the highest first; 0: never
}

// Table is rows of cells in aligned columns. Cells may contain anything.
type Table struct {
	columns []Column
	rows    [][]string
}

// NewTable returns a table without rows. Without titles it has no head.
func NewTable(columns ...Column) *Table { return &Table{columns: columns} }

// Row adds a row with a cell for each column. An empty cell is shown as "-".
func (t *Table) Row(cells ...string) {
	row := make([]string, len(t.columns))
	for i := range row {
		row[i] = "-"
		if i < len(cells) && cells[i] != "" {
			row[i] = Escape(cells[i])
		}
	}
	t.rows = append(t.rows, row)
}

// Lines returns the table for a terminal with so many columns. If these are too few, texts of
// columns that may shrink are cut, the longest first, and columns are left out. 0 is no limit but
// that of single columns.
func (t *Table) Lines(terminalColumns int) []string {
	lines := t.rows
	if slices.ContainsFunc(t.columns, func(c Column) bool { return c.Title != "" }) {
		head := make([]string, len(t.columns))
		for i, c := range t.columns {
			head[i] = c.Title
		}
		lines = slices.Insert(slices.Clone(lines), 0, head)
	}
	widths := make([]int, len(t.columns))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], Width(cell))
		}
	}
	for i, c := range t.columns {
		if c.Shrink {
			widths[i] = min(widths[i], widestCut)
		}
	}
	if terminalColumns > 0 {
		for !t.fit(widths, terminalColumns, narrow) && t.leaveOut(widths) {
		}
		t.fit(widths, terminalColumns, narrowest)
	}
	texts := make([]string, len(lines))
	for i, line := range lines {
		texts[i] = t.line(line, widths)
	}
	return texts
}

// leaveOut removes the column with the highest Spare. It reports false when no column can be left
// out.
func (t *Table) leaveOut(widths []int) bool {
	first := -1
	for i, c := range t.columns {
		if c.Spare > 0 && widths[i] > 0 && (first < 0 || c.Spare > t.columns[first].Spare) {
			first = i
		}
	}
	if first >= 0 {
		widths[first] = 0
	}
	return first >= 0
}

// fit shrinks the widest of the columns that may shrink, down to a least width, until all fit, and
// reports whether they do. A column of width 0 is left out.
func (t *Table) fit(widths []int, terminalColumns, least int) bool {
	excess := -gap - terminalColumns
	for _, width := range widths {
		if width > 0 {
			excess += gap + width
		}
	}
	for ; excess > 0; excess-- {
		widest := -1
		for i, c := range t.columns {
			if c.Shrink && widths[i] > least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
	}
	return true
}

func (t *Table) line(cells []string, widths []int) string {
	var b strings.Builder
	for i, cell := range cells {
		if widths[i] == 0 {
			continue
		}
		cell = Cut(cell, widths[i])
		space := strings.Repeat(" ", widths[i]-Width(cell))
		if b.Len() > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		if t.columns[i].Right {
			b.WriteString(space)
			space = ""
		}
		b.WriteString(cell)
		b.WriteString(space)
	}
	return strings.TrimRight(b.String(), " ")
}

// Write writes the table to w, for the width of that terminal.
func (t *Table) Write(w io.Writer) error {
	columns, _ := Size(w)
	buffered := bufio.NewWriter(w)
	for _, line := range t.Lines(columns) {
		fmt.Fprintln(buffered, line)
	}
	return buffered.Flush()
}
