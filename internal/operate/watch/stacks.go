package watch

import (
	"cmp"
	"fmt"
	"time"

	"correlator/dots/value"
	"correlator/internal/host/sorting"
	"correlator/internal/host/terminal"
	"correlator/internal/out/live/types"
	"correlator/internal/out/waits"
)

// stackView is the stacks of a transaction, or a process, as a tree, which grows.
type stackView struct {
	subject subject
	tree    tree
	cursor  cursor
	title   string
	name    string // of the process
	since   string // when what is shown was begun to be counted
	seen    bool   // the subject has been among those that are published
	fit     int
	shown   []branch
	waits   []types.CorrelatorTransactionWait // what its threads did, the longest first
}

// update takes account of what was published since. The stacks of a subject that is no longer published
// vanish there, but not here.
func (v *stackView) update(s *snapshot) {
	if v.subject.pid != 0 {
		v.updateProcess(s)
		return
	}
	x := s.transactions[v.subject.transactionKey]
	if len(s.waits) > 0 && (x != nil || !v.seen) {
		v.waits = sortWaits(s.waits)
	}
	v.title = fmt.Sprintf("%s in trace %s", terminal.Escape(known(v.subject.TransactionID)),
		terminal.Escape(v.subject.TraceID))
	if x != nil {
		v.seen = true
		if name := x.Service.Value(); name != "" {
			v.title = terminal.Escape(name) + ", " + v.title
		}
		v.title += ", since " + lasted(s.at.Sub(x.Since.Value().Time()))
		v.grow(s, x.StacksSince)
	}
	v.sumUp()
	switch {
	case x == nil && v.seen:
		v.title = "it runs no more: " + v.title
	case x == nil:
		v.title = "not among the busiest: " + v.title
	}
}

func (v *stackView) updateProcess(s *snapshot) {
	key := processKey{Host: v.subject.Host, Pid: v.subject.pid}
	x := s.processes[key]
	v.title = fmt.Sprintf("process %d", key.Pid)
	if v.name = cmp.Or(s.service(key), v.name); v.name != "" {
		v.title = terminal.Escape(v.name) + ", " + v.title
	}
	if x != nil {
		v.seen = true
		if lost := x.StacksLost.Value(); lost > 0 {
			v.title += ", " + lasted(lost.Duration()) + " more without stacks"
		}
		v.grow(s, x.StacksSince)
	}
	v.sumUp()
	switch h := s.hosts[hostKey{Host: key.Host}]; {
	case h != nil && !h.AllProcesses.Value():
		v.title = "stacks are those of transactions there (--processes all): " + v.title
	case x != nil && !x.StacksSince.IsSet():
		v.title = "not counted: the hundred busiest that are wanted are: " + v.title
	case x == nil && v.seen:
		v.title = "it has ended: " + v.title
	}
}

func (v *stackView) grow(s *snapshot, since value.Opt[value.Timepoint]) {
	if since, ok := since.Get(); ok {
		v.since = " since " + since.Time().Local().Format(time.TimeOnly)
	}
	v.tree.update(s.stacks)
}

// sumUp has the title begin with the sum of the stacks.
func (v *stackView) sumUp() {
	stacks := "stacks"
	if v.tree.stacks == 1 {
		stacks = "stack"
	}
	v.title = fmt.Sprintf("%s of CPU time in %d %s%s: %s", lasted(v.tree.root.total), v.tree.stacks, stacks, v.since,
		v.title)
}

func (v *stackView) draw(head string, columns, rows int) (lines []string, marked int) {
	v.shown = v.tree.branches()
	above := v.waitLines(columns, (rows-4)/2)
	v.fit = max(rows-4-len(above), 0) // the head, the title, the table's head, the help
	v.cursor.place(v.keys(), v.fit)
	frames := terminal.NewTable(terminal.Column{Title: "SHARE", Right: true},
		terminal.Column{Title: "SELF", Right: true}, terminal.Column{Title: "FRAME"})
	from := v.cursor.top
	for _, b := range v.shown[from:min(from+v.fit, len(v.shown))] {
		self := ""
		if b.self > 0 {
			self = percent(b.self.Seconds() / v.tree.root.total.Seconds())
		}
		frames.Row(percent(b.total.Seconds()/v.tree.root.total.Seconds()), self, b.text(columns))
	}
	lines, marked = append([]string{head, v.title}, above...), -1
	if len(v.shown) > 0 && v.fit > 0 {
		marked = len(lines) + 1 + v.cursor.index - from
	}
	if len(v.shown) > 0 {
		lines = append(lines, frames.Lines(0)...)
	} else {
		lines = append(lines, "no stacks yet: they are collected while they are shown")
	}
	return withHelp(lines, stackHelp, rows), marked
}

// sortWaits sorts what threads did: the state that took longest first, and its places behind it.
func sortWaits(all []types.CorrelatorTransactionWait) []types.CorrelatorTransactionWait {
	sums := make(map[string]value.Duration)
	for i := range all {
		if x := &all[i]; x.Place.Value() == "" {
			sums[x.State.Value()] = x.Time.Value()
		}
	}
	sorting.Sort(all, func(a, b types.CorrelatorTransactionWait) int {
		return cmp.Or(cmp.Compare(sums[b.State.Value()], sums[a.State.Value()]),
			cmp.Compare(a.State.Value(), b.State.Value()), cmp.Compare(min(len(a.Place.Value()), 1),
				min(len(b.Place.Value()), 1)), cmp.Compare(b.Time.Value(), a.Time.Value()),
			cmp.Compare(a.Place.Value(), b.Place.Value()))
	})
	return all
}

// waitLines returns a table of what the threads did, with that many lines at most.
func (v *stackView) waitLines(columns, most int) []string {
	if len(v.waits) == 0 || most < 2 {
		return nil
	}
	t := terminal.NewTable(terminal.Column{Title: "STATE OF THREADS", Shrink: true},
		terminal.Column{Title: "TIME", Right: true}, terminal.Column{Title: "TIMES", Right: true, Spare: 2},
		terminal.Column{Title: "LONGEST", Right: true, Spare: 1}, terminal.Column{Title: "ENDED BY", Shrink: true})
	for i := range v.waits[:min(len(v.waits), most-1)] {
		x, indent, longest := &v.waits[i], "", ""
		if d, known := x.Longest.Get(); known {
			longest = waits.Exactly(d.Duration())
		}
		if x.Place.Value() != "" {
			indent = "  "
		}
		t.Row(indent+x.Text.Value(), waits.Exactly(x.Time.Value().Duration()), number(x.Times), longest,
			cmp.Or(x.EndedBy.Value(), " "))
	}
	return t.Lines(columns)
}

func (v *stackView) keys() []any {
	keys := make([]any, len(v.shown))
	for i := range v.shown {
		keys[i] = v.shown[i].node
	}
	return keys
}

func (v *stackView) press(key terminal.Key) {
	keys := v.keys()
	if v.cursor.press(key, keys, v.fit) || len(keys) == 0 {
		return
	}
	if chosen := v.shown[v.cursor.index].node; key == terminal.KeyEnter && len(chosen.callees) > 0 {
		chosen.folded = !chosen.folded
	}
}
