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
	for _, note := range slices.Concat(e.backendNotes(), e.notes(), e.inlined) {
		lines = append(lines, terminal.Escape(note))
	}
	add := func(t *terminal.Table, left int) {
		lines = append(append(lines, ""), trimmed(t.Lines(columns))...)
		lines = more(lines, left)
	}
	add(e.backendTransactions(), len(e.Transactions)-maxTransactionRows)
	add(e.backendStates(), 0)
	if len(e.Threads) > 0 {
		add(e.backendThreads(), len(e.Threads)-maxThreadRows)
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
	type placeID struct {
		state      profile.ThreadState
		host, text string
	}
	type place struct {
		waits.Total
		placeID
	}
	var sums [profile.ThreadStates]time.Duration
	places := make(map[placeID]*place)
	var all []*place
	for i := range e.Transactions {
		tx := &e.Transactions[i]
		for j := range tx.Waits {
			w := &tx.Waits[j]
			sums[w.state] += w.Sum
			id := placeID{w.state, tx.Host, w.text}
			if places[id] == nil {
				places[id] = &place{placeID: id}
				all = append(all, places[id])
			}
			places[id].Add(profile.StateTimes{Sum: w.Sum}, w.endedBy)
		}
	}
	sums[profile.OnCPU] = e.cpu(e.Samples)
	slices.SortFunc(all, func(a, b *place) int {
		return cmp.Or(cmp.Compare(b.Sum, a.Sum), strings.Compare(a.host, b.host), strings.Compare(a.text, b.text))
	})
	states := make([]profile.ThreadState, 0, len(sums))
	for state, sum := range sums {
		if sum > 0 {
			states = append(states, profile.ThreadState(state))
		}
	}
	slices.SortStableFunc(states, func(a, b profile.ThreadState) int { return cmp.Compare(sums[b], sums[a]) })
	t := terminal.NewTable(terminal.Column{Title: "STATE OF THREADS", Shrink: true},
		terminal.Column{Title: "HOST", Shrink: true}, terminal.Column{Title: "TIME", Right: true},
		terminal.Column{Title: "ENDED BY", Shrink: true})
	for _, state := range states {
		if state == profile.OnCPU {
			t.Row(waits.State(state), " ", lasted(sums[state]), " ")
			continue
		}
		t.Row(waits.State(state), " ", waits.Exactly(sums[state]), " ")
		n, rest := 0, time.Duration(0)
		for _, p := range all {
			if p.state != state {
				continue
			}
			if n++; n > maxPlaces {
				rest += p.Sum
				continue
			}
			t.Row("  "+p.text, p.host, waits.Exactly(p.Sum), cmp.Or(p.EndedBy(), " "))
		}
		if n > maxPlaces {
			t.Row(fmt.Sprintf("  ... %d more", n-maxPlaces), " ", waits.Exactly(rest), " ")
		}
	}
	return t
}

func (e *Explanation) backendThreads() *terminal.Table {
	t := terminal.NewTable(terminal.Column{Title: "THREAD", Shrink: true}, terminal.Column{Title: "HOST", Shrink: true},
		terminal.Column{Title: "PID", Right: true, Spare: 2}, terminal.Column{Title: "TID", Right: true, Spare: 1},
		terminal.Column{Title: "CPU", Right: true})
	for i := range e.Threads[:min(len(e.Threads), maxThreadRows)] {
		th := &e.Threads[i]
		t.Row(th.Name, th.Host, strconv.Itoa(th.PID), strconv.Itoa(th.TID), lasted(th.CPU))
	}
	return t
}
