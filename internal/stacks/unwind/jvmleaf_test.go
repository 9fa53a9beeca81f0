package unwind

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// step is an instruction of one byte. What it does: nothing ("."), jump (j+2, from its end on), perhaps jump (b+2),
// call (c), call an uncommon trap (t), poll (p), store (m), return (r), never run (s), or something that is not
// understood (?). Its frames are those of a PcDesc, the root first, each a method and its line.
type step struct {
	does   string
	frames string
	note   byte // the byte code of which the PcDesc says it is, if it is not of a safepoint
}

// code is that of a compiled method, entered at 0.
type code struct {
	steps    []step
	entries  []int32
	implicit map[int32]int32
	repeats  string // frames that are in a loop of their method
	simple   string // methods that call none
	between  string // places before and after calls, and up to which frame
	loops    string // methods, each for each jump back of a loop that its frames are in, from the root on
	quiet    string // methods whose loops call none
}

var _ pcFrames = code{}

func (c code) at(offset int32) instruction {
	if offset < 0 || int(offset) >= len(c.steps) {
		return instruction{}
	}
	does, jump := c.steps[offset].does, int32(0)
	if len(does) > 1 {
		n, _ := strconv.Atoi(does[1:])
		does, jump = does[:1], int32(n)
	}
	i := map[string]instruction{
		".": {goesOn: true}, "p": {goesOn: true},
		"j": {jumps: true, jump: jump}, "b": {jumps: true, jump: jump, goesOn: true},
		"c": {calls: true, goesOn: true}, "t": {calls: true, goesOn: true}, "m": {stores: true, goesOn: true},
		"r": {leaves: true}, "s": {stops: true},
	}[does]
	if i != (instruction{}) && !i.leaves && !i.stops {
		i.size = 1
	}
	return i
}

func (c code) flow() *flow {
	t := &methodTables{
		entries: append(slices.Clone(c.entries), 0), safepoints: make(map[int32]bool), notes: make(map[int32]opcode),
		implicit: c.implicit,
		isTrap:   func(_ instruction, end int32) bool { return c.steps[end-1].does == "t" },
	}
	for offset, s := range c.steps {
		at := c.place(int32(offset))
		switch {
		case s.frames == "":
		case s.note != 0:
			t.notes[at] = opcode{s.note, true}
		default:
			t.safepoints[at] = true
		}
	}
	return newFlow(t, int32(len(c.steps)), c.at, 1000)
}

// place returns the offset of the PcDesc of a step.
func (c code) place(step int32) int32 {
	if c.steps[step].does == "p" {
		return step
	}
	return step + 1
}

// framesOf returns the frames of a PcDesc, the root first.
func (c code) framesOf(place int32) []string {
	for step := range int32(len(c.steps)) {
		if c.steps[step].frames != "" && c.place(step) == place {
			return strings.Fields(c.steps[step].frames)
		}
	}
	return []string{"main:0"}
}

func (c code) root(places []int32) ([]Frame, error) {
	var common []Frame
	for _, place := range append(slices.Clone(places), none)[:max(1, len(places))] {
		var frames []Frame
		for _, text := range c.framesOf(place) {
			function, line, _ := strings.Cut(text, ":")
			n, _ := strconv.Atoi(line)
			frames = slices.Insert(frames, 0, Frame{Kind: JVMFrame, Function: function, Line: uint32(n)})
		}
		if common == nil {
			common = frames
		}
		common = common[len(common)-commonRoot(common, frames):]
	}
	return common, nil
}

func (c code) lasting(places []int32) (n int) {
	common, _ := c.root(places) // it ends where lines differ
	for n < len(common) {
		f := common[len(common)-1-n]
		if n++; strings.Contains(c.repeats, fmt.Sprintf("%s:%d", f.Function, f.Line)) {
			break
		}
	}
	return n
}

func (c code) callsNone(place int32, frames int) bool {
	method, _, _ := strings.Cut(c.framesOf(place)[frames-1], ":")
	return strings.Contains(c.simple, method)
}

func (c code) callsBetween(before, on []int32, _ int) (frames int) {
	if rest, is := strings.CutPrefix(c.between, fmt.Sprint(before, on)); is {
		frames, _ = strconv.Atoi(strings.TrimSpace(rest))
	}
	return frames
}

