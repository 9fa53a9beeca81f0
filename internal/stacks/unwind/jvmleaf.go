package unwind

import (
	"cmp"
	"slices"
)

const (
	// maxWalked bounds the instructions on all ways from a place, maxPlaces the PcDescs to which they come.
	maxWalked = 4096
	maxPlaces = 32

	// maxLoops bounds how many loops around a place are told apart.
	maxLoops = 16
)

// UnknownLeaf is why it is not known which method runs, of those that are inlined in a compiled one.
type UnknownLeaf uint8

// Reasons of UnknownLeaf.
const (
	knownLeaf       UnknownLeaf = iota
	UnknownInLoop               // it may be in a loop without safepoints and checks
	UnknownInCall               // it has called code of the JVM that no safepoint is for
	UnknownUnread               // some of the code is not understood
	UnknownTooLarge             // there is more code than is followed
	UnknownBetween              // it is between two places of a method that calls others between them
)

// pcFrames are the frames of PcDescs of one compiled method. Frames have the leaf first.
type pcFrames interface {
	// root returns the frames that some have in common, from the root on, up to the first that is at different lines;
	// of none, the method that was compiled.
	root(places []int32) ([]Frame, error)
	// lasting returns how many frames of their root are of the same calls, from whichever of them code comes to which
	// other without passing a third.
	lasting(places []int32) int
	// callsNone reports whether a method calls no other: that of the last of so many frames of a PcDesc, counted from
	// the root on.
	callsNone(place int32, frames int) bool
	// callsBetween returns how many frames there are, of so many that some PcDescs have in common or those that code
	// comes to next, up to the first whose method may call others in between, 0 if none does. Without the former, that
	// is from where the method begins; without the latter, up to where it ends.
	callsBetween(before, on []int32, frames int) int
	// inLoop returns in which loop of the methods all of some are for certain, if so many loops are around them in the
	// code: how many frames they have in common up to the method that has it, and whether that calls none in the loop.
	// It is the loop so many from the outermost on, or one that is in it: compilers make straight code of some loops.
	// Of one that begins again from several places they may make as many. There are no frames if the methods have
	// fewer loops.
	inLoop(places []int32, loops int) (frames int, callsNone bool)
	// areSame reports whether all of some are of the same calls and byte code as all of others.
	areSame(places, others []int32) bool
}

// leafFrames are the frames of an instruction, as far as they are certain.
type leafFrames struct {
	frames    []Frame
	why       UnknownLeaf // there may be more
	place     int32       // a PcDesc in which the last of the frames is, none if there is none
	callsNone bool        // in the loop in which it is
}

// leaf returns the frames of an instruction: those in which it is certain to be, or, in straight code, that it enters
// next or has left just now. Certain are calls, polls of loops, and checks that may go to an uncommon trap, for they
// have frames of their own; of other instructions the JVM's notes are not always true. An instruction is where all
// ways on from it come to, or all ways to it come from, unless it may take long: in a loop of which nothing is known,
// or in a call of code of the JVM (called).
func (g *flow) leaf(n int32, called bool, d pcFrames) ([]Frame, UnknownLeaf, error) {
	if place := g.nodes[n].certain; place != none {
		frames, err := d.root([]int32{place})
		return frames, knownLeaf, err
	}
	var l leafFrames
	var err error
	if called || g.turns(n) {
		l, err = g.long(n, called, d)
	} else {
		l, err = g.straight(n, d)
	}
	if err == nil && g.whole {
		err = g.inLoops(n, &l, d)
	}
	if err != nil {
		return nil, l.why, err
	}
	if l.why != knownLeaf && (l.callsNone || d.callsNone(l.place, len(l.frames))) {
		l.why = knownLeaf
	}
	return l.frames, l.why, nil
}

