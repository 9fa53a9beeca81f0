package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/out/keep"
	"correlator/internal/out/waits"
	"correlator/profile"
)

// Account is how the threads of a transaction spent their time in it. All but Wall are sums over the threads;
// they do not overlap. Of one thread, Wall is the sum of all but Unaccounted.
type Account struct {
	Wall time.Duration `json:"wall_ns"`
	// WallSource is what Wall is: "span", that of the transaction; or "switches", from the first one of a thread to the
	// last.
	WallSource string        `json:"wall_source"`
	OnCPU      time.Duration `json:"on_cpu_ns"`
	Runnable   time.Duration `json:"runnable_ns"`  // waiting for a CPU
	Throttled  time.Duration `json:"throttled_ns"` // the same, for the quota of a cgroup; in Runnable before Linux 6.18
	Blocked    time.Duration `json:"blocked_ns"`
	// Unaccounted is on a CPU, at begin and end of the transaction on a thread: from none to all of it is of
	// the transaction.
	Unaccounted time.Duration `json:"unaccounted_ns"`
	// NoThread is the part of Wall, at the least, in which no thread is known to have had its context: what is missing
	// of it in the sums above. A thread that came to it and left it within a run is not known, nor one that still waits
	// while others go on. 0 where threads had it at the same time, for long enough.
	NoThread time.Duration `json:"no_thread_ns,omitempty"`
	// WholeTrace: it is of all transactions of the trace in the process.
	WholeTrace bool `json:"whole_trace,omitempty"`

	// Partial: what was accounted earlier is not kept any more.
	Partial bool `json:"partial,omitempty"`

	times map[profile.ThreadState]profile.StateTimes
}

func newAccount(kept *keep.Account, span *keep.Interval) *Account {
	if kept == nil {
		return nil
	}
	t := kept.Times
	a := &Account{Wall: kept.Last.Sub(kept.First), WallSource: "switches", OnCPU: t[profile.OnCPU].Sum,
		Runnable:  t[profile.Runnable].Sum,
		Throttled: t[profile.Throttled].Sum, Unaccounted: t[profile.Unknown].Sum, WholeTrace: kept.WholeTrace,
		Partial: kept.Partial, times: t}
	for state := range profile.ThreadStates {
		if state.Blocks() {
			a.Blocked += t[state].Sum
		}
	}
	if span != nil && !kept.WholeTrace { // the span is of one transaction
		a.Wall, a.WallSource = span.End.Sub(span.Start), "span"
	}
	if !a.Partial { // else threads had it, in a time that is not known any more
		a.NoThread = max(0, a.Wall-a.OnCPU-a.Runnable-a.Throttled-a.Blocked-a.Unaccounted)
	}
	return a
}

// spent is how the threads of transactions spent their time, as far as that is known.
type spent struct {
	times          profile.Times
	wall, noThread time.Duration
	accounts       int // several transactions may have one
	known, partial int // transactions with an account, and with one of which an earlier part is missing
}

// wholeTraces are those whose accounts, of which each transaction in them has one, were counted.
type wholeTraces map[string]bool

// isCounted reports whether what a transaction has was counted with another one of its trace.
func (w wholeTraces) isCounted(tx *Transaction) bool {
	if a := tx.Account; a == nil || !a.WholeTrace && tx.ID != "" {
		return false
	}
	trace := fmt.Sprint(tx.Trace, tx.PID)
	counted := w[trace]
	w[trace] = true
	return counted
}

func (e *Explanation) spent() (s spent) {
	traces := make(wholeTraces)
	for i := range e.Transactions {
		tx := &e.Transactions[i]
		a := tx.Account
		if a == nil {
			continue
		}
		s.known++
		if a.Partial {
			s.partial++
		}
		if traces.isCounted(tx) {
			continue
		}
		for state, of := range a.times {
			s.times[state].Add(of)
		}
		s.accounts++
		s.wall += a.Wall
		s.noThread += a.NoThread
	}
	return s
}

