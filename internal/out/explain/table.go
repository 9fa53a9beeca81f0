package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/out/waits"
)

// How many rows tables have; JSON has all.
const (
	maxThreadRows = 10
	maxSpanRows   = 10
)

// lines returns an explanation as text for a terminal with so many columns; 0: it is none.
func (e *Explanation) lines(columns int) (lines []string) {
	if e.From != "" {
		return e.backendLines(columns)
	}
	if len(e.Transactions) == 1 {
		lines = e.Transactions[0].head()
	} else {
		lines = append(lines, e.transactionTable().Lines(columns)...)
		if e.More > 0 {
			lines = append(lines, fmt.Sprintf("... and %d more", e.More))
		}
	}
	lines = append(lines, escaped(e.notes(), e.inlined)...)
	lines = append(lines, e.accountLines(columns)...)
	if e.Samples == 0 {
		lines = append(lines, fmt.Sprintf("no CPU sample was taken: one is for every %v of CPU time", e.PerSample))
	} else {
		lines = more(below(lines, e.threadTable().Lines(columns)), len(e.Threads)-maxThreadRows)
	}
	if len(e.Spans) > len(e.Transactions) || len(e.Spans) == 1 && e.Spans[0].ID != "" {
		lines = more(below(lines, e.spanTable().Lines(columns)), len(e.Spans)-maxSpanRows)
	}
	if len(e.outermost) > 0 {
		lines = below(lines, e.treeTable().Lines(columns))
	}
	return lines
}

// escaped returns texts as lines of a terminal.
func escaped(texts ...[]string) (lines []string) {
	for _, text := range slices.Concat(texts...) {
		lines = append(lines, terminal.Escape(text))
	}
	return lines
}

// below returns lines with those of a table below them.
func below(lines, table []string) []string { return append(append(lines, ""), table...) }

func more(lines []string, n int) []string {
	if n > 0 {
		lines = append(lines, fmt.Sprintf("... and %d more", n))
	}
	return lines
}

// head returns what there is to say of a single transaction.
func (tx *Transaction) head() []string {
	service := cmp.Or(tx.Service, "process")
	if tx.Environment != "" {
		service += " (" + tx.Environment + ")"
	}
	first := fmt.Sprintf("trace %s in %s, pid %d", tx.Trace, service, tx.PID)
	if tx.ID != "" {
		first = "transaction " + tx.ID + " of " + first
	}
	if tx.ContainerID != "" {
		first += ", container " + tx.ContainerID[:min(len(tx.ContainerID), 12)]
	}
	lines := []string{terminal.Escape(first)}
	if texts := tx.attributeTexts(); len(texts) > 0 {
		lines = append(lines, terminal.Escape(strings.Join(texts, ", ")))
	}
	return append(lines, tx.times())
}

func (e *Explanation) transactionTable() *terminal.Table {
	t := terminal.NewTable(terminal.Column{Title: "TRACE", Spare: 3}, terminal.Column{Title: "TRANSACTION"},
		terminal.Column{Title: "SERVICE", Shrink: true}, terminal.Column{Title: "PID", Right: true, Spare: 4},
		terminal.Column{Title: "FIRST", Right: true, Spare: 2}, terminal.Column{Title: "WALL", Right: true},
		terminal.Column{Title: "CPU", Right: true}, terminal.Column{Title: "OF WALL", Right: true, Spare: 1},
		terminal.Column{Title: "SAMPLES", Right: true, Spare: 5},
		terminal.Column{Title: "ATTRIBUTES", Shrink: true, Spare: 6})
	for i := range e.Transactions {
		tx := &e.Transactions[i]
		t.Row(tx.Trace, tx.ID, tx.Service, strconv.Itoa(tx.PID), clockOn(tx.first, e.At, "15:04:05.0"),
			lasted(tx.Wall), lasted(tx.onCPU()), ofWall(share(tx.onCPU(), tx.Wall)), strconv.FormatUint(tx.Samples, 10),
			strings.Join(tx.attributeTexts(), " "))
	}
	return t
}