// span returns around which of a method's instructions others have the same leaf: those that are executed one after the
// other, always, and of which nothing else is known.
func (g *flow) span(n int32, m *compiledMethod) (s Span) {
	first, last := n, n
	for first > 0 && g.isSame(first-1, m) {
		first--
	}
	for int(last)+1 < len(g.nodes) && g.isSame(last, m) {
		last++
	}
	at := g.nodes[n].offset
	return Span{Down: uint32(at - g.nodes[first].offset), Up: uint32(g.nodes[last].offset - at)}
}

// isSame reports whether an instruction and the one behind it have the same leaf.
func (g *flow) isSame(n int32, m *compiledMethod) bool {
	this, next := &g.nodes[n], &g.nodes[n+1]
	if this.certain != none || next.certain != none || (this.computes == none) != (next.computes == none) ||
		this.leaves || this.unread || next.entered || this.offset+int32(this.size) != next.offset {
		return false
	}
	if to, from := g.next.of(n), g.prev.of(n+1); len(to) != 1 || to[0] != n+1 || len(from) != 1 || from[0] != n {
		return false
	}
	// What is known of the nearest place is for all up to the next.
	byOffset := func(p pcDesc, at int32) int { return int(p.offset) - int(at) }
	i, _ := slices.BinarySearchFunc(m.pcDescs, this.offset, byOffset)
	return i == len(m.pcDescs) || m.pcDescs[i].offset > next.offset
}

// straight returns the frames of an instruction in straight code.
func (g *flow) straight(n int32, d pcFrames) (l leafFrames, err error) {
	on, why := g.first(n, false)
	before, whyBefore := g.first(n, true)
	l = leafFrames{why: why, place: firstOf(on)}
	if l.frames, err = d.root(on); err != nil {
		return l, err
	}
	if len(before) > 0 {
		root, err := d.root(before)
		if err != nil {
			return l, err
		}
		if len(root) > len(l.frames) && commonRoot(root, l.frames) == len(l.frames) {
			if l.frames = root; len(on) == 0 {
				l.place = before[0]
			}
		}
	}
	if n := d.callsBetween(before, on, len(l.frames)); n > 0 {
		l.frames, l.why = l.frames[max(0, len(l.frames)-n):], cmp.Or(why, whyBefore, UnknownBetween)
	}
	return l, nil
}

// long returns the frames of an instruction that may take long.
func (g *flow) long(n int32, called bool, d pcFrames) (l leafFrames, err error) {
	on, why := g.first(n, false)
	before, _ := g.first(n, true)
	l = leafFrames{why: cmp.Or(why, UnknownInLoop), place: firstOf(on)}
	if why == knownLeaf && called {
		l.why = UnknownInCall
	}
	if len(on) == 0 || len(before) == 0 {
		l.frames, err = d.root(nil)
		return l, err
	}
	around := slices.Concat(on, before)
	if l.frames, err = d.root(around); err == nil {
		l.frames = l.frames[len(l.frames)-max(1, min(len(l.frames), d.lasting(around))):]
	}
	return l, err
}

func firstOf(places []int32) int32 {
	if len(places) == 0 {
		return none
	}
	return places[0]
}

// inLoops adds the frames that an instruction has by the loops that it is in.
func (g *flow) inLoops(n int32, to *leafFrames, d pcFrames) error {
	l := g.loopsAround(n)
	places, depth := l.polling()
	frames, callsNone, err := l.loopOf(places, l.count(depth, false, d), d)
	if err != nil {
		return err
	}
	if len(frames) >= max(1, len(to.frames)) && commonRoot(frames, to.frames) == len(to.frames) {
		if len(frames) > len(to.frames) {
			to.frames = frames
		}
		to.place, to.callsNone = places[0], callsNone
	}
	places = l.computing(n)
	owner, _, err := l.loopOf(places, l.count(l.number, true, d), d)
	if err == nil && len(owner) > len(to.frames) && commonRoot(owner, to.frames) == len(to.frames) {
		to.frames, to.why = owner, cmp.Or(to.why, UnknownInLoop)
		to.place, to.callsNone = places[0], false
	}
	return err
}

