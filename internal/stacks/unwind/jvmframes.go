package unwind

import (
	"errors"
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
		s.keep = false
		return []Frame{{Kind: CutFrame}}
	}
	at := place{t.number, [3]uint64(word)}
	if known, span := s.places.get(at, t.code.areUnchanged); known != nil {
		s.span = span
		return known
	}
	var (
		frames []Frame
		span   Span
		read   []reading
		err    error
	)
	if inCompiled(word) {
		frames, span, err = s.compiledFrames(t, word)
	} else {
		var named libpf.Frames
		named, read, err = t.code.symbolizeAlone(word)
		if frames = s.newFrames(named); err == nil && t.code.isFrozen(word) {
			frames = []Frame{{Kind: CutFrame}}
		}
	}
	if err != nil || len(frames) == 0 {
		s.keep = false
		return []Frame{{Kind: JVMFrame}} // its code is gone
	}
	if hasCompileID(word) && !t.code.isExhausted() || len(read) > 0 {
		if s.places.add(at, frames, span, read) {
			s.span = span
			return frames
		}
	}
	s.keep = false
	return frames
}

// compiledFrames returns the frames of a place in compiled code, and around which others have the same. The JVM knows
// them at safepoints, which calls are for the most part. For what lies between, see flow.leaf.
func (s *server) compiledFrames(t *target, word libpf.EbpfFrame) (_ []Frame, around Span, _ error) {
	m, err := t.code.methodAt(libpf.Address(word.Variable(0)))
	if err != nil {
		return nil, around, err
	}
	d := &methodFrames{server: s, target: t, word: word, method: m}
	if m == nil {
		frames, err := d.root(nil)
		return withUnknown(frames, UnknownTooLarge), around, err
	}
	if len(m.pcDescs) == 0 { // a native method, in which nothing is inlined
		frames, err := d.root(nil)
		return frames, around, errors.Join(err, t.code.checkCompileID(word))
	}
	at, returns := codeOffset(word), word.Flags().ReturnAddress()
	if p, found := m.pcDesc(at); returns && found && p.safepoint {
		frames, err := s.describedFrames(t, word, at)
		return frames, around, err
	}
	frames, around, why, err := s.leafFrames(t, d, at, returns)
	if err == nil {
		err = t.code.checkCompileID(word)
	}
	if err != nil {
		return nil, Span{}, err
	}
	return withUnknown(frames, why), around, nil
}

// withUnknown returns frames with one of inlined code that is not known, if there is a reason.
func withUnknown(frames []Frame, why UnknownLeaf) []Frame {
	if why == knownLeaf {
		return frames
	}
	return slices.Concat([]Frame{{Kind: InlinedFrame, Function: inlinedName, Address: uint64(why)}}, frames)
}

// leafFrames returns the frames of a place that is no safepoint.
func (s *server) leafFrames(t *target, d *methodFrames, at int32, returns bool) (_ []Frame, around Span,
	_ UnknownLeaf, _ error) {
	if !t.code.debug.follows() {
		frames, err := d.root(nil)
		return frames, around, UnknownUnread, err
	}
	var g *flow
	var err error
	if t.code.work < maxWork {
		if g, err = s.flowOf(t, d.method, uint32(d.word.Variable(1))); err != nil {
			return nil, around, knownLeaf, err
		}
	}
	n := none
	if g != nil {
		if n = g.find(at, returns); n != none && !returns {
			around = g.span(n, d.method)
		}
	}
	if g != nil && n == none { // code that was entered before the JVM had barred that
		if g, _, err = t.code.flowOf(d.method, at); err != nil {
			return nil, around, knownLeaf, err
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
		return frames, around, why, err
	}
	g.steps = 0
	frames, why, err := g.leaf(n, returns, d)
	t.code.work += len(g.nodes) + g.steps/stepsAtOnce
	return frames, around, why, err
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

// describedFrames returns the frames that the JVM knows at an offset in the compiled method of a word, or at the
// nearest before.
func (s *server) describedFrames(t *target, word libpf.EbpfFrame, offset int32) ([]Frame, error) {
	word = withOffset(word, uint32(offset))
	at := place{t.number, [3]uint64{describedHeader, word[1], word[2]}}
	if known, _ := s.places.get(at, nil); known != nil {
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
		s.places.add(at, frames, Span{}, nil)
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
