package unwind

import (
	"slices"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/support"
	"gotest.tools/v3/assert"
)

// The words of a stack come one after the other, and none that is malformed.
func TestNextWord(t *testing.T) {
	header := func(size uint8) uint64 { return libpf.NewEbpfFrameHeader(libpf.NativeFrame, 0, size, 7) }
	words := []uint64{header(2), 1, header(1), header(3), 2, 3}
	for _, want := range [][]uint64{words[:2], words[2:3], words[3:]} {
		word, rest := NextWord(words)
		assert.Assert(t, slices.Equal(word, want) && len(rest) == len(words)-len(want), "%v, then %v", word, rest)
		words = rest
	}
	for _, malformed := range [][]uint64{nil, {0}, {header(2)}, {header(3), 1}, {header(4), 1, 2, 3}} {
		word, _ := NextWord(malformed)
		assert.Check(t, word == nil, "%v has a word: %v", malformed, word)
	}
}

// Compiled Java code has a number for as long as the process runs its program, and native code an address for as
// long as its file is mapped; else there may soon be something else at an address.
func TestLifeOf(t *testing.T) {
	jvm := func(kind uint64, id uint32) []uint64 {
		return []uint64{libpf.NewEbpfFrameHeader(libpf.HotSpotFrame, 0, 3, 0), 1 << 40, kind<<60 | uint64(id)}
	}
	native := libpf.NewEbpfFrameHeader(libpf.NativeFrame, 0, 2, 7)
	failed := libpf.NewEbpfFrameHeader(libpf.HotSpotFrame, libpf.FrameFlags(support.FrameFlagError), 1, 7)
	for what, c := range map[string]struct {
		word []uint64
		life Life
	}{
		"native":              {[]uint64{native, 1}, OfMappings},
		"compiled":            {jvm(support.FrameHotspotNative, 9), OfProgram},
		"compiled, no number": {jvm(support.FrameHotspotNative, 0), OfMoment},
		"interpreted":         {jvm(support.FrameHotspotInterpreter, 9), OfMoment},
		"a stub":              {jvm(support.FrameHotspotStub, 9), OfMoment},
		"an error":            {[]uint64{failed}, OfMoment},
		"Python":              {[]uint64{libpf.NewEbpfFrameHeader(libpf.PythonFrame, 0, 3, 0), 1, 2}, OfMoment},
	} {
		assert.Check(t, LifeOf(c.word) == c.life, "%s: %d", what, LifeOf(c.word))
	}
}