// loopOf returns the frames up to the method whose loop, of so many around them, all of some PcDescs are in, and
// whether it calls none in that; none if that is not certain.
func (l *loops) loopOf(places []int32, loops int, d pcFrames) (frames []Frame, callsNone bool, err error) {
	if len(places) == 0 {
		return nil, false, nil
	}
	n, callsNone := d.inLoop(places, loops)
	root, err := d.root(places)
	if err != nil || n > len(root) {
		return nil, false, err
	}
	return root[len(root)-n:], callsNone, nil
}

// first returns the PcDescs of the first certain instructions on all ways on from one, or back, that of the way
// without jumps first; none if a way leaves the method or is not understood.
func (g *flow) first(from int32, back bool) (places []int32, why UnknownLeaf) {
	if back && !g.whole {
		return nil, UnknownUnread
	}
	seen := make(map[int32]bool)
	ways := []int32{from}
	for len(ways) > 0 {
		n := ways[len(ways)-1]
		ways = ways[:len(ways)-1]
		if seen[n] {
			continue
		}
		seen[n] = true
		node := &g.nodes[n]
		if place := node.certain; place != none && n != from {
			if !slices.Contains(places, place) {
				places = append(places, place)
			}
			if len(places) > maxPlaces {
				return nil, UnknownTooLarge
			}
			continue
		}
		next := g.next.of(n)
		switch {
		case len(seen) > maxWalked:
			return nil, UnknownTooLarge
		case node.unread && !back:
			return nil, UnknownUnread
		case node.leaves && !back:
			return nil, knownLeaf
		case back:
			if next = g.prev.of(n); node.entered || len(next) == 0 {
				return nil, knownLeaf
			}
		}
		for i := len(next) - 1; i >= 0; i-- {
			ways = append(ways, next[i])
		}
	}
	return places, knownLeaf
}

// turns reports whether code may come from an instruction to itself without passing one that is certain, or that
// cannot be ruled out.
func (g *flow) turns(from int32) bool {
	comes, whole := g.comes(from, func(n int32) bool { return g.nodes[n].certain == none })
	return comes || !whole
}

// comes reports whether code may come from an instruction to itself by way of some; not whole: it is not known.
func (g *flow) comes(from int32, by func(int32) bool) (comes, whole bool) {
	seen := make(map[int32]bool)
	for ways := []int32{from}; len(ways) > 0; {
		n := ways[len(ways)-1]
		ways = ways[:len(ways)-1]
		for _, to := range g.next.of(n) {
			if to == from {
				return true, true
			}
			if !seen[to] && by(to) {
				seen[to] = true
				ways = append(ways, to)
			}
		}
		if len(seen) > maxWalked {
			return false, false
		}
	}
	return false, true
}

// loops are the loops around an instruction.
type loops struct {
	*flow
	number uint8
	depth  []uint8 // of each instruction, in how many of the loops it is
	header []uint8 // of those at which a loop is entered, the number of the loop from the outermost, 1; else 0
}

// loopsAround finds the loops around an instruction: the strongly connected code that it is in, and again in that
// without the jumps to where it is entered.
func (g *flow) loopsAround(at int32) *loops {
	l := &loops{flow: g, depth: make([]uint8, len(g.nodes)), header: make([]uint8, len(g.nodes))}
	for l.number < maxLoops {
		outer := l.number
		on := l.reach(at, &g.next, func(_, to int32) bool { return l.depth[to] == outer && l.header[to] == 0 })
		if !on[at] {
			break
		}
		back := l.reach(at, &g.prev, func(n, to int32) bool { return l.depth[to] == outer && l.header[n] == 0 })
		l.number++
		for n := range on {
			if on[n] && back[n] {
				l.depth[n] = l.number
			}
		}
		entered := false
		for n := range g.nodes {
			if l.depth[n] == l.number && l.header[n] == 0 && l.isEntered(int32(n)) {
				l.header[n], entered = l.number, true
			}
		}
		if !entered {
			break
		}
	}
	return l
}

