package watch

import (
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// stack is a stack as it is published: the innermost frame first.
type stack struct {
	frames string
	millis int
}

func seq(stacks ...stack) iter.Seq2[[]string, time.Duration] {
	return func(yield func([]string, time.Duration) bool) {
		for _, s := range stacks {
			if !yield(strings.Fields(s.frames), time.Duration(s.millis)*time.Millisecond) {
				return
			}
		}
	}
}

func drawnTree(t *tree, columns int) (lines []string) {
	for _, b := range t.branches() {
		lines = append(lines, b.text(columns)+" "+b.total.String()+" "+b.self.String())
	}
	return lines
}

func TestTree(t *testing.T) {
	var tree tree
	tree.update(seq(stack{"compute handle run main", 30}, stack{"parse compute handle run main", 10},
		stack{"report run main", 20}, stack{"start", 5}))
	want := []string{
		"├ main 60ms 0s",
		"│ run 60ms 0s",
		"│ ├ handle 40ms 0s",
		"│ │ compute 40ms 30ms",
		"│ │ parse 10ms 10ms",
		"│ └ report 20ms 20ms",
		"└ start 5ms 5ms",
	}
	got := drawnTree(&tree, 0)
	assert.Check(t, slices.Equal(got, want), "%q, want %q", got, want)
	assert.Check(t, tree.root.total == 65*time.Millisecond && tree.stacks == 4,
		"%v in %d stacks", tree.root.total, tree.stacks)

	// It grows and shrinks; what is folded stays so, frames stay the same nodes.
	branches := tree.branches()
	handle := branches[2].node
	handle.folded = true
	tree.update(seq(stack{"compute handle run main", 40}, stack{"report run main", 50}))
	want = []string{
		"main 90ms 0s",
		"run 90ms 0s",
		"├ report 50ms 50ms",
		"└ handle [+] 40ms 0s",
	}
	got = drawnTree(&tree, 0)
	assert.Check(t, slices.Equal(got, want), "%q, want %q", got, want)
	assert.Check(t, tree.branches()[3].node == handle, "another node for the same frame")
}

// Names and depths that processes choose do no harm.
func TestTreeOfHostileStacks(t *testing.T) {
	var deep tree
	frames := make([]string, 3*maxDepth)
	for i := range frames {
		frames[i] = "f"
	}
	deep.update(func(yield func([]string, time.Duration) bool) {
		_ = yield(frames, time.Second) && yield([]string{"\x1b[2J\n"}, time.Second) && yield(nil, -time.Second)
	})
	branches := deep.branches()
	assert.Check(t, len(branches) == maxDepth+1 && deep.root.total == 2*time.Second,
		"%d lines, %v", len(branches), deep.root.total)
	text := branches[0].text(80)
	assert.Check(t, text == `├ \x1b[2J\n`, "%q", text)
	wide := branch{&node{name: "leaf"}, strings.Repeat("│ ", 100)}
	text = wide.text(20)
	assert.Check(t, text == "… │ │ │ │ leaf", "%q", text)
}
