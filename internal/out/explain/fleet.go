package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/out/waits"
	"correlator/profile"
)

// unknown is what a backend has not kept.
const unknown = "not kept there, and unknown: when and how often anything was, spans, and what of the time has no stack"

// backendNotes say what an answer of a backend is.
func (e *Explanation) backendNotes() []string {
	hosts := make(map[string]bool)
	for i := range e.Transactions {
		hosts[e.Transactions[i].Host] = true
	}
	return []string{fmt.Sprintf("trace %s, hosts: %d, from %s", e.Transactions[0].Trace, len(hosts), e.From), unknown}
}

// backendLines returns what a backend has of all hosts.
func (e *Explanation) backendLines(columns int) (lines []string) {
	lines = escaped(e.backendNotes(), e.notes(), e.inlined)
	add := func(t *terminal.Table, left int) {
		lines = more(below(lines, trimmed(t.Lines(columns))), left)
	}
	add(e.backendTransactions(), len(e.Transactions)-maxTransactionRows)
	add(e.backendStates(), 0)
	if len(e.Threads) > 0 {
		add(e.threadTable(), len(e.Threads)-maxThreadRows)
	}
	add(e.treeTable(), 0)
	return lines
}

// maxTransactionRows is how many transactions are in the table; JSON has all.
const maxTransactionRows = 20

// backendTransactions is a table of transactions.
func (e *Explanation) backendTransactions() *terminal.Table {
	t := terminal.NewTable(terminal.Column{Title: "HOST", Shrink: true},
		terminal.Column{Title: "SERVICE", Shrink: true},
		terminal.Column{Title: "PID", Right: true, Spare: 1}, terminal.Column{Title: "TRANSACTION"},
		terminal.Column{Title: "CPU", Right: true}, terminal.Column{Title: "WAIT", Right: true})
	for i := range e.Transactions[:min(len(e.Transactions), maxTransactionRows)] {
		tx := &e.Transactions[i]
		var wait time.Duration
		for j := range tx.Waits {
			wait += tx.Waits[j].Sum
		}
		t.Row(tx.Host, tx.Service, strconv.Itoa(tx.PID), tx.ID, lasted(tx.CPU), waits.Exactly(wait))
	}
	return t
}

// backendStates is a table of what threads did, and where they waited, on which hosts.
func (e *Explanation) backendStates() *terminal.Table {
	places, sums := e.waitPlaces(), [profile.ThreadStates]time.Duration{profile.OnCPU: e.cpu(e.Samples)}
	var states []profile.ThreadState
	for state := range profile.ThreadStates {
		for _, p := range places[state] {
			sums[state] += p.Sum
		}
		if sums[state] > 0 {
			states = append(states, state)
		}
	}
	slices.SortStableFunc(states, func(a, b profile.ThreadState) int { return cmp.Compare(sums[b], sums[a]) })
	t := terminal.NewTable(terminal.Column{Title: "STATE OF THREADS", Shrink: true},
		terminal.Column{Title: "HOST", Shrink: true}, terminal.Column{Title: "TIME", Right: true},
		terminal.Column{Title: "ENDED BY", Shrink: true})
	for _, state := range states {
		sum := waits.Exactly(sums[state])
		if state == profile.OnCPU {
			sum = lasted(sums[state])
		}
		t.Row(waits.State(state), " ", sum, " ")
		var rest time.Duration
		for i, p := range places[state] {
			if i < maxPlaces {
				t.Row("  "+p.text, p.host, waits.Exactly(p.Sum), cmp.Or(p.EndedBy(), " "))
			} else {
				rest += p.Sum
			}
		}
		if n := len(places[state]) - maxPlaces; n > 0 {
			t.Row(fmt.Sprintf("  ... %d more", n), " ", waits.Exactly(rest), " ")
		}
	}
	return t
}
