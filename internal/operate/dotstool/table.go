package dotstool

import (
	"fmt"
	"strings"

	"correlator/dots/dynamic"
	"correlator/dots/schema"
	"correlator/internal/host/terminal"
)

// maxRows is how many objects a table shows where the output has no height. It is written again at
// every change.
const maxRows = 10_000

// section is what is shown of a type.
type section struct {
	name    string
	s       *schema.Struct // nil: unknown to the broker
	rows    []row          // as many as may be shown
	more    int            // further objects
	dropped int            // transmissions that are not among the rows
}

// lines returns tables for a terminal of so many columns and rows, one below the other; 0: no limit.
// Where the rows do not suffice each type has its share, and a line says how much is not shown.
func lines(sections []section, columns, rows int) []string {
	share := shares(sections, rows)
	var lines []string
	for i := range sections {
		if i > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, sections[i].title())
		lines = append(lines, sections[i].table(columns, share[i])...)
	}
	return lines
}

// shares returns how many objects of each type are shown. What one does not need the others have.
func shares(sections []section, rows int) []int {
	share := make([]int, len(sections))
	const around = 4 // title, head, the line that says what is left out, an empty line
	left := max(rows-around*len(sections)+1, len(sections))
	if rows <= 0 {
		left = maxRows
	}
	for given := true; given && left > 0; {
		given = false
		for i := range sections {
			if left > 0 && share[i] < len(sections[i].rows) {
				share[i]++
				left--
				given = true
			}
		}
	}
	return share
}

func (s *section) title() string {
	name := terminal.Escape(s.name)
	switch {
	case s.s == nil:
		return name + ": not known to the broker"
	case s.s.Flags.Cached:
		return fmt.Sprintf("%s: %d", name, len(s.rows)+s.more)
	case s.dropped > 0:
		return fmt.Sprintf("%s: not cached, the last of each key; %d of further keys not shown", name, s.dropped)
	}
	return name + ": not cached, the last of each key"
}

// table returns the table of the first objects.
func (s *section) table(columns, most int) []string {
	if len(s.rows) == 0 {
		return nil
	}
	properties := columnsOf(s.s)
	heads := make([]terminal.Column, len(properties))
	for i, p := range properties {
		heads[i] = terminal.Column{Title: p.Name, Right: isNumber(p.Type), Shrink: true}
		if !p.Key {
			heads[i].Spare = i + 1 // the last ones are left out first
		}
	}
	table := terminal.NewTable(heads...)
	for _, r := range s.rows[:most] {
		table.Row(cells(s.s, properties, r.instance)...)
	}
	lines := table.Lines(columns)
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	if more := len(s.rows) - most + s.more; more > 0 {
		lines = append(lines, fmt.Sprintf("… %d more", more))
	}
	return lines
}

// columnsOf returns the properties in the order of columns: the key first.
func columnsOf(s *schema.Struct) (properties []*schema.Property) {
	for _, key := range []bool{true, false} {
		for i := range s.Properties {
			if s.Properties[i].Key == key {
				properties = append(properties, &s.Properties[i])
			}
		}
	}
	return properties
}

func isNumber(t *schema.Type) bool {
	return t.Kind >= schema.Int8 && t.Kind <= schema.Float64 || t.Kind == schema.Duration
}

func cells(s *schema.Struct, properties []*schema.Property, instance string) []string {
	cells := make([]string, len(properties))
	o, _, err := dynamic.Decode(s, []byte(instance))
	if err != nil { // the client has checked it
		return cells
	}
	for i, p := range properties {
		cells[i] = text(p.Type, o.Get(p.Tag))
	}
	return cells
}