func (c code) inLoop(places []int32, loops int) (frames int, callsNone bool) {
	root, _ := c.root(places)
	for i, f := range slices.Backward(root) {
		jumps := strings.Count(c.loops, f.Function)
		if loops -= jumps; jumps > 0 && loops <= 0 {
			return len(root) - i, strings.Contains(c.quiet, f.Function)
		}
	}
	return 0, false
}

func (c code) areSame(places, others []int32) bool {
	return !slices.ContainsFunc(slices.Concat(places, others), func(place int32) bool {
		return !slices.Equal(c.framesOf(place), c.framesOf(places[0]))
	})
}

// The frames of an instruction are those of the work that runs, as deep as is certain, and else it is said that they
// are not.
func TestLeaf(t *testing.T) {
	plain := slices.Repeat([]step{{does: "."}}, 3)
	join := func(parts ...[]step) []step { return slices.Concat(parts...) }
	loop := []step{{does: "."}, {does: "."}, {does: "b-3"}} // of which nothing is known
	polled := join([]step{{does: "c", frames: "main:3"}}, loop,
		[]step{{does: "p", frames: "main:3 f:4"}, {does: "b-5"}, {does: "c", frames: "main:5"}})
	branches := make([]step, 0, 3*maxPlaces)
	for range maxPlaces + 1 {
		branches = append(branches, step{does: "b+1"}, step{does: "c", frames: fmt.Sprintf("main:%d", len(branches))})
	}
	for name, c := range map[string]struct {
		code
		at     int32
		called bool
		want   string
		why    UnknownLeaf
	}{
		"at a call": {code: code{steps: []step{{does: "c", frames: "main:1 f:2"}}}, want: "main:1 f:2"},
		"before a call": {code: code{steps: join(plain, []step{{does: "c", frames: "main:1 f:2"}})},
			want: "main:1 f:2"},
		"before a return": {code: code{steps: join(plain, []step{{does: "r"}})}, want: "main:0"},
		"before a branch to what calls": {code: code{steps: []step{
			{does: "b+1"}, {does: "c", frames: "main:1 f:2 g:3"}, {does: "c", frames: "main:1 f:4 h:5"},
		}}, want: "main:1 f:2"},
		"before a branch to what returns": {code: code{steps: []step{
			{does: "b+1"}, {does: "c", frames: "main:1 f:2"}, {does: "r"},
		}}, want: "main:0"},
		"before a branch to what never runs": {code: code{steps: []step{
			{does: "b+1"}, {does: "s"}, {does: "c", frames: "main:1 f:2"},
		}}, want: "main:1 f:2"},
		"before a check": {code: code{steps: []step{
			{does: "."}, {does: "b+2"}, {does: "c", frames: "main:7"}, {does: "r"}, {does: "."},
			{does: "t", frames: "main:1 f:2"},
		}}, want: "main:1 f:2"},
		"before a check that goes on by a jump": {code: code{steps: []step{
			{does: "b+2"}, {does: "j+2"}, {does: "r"}, {does: "c", frames: "main:7"}, {does: "t", frames: "main:1 f:2"},
		}}, want: "main:1 f:2"},
		"before a branch to a branch to a trap": {code: code{steps: []step{
			{does: "b+1"}, {does: "r"}, {does: "b+1"}, {does: "r"}, {does: "t", frames: "main:1 f:2"},
		}}, want: "main:0"},
		"before what may fault": {code: code{steps: []step{
			{does: "."}, {does: "."}, {does: "r"}, {does: "t", frames: "main:1 f:2"},
		}, implicit: map[int32]int32{1: 3}}, want: "main:1 f:2"},
		"after a call, before a return": {code: code{steps: []step{
			{does: "c", frames: "main:1 f:2"}, {does: "."}, {does: "r"},
		}}, at: 1, want: "main:1 f:2"},
		"after a call, before another of the caller": {code: code{steps: []step{
			{does: "c", frames: "main:1 f:2"}, {does: "."}, {does: "c", frames: "main:3"},
		}}, at: 1, want: "main:1 f:2"},
		"after a call, before one of another method": {code: code{steps: []step{
			{does: "c", frames: "main:1 f:2"}, {does: "."}, {does: "c", frames: "main:3 g:4"},
		}}, at: 1, want: "main:3 g:4"},
		"after calls of two methods": {code: code{steps: []step{
			{does: "b+2"}, {does: "c", frames: "main:1 f:2"}, {does: "j+1"}, {does: "c", frames: "main:3 g:2"},
			{does: "."}, {does: "r"},
		}}, at: 4, want: "main:0"},
		"after a call, or an exception": {code: code{steps: []step{
			{does: "c", frames: "main:1 f:2"}, {does: "."}, {does: "r"},
		}, entries: []int32{1}}, at: 1, want: "main:0"},
		"before a forward if that is noted": {code: code{steps: []step{
			{does: "."}, {does: "b+1", frames: "main:1 f:2", note: ifeq}, {does: "r"}, {does: "r"},
		}}, want: "main:1 f:2"},
		"before a goto that is noted": {code: code{steps: []step{
			{does: "."}, {does: "b+1", frames: "main:1 f:2", note: goTo}, {does: "r"}, {does: "r"},
		}}, want: "main:0"},
		"before a call that is noted": {code: code{steps: []step{
			{does: "."}, {does: "b+1", frames: "main:1 f:2", note: invokevirtual}, {does: "r"}, {does: "r"},
		}}, want: "main:0"},
		"before a store that is noted": {code: code{steps: []step{
			{does: "."}, {does: "m", frames: "main:1 f:2", note: iastore}, {does: "r"},
		}}, want: "main:1 f:2"},
		"before a store of a reference that is noted": {code: code{steps: []step{
			{does: "."}, {does: "m", frames: "main:1 f:2", note: aastore}, {does: "r"},
		}}, want: "main:0"},
		"in straight code with arithmetic": {code: code{steps: []step{
			{does: "."}, {does: ".", frames: "main:1 f:2", note: iadd}, {does: "r"},
		}}, want: "main:0"},
		"between places of a method that calls others between": {code: code{steps: []step{
			{does: "c", frames: "main:1 f:2"}, {does: "."}, {does: "c", frames: "main:1 f:4"},
		}, between: "[1] [3] 2"}, at: 1, want: "main:1 f:4", why: UnknownBetween},
		"after a call in what was called before": {code: code{steps: []step{
			{does: "c", frames: "main:1 f:2 g:1"}, {does: "."}, {does: "c", frames: "main:1 f:4"},
		}}, at: 1, want: "main:1 f:2 g:1"},
		"after a call in what was called before, of a method that calls others then": {code: code{steps: []step{
			{does: "c", frames: "main:1 f:2 g:1"}, {does: "."}, {does: "c", frames: "main:1 f:4"},
		}, between: "[1] [3] 2"}, at: 1, want: "main:1 f:2", why: UnknownBetween},
		"before a return, of a method that calls others": {code: code{steps: []step{
			{does: "c", frames: "main:1 f:2"}, {does: "."}, {does: "r"},
		}, between: "[1] [] 1"}, at: 1, want: "main:1", why: UnknownBetween},
		"where a method begins that calls others": {code: code{steps: []step{
			{does: "."}, {does: "c", frames: "main:1 f:2"},
		}, between: "[] [2] 1"}, want: "main:1", why: UnknownBetween},
		"before a call of others, after what is not understood": {code: code{steps: []step{
			{does: "b+2"}, {does: "c", frames: "main:1 f:2"}, {does: "r"}, {does: "?"},
		}, between: "[] [2] 1"}, at: 1, want: "main:1 f:2"},
		"after a call, before too many places": {code: code{steps: join([]step{{does: "c", frames: "main:1 f:2"}},
			branches, []step{{does: "r"}})}, at: 1, want: "main:1 f:2", why: UnknownTooLarge},

		"in a loop, before a call": {code: code{steps: join(loop, []step{{does: "c", frames: "main:1 f:2"}})},
			want: "main:0", why: UnknownInLoop},
		"in a loop, between calls": {code: code{steps: join([]step{{does: "c", frames: "main:1 f:2 g:3"}}, loop,
			[]step{{does: "c", frames: "main:1 f:4 h:5"}})}, at: 2, want: "main:1 f:4", why: UnknownInLoop},
		"in a loop, between calls of a method that calls none": {code: code{steps: join(
			[]step{{does: "c", frames: "main:1 f:2"}}, loop, []step{{does: "c", frames: "main:1 f:4"}}), simple: "f"},
			at: 2, want: "main:1 f:4"},
		"in a loop, between calls in a loop of the caller": {code: code{steps: join(
			[]step{{does: "c", frames: "main:1 f:2"}}, loop, []step{{does: "c", frames: "main:1 f:2"}}),
			repeats: "main:1"}, at: 2, want: "main:1", why: UnknownInLoop},
		"in a loop that polls around a loop": {code: code{steps: polled, repeats: "main:3", loops: "f"}, at: 2,
			want: "main:3 f:4", why: UnknownInLoop},
		"in a loop that polls around a loop, and calls none": {code: code{steps: polled, loops: "f", quiet: "f"}, at: 2,
			want: "main:3 f:4"},
		"in a loop that polls around a loop, of a method that calls none": {code: code{steps: polled, loops: "f",
			simple: "f"}, at: 2, want: "main:3 f:4"},
		"in a loop with the poll of one that may be none any more": {code: code{steps: polled, loops: "main f",
			simple: "f", quiet: "f"}, at: 2, want: "main:3", why: UnknownInLoop},
		"in a loop with the poll of one that may be none any more, in the same method": {code: code{steps: polled,
			loops: "f f", quiet: "f"}, at: 2, want: "main:3 f:4"},
		"in a loop with the poll of no loop": {code: code{steps: polled, simple: "f", quiet: "f"}, at: 2,
			want: "main:3",
			why:  UnknownInLoop},
		"in two loops with the poll of the inner one": {code: code{steps: join(polled[:6],
			[]step{{does: "b-7"}}, polled[6:]), loops: "main f", quiet: "f"}, at: 2, want: "main:3 f:4"},
		"in two loops with the poll of one that begins again twice": {code: code{steps: join(polled[:6],
			[]step{{does: "b-7"}}, polled[6:]), loops: "main main f", quiet: "f"}, at: 2, want: "main:3",
			why: UnknownInLoop},
		"in two loops made of one, with its poll in both": {code: code{steps: join(polled[:6],
			[]step{{does: "p", frames: "main:3 f:4"}, {does: "b-8"}}, polled[6:]), loops: "main f", quiet: "f"}, at: 2,
			want: "main:3", why: UnknownInLoop},
		"in two loops with a poll each": {code: code{steps: join(polled[:6],
			[]step{{does: "p", frames: "main:3"}, {does: "b-8"}}, polled[6:]), loops: "main f", quiet: "f"}, at: 2,
			want: "main:3 f:4"},
		"in a loop that polls, and is certain to be in another method, too": {code: code{steps: join(polled[:4],
			[]step{{does: "c", frames: "main:2 g:1"}, {does: "p", frames: "main:3 f:4"}, {does: "b-6"}}, polled[6:]),
			loops: "f", quiet: "f"}, at: 2, want: "main:2", why: UnknownInLoop},
		"in a loop next to one that polls, in another": {code: code{steps: join([]step{{does: "c", frames: "main:1"}},
			loop, []step{{does: "."}, {does: "p", frames: "main:3 f:4"}, {does: "b-3"}, {does: "b-7"}},
			[]step{{does: "c", frames: "main:5"}}), repeats: "main:3"}, at: 2, want: "main:3", why: UnknownInLoop},
		"in a loop that polls, before its end": {code: code{steps: []step{
			{does: "c", frames: "main:1"}, {does: "."}, {does: "b+2"}, {does: "p", frames: "main:3 f:4"}, {does: "j-4"},
			{does: "c", frames: "main:5"},
		}, loops: "f"}, at: 1, want: "main:3 f:4"},
		"in a loop that polls, after its end": {code: code{steps: []step{
			{does: "b+2"}, {does: "p", frames: "main:3 f:4"}, {does: "j-3"}, {does: "."}, {does: "c", frames: "main:5"},
		}}, at: 3, want: "main:5"},
		"in a loop with arithmetic": {code: code{steps: []step{
			{does: "."}, {does: ".", frames: "main:1 f:2", note: iadd}, {does: "."}, {does: "b-4"}, {does: "r"},
		}, loops: "f", simple: "f"}, want: "main:1 f:2"},
		"in a loop with arithmetic, and calls": {code: code{steps: []step{
			{does: "."}, {does: ".", frames: "main:1 f:2", note: iadd}, {does: "."}, {does: "b-4"}, {does: "r"},
		}, loops: "f"}, want: "main:1 f:2", why: UnknownInLoop},
		"in a loop with arithmetic of what it calls": {code: code{steps: []step{
			{does: "."}, {does: ".", frames: "main:1 f:2 g:3", note: iadd}, {does: "."}, {does: "b-4"}, {does: "r"},
		}, loops: "f"}, want: "main:1 f:2", why: UnknownInLoop},
		"in a loop with arithmetic of two methods": {code: code{steps: []step{
			{does: "."}, {does: ".", frames: "main:1 f:2", note: iadd}, {does: ".", frames: "main:1 g:2", note: dcmpg},
			{does: "b-4"}, {does: "r"},
		}, loops: "f g"}, want: "main:0", why: UnknownInLoop},
		"in a loop with arithmetic on one of two ways": {code: code{steps: []step{
			{does: "."}, {does: "b+1"}, {does: ".", frames: "main:1 f:2", note: iadd}, {does: "b-4"}, {does: "r"},
		}, loops: "f"}, want: "main:0", why: UnknownInLoop},
		"in a loop with a call that is noted": {code: code{steps: []step{
			{does: "."}, {does: ".", frames: "main:1 f:2", note: invokevirtual}, {does: "b-3"}, {does: "r"},
		}, loops: "f"}, want: "main:0", why: UnknownInLoop},
		"in a loop with arithmetic of a loop that is none any more": {code: code{steps: []step{
			{does: "."}, {does: ".", frames: "main:1 f:2", note: iadd}, {does: "."}, {does: "b-4"}, {does: "r"},
		}, loops: "main f"}, want: "main:0", why: UnknownInLoop},
		"in a loop around a loop with arithmetic": {code: code{steps: []step{
			{does: "."}, {does: ".", frames: "main:1 f:2", note: iadd}, {does: "b-2"}, {does: "b-4"}, {does: "r"},
		}, loops: "f", simple: "f"}, want: "main:1 f:2"},
		"in a loop with arithmetic in one that polls alone": {code: code{steps: []step{
			{does: "."}, {does: "."}, {does: ".", frames: "main:1 f:2 g:3", note: iadd}, {does: "b-3"},
			{does: "p", frames: "main:1 f:4"}, {does: "."}, {does: "b-7"}, {does: "r"},
		}, loops: "f g"}, at: 1, want: "main:1 f:4", why: UnknownInLoop},
		"in a loop with arithmetic in one that polls, and computes": {code: code{steps: []step{
			{does: "."}, {does: "."}, {does: ".", frames: "main:1 f:2 g:3", note: iadd}, {does: "b-3"},
			{does: "p", frames: "main:1 f:4"}, {does: ".", frames: "main:1 f:2", note: iadd}, {does: "b-7"},
			{does: "r"},
		}, loops: "f g"}, at: 1, want: "main:1 f:2 g:3", why: UnknownInLoop},

		"in a call of the JVM": {code: code{steps: []step{
			{does: "c", frames: "main:1 f:2"}, {does: "c"}, {does: "c", frames: "main:1 f:2 g:3"},
		}}, at: 2, called: true, want: "main:1 f:2", why: UnknownInCall},
		"in a call of the JVM that two methods may have made": {code: code{steps: []step{
			{does: "c", frames: "main:1 f:2"}, {does: "c"}, {does: "c", frames: "main:2 g:3"},
		}}, at: 2, called: true, want: "main:2", why: UnknownInCall},
		"in a call of the JVM, last": {code: code{steps: []step{
			{does: "c", frames: "main:1 f:2"}, {does: "c"}, {does: "r"},
		}}, at: 2, called: true, want: "main:0", why: UnknownInCall},
		"before what is not understood": {code: code{steps: []step{
			{does: "c", frames: "main:1 f:2"}, {does: "."}, {does: "?"},
		}}, at: 1, want: "main:0", why: UnknownUnread},
		"in a method of which a part is not understood": {code: code{steps: []step{
			{does: "b+2"}, {does: "c", frames: "main:1 f:2"}, {does: "r"}, {does: "?"},
		}}, at: 2, want: "main:0"},
		"before a jump out of the method": {code: code{steps: []step{
			{does: "."}, {does: "b+9"}, {does: "c", frames: "main:1 f:2"},
		}}, want: "main:0"},
		"before the end of the code": {code: code{steps: plain}, want: "main:0"},
		"before too many places": {code: code{steps: join(branches, []step{{does: "r"}})}, want: "main:0",
			why: UnknownTooLarge},
		"in an endless loop": {code: code{steps: []step{{does: "."}, {does: "j-2"}}}, want: "main:0",
			why: UnknownInLoop},
	} {
		g := c.flow()
		frames, why, err := g.leaf(g.find(c.at, c.called), c.called, c.code)
		assert.NilError(t, err)
		assert.Check(t, !g.whole || !g.turns(g.find(c.at, c.called)) || g.steps > 0, "%s: no work", name)
		var got []string
		for _, f := range slices.Backward(frames) {
			got = append(got, fmt.Sprintf("%s:%d", f.Function, f.Line))
		}
		assert.Check(t, strings.Join(got, " ") == c.want && why == c.why, "%s: %q, %d, want %q, %d", name, got, why,
			c.want, c.why)
		checkSpans(t, g, c.code)
	}
}

