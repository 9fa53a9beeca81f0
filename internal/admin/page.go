package admin

import (
	"fmt"
	"slices"
	"time"

	"correlator/internal/agent"
	"correlator/internal/process"
	"correlator/internal/terminal"
)

// page is what `status` shows, by what may be left out where there is no room.
type page struct {
	head      []string // down to the titles of the table
	processes []string // a line each
	troubles  []string // the newest first
	totals    []string
	otlp      []string
}

// newPage lays out a status for a terminal with so many columns, any number if 0, below some lines.
func newPage(above []string, s *Status, columns int) *page {
	head := append(above, headline(s))
	if s.NotReady != "" { // which it is, too, while it is not healthy
		head = append(head, "not ready: "+terminal.Escape(s.NotReady))
	}
	table := processTable(s).Lines(columns)
	return &page{
		head:      append(head, "", table[0]),
		processes: table[1:],
		troubles:  troubles(s),
		totals:    totals(s),
		otlp:      otlpLines(s, columns),
	}
}

// maxTroubles is how many lines are for errors: when there are more, they are usually all the same.
const maxTroubles = 10

// lines are so many at most, any number if 0. Processes are left out first, then errors, then what is said of
// OTLP, and the totals at last.
func (p *page) lines(rows int) []string {
	below := append([]string{""}, p.totals...)
	if rows == 0 {
		return slices.Concat(p.head, p.processes, p.someTroubles(1+maxTroubles), below, p.someOTLP(1+len(p.otlp)))
	}
	room := max(rows-len(p.head)-len(below), 0)
	otlp := p.someOTLP(room - min(len(p.processes), 1))
	room -= len(otlp)
	below = append(below, otlp...)
	troubles := p.someTroubles(min(room-min(len(p.processes), 1), 1+maxTroubles)) // so that one line is for processes
	processes := some(p.processes, room-len(troubles), "… and %d more processes")
	lines := slices.Concat(p.head, processes, troubles, below)
	return lines[:min(len(lines), rows)]
}

// someTroubles are the newest below an empty line.
func (p *page) someTroubles(rows int) []string {
	if len(p.troubles) == 0 || rows < 2 {
		return nil
	}
	return append([]string{""}, some(p.troubles, rows-1, "and of %d more")...)
}

// someOTLP is below an empty line, too.
func (p *page) someOTLP(rows int) []string {
	if len(p.otlp) == 0 || rows < 2 {
		return nil
	}
	return append([]string{""}, some(p.otlp, rows-1, "… and %d more lines")...)
}

// some are as many of the lines as there are rows for; the last says how many more there are.
func some(lines []string, rows int, more string) []string {
	if len(lines) <= rows {
		return lines
	}
	if rows < 1 {
		return nil
	}
	return append(slices.Clone(lines[:rows-1]), fmt.Sprintf(more, len(lines)-rows+1))
}

// recent is how long an error is shown that has passed.
const recent = 10 * time.Minute

// troubles are the last errors, of processes that are in error now or were recently, the newest first.
func troubles(s *Status) (lines []string) {
	var of []*agent.ProcessStatus
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.LastError != nil && (p.State == process.StateError || s.At.Sub(p.LastError.At) <= recent) {
			of = append(of, p)
		}
	}
	slices.SortStableFunc(of, func(a, b *agent.ProcessStatus) int { return b.LastError.At.Compare(a.LastError.At) })
	for _, p := range of {
		lines = append(lines, fmt.Sprintf("last error of %d, %s ago: %s: %s", p.PID, age(s.At.Sub(p.LastError.At)),
			p.LastError.Reason, terminal.Escape(p.LastError.Message)))
	}
	return lines
}
