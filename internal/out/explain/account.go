package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/out/keep"
	"correlator/profile"
)

// Account is how the threads of a transaction spent their time in it. All but Wall are sums over the threads;
// they do not overlap. Of one thread, Wall is the sum of all but Unaccounted.
type Account struct {
	Wall      time.Duration `json:"wall_ns"` // from the first switch of a thread to the last
	OnCPU     time.Duration `json:"on_cpu_ns"`
	Runnable  time.Duration `json:"runnable_ns"`  // waiting for a CPU
	Throttled time.Duration `json:"throttled_ns"` // the same, for the quota of a cgroup; in Runnable before Linux 6.18
	Blocked   time.Duration `json:"blocked_ns"`
	// Unaccounted is on a CPU, at begin and end of the transaction on a thread: from none to all of it is of
	// the transaction.
	Unaccounted time.Duration `json:"unaccounted_ns"`
	// WholeTrace: it is of all transactions of the trace in the process.
	WholeTrace bool `json:"whole_trace,omitempty"`

	// Partial: what was accounted earlier is not kept any more.
	Partial bool `json:"partial,omitempty"`

	times map[profile.ThreadState]profile.StateTimes
}

// Wait is what threads of a transaction waited for.
type Wait struct {
	Kind    string        `json:"kind"` // profile.ThreadState
	Sum     time.Duration `json:"ns"`
	Count   uint64        `json:"count"`
	Longest time.Duration `json:"longest_ns"`
}

func newAccount(kept *keep.Account) *Account {
	if kept == nil {
		return nil
	}
	t := kept.Times
	a := &Account{Wall: kept.Last.Sub(kept.First), OnCPU: t[profile.OnCPU].Sum, Runnable: t[profile.Runnable].Sum,
		Throttled: t[profile.Throttled].Sum, Unaccounted: t[profile.Unknown].Sum, WholeTrace: kept.WholeTrace,
		Partial: kept.Partial, times: t}
	for state := range profile.ThreadStates {
		if state.Blocks() {
			a.Blocked += t[state].Sum
		}
	}
	return a
}

// newWaits returns the waits of an account, the longest ones first.
func newWaits(kept *keep.Account) (waits []Wait) {
	if kept == nil {
		return nil
	}
	for state := range profile.ThreadStates {
		if t := kept.Times[state]; state.Blocks() && t.Count > 0 {
			waits = append(waits, Wait{state.String(), t.Sum, t.Count, t.Longest})
		}
	}
	slices.SortStableFunc(waits, func(a, b Wait) int { return cmp.Compare(b.Sum, a.Sum) })
	return waits
}

// stateTexts are what a thread did, in words.
var stateTexts = [profile.ThreadStates]string{
	profile.OnCPU: "on a CPU", profile.Runnable: "waiting for a CPU", profile.Throttled: "throttled (cgroup quota)",
	profile.Futex: "lock, queue or sleep (futex)", profile.Sleep: "sleep", profile.Net: "network",
	profile.Unix: "Unix socket", profile.Pipe: "pipe", profile.Poll: "poll", profile.Disk: "disk",
	profile.Fault: "page fault", profile.Other: "other",
	profile.Unknown: "on a CPU, in this or another",
}

// accountLines returns how the threads of all transactions spent their time, as far as that is known.
func (e *Explanation) accountLines(columns int) []string {
	var times profile.Times
	var wall time.Duration
	known, partial := 0, 0
	traces := make(map[string]bool)
	for i := range e.Transactions {
		tx := &e.Transactions[i]
		a := tx.Account
		if a == nil {
			continue
		}
		known++
		if a.Partial {
			partial++
		}
		if a.WholeTrace || tx.ID == "" { // that of the trace in the process
			trace := fmt.Sprint(tx.Trace, tx.PID)
			if traces[trace] {
				continue
			}
			traces[trace] = true
		}
		for state, of := range a.times {
			times[state].Add(of)
		}
		wall += a.Wall
	}
	if known == 0 {
		return nil
	}
	states := make([]profile.ThreadState, 0, profile.ThreadStates)
	for state := range profile.ThreadStates {
		if times[state].Count > 0 && state != profile.Unknown {
			states = append(states, state)
		}
	}
	slices.SortStableFunc(states, func(a, b profile.ThreadState) int { return cmp.Compare(times[b].Sum, times[a].Sum) })
	if times[profile.Unknown].Count > 0 {
		states = append(states, profile.Unknown)
	}
	t := terminal.NewTable(terminal.Column{Title: "STATE OF THREADS"}, terminal.Column{Title: "TIME", Right: true},
		terminal.Column{Title: "OF WALL", Right: true}, terminal.Column{Title: "TIMES", Right: true},
		terminal.Column{Title: "LONGEST", Right: true})
	for _, state := range states {
		of := times[state]
		t.Row(stateTexts[state], exactly(of.Sum), ofWall(share(of.Sum, wall)), strconv.FormatUint(of.Count, 10),
			exactly(of.Longest))
	}
	lines := append([]string{""}, t.Lines(columns)...)
	if n := len(e.Transactions); known < n {
		lines = append(lines, fmt.Sprintf("of %d of the %d transactions; what the threads of the others did is not kept",
			known, n))
	}
	if partial > 0 {
		lines = append(lines, fmt.Sprintf("of %d of them, what their threads did earlier is not kept any more", partial))
	}
	return lines
}

// exactly returns a duration that was measured.
func exactly(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	}
	return lasted(d)
}
