package watch

import (
	"fmt"
	"time"

	"correlator/internal/host/terminal"
)

// stackView is the stacks of a transaction as a tree, which grows.
type stackView struct {
	transaction transactionKey
	tree        tree
	cursor      cursor
	title       string
	since       string // when what is shown was begun to be counted
	seen        bool   // the transaction has been among those that are published
	fit         int
	shown       []branch
}

// update takes account of what was published since. The stacks of a transaction that is no longer
// published vanish there, but not here.
func (v *stackView) update(s *snapshot) {
	x := s.transactions[v.transaction]
	v.title = fmt.Sprintf("%s in trace %s", terminal.Escape(known(v.transaction.TransactionID)),
		terminal.Escape(v.transaction.TraceID))
	if x != nil {
		v.seen = true
		if name := x.Service.Value(); name != "" {
			v.title = terminal.Escape(name) + ", " + v.title
		}
		v.title += ", since " + lasted(s.at.Sub(x.Since.Value().Time()))
		if since, ok := x.StacksSince.Get(); ok {
			v.since = " since " + since.Time().Local().Format(time.TimeOnly)
		}
		v.tree.update(s.stacks)
	}
	stacks := "stacks"
	if v.tree.stacks == 1 {
		stacks = "stack"
	}
	v.title = fmt.Sprintf("%s of CPU time in %d %s%s: %s", lasted(v.tree.root.total), v.tree.stacks, stacks, v.since,
		v.title)
	switch {
	case x == nil && v.seen:
		v.title = "it runs no more: " + v.title
	case x == nil:
		v.title = "not among the busiest: " + v.title
	}
}

func (v *stackView) draw(head string, columns, rows int) (lines []string, marked int) {
	v.shown = v.tree.branches()
	v.fit = max(rows-4, 0) // the head, the title, the table's head, the help
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
	lines, marked = append([]string{head, v.title}, frames.Lines(0)...), -1
	if len(v.shown) == 0 {
		lines = []string{head, v.title, "no stacks yet: they are collected while they are shown"}
	}
	if len(v.shown) > 0 && v.fit > 0 {
		marked = 3 + v.cursor.index - from
	}
	return withHelp(lines, stackHelp, rows), marked
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
