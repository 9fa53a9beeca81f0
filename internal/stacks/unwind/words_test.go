package unwind

import (
	"reflect"
	"slices"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
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
		"PHP":                 {[]uint64{libpf.NewEbpfFrameHeader(libpf.PHPFrame, 0, 3, 0), 1, 2}, OfProgram},
	} {
		assert.Check(t, LifeOf(c.word) == c.life, "%s: %d", what, LifeOf(c.word))
	}
}

// Functions of PHP of which the outermost was called by another are not in their places: their stack ends before them,
// unless it is known to be cut.
func TestPlaced(t *testing.T) {
	native := []uint64{libpf.NewEbpfFrameHeader(libpf.NativeFrame, 0, 2, 0), 1}
	failed := []uint64{libpf.NewEbpfFrameHeader(libpf.NativeFrame, support.FrameFlagError, 1, 0)}
	php := func(typeInfo uint64) []uint64 {
		return []uint64{libpf.NewEbpfFrameHeader(libpf.PHPFrame, 0, 3, 0), 4096, typeInfo<<32 | 7}
	}
	called, outermost := php(phpCalled|phpTop|5), php(phpTop|5)
	none := []uint64{outermost[0], 0, ^uint64(1)}
	internal := []uint64{outermost[0], 4096, 0}
	python := []uint64{libpf.NewEbpfFrameHeader(libpf.PythonFrame, 0, 3, 0), 4096, phpCalled << 32}
	for what, c := range map[string]struct {
		words [][]uint64
		want  int // words that are placed, of those here
	}{
		"whole":             {[][]uint64{native, called, native, outermost, native}, 5},
		"not entered yet":   {[][]uint64{native, called, native}, 1},
		"nor its caller":    {[][]uint64{native, native, called, called, native, called, native}, 2},
		"ended":             {[][]uint64{native, called, outermost, native, called, outermost, native}, 1},
		"ended, and cut":    {[][]uint64{native, called, outermost, called, failed}, 1},
		"cut":               {[][]uint64{native, called, failed}, 3},
		"without functions": {[][]uint64{native, native}, 2},
		"a call of PHP's":   {[][]uint64{native, called, none}, 3},
		"an internal one":   {[][]uint64{called, internal, called, outermost, native}, 5},
		"an unread one":     {[][]uint64{called, php(phpTop), called, outermost, native}, 5},
		"of Python":         {[][]uint64{native, python}, 2},
		"nothing":           {nil, 0},
		"malformed":         {[][]uint64{called, {0}}, 2},
	} {
		words, want := slices.Concat(c.words...), slices.Concat(c.words[:c.want]...)
		assert.Check(t, slices.Equal(Placed(words, true), want), "%s: %x", what, Placed(words, true))
	}
}

// Words of native code, and of a leaf in compiled Java code, have a place in it, and are the same without.
func TestPlace(t *testing.T) {
	jvm := func(flags libpf.FrameFlags, kind, offset uint64) []uint64 {
		return []uint64{libpf.NewEbpfFrameHeader(libpf.HotSpotFrame, flags, 3, 0), 1 << 40, kind<<60 | offset<<32 | 9}
	}
	native := func(flags libpf.FrameFlags, at uint64) []uint64 {
		return []uint64{libpf.NewEbpfFrameHeader(libpf.NativeFrame, flags, 2, at), 1}
	}
	returns := libpf.FrameFlags(support.FrameFlagReturnAddress)
	for what, c := range map[string]struct {
		word, other []uint64
		at          uint64
		is          bool
	}{
		"native":              {native(0, 1<<51+7), native(0, 0), 1<<51 + 7, true},
		"native, returned to": {native(returns, 7), native(returns, 0), 7, true},
		"an error":            {native(libpf.FrameFlags(support.FrameFlagError), 7), nil, 0, false},
		"compiled": {jvm(0, support.FrameHotspotNative, 1<<28-1), jvm(0, support.FrameHotspotNative, 0), 1<<28 - 1,
			true},
		"compiled, returned to": {jvm(returns, support.FrameHotspotNative, 5), nil, 0, false},
		"interpreted":           {jvm(0, support.FrameHotspotInterpreter, 5), nil, 0, false},
	} {
		base, at, is := Place(c.word)
		assert.Check(t, is == c.is && at == c.at && (!is || slices.Equal(base[:len(c.other)], c.other)),
			"%s: %x, %d, %v",
			what, base, at, is)
	}
}

