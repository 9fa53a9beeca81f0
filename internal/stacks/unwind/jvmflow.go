package unwind

import "slices"

const (
	// maxMethodBytes bounds the code of a compiled method that is followed: with all that is inlined, few have 100 kB.
	maxMethodBytes = 256 << 10

	// maxToTrap bounds the instructions from a check to the call of its uncommon trap.
	maxToTrap = 24

	// nodeBytes is what an instruction takes in a flow, flowBytes what a flow takes besides.
	nodeBytes = 48
	flowBytes = 256
)

// methodTables is what the JVM has of a compiled method besides its instructions. All numbers are offsets in the
// code. A PcDesc is of a safepoint, or a note: see notes.
type methodTables struct {
	entries    []int32        // where the method is entered: by calls, in a loop, after exceptions
	safepoints map[int32]bool // PcDescs where calls return, and of polls
	// notes are the other PcDescs (-XX:+DebugNonSafepoints): where an instruction ends, and the byte code that it is
	// said to be of. There are none where they are known to be wrong.
	notes    map[int32]opcode
	implicit map[int32]int32                     // instructions that may fault, and where they continue then
	isTrap   func(i instruction, end int32) bool // a call never returns: the interpreter goes on instead
}

// node is an instruction of a compiled method.
type node struct {
	offset int32
	size   int8
	// certain is the PcDesc of the frames that the program is in when it executes the instruction, none if unknown.
	certain int32
	// computes is the note of arithmetic, or none.
	computes int32
	calls    bool
	poll     bool
	entered  bool // not only from instructions before
	leaves   bool // the method, perhaps
	unread   bool // it is not understood
}

const none int32 = -1

// flow is how control flows through a compiled method.
type flow struct {
	nodes      []node // in the order of their offsets
	next, prev edges
	whole      bool // all of the code is understood
	steps      int  // that were taken in loops, to find a leaf
}

// edges are lists of nodes, one for each node: those after it, or before.
type edges struct{ ends, to []int32 }

func (e *edges) of(n int32) []int32 {
	if n == 0 {
		return e.to[:e.ends[0]]
	}
	return e.to[e.ends[n-1]:e.ends[n]]
}

// follower makes a flow.
type follower struct {
	*methodTables
	at     func(int32) instruction // size 0 outside of the code
	known  map[int32]instruction
	ends   map[int32]bool // of calls
	traps  map[int32]bool // ends of calls that never return
	inside func(int32) bool
}

// newFlow follows code of some bytes from the entries of a method on. It returns nil if there are more instructions
// than it may decode.
func newFlow(t *methodTables, bytes int32, at func(int32) instruction, most int) *flow {
	f := &follower{
		methodTables: t, at: at, known: make(map[int32]instruction), ends: make(map[int32]bool),
		traps: make(map[int32]bool), inside: func(offset int32) bool { return 0 <= offset && offset < bytes },
	}
	ways := slices.DeleteFunc(slices.Clone(t.entries), func(offset int32) bool { return !f.inside(offset) })
	for len(ways) > 0 {
		offset := ways[len(ways)-1]
		ways = ways[:len(ways)-1]
		if _, known := f.known[offset]; known {
			continue
		}
		if len(f.known) == most {
			return nil
		}
		i := at(offset)
		f.known[offset] = i
		if end := offset + i.size; i.calls {
			f.ends[end] = true
			f.traps[end] = t.safepoints[end] && t.isTrap(i, end)
		}
		ways = f.appendNext(ways, offset)
	}
	return f.flow()
}

// appendNext appends where code goes on after an instruction, in the method.
func (f *follower) appendNext(to []int32, offset int32) []int32 {
	i := f.known[offset]
	end := offset + i.size
	if i.size == 0 || i.calls && f.traps[end] {
		return to
	}
	if i.goesOn && f.inside(end) {
		to = append(to, end)
	}
	if i.jumps && f.inside(end+i.jump) {
		to = append(to, end+i.jump)
	}
	if continues, may := f.implicit[offset]; may && f.inside(continues) {
		to = append(to, continues)
	}
	return to
}