// checkSpans checks that instructions in a span have the same leaf, and returns how many have others in theirs.
func checkSpans(t *testing.T, g *flow, c code) (some int) {
	t.Helper()
	m := new(compiledMethod)
	for offset, s := range c.steps {
		if s.frames != "" {
			m.pcDescs = append(m.pcDescs, pcDesc{offset: c.place(int32(offset))})
		}
	}
	slices.SortFunc(m.pcDescs, func(x, y pcDesc) int { return int(x.offset - y.offset) })
	for n := range int32(len(g.nodes)) {
		around := g.span(n, m)
		if around != (Span{}) {
			some++
		}
		frames, why, err := g.leaf(n, false, c)
		assert.NilError(t, err)
		for at := g.nodes[n].offset - int32(around.Down); at <= g.nodes[n].offset+int32(around.Up); at++ {
			other := g.find(at, false)
			assert.Assert(t, other != none, "%+v: %d is no instruction", c, at)
			others, whyOther, err := g.leaf(other, false, c)
			assert.Assert(t, err == nil && slices.Equal(others, frames) && whyOther == why && g.span(other, m) == Span{
				around.Down + uint32(at-g.nodes[n].offset), around.Up - uint32(at-g.nodes[n].offset),
			}, "%+v: %d has %v, and %d has %v", c, g.nodes[n].offset, frames, at, others)
		}
	}
	return some
}

