package sampling

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/stacks/unwind"
	"correlator/profile"
)

// The frames of a word are known for as long as they are certain: in compiled code of a JVM for good, in native code
// until something else is mapped, or the engine may have learnt that, in other code for a moment.
func TestWordLives(t *testing.T) {
	now := time.Now()
	frames := newNamedFrames([]unwind.Frame{{Kind: unwind.JVMFrame, Function: "A.a"}})
	code := codeVersion{space: 3, synced: 7}
	later := now.Add(placeTime)
	for life, valid := range map[unwind.Life][3]bool{ // a moment later; with other mappings; in an hour
		unwind.OfProgram: {true, true, true}, unwind.OfMappings: {true, false, true},
		unwind.OfMoment: {true, true, false},
	} {
		c := newWordCache()
		key := newWordKey(1, []uint64{1, 2, 3})
		c.add(key, frames, life, code, now)
		known := func(code codeVersion, at time.Time) bool { return c.get(key, code, at) != nil }
		got := [3]bool{
			known(code, later.Add(-1)),
			known(codeVersion{4, 7}, now) && known(codeVersion{3, 8}, now),
			known(code, later) && known(code, now.Add(time.Hour)),
		}
		kept := c.get(key, code, now)
		assert.Check(t, !kept.isAging(now) && kept.isAging(later.Add(-1)) == (life == unwind.OfMoment),
			"life %d: it is to be asked for early", life)
		assert.Check(t, got == valid, "life %d: %v", life, got)
		for _, other := range []wordKey{newWordKey(2, []uint64{1, 2, 3}), newWordKey(1, []uint64{1, 2})} {
			assert.Check(t, c.get(other, code, now) == nil, "%v is taken for %v", other, key)
		}
	}
}

// Words that are used stay known, however many others come, and there are no more than there is room for.
func TestWordCacheIsBounded(t *testing.T) {
	c, now := newWordCache(), time.Now()
	name := strings.Repeat("n", 500)
	used := newWordKey(1, []uint64{1})
	c.add(used, newNamedFrames([]unwind.Frame{{Function: "used"}}), unwind.OfProgram, codeVersion{}, now)
	const many = 20 * maxWordBytes / 800
	for i := range uint64(many) {
		c.add(newWordKey(2, []uint64{i}), newNamedFrames([]unwind.Frame{{Function: name}}), unwind.OfProgram,
			codeVersion{}, now)
		known := c.get(used, codeVersion{}, now)
		assert.Assert(t, known != nil && known.frames[0].Function == "used", "after %d others", i)
		c.add(newWordKey(3, nil), nil, unwind.OfProgram, codeVersion{}, now) // again and again, which takes no room
	}
	assert.Check(t, c.get(newWordKey(2, []uint64{many - 1}), codeVersion{}, now) != nil)
	assert.Check(t, c.get(newWordKey(2, []uint64{0}), codeVersion{}, now) == nil)
	kept := 0
	for _, known := range c.recent {
		kept += known.bytes()
	}
	assert.Check(t, kept == c.bytes && kept <= maxWordBytes, "%d bytes, counted as %d", kept, c.bytes)
}

// The frames of a stack are those of its words, up to a CutFrame. There is one where a word is malformed, and after
// maxFrames.
func TestJoinWords(t *testing.T) {
	word := func(n uint64) []uint64 { return []uint64{libpf.NewEbpfFrameHeader(libpf.NativeFrame, 0, 2, 0), n} }
	frame := func(address uint64) namedFrame {
		return namedFrame{Frame: unwind.Frame{Kind: unwind.NativeFrame, Address: address}}
	}
	cut := namedFrame{Frame: unwind.Frame{Kind: unwind.CutFrame}}
	known := map[uint64][]namedFrame{
		1: {frame(10)}, 2: {frame(20), frame(21)}, 3: {cut}, 4: nil,
		5: slices.Repeat([]namedFrame{frame(5)}, maxFrames),
	}
	of := func(word []uint64) ([]namedFrame, bool) {
		frames, found := known[word[1]]
		return frames, found
	}
	for what, c := range map[string]struct {
		words  []uint64
		frames []namedFrame
		ok     bool
	}{
		"nothing": {nil, nil, true},
		"words": {
			slices.Concat(word(1), word(4), word(2), word(1)),
			[]namedFrame{frame(10), frame(20), frame(21), frame(10)}, true,
		},
		"a cut":         {slices.Concat(word(1), word(3), word(2)), []namedFrame{frame(10), cut}, true},
		"an unknown":    {slices.Concat(word(1), word(6)), nil, false},
		"one cut short": {slices.Concat(word(2), word(1)[:1]), []namedFrame{frame(20), frame(21), cut}, true},
		"no header":     {[]uint64{0, 0}, []namedFrame{cut}, true},
		"as many":       {word(5), known[5], true},
		"too many":      {slices.Concat(word(5), word(1)), append(slices.Clone(known[5][1:]), cut), true},
	} {
		frames, ok := joinWords(nil, c.words, of)
		assert.Check(t, ok == c.ok && (!ok || slices.Equal(frames, c.frames)), "%s: %v, %d frames", what, ok,
			len(frames))
	}
	assert.Check(t, len(known[5]) == maxFrames && known[5][maxFrames-1] == frame(5), "what is known was changed")
}

// A stack whose words are all known is resolved at once, without the engine, as part of a program whose code is known;
// not while something else may be mapped, nor after a moment that its words may not last.
func TestResolveKnown(t *testing.T) {
	files, err := profile.NewFiles("/proc", 8)
	assert.NilError(t, err)
	s := &Sampling{words: newWordCache(), counters: new(Counters)}
	s.unwinding = &unwinding{counters: &s.counters.Unwinding} // which has no engine
	s.stacks, err = newStacks()
	assert.NilError(t, err)
	now, scratch := time.Now(), new(scratch)
	p := &program{sampling: s, number: 3, space: profile.NewAddressSpace(files, probePace())}
	words := []uint64{libpf.NewEbpfFrameHeader(libpf.PythonFrame, 0, 3, 0), 1, 2}
	sample := func(at time.Time) *pendingSample {
		return &pendingSample{program: p, raw: bpf.Stack{Words: slices.Concat(words, words)},
			sample: profile.Sample{Count: 1, At: at}, key: bpf.StackKey{Target: p.number}}
	}
	assert.Check(t, s.resolveKnown(sample(now), now, scratch) == nil, "no word is known")
	frames := newNamedFrames([]unwind.Frame{{Kind: unwind.PythonFrame, Function: "f", SourceFile: "f.py"}})
	s.words.add(newWordKey(p.number, words), frames, unwind.LifeOf(words), p.codeVersion(), now)
	stack := s.resolveKnown(sample(now), now, scratch)
	assert.Assert(t, stack != nil && len(stack.Frames) == 2 && stack.Frames[1].Name() == "f", "%+v", stack)
	assert.Check(t, s.counters.Unwinding.Stacks.Load() == 1 && s.counters.Unwinding.Frames.Load() == 2)
	later := now.Add(placeTime)
	assert.Check(t, s.resolveKnown(sample(later), later, scratch) == nil, "a word has expired")
	old := sample(now.Add(-placeTime - 1))
	assert.Check(t, s.resolveKnown(old, now, scratch) == nil, "a sample is older than its words last")
	p.blank = p.space.Version()
	assert.Check(t, s.resolveKnown(sample(now), now, scratch) == nil, "no mapping is known")
	p.blank = 0
	p.space.Invalidate()
	assert.Check(t, s.resolveKnown(sample(now), now, scratch) == nil, "something else is mapped")
}
