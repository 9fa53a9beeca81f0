package watch

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"correlator/internal/host/terminal"
)

// maxDepth is how many frames of a stack are shown, the outermost ones.
const maxDepth = 1024

type node struct {
	name    string
	total   time.Duration
	self    time.Duration // without callees
	callees map[string]*node
	folded  bool
}

type tree struct {
	root   node // which is no frame
	stacks int
}

// update replaces the stacks. Frames that are in the new ones, too, stay the same nodes.
func (t *tree) update(stacks iter.Seq2[[]string, time.Duration]) {
	t.root.reset()
	t.stacks = 0
	for frames, used := range stacks {
		t.stacks++
		t.add(frames, max(used, 0))
	}
	t.root.prune()
}

func (t *tree) add(frames []string, used time.Duration) {
	at := &t.root
	at.total += used
	for depth := range min(len(frames), maxDepth) {
		name := frames[len(frames)-1-depth]
		callee := at.callees[name]
		if callee == nil {
			callee = &node{name: name}
			if at.callees == nil {
				at.callees = make(map[string]*node)
			}
			at.callees[name] = callee
		}
		callee.total += used
		at = callee
	}
	at.self += used
}

func (n *node) reset() {
	n.total, n.self = 0, 0
	for _, callee := range n.callees {
		callee.reset()
	}
}

// prune removes frames in which nothing was used.
func (n *node) prune() {
	for name, callee := range n.callees {
		if callee.total == 0 {
			delete(n.callees, name)
			continue
		}
		callee.prune()
	}
}

// branch is a line of a drawn tree.
type branch struct {
	*node
	guides string // lines from the callers
}

// branches returns the frames as they are shown, those with the most time first. A frame whose
// caller calls nothing else stands right below it, so that only forks are indented:
//
//	main
//	run
//	├ handle
//	│ compute
//	└ report
func (t *tree) branches() (shown []branch) {
	t.root.walk(&shown, "")
	return shown
}

func (n *node) walk(shown *[]branch, guides string) {
	if n.folded {
		return
	}
	callees := slices.SortedFunc(maps.Values(n.callees), func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.total, a.total), strings.Compare(a.name, b.name))
	})
	for i, callee := range callees {
		first, rest := guides, guides
		switch {
		case len(callees) == 1:
		case i < len(callees)-1:
			first, rest = guides+"├ ", guides+"│ "
		default:
			first, rest = guides+"└ ", guides+"  "
		}
		*shown = append(*shown, branch{callee, first})
		callee.walk(shown, rest)
	}
}

// text returns the frame behind its guides, of which at most half of the columns are left: the
// nearest callers'.
func (b *branch) text(columns int) string {
	guides := []rune(b.guides)
	if most := max(columns/2, 2); columns > 0 && len(guides) > most {
		guides = append([]rune{'…'}, guides[len(guides)-most+1:]...)
	}
	text := string(guides) + terminal.Escape(b.name)
	if b.folded && len(b.callees) > 0 {
		text += " [+]"
	}
	return text
}
