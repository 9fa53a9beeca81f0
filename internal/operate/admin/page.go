package admin

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"correlator/internal/attach/process"
	"correlator/internal/host/terminal"
	"correlator/internal/out/agent"
	"correlator/internal/stacks/unwind"
)

// page is the output of `status` in parts that can be left out where there is no room.
type page struct {
	head      []string // down to the titles of the table
	processes []string // one line each
	troubles  []string // the newest first
	totals    []string
	cost      []string // at most one line
	otlp      []string
}

// newPage lays out a status below the lines above, for a terminal with so many columns; 0 is no
// limit.
func newPage(above []string, s *Status, columns int) *page {
	head := append(above, headline(s))
	if s.NotReady != "" { // as is an agent that is not healthy
		head = append(head, "not ready: "+terminal.Escape(s.NotReady))
	}
	table := processTable(s).Lines(columns)
	return &page{
		head:      append(head, "", table[0]),
		processes: table[1:],
		troubles:  troubles(s),
		totals:    totals(s),
		cost:      costLine(s),
		otlp:      otlpLines(s, columns),
	}
}

// maxTroubles limits the lines with errors: when there are more, they are usually all the same.
const maxTroubles = 10

// lines returns at most so many rows; 0 is no limit. The cost is left out first, then processes, then errors,
// then the lines about OTLP, and the totals last.
func (p *page) lines(rows int) []string {
	below := append([]string{""}, p.totals...)
	all := slices.Concat(p.head, p.processes, p.someTroubles(1+maxTroubles), below, p.cost, p.someOTLP(1+len(p.otlp)))
	if rows == 0 || len(all) <= rows {
		return all
	}
	free := max(rows-len(p.head)-len(below), 0)
	otlp := p.someOTLP(free - min(len(p.processes), 1))
	free -= len(otlp)
	below = append(below, otlp...)
	troubles := p.someTroubles(min(free-min(len(p.processes), 1), 1+maxTroubles)) // one row stays for processes
	processes := some(p.processes, free-len(troubles), "… and %d more processes")
	lines := slices.Concat(p.head, processes, troubles, below)
	return lines[:min(len(lines), rows)]
}

func (p *page) someTroubles(rows int) []string {
	if len(p.troubles) == 0 || rows < 2 {
		return nil
	}
	return append([]string{""}, some(p.troubles, rows-1, "and of %d more")...)
}

func (p *page) someOTLP(rows int) []string {
	if len(p.otlp) == 0 || rows < 2 {
		return nil
	}
	return append([]string{""}, some(p.otlp, rows-1, "… and %d more lines")...)
}

// some returns as many lines as there are rows. The last one then says how many are left out.
func some(lines []string, rows int, more string) []string {
	if len(lines) <= rows {
		return lines
	}
	if rows < 1 {
		return nil
	}
	return append(slices.Clone(lines[:rows-1]), fmt.Sprintf(more, len(lines)-rows+1))
}

// recent is how long an error is shown that is over.
const recent = 10 * time.Minute

// troubles returns the last errors of processes that are in error or were recently, the newest
// first, then what to do about silent agents, then why stacks of processes are not unwound, or lack callers.
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
	views := slices.Clone(s.Silent)
	for i := range s.Processes {
		views = append(views, s.Processes[i].View)
	}
	lines = append(lines, process.Advice(views)...)
	if u := s.Unwinding; u != nil {
		for _, said := range []struct {
			how string
			of  map[int]string
		}{{unwind.ByFramePointers, u.Failures}, {unwind.AsNativeCode, u.Refused}, {unwind.WithDoubts, u.Unknown}} {
			for _, pid := range slices.Sorted(maps.Keys(said.of)) {
				lines = append(lines, terminal.Escape(unwind.Remark{How: said.how, Reason: said.of[pid]}.Line(pid)))
			}
		}
	}
	if s.ChainOnly != "" {
		lines = append(lines, "stacks that are walked by frame pointers lack callers: "+terminal.Escape(s.ChainOnly))
	}
	return lines
}