func (f *follower) flow() *flow {
	g := &flow{whole: true, nodes: make([]node, 0, len(f.known))}
	for offset := range f.known {
		g.nodes = append(g.nodes, node{offset: offset})
	}
	slices.SortFunc(g.nodes, func(x, y node) int { return int(x.offset) - int(y.offset) })
	index := make(map[int32]int32, len(g.nodes))
	for n := range g.nodes {
		index[g.nodes[n].offset] = int32(n)
	}
	for _, offset := range f.entries {
		if n, ok := index[offset]; ok {
			g.nodes[n].entered = true
		}
	}
	var to []int32
	before := make([]int32, len(g.nodes)) // how many come before each
	for n := range g.nodes {
		g.describe(f, &g.nodes[n])
		to = f.appendNext(to[:0], g.nodes[n].offset)
		for _, offset := range to {
			g.next.to = append(g.next.to, index[offset])
			before[index[offset]]++
		}
		g.next.ends = append(g.next.ends, int32(len(g.next.to)))
	}
	g.prev = edges{ends: before, to: make([]int32, len(g.next.to))}
	for n := 1; n < len(before); n++ {
		before[n] += before[n-1]
	}
	for n := len(g.nodes) - 1; n >= 0; n-- { // from the ends of the lists to their begins, at which these end then
		for _, to := range g.next.of(int32(n)) {
			before[to]--
			g.prev.to[before[to]] = int32(n)
		}
	}
	g.prev.ends = append(before[min(1, len(before)):], int32(len(g.prev.to)))
	return g
}

// describe sets what is known of an instruction by itself.
func (g *flow) describe(f *follower, n *node) {
	i := f.known[n.offset]
	end := n.offset + i.size
	n.size, n.calls, n.certain, n.computes = int8(i.size), i.calls, none, none
	if i.size == 0 {
		n.leaves, n.unread = i.leaves, !i.leaves && !i.stops
		g.whole = g.whole && !n.unread
		return
	}
	n.leaves = i.jumps && !f.inside(end+i.jump) || i.goesOn && !f.inside(end) && !(i.calls && f.traps[end])
	note, noted := f.notes[end]
	switch trap := f.trap(n.offset); {
	case i.calls && f.safepoints[end]:
		n.certain = end
	case f.safepoints[n.offset] && !f.ends[n.offset]:
		n.certain, n.poll = n.offset, true
	case trap != none:
		n.certain = trap
	case !noted:
	case i.jumps && i.goesOn && note.isForwardIf(), i.stores && note.isPrimitiveStore():
		n.certain = end
	case note.isArithmetic():
		n.computes = end
	}
}

// trap returns the PcDesc of the uncommon trap to which an instruction goes if a check fails, or none.
func (f *follower) trap(offset int32) int32 {
	if continues, may := f.implicit[offset]; may {
		if trap := f.trapAfter(continues); trap != none {
			return trap
		}
	}
	i := f.known[offset]
	if !i.jumps || !i.goesOn {
		return none
	}
	if trap := f.trapAfter(offset + i.size + i.jump); trap != none {
		return trap
	}
	return f.trapAfter(offset + i.size)
}

// trapAfter returns the PcDesc of the uncommon trap to which code goes straight from an offset, or none.
func (f *follower) trapAfter(offset int32) int32 {
	for range maxToTrap {
		i := f.known[offset]
		end := offset + i.size
		switch {
		case i.size == 0, i.jumps && i.goesOn, f.safepoints[offset] && !f.ends[offset]:
			return none
		case i.calls && f.traps[end]:
			return end
		case i.calls:
			return none
		}
		if offset = end; i.jumps {
			offset += i.jump
		}
	}
	return none
}

// find returns the instruction at an offset, or the call that ends there; none if it is not known.
func (g *flow) find(offset int32, returns bool) int32 {
	n, found := slices.BinarySearchFunc(g.nodes, offset, func(n node, at int32) int { return int(n.offset) - int(at) })
	if !returns {
		if !found {
			return none
		}
		return int32(n)
	}
	for n--; n >= 0 && g.nodes[n].offset >= offset-maxInstructionBytes; n-- {
		if g.nodes[n].calls && g.nodes[n].offset+int32(g.nodes[n].size) == offset {
			return int32(n)
		}
	}
	return none
}

// bytes is what it takes.
func (g *flow) bytes() uint64 {
	if g == nil {
		return 0
	}
	return uint64(flowBytes + nodeBytes*len(g.nodes))
}
