package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// row is what was measured beside a load, by profiler.
type row struct {
	letter, what string
	hz           int
	rounds       map[string][]figures
}

// table has a row for each load and rate, with a figure of each profiler in a cell.
type table struct {
	profilers []string
	rows      []*row
}

func (t *table) add(l load, hz int, profiler string, f figures) {
	last := len(t.rows) - 1
	if last < 0 || t.rows[last].letter != l.letter || t.rows[last].hz != hz {
		t.rows = append(t.rows, &row{l.letter, l.what, hz, make(map[string][]figures)})
		last++
	}
	rounds := t.rows[last].rounds
	rounds[profiler] = append(rounds[profiler], f)
}

// columns are the figures of the table.
var columns = []struct {
	title    string
	decimals int
	ranges   bool
	of       func(figures) float64
}{
	{"CPU, % of a core", 2, true, func(f figures) float64 { return f.cpu }},
	{"of which eBPF", 2, false, func(f figures) float64 { return f.ebpf }},
	{"switches/s", 0, true, func(f figures) float64 { return f.voluntary + f.involuntary }},
	{"of which involuntary", 0, false, func(f figures) float64 { return f.involuntary }},
	{"PSS, MB", 1, false, func(f figures) float64 { return f.pss }},
	{"samples", 0, false, func(f figures) float64 { return f.samples }},
	{"expected", 0, false, func(f figures) float64 { return f.expected }},
	{"told", 0, false, func(f figures) float64 { return f.told }},
}

// write writes the table in Markdown, of the rounds with at most so much foreign load, in % of a core. Where there is
// none, it has those of all, and a mark.
func (t *table) write(w io.Writer, foreign float64) {
	fmt.Fprintf(w, "%s:\n\n| load | Hz |", strings.Join(t.profilers, " / "))
	for _, c := range columns {
		fmt.Fprintf(w, " %s |", c.title)
	}
	fmt.Fprintf(w, " rounds |\n|---|---:|%s---|\n", strings.Repeat("---:|", len(columns)))
	for _, r := range t.rows {
		fmt.Fprintf(w, "| %s. %s | %d |", r.letter, r.what, r.hz)
		for _, c := range columns {
			fmt.Fprintf(w, " %s |", t.cell(func(profiler string) string {
				used, _ := r.quiet(profiler, foreign)
				return summary(used, c.decimals, c.ranges, c.of)
			}))
		}
		fmt.Fprintf(w, " %s |\n", t.cell(func(profiler string) string {
			_, note := r.quiet(profiler, foreign)
			return note
		}))
	}
}

// cell returns what there is to say of each profiler.
func (t *table) cell(of func(profiler string) string) string {
	var texts []string
	for _, p := range t.profilers {
		texts = append(texts, of(p))
	}
	return strings.Join(texts, " / ")
}

// quiet returns the rounds of a profiler that are used, and how many of them that are.
func (r *row) quiet(profiler string, foreign float64) (used []figures, note string) {
	all := r.rounds[profiler]
	for _, f := range all {
		if f.foreign <= foreign {
			used = append(used, f)
		}
	}
	if len(used) == 0 && len(all) > 0 {
		return all, fmt.Sprintf("%d, none quiet", len(all))
	}
	return used, fmt.Sprintf("%d of %d", len(used), len(all))
}

// summary returns the median of a figure of rounds, and the range if it has one.
func summary(rounds []figures, decimals int, ranges bool, of func(figures) float64) string {
	if len(rounds) == 0 {
		return "–"
	}
	var values []float64
	for _, f := range rounds {
		values = append(values, of(f))
	}
	slices.Sort(values)
	n := len(values)
	text := func(v float64) string { return fmt.Sprintf("%.*f", decimals, v) }
	median, least, most := text((values[(n-1)/2]+values[n/2])/2), text(values[0]), text(values[n-1])
	if !ranges || least == most {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, least, most)
}
