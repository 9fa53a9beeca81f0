package unwind

import (
	"slices"
	"strings"

	"go.opentelemetry.io/ebpf-profiler/interpreter"
	"go.opentelemetry.io/ebpf-profiler/libpf"
)

// jvmFrames returns the frames of a word: those of calls that are inlined, and of the method. They must not be
// changed.
func (s *server) jvmFrames(pid libpf.PID, word libpf.EbpfFrame) []Frame {
	t := s.targets[pid]
	if t == nil || t.code == nil {
		return []Frame{{Kind: CutFrame}}
	}
	at := place{t.number, [3]uint64(word)}
	if known := s.places.get(at, t.code.areUnchanged); known != nil {
		return known
	}
	var (
		frames []Frame
		read   []reading
		err    error
	)
	if inCompiled(word) {
		frames, err = s.compiledFrames(t, word)
	} else {
		var named libpf.Frames
		named, read, err = t.code.symbolizeAlone(word)
		frames = s.newFrames(named)
	}
	if err != nil || len(frames) == 0 {
		return []Frame{{Kind: JVMFrame}} // its code is gone
	}
	if hasCompileID(word) && !t.code.isExhausted() || len(read) > 0 {
		s.places.add(at, frames, read)
	}
	return frames
}

// compiledFrames returns the frames of a place in compiled code. The JVM knows them at safepoints, which calls are
// for the most part. For what lies between, see flow.leaf.
func (s *server) compiledFrames(t *target, word libpf.EbpfFrame) ([]Frame, error) {
	m, err := t.code.methodAt(libpf.Address(word.Variable(0)))
	if err != nil {
		return nil, err
	}
	d := &methodFrames{server: s, target: t, word: word, method: m}
	if m == nil {
		frames, err := d.root(nil)
		return withUnknown(frames, UnknownTooLarge), err
	}
	at, returns := codeOffset(word), word.Flags().ReturnAddress()
	if p, found := m.pcDesc(at); returns && found && p.safepoint {
		return s.describedFrames(t, word, at)
	}
	frames, why, err := s.leafFrames(t, d, at, returns)
	if err == nil {
		err = t.code.checkCompileID(word)
	}
	if err != nil {
		return nil, err
	}
	return withUnknown(frames, why), nil
}

// withUnknown returns frames with one of inlined code that is not known, if there is a reason.
func withUnknown(frames []Frame, why UnknownLeaf) []Frame {
	if why == knownLeaf {
		return frames
	}
	return slices.Concat([]Frame{{Kind: InlinedFrame, Function: inlinedName, Address: uint64(why)}}, frames)
}

// leafFrames returns the frames of a place that is no safepoint.
func (s *server) leafFrames(t *target, d *methodFrames, at int32, returns bool) ([]Frame, UnknownLeaf, error) {
	if !t.code.debug.follows() {
		frames, err := d.root(nil)
		return frames, UnknownUnread, err
	}
	var g *flow
	var err error
	if t.code.work < maxWork {
		if g, err = s.flowOf(t, d.method, uint32(d.word.Variable(1))); err != nil {
			return nil, knownLeaf, err
		}
	}
	n := none
	if g != nil {
		n = g.find(at, returns)
	}
	if g != nil && n == none { // code that was entered before the JVM had barred that
		if g, _, err = t.code.flowOf(d.method, at); err != nil {
			return nil, knownLeaf, err
		}
		if g != nil {
			g.whole = false
			n = g.find(at, false)
		}
	}
	if n == none {
		why := UnknownUnread
		if g == nil {
			why = UnknownTooLarge
		}
		frames, err := d.root(nil)
		return frames, why, err
	}
	g.steps = 0
	frames, why, err := g.leaf(n, returns, d)
	t.code.work += len(g.nodes) + g.steps/stepsAtOnce
	return frames, why, err
}

// flowOf returns the flow of a compiled method, nil if there is too much of it. Flows are kept within the user's
// quota.
func (s *server) flowOf(t *target, m *compiledMethod, id uint32) (*flow, error) {
	c, quota := t.code, s.handler.quotas.flowBytes
	if known, found := c.flows[m.at]; found && known.id == id {
		return known.flow, nil
	}
	g, keep, err := c.flowOf(m)
	if err != nil || g == nil || !keep {
		return g, err
	}
	if quota.take(t.user, g.bytes()) != nil {
		s.forgetFlows(t)
		if quota.take(t.user, g.bytes()) != nil {
			return g, nil
		}
	}
	quota.give(t.user, c.flows[m.at].flow.bytes())
	c.flows[m.at] = keptFlow{id, g}
	return g, nil
}

// keptFlow is the flow of a compiled method, by whose id another one at the same place is told from it.
type keptFlow struct {
	id   uint32
	flow *flow
}

