package main

import (
	"fmt"
	"io"
	"slices"
)

// row is what was measured of a profiler beside a load.
type row struct {
	letter, what string
	hz           int
	profiler     string
	rounds       []figures
}

// table has a row for each profiler, load and rate.
type table []*row

// add adds a round.
func (t *table) add(l load, hz int, profiler string, f figures) {
	for _, r := range *t {
		if r.letter == l.letter && r.hz == hz && r.profiler == profiler {
			r.rounds = append(r.rounds, f)
			return
		}
	}
	*t = append(*t, &row{l.letter, l.what, hz, profiler, []figures{f}})
}

// write writes the table in Markdown, of the rounds with at most so much foreign load, in % of a core. Rows with none
// have all, and a mark.
func (t table) write(w io.Writer, foreign float64) {
	fmt.Fprintf(w, "| load | Hz | profiler | CPU, %% of a core | eBPF | switches/s | of which involuntary | PSS, MB | "+
		"samples | expected | told | rounds |\n|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, r := range t {
		used, note := quiet(r.rounds, foreign), ""
		if len(used) == 0 {
			used, note = r.rounds, ", none quiet"
		}
		cell := func(decimals int, of func(figures) float64) string { return summary(used, decimals, of) }
		fmt.Fprintf(w, "| %s. %s | %d | %s | %s | %s | %s | %s | %s | %s | %s | %s | %d of %d%s |\n", r.letter, r.what, r.hz,
			r.profiler,
			cell(2, func(f figures) float64 { return f.cpu }),
			cell(2, func(f figures) float64 { return f.ebpf }),
			cell(0, func(f figures) float64 { return f.voluntary + f.involuntary }),
			cell(0, func(f figures) float64 { return f.involuntary }),
			cell(1, func(f figures) float64 { return f.pss }),
			cell(0, func(f figures) float64 { return f.samples }),
			cell(0, func(f figures) float64 { return f.expected }),
			cell(0, func(f figures) float64 { return f.told }),
			len(used), len(r.rounds), note)
	}
}

// quiet returns the rounds with at most so much foreign load.
func quiet(rounds []figures, foreign float64) (quiet []figures) {
	for _, f := range rounds {
		if f.foreign <= foreign {
			quiet = append(quiet, f)
		}
	}
	return quiet
}

// summary returns the median of a figure of rounds, with the range if it has one.
func summary(rounds []figures, decimals int, of func(figures) float64) string {
	var values []float64
	for _, f := range rounds {
		values = append(values, of(f))
	}
	slices.Sort(values)
	n := len(values)
	text := func(v float64) string { return fmt.Sprintf("%.*f", decimals, v) }
	median, least, most := text((values[(n-1)/2]+values[n/2])/2), text(values[0]), text(values[n-1])
	if least == most {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, least, most)
}
