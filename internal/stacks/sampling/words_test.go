package sampling

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/support"
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
		c.add(key, frames, unwind.Span{}, life, code, now)
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

// Words of places around one have its frames, in native code at as much higher addresses, where its own are certain;
// and no other words.
func TestWordSpans(t *testing.T) {
	now, code := time.Now(), codeVersion{space: 3, synced: 7}
	native := func(at, file uint64) wordKey {
		return newWordKey(1, []uint64{libpf.NewEbpfFrameHeader(libpf.NativeFrame, 0, 2, at), file})
	}
	compiled := func(offset, id uint64) wordKey {
		header := libpf.NewEbpfFrameHeader(libpf.HotSpotFrame, 0, 3, 0)
		return newWordKey(1, []uint64{header, 1 << 40, support.FrameHotspotNative<<60 | offset<<32 | id})
	}
	addressOf := func(address uint64) []namedFrame {
		return newNamedFrames([]unwind.Frame{{Kind: unwind.NativeFrame, Address: address}})
	}
	method := newNamedFrames([]unwind.Frame{{Kind: unwind.JVMFrame, Function: "A.a"}})
	c := newWordCache()
	c.add(native(0x100, 5), addressOf(0x5100), unwind.Span{Down: 0x10, Up: 0x20}, unwind.OfMappings, code, now)
	c.add(native(0x200, 5), addressOf(0x9200), unwind.Span{Down: 1 << 31, Up: 1}, unwind.OfMappings, codeVersion{}, now)
	c.add(native(0x300, 5), addressOf(0x5300), unwind.Span{Up: 2}, unwind.OfMappings, code, now)
	c.add(compiled(8, 9), method, unwind.Span{Down: 4, Up: 4}, unwind.OfProgram, code, now)
	c.add(compiled(20, 9), method, unwind.Span{Down: 2}, unwind.OfProgram, code, now)
	c.add(compiled(30, 9), method, unwind.Span{}, unwind.OfProgram, code, now)
	for range 2 { // also when they were moved
		for key, want := range map[wordKey][]namedFrame{
			native(0x300, 5): addressOf(0x5300), native(0x302, 5): addressOf(0x5302), native(0x303, 5): nil,
			native(0x2ff, 5): nil, native(0x300, 6): nil, native(0x200, 5): nil, native(0x100, 5): nil,
			compiled(4, 9): method, compiled(12, 9): method, compiled(13, 9): nil, compiled(3, 9): nil,
			compiled(17, 9): nil, compiled(18, 9): method, compiled(21, 9): nil, compiled(8, 7): nil,
			compiled(30, 9): method, compiled(31, 9): nil,
		} {
			known := c.get(key, code, now)
			assert.Check(t, (known == nil) == (want == nil) && (known == nil || slices.Equal(known.frames, want)),
				"%x: %+v, want %+v", key.word, known, want)
		}
		c.older, c.recent = c.recent, newKnownWords()
	}
	assert.Check(t, c.get(native(0x302, 5), codeVersion{4, 7}, now) == nil, "something else is mapped")
	c.add(native(0x300, 5), addressOf(0x6300), unwind.Span{Up: 2}, unwind.OfMappings, codeVersion{4, 7}, now)
	known := c.get(native(0x302, 5), codeVersion{4, 7}, now)
	assert.Check(t, known != nil && known.frames[0].Address == 0x6302, "%+v", known)
}

// Words that are used stay known, however many others come, and there are no more than there is room for.
func TestWordCacheIsBounded(t *testing.T) {
	c, now := newWordCache(), time.Now()
	name := strings.Repeat("n", 500)
	used := newWordKey(1, []uint64{1})
	c.add(used, newNamedFrames([]unwind.Frame{{Function: "used"}}), unwind.Span{}, unwind.OfProgram, codeVersion{}, now)
	const many = 20 * maxWordBytes / 800
	for i := range uint64(many) {
		c.add(newWordKey(2, []uint64{i}), newNamedFrames([]unwind.Frame{{Function: name}}), unwind.Span{},
			unwind.OfProgram,
			codeVersion{}, now)
		known := c.get(used, codeVersion{}, now)
		assert.Assert(t, known != nil && known.frames[0].Function == "used", "after %d others", i)
		// Again and again, which takes no room.
		c.add(newWordKey(3, nil), nil, unwind.Span{}, unwind.OfProgram, codeVersion{}, now)
		c.add(newWordKey(4, []uint64{libpf.NewEbpfFrameHeader(libpf.NativeFrame, 0, 2, 7), 0}), nil, unwind.Span{Up: 1},
			unwind.OfMappings, codeVersion{}, now)
	}
	assert.Check(t, c.get(newWordKey(2, []uint64{many - 1}), codeVersion{}, now) != nil)
	assert.Check(t, c.get(newWordKey(2, []uint64{0}), codeVersion{}, now) == nil)
	kept := 0
	for _, known := range c.recent.single {
		kept += known.bytes()
	}
	for _, spans := range c.recent.spans {
		for _, known := range spans {
			kept += known.bytes()
		}
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
	s.words.add(newWordKey(p.number, words), frames, unwind.Span{}, unwind.LifeOf(words), p.codeVersion(), now)
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