// forgetFlows forgets what is known of a target's compiled methods.
func (s *server) forgetFlows(t *target) {
	if t.code == nil {
		return
	}
	for _, known := range t.code.flows {
		s.handler.quotas.flowBytes.give(t.user, known.flow.bytes())
	}
	clear(t.code.flows)
}

// methodFrames are the frames of places in a compiled method.
type methodFrames struct {
	*server
	target *target
	word   libpf.EbpfFrame // of a place in it
	method *compiledMethod
}

func (d *methodFrames) root(places []int32) ([]Frame, error) {
	if len(places) == 0 {
		frames, err := d.describedFrames(d.target, d.word, codeOffset(d.word))
		return frames[max(0, len(frames)-1):], err
	}
	frames, err := d.describedFrames(d.target, d.word, places[0])
	if err != nil {
		return nil, err
	}
	common := len(frames)
	d.target.code.work += len(frames)
	for _, place := range places[1:] {
		others, err := d.describedFrames(d.target, d.word, place)
		d.target.code.work += len(others)
		if err != nil {
			return nil, err
		}
		common = min(common, commonRoot(frames, others))
	}
	return frames[len(frames)-max(1, common):], nil
}

// scopes returns the methods that a PcDesc is in, the root first.
func (d *methodFrames) scopes(place int32) []scope {
	p, _ := d.method.pcDesc(place)
	scopes, err := d.target.code.scopesAt(d.method, p, maxInlined)
	d.target.code.work += len(scopes)
	if err != nil {
		return nil
	}
	slices.Reverse(scopes)
	return scopes
}

func (d *methodFrames) lasting(places []int32) (n int) {
	first := d.scopes(places[0])
	n = len(first)
	for _, place := range places[1:] {
		n = min(n, len(d.scopes(place)))
		for i, scope := range d.scopes(place)[:n] {
			if scope.method != first[i].method {
				n = i
				break
			}
			if scope.bci != first[i].bci {
				n = i + 1
				break
			}
		}
	}
	for i := range n {
		if d.target.code.byteCodeOf(first[i].method).repeats(first[i].bci) {
			return i + 1
		}
	}
	return n
}

func (d *methodFrames) callsBetween(before, on []int32, frames int) int {
	b, o := make([][]scope, len(before)), make([][]scope, len(on))
	for i, place := range before {
		b[i] = d.scopes(place)
	}
	for i, place := range on {
		o[i] = d.scopes(place)
	}
	if len(b) == 0 && len(o) == 0 {
		place := none
		if len(d.method.pcDescs) > 0 {
			place = d.method.pcDescs[0].offset
		}
		root := d.scopes(place)
		if len(root) > 0 && !d.target.code.byteCodeOf(root[0].method).callsIn(0, lastByteCode) {
			return 0
		}
		return 1
	}
	return callsBetween(b, o, frames, d.target.code.byteCodeOf)
}

// lastByteCode is beyond any.
const lastByteCode = 1 << 16

// callsBetween is that of pcFrames for scopes, the root first. It asks down to the method in which those before and the
// others differ.
func callsBetween(before, on [][]scope, frames int, codeOf func(libpf.Address) *byteCode) int {
	shown := on
	if len(on) == 0 || len(commonScopes(on)) < frames {
		shown = before
	}
	common := commonScopes(shown)
	for level := range min(frames, len(common)) {
		first := common[level]
		isThere := func(s []scope) bool { return len(s) > level && s[level].method == first.method }
		if slices.ContainsFunc(slices.Concat(before, on), func(s []scope) bool { return !isThere(s) }) {
			return max(1, level) // a call of the method above that has several targets
		}
		code := codeOf(first.method)
		from, latest, to, earliest := int32(lastByteCode), int32(0), int32(0), int32(lastByteCode)
		var except []int32 // calls in which the places are, if what they call is shown
		add := func(s scope, own bool) int32 {
			if !own && frames > level+1 {
				except = append(except, s.bci)
			}
			return s.bci
		}
		split := false
		for _, s := range before {
			own := len(s) == level+1
			start := add(s[level], own)
			if own {
				start++
			}
			from, latest = min(from, start), max(latest, start)
			split = split || own || s[level].bci != first.bci
		}
		for _, s := range on {
			own := len(s) == level+1
			end := add(s[level], own)
			if own {
				end--
			}
			to, earliest = max(to, end), min(earliest, end)
			split = split || own || s[level].bci != first.bci
		}
		if len(before) == 0 {
			from = 0
		}
		if len(on) == 0 {
			to = lastByteCode
		}
		around := earliest+1 < latest // a loop, here or further up
		for up := 0; around && len(code.back) == 0 && up < level; up++ {
			caller, at := codeOf(common[up].method), common[up].bci
			if caller.repeats(at) && caller.callsOthers(0, lastByteCode, []int32{at}) {
				return up + 1
			}
		}
		if around || len(before) == 0 && code.repeats(first.bci) {
			from, to = 0, lastByteCode
		}
		if code.callsOthers(from, to, except) {
			return level + 1
		}
		if split && len(before) > 0 && len(on) > 0 { // below, it leaves what was called, or enters it
			break
		}
	}
	return 0
}