// notes says of which of so many transactions it is not known what their threads did.
func (s *spent) notes(transactions int) (notes []string) {
	if s.known < transactions {
		notes = append(notes, fmt.Sprintf("of %d of the %d transactions; what the threads of the others did is not "+
			"kept", s.known, transactions))
	}
	if s.partial > 0 {
		notes = append(notes, fmt.Sprintf("of %d of them, what their threads did earlier is not kept any more",
			s.partial))
	}
	return notes
}

// accountLines returns how the threads of all transactions spent their time, as far as that is known.
func (e *Explanation) accountLines(terminalColumns int) []string {
	s := e.spent()
	if s.known == 0 {
		return nil
	}
	lines := append([]string{""}, e.stateLines(&s.times, "OF WALL", s.wall, s.noThread, terminalColumns)...)
	return append(lines, s.notes(len(e.Transactions))...)
}

// stateLines returns the table of what threads did, and where, with the share of a time in a column of that title.
func (e *Explanation) stateLines(times *profile.Times, title string, wall, noThread time.Duration,
	terminalColumns int) []string {
	states := make([]profile.ThreadState, 0, profile.ThreadStates)
	for state := range profile.ThreadStates {
		if times[state].Count > 0 && state != profile.Unknown {
			states = append(states, state)
		}
	}
	slices.SortStableFunc(states, func(a, b profile.ThreadState) int { return cmp.Compare(times[b].Sum, times[a].Sum) })
	if times[profile.Unknown].Sum >= time.Microsecond {
		states = append(states, profile.Unknown)
	}
	places := e.waitPlaces()
	columns := []terminal.Column{{Title: "STATE OF THREADS", Shrink: true}, {Title: "TIME", Right: true},
		{Title: title, Right: true, Spare: 1}, {Title: "TIMES", Right: true, Spare: 3},
		{Title: "LONGEST", Right: true, Spare: 2}}
	if len(places) > 0 {
		columns = append(columns, terminal.Column{Title: "ENDED BY", Shrink: true})
	}
	t := terminal.NewTable(columns...)
	for _, state := range states {
		of := times[state]
		for _, p := range places[state] { // several of a thread's waits may be pieces of one
			of.Longest = max(of.Longest, p.Longest)
		}
		t.Row(waits.State(state), waits.Exactly(of.Sum), ofWall(share(of.Sum, wall)), strconv.FormatUint(of.Count, 10),
			waits.Exactly(of.Longest), " ")
		if len(places) > 0 && (state.Blocks() || len(places[state]) > 0) {
			addPlaces(t, places[state], of, wall)
		}
	}
	if noThread >= time.Microsecond {
		t.Row("on no known thread", waits.Exactly(noThread), ofWall(share(noThread, wall)), " ", " ", " ")
	}
	return trimmed(t.Lines(terminalColumns))
}

func trimmed(lines []string) []string {
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// How many places a state has in the table; JSON has all.
const maxPlaces = 5

// addPlaces adds rows of where threads were in a state, and of the rest of its time.
func addPlaces(t *terminal.Table, places []*waitPlace, state profile.StateTimes, wall time.Duration) {
	row := func(text string, of profile.StateTimes, longest, waker string) {
		t.Row("  "+text, waits.Exactly(of.Sum), ofWall(share(of.Sum, wall)), strconv.FormatUint(of.Count, 10), longest,
			cmp.Or(waker, " "))
	}
	var more profile.StateTimes
	for i, p := range places {
		state.Sum -= p.Sum
		state.Count -= min(state.Count, p.Count)
		if i < maxPlaces {
			row(p.text, p.StateTimes, waits.Exactly(p.Longest), p.EndedBy())
		} else {
			more.Add(p.StateTimes)
		}
	}
	if n := len(places) - maxPlaces; n > 0 {
		row(fmt.Sprintf("... %d more", n), more, waits.Exactly(more.Longest), "")
	}
	if state.Sum >= time.Microsecond {
		row("no stack", state, " ", "")
	}
}