// Native code around an address is where that is, up to the end of its range; unless the file is mapped elsewhere, too.
func TestAddressesAround(t *testing.T) {
	prefix := func(key uint64) lpm.Prefix { return lpm.Prefix{Key: key, Length: 64 - 12} }
	h := &handler{ranges: map[libpf.PID]map[host.FileID][]codeRange{1: {
		2: {{prefix(0x7000), 0x6000}, {prefix(0x8000), 0x6000}},
		3: {{prefix(0x7000), 0x6000}, {prefix(0x9000), 0x1000}},
		4: {{prefix(0x7000), 0x7000 - 0x10}},
	}}}
	for _, c := range []struct {
		file   host.FileID
		inFile uint64
		addr   uint64
		around Span
		ok     bool
	}{
		{2, 0x1001, 0x7001, Span{1, 0xffe}, true},
		{2, 0x2fff, 0x8fff, Span{0xfff, 0}, true},
		{2, 0x3000, 0, Span{}, false},
		{3, 0x1001, 0x7001, Span{}, true},
		{4, 0x12, 0x7002, Span{2, 0xffd}, true},
		{5, 0x12, 0, Span{}, false},
	} {
		addr, around, ok := h.address(1, c.file, c.inFile)
		assert.Check(t, addr == c.addr && around == c.around && ok == c.ok, "file %d: %x, %+v, %v", c.file, addr,
			around, ok)
	}
}

// The agent knows itself where native code is of a process that is synchronized, but for that of trampolines, and of
// files that there is no room for.
func TestNative(t *testing.T) {
	prefix := func(key uint64) lpm.Prefix { return lpm.Prefix{Key: key, Length: 64 - 12} }
	ranges := map[host.FileID][]codeRange{
		2: {{prefix(0x7000), 0x6000}, {prefix(0x8000), 0x6000}},
		3: {{prefix(0x7000), 0x6000}, {prefix(0x9000), 0x1000}},
		4: {{prefix(0x7000), 0x7000 - 0x10}},
		6: {{prefix(0x7000), 0x6000}},
	}
	h := &handler{ranges: map[libpf.PID]map[host.FileID][]codeRange{1: ranges}}
	code, err := decodeSentCode(h.sentCode(1, 6))
	assert.Assert(t, err == nil && len(code) == 4, "%+v, %v", code, err)
	of := Target{KernelPID: 1, Program: "program"}
	e := &Engine{known: make(map[uint32]known)}
	e.setKnown(&of, true, code, runtimes{})
	word := func(file, inFile uint64, flags libpf.FrameFlags) []uint64 {
		return []uint64{libpf.NewEbpfFrameHeader(libpf.NativeFrame, flags, 2, inFile), file}
	}
	for what, c := range map[string]struct {
		word   []uint64
		addr   uint64 // 0: it is asked for
		around Span
	}{
		"in the first range":   {word(2, 0x1001, 0), 0x7001, Span{0x1, 0x1ffe}},
		"returned to":          {word(2, 0x1001, support.FrameFlagReturnAddress), 0x7000, Span{0x1, 0x1ffe}},
		"in the one after it":  {word(2, 0x2fff, 0), 0x8fff, Span{0x1fff, 0}},
		"behind both":          {word(2, 0x3000, 0), 0, Span{}},
		"one of two places":    {word(3, 0x1001, 0), 0x7001, Span{}},
		"the other":            {word(3, 0x8001, 0), 0x9001, Span{}},
		"at the file's start":  {word(4, 0x2, 0), 0, Span{}},
		"near it":              {word(4, 0x12, 0), 0x7002, Span{0x2, 0xffd}},
		"no file of it":        {word(5, 0x1001, 0), 0, Span{}},
		"of trampolines":       {word(6, 0x1001, 0), 0, Span{}},
		"an error":             {word(2, 0x1001, support.FrameFlagError), 0, Span{}},
		"of another runtime's": {[]uint64{libpf.NewEbpfFrameHeader(libpf.HotSpotFrame, 0, 2, 0x1001), 2}, 0, Span{}},
	} {
		named, ok := e.Native(&of, c.word)
		want := Named{}
		if c.addr != 0 {
			want = Named{Frames: []Frame{{Kind: NativeFrame, Address: c.addr}}, Keep: true, Span: c.around}
		}
		assert.Check(t, ok == (c.addr != 0) && reflect.DeepEqual(named, want), "%s: %+v, not %+v", what, named, want)
	}
	for what, change := range map[string]func(){
		"it changes":              func() { e.setKnown(&of, true, nil, runtimes{}) },
		"it is not synchronized":  func() { e.setKnown(&of, false, code, runtimes{}) },
		"it runs another program": func() { e.setKnown(&Target{KernelPID: 1}, true, code, runtimes{}) },
	} {
		change()
		_, ok := e.Native(&of, word(2, 0x1001, 0))
		assert.Check(t, !ok, what)
	}
	for i := range uint64(maxSentCode) {
		ranges[2] = append(ranges[2], codeRange{prefix(0x10000 + i<<13), 0})
	}
	code, err = decodeSentCode(h.sentCode(1, 6))
	assert.Check(t, err == nil && len(code) == 3, "%+v, %v", code, err)
	assert.Check(t, !slices.ContainsFunc(code, func(c sentCode) bool { return c.file == 2 }), "%+v", code)
	for _, sent := range [][]byte{make([]byte, sentCodeBytes), make([]byte, sentCodeBytes-1),
		make([]byte, (maxSentCode+1)*sentCodeBytes)} {
		_, err := decodeSentCode(sent)
		assert.ErrorIs(t, err, errAnswer)
	}
}