// commonScopes returns the scopes that all have, from the root on, up to the first with different places.
func commonScopes(all [][]scope) []scope {
	if len(all) == 0 {
		return nil
	}
	n := len(all[0])
	for _, scopes := range all[1:] {
		for i := range n {
			if i >= len(scopes) || scopes[i].method != all[0][i].method {
				n = i
				break
			}
			if scopes[i].bci != all[0][i].bci {
				n = i + 1
				break
			}
		}
	}
	return all[0][:n]
}

func (d *methodFrames) inLoops(places []int32) (frames, loops int) {
	all := make([][]scope, len(places))
	for i, place := range places {
		all[i] = d.scopes(place)
	}
	for level, first := range all[0] {
		code := d.target.code.byteCodeOf(first.method)
		if !code.known {
			return 0, 0
		}
		low, high := first.bci, first.bci
		for _, scopes := range all {
			if len(scopes) <= level || scopes[level].method != first.method {
				return frames, loops
			}
			low, high = min(low, scopes[level].bci), max(high, scopes[level].bci)
		}
		if n := code.loopsAround(low, high); n > 0 {
			frames, loops = level+1, loops+n
		}
		if low != high {
			break
		}
	}
	return frames, loops
}

func (d *methodFrames) callsNone(place int32, frames int, loop bool) bool {
	if place == none && len(d.method.pcDescs) > 0 {
		place = d.method.pcDescs[0].offset
	}
	scopes := d.scopes(place)
	if frames > len(scopes) {
		return false
	}
	scope := scopes[frames-1]
	code := d.target.code.byteCodeOf(scope.method)
	if loop && frames == len(scopes) {
		for _, back := range code.back {
			if back[0] == scope.bci {
				return !code.callsIn(back[1], back[0])
			}
		}
	}
	return !code.callsIn(0, 1<<16)
}

// describedFrames returns the frames that the JVM knows at an offset in the compiled method of a word, or at the
// nearest before.
func (s *server) describedFrames(t *target, word libpf.EbpfFrame, offset int32) ([]Frame, error) {
	word = withOffset(word, uint32(offset))
	at := place{t.number, [3]uint64{describedHeader, word[1], word[2]}}
	if known := s.places.get(at, nil); known != nil {
		return known, nil
	}
	named, err := t.code.symbolize(word)
	if err == nil {
		err = t.code.checkCompileID(word)
	}
	if err == nil && len(named) == 0 {
		err = errCodeGone
	}
	if err != nil {
		return nil, err
	}
	frames := s.newFrames(named)
	if hasCompileID(word) {
		s.places.add(at, frames, nil)
	}
	return frames, nil
}

// commonRoot returns how many functions two stacks have in common, from the root on, up to the first that
// is at different lines.
func commonRoot(a, b []Frame) (n int) {
	for n < min(len(a), len(b)) {
		x, y := a[len(a)-1-n], b[len(b)-1-n]
		if x.Function != y.Function || x.SourceFile != y.SourceFile {
			break
		}
		n++
		if x.Line != y.Line {
			break
		}
	}
	return n
}

// newFrames returns frames as the agent has them.
func (s *server) newFrames(named libpf.Frames) []Frame {
	frames := make([]Frame, len(named))
	for i, handle := range named {
		f := handle.Value()
		frames[i] = Frame{
			Kind: JVMFrame, Function: s.normalized(f.FunctionName.String()),
			SourceFile: sourceFile(f.SourceFile.String()), Line: uint32(f.SourceLine),
		}
	}
	return frames
}

// normalized is normalize with a cache.
func (s *server) normalized(name string) string {
	if known, ok := s.names[name]; ok {
		return known
	}
	normalized := s.normalize(name)
	if len(name) > 2*maxNameBytes {
		return strings.Clone(normalized) // without the rest of the name
	}
	if len(s.names) >= maxNames {
		clear(s.names)
	}
	s.names[name] = strings.Clone(normalized) // without the rest of the name
	return normalized
}

// sourceFile returns "" for what the engine has for classes without one.
func sourceFile(name string) string {
	if name == interpreter.UnknownSourceFile.String() {
		return ""
	}
	return boundName(name)
}