// isEntered reports whether code comes to an instruction from outside of its loop.
func (l *loops) isEntered(n int32) bool {
	return l.nodes[n].entered ||
		slices.ContainsFunc(l.prev.of(n), func(from int32) bool { return l.depth[from] < l.depth[n] })
}

// reach returns to which instructions code comes by edges, after one.
func (l *loops) reach(from int32, by *edges, ok func(from, to int32) bool) []bool {
	seen := make([]bool, len(l.nodes))
	for ways := []int32{from}; len(ways) > 0; {
		n := ways[len(ways)-1]
		ways = ways[:len(ways)-1]
		l.steps++
		for _, to := range by.of(n) {
			if !seen[to] && ok(n, to) {
				seen[to] = true
				ways = append(ways, to)
			}
		}
	}
	return seen
}

// polling returns the PcDescs of what is certain in the innermost loop that has any polls, these first, and how many
// loops are around these. The instruction is in that loop of a method that polls, or of one that calls that, or in what
// is inlined there: whose it is, is not certain, for a loop that is none any more may have left its poll. There are no
// PcDescs if the loop has another in it that polls, of which they may be.
func (l *loops) polling() (places []int32, depth uint8) {
	for depth = l.number; depth > 0; depth-- {
		for n := range l.nodes {
			if !l.nodes[n].poll || l.depth[n] < depth {
				continue
			}
			inner := l.reach(int32(n), &l.next, func(_, to int32) bool {
				return l.depth[to] >= depth && (l.header[to] == 0 || l.header[to] > depth)
			})
			if inner[n] || len(places) == maxPlaces {
				return nil, 0
			}
			places = append(places, l.nodes[n].certain)
		}
		if len(places) > 0 {
			break
		}
	}
	for n := range l.nodes {
		node := &l.nodes[n]
		if depth > 0 && l.depth[n] >= depth && node.certain != none && !node.poll && len(places) < maxPlaces &&
			!slices.Contains(places, node.certain) {
			places = append(places, node.certain)
		}
	}
	return places, depth
}

// count returns how many of the loops around an instruction, down to a depth, are loops of methods, each another one.
// Compilers make two of some, with the same polls in both; or, but the latter is only said of notes, with nothing but
// polls in the outer one.
func (l *loops) count(depth uint8, noted bool, d pcFrames) (count int) {
	var inner []int32 // polls
	for ; depth > 0; depth-- {
		var polls []int32
		other := false
		for n := range l.nodes {
			switch node := &l.nodes[n]; {
			case l.depth[n] != depth:
			case node.poll:
				polls = append(polls, node.certain)
			case node.certain != none, node.computes != none:
				other = true
			}
		}
		alone := noted && len(polls) > 0 && !other && depth < l.number
		if same := len(polls) > 0 && len(inner) > 0 && d.areSame(polls, inner); !alone && !same {
			count++
		}
		if len(polls) > 0 {
			inner = polls
		}
	}
	return count
}

// computing returns the PcDescs of all that is certain in the innermost loop, and of the notes of arithmetic there;
// none if a way around from an instruction passes none of them.
func (l *loops) computing(at int32) (places []int32) {
	if l.number == 0 {
		return nil
	}
	in := func(n int32) bool { return l.depth[n] == l.number }
	says := func(n int32) bool { return l.nodes[n].certain != none || l.nodes[n].computes != none }
	if !says(at) {
		comes, whole := l.comes(at, func(n int32) bool { return in(n) && !says(n) })
		if comes || !whole {
			return nil
		}
	}
	for n := range l.nodes {
		node := &l.nodes[n]
		for _, place := range []int32{node.certain, node.computes} {
			if place != none && in(int32(n)) && !slices.Contains(places, place) {
				places = append(places, place)
			}
		}
		if len(places) > maxPlaces {
			return nil
		}
	}
	return places
}