func (e *Explanation) threadTable() *terminal.Table {
	columns := []terminal.Column{{Title: "THREAD", Shrink: true}, {Title: "PID", Right: true, Spare: 2},
		{Title: "TID", Right: true, Spare: 1}, {Title: "CPU", Right: true}, {Title: "OF WALL", Right: true},
		{Title: "SAMPLES", Right: true}}
	if e.From != "" {
		columns = slices.Insert(columns[:4], 1, terminal.Column{Title: "HOST", Shrink: true})
	}
	t := terminal.NewTable(columns...)
	for i := range e.Threads[:min(len(e.Threads), maxThreadRows)] {
		th := &e.Threads[i]
		cells := []string{th.Name, strconv.Itoa(th.PID), strconv.Itoa(th.TID), lasted(th.CPU), ofWall(th.Share),
			strconv.FormatUint(th.Samples, 10)}
		if e.From != "" {
			cells = slices.Insert(cells[:4], 1, th.Host)
		}
		t.Row(cells...)
	}
	return t
}

func (e *Explanation) spanTable() *terminal.Table {
	t := terminal.NewTable(terminal.Column{Title: "SPAN"}, terminal.Column{Title: "TRANSACTION", Spare: 1},
		terminal.Column{Title: "CPU", Right: true}, terminal.Column{Title: "OF WALL", Right: true},
		terminal.Column{Title: "SAMPLES", Right: true})
	for i := range e.Spans[:min(len(e.Spans), maxSpanRows)] {
		sp := &e.Spans[i]
		t.Row(sp.ID, sp.Transaction, lasted(sp.CPU), ofWall(sp.Share), strconv.FormatUint(sp.Samples, 10))
	}
	return t
}

func (e *Explanation) treeTable() *terminal.Table {
	columns := []terminal.Column{{Title: "CPU", Right: true}, {Title: "SHARE", Right: true},
		{Title: "SELF", Right: true, Spare: 1}, {Title: "METHOD", Shrink: true}}
	waited := slices.ContainsFunc(e.outermost, func(m *Method) bool { return m.Wait > 0 })
	if waited {
		columns = slices.Insert(columns, 3, terminal.Column{Title: "WAIT", Right: true})
	}
	t := terminal.NewTable(columns...)
	row := func(m *Method, self, text string) {
		cells := []string{"", "", self, text}
		if m.Samples > 0 {
			cells[0], cells[1] = lasted(e.cpu(m.Samples)), e.percent(m.Samples)
		}
		if waited {
			wait := ""
			if m.Wait > 0 {
				wait = waits.Exactly(m.Wait)
			}
			cells = slices.Insert(cells, 3, wait)
		}
		t.Row(cells...)
	}
	for _, of := range methodLayout(e.outermost).rows(e.outermost) {
		indent := strings.Repeat(" ", of.depth)
		switch {
		case len(of.more) > 0:
			var within Method
			for _, m := range of.more {
				within.Samples += m.Samples
				within.Wait += m.Wait
			}
			row(&within, "", fmt.Sprintf("%s... %d more", indent, len(of.more)))
		case of.hidden > 0:
			row(new(Method), "", indent+hiddenText(of.hidden))
		default:
			m, self := of.method, ""
			if m.Self > 0 {
				self = lasted(e.cpu(m.Self))
			}
			row(m, self, strings.TrimRight(indent+m.Name+"  "+m.place(), " "))
		}
	}
	return t
}

func hiddenText(n int) string {
	return fmt.Sprintf("... %d methods, each of which calls the next one only", n)
}

func (e *Explanation) percent(samples uint64) string {
	return fmt.Sprintf("%.1f %%", 100*share(time.Duration(samples), time.Duration(e.Samples)))
}