// Instructions that are executed one after the other have the same leaf, in code of any kind.
func TestLeafSpans(t *testing.T) {
	random, some := rand.New(rand.NewPCG(1, 2)), 0
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	for range 3000 {
		c := code{
			repeats: pick("", "main:1", "f:2"), simple: pick("", "f", "main g"), loops: pick("", "f", "main f", "f g"),
			between: pick("", "[] [] 1"),
		}
		size := 2 + random.IntN(20)
		for range size {
			s := step{does: pick(".", ".", ".", ".", ".", "b", "b", "j", "c", "t", "p", "m", "r", "s", "?")}
			if s.does == "b" || s.does == "j" {
				s.does += fmt.Sprintf("%+d", random.IntN(2*size)-size)
			}
			if strings.Contains("ctp", s.does) && random.IntN(4) > 0 {
				s.frames = pick("main:1", "main:1 f:2", "main:1 f:2 g:3", "main:3 g:4")
			} else if random.IntN(8) == 0 {
				s.frames, s.note = pick("main:1", "main:1 f:2"), iadd
			}
			c.steps = append(c.steps, s)
		}
		if random.IntN(2) == 0 {
			c.entries = []int32{random.Int32N(int32(size))}
			c.implicit = map[int32]int32{random.Int32N(int32(size)): random.Int32N(int32(size))}
		}
		if g := c.flow(); g != nil {
			some += checkSpans(t, g, c)
		}
	}
	assert.Check(t, some > 1000, "%d instructions have others around", some)
}
