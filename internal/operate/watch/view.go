package watch

import (
	"fmt"
	"strings"

	"correlator/internal/host/terminal"
)

// The tabs, in the order of their keys.
const (
	processTab = iota
	threadTab
	transactionTab
	tabs
)

const (
	tabHelp   = "1 2 3 Tab: view   ↑ ↓: choose   Enter: threads, stacks   s: stacks   q: quit"
	stackHelp = "↑ ↓: choose   Enter: fold   Esc: back   1 2 3: view   q: quit"
)

// view is what is shown of snapshots, and how keys change it.
type view struct {
	tab     int
	cursors [tabs]cursor
	process *processKey // the only one whose threads are shown; nil: of all
	stacks  *stackView  // shown in place of the tab, unless nil

	// Of the last drawing, for keys.
	shown *table
	fit   int
}

// subject returns that whose stacks are shown, or nil.
func (v *view) subject() *subject {
	if v.stacks == nil {
		return nil
	}
	return &v.stacks.subject
}

// draw returns lines for a screen, and the number of the one that is marked.
func (v *view) draw(s *snapshot, trouble error, columns, rows int) (lines []string, marked int) {
	head := v.head(s, trouble)
	if v.stacks != nil {
		v.stacks.update(s)
		return v.stacks.draw(head, columns, rows)
	}
	all := [tabs]*table{s.processTable(), s.threadTable(v.process), s.transactionTable()}
	v.shown = all[v.tab]
	v.fit = max(rows-4, 0) // the head, the tabs, the table's head, the help
	keys := v.shown.keys()
	c := &v.cursors[v.tab]
	c.place(keys, v.fit)
	lines = append([]string{head, v.tabLine(all)},
		v.shown.lines(c.top, min(c.top+v.fit, len(keys)), columns)...)
	marked = -1
	if len(keys) > 0 && v.fit > 0 {
		marked = 3 + c.index - c.top
	}
	return withHelp(lines, tabHelp, rows), marked
}

// withHelp puts help into the last row.
func withHelp(lines []string, help string, rows int) []string {
	for len(lines) < rows-1 {
		lines = append(lines, "")
	}
	return append(lines, help)
}

// tabLine names the tabs; the one that is shown is in brackets.
func (v *view) tabLine(all [tabs]*table) string {
	texts := make([]string, tabs)
	for i, t := range all {
		texts[i] = fmt.Sprintf(" %d %s %d ", i+1, t.name, len(t.items))
		if i == threadTab && v.process != nil {
			texts[i] = fmt.Sprintf(" %d %s of process %d: %d ", i+1, t.name, v.process.Pid, len(t.items))
		}
		if i == v.tab {
			texts[i] = "[" + strings.TrimSpace(texts[i]) + "]"
		}
	}
	return strings.TrimRight(strings.Join(texts, " "), " ")
}

// press does what a key says, and reports whether that is to quit.
func (v *view) press(key terminal.Key) (quit bool) {
	switch key {
	case 'q', terminal.KeyInterrupt:
		return true
	case '1', '2', '3':
		v.stacks, v.process, v.tab = nil, nil, int(key-'1')
	case terminal.KeyTab:
		v.stacks, v.tab = nil, (v.tab+1)%tabs
	case terminal.KeyBackTab:
		v.stacks, v.tab = nil, (v.tab+tabs-1)%tabs
	case terminal.KeyEscape, terminal.KeyBackspace, terminal.KeyLeft:
		v.back()
	default:
		if v.stacks != nil {
			v.stacks.press(key)
		} else if v.shown != nil {
			v.pressTable(key)
		}
	}
	return false
}

// back leaves the stacks, or else the threads of a single process.
func (v *view) back() {
	switch {
	case v.stacks != nil:
		v.stacks = nil
	case v.process != nil:
		v.process, v.tab = nil, processTab
	}
}

func (v *view) pressTable(key terminal.Key) {
	c, keys := &v.cursors[v.tab], v.shown.keys()
	if key != terminal.KeyEnter && key != terminal.KeyRight && key != 's' {
		c.press(key, keys, v.fit)
		return
	}
	if c.index < len(keys) {
		v.open(&v.shown.items[c.index], key == 's')
	}
}

// open shows more of a row: of a process its threads, or its stacks, of a transaction its stacks, of a thread
// those of the transaction that it works on, or else of its process.
func (v *view) open(row *item, stacks bool) {
	switch key, isProcess := row.key.(processKey); {
	case row.subject != nil:
		v.stacks = &stackView{subject: *row.subject}
	case isProcess && stacks:
		v.stacks = &stackView{subject: *processSubject(key)}
	case isProcess:
		v.process, v.tab = &key, threadTab
		v.cursors[threadTab] = cursor{}
	}
}

// plain returns all tables, one below the other.
func (v *view) plain(s *snapshot, trouble error, columns int) []string {
	lines := []string{v.head(s, trouble)}
	for _, t := range []*table{s.processTable(), s.threadTable(nil), s.transactionTable()} {
		lines = append(lines, "", fmt.Sprintf("%s: %d", t.name, len(t.items)))
		if len(t.items) > 0 {
			lines = append(lines, t.lines(0, len(t.items), columns)...)
		}
	}
	return lines
}

func (v *view) head(s *snapshot, trouble error) string {
	if trouble != nil {
		return "trying again: " + terminal.Escape(trouble.Error())
	}
	return s.hostLine()
}
