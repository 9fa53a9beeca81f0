package unwind

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
	"gotest.tools/v3/assert"

	"correlator/internal/worker"
)

// anyMemory has the same bytes again and again, at all addresses, and counts how often it is read.
type anyMemory struct {
	bytes []byte
	reads int
}

func (m *anyMemory) ReadAt(b []byte, at int64) (int, error) {
	m.reads++
	for i := range b {
		b[i] = m.bytes[(uint64(at)+uint64(i))%uint64(len(m.bytes))]
	}
	return len(b), nil
}

// layouts are those of JDK 8, 17 and 25.
func layouts() []debugLayout {
	common := debugLayout{
		pcDescBytes: 16, scopeOffset: 4, constMethod: 8, constMethodBytes: 48, codeBytes: 34, heapSegments: 112,
		heapShift: 248, heapBlockBytes: 16, highBoundary: 8, arrayData: 8, heap: 1 << 20,
	}
	jdk8, jdk17, jdk25 := common, common, common
	jdk8.compileID, jdk8.scopesPCs, jdk8.scopesData, jdk8.dependencies = 204, 180, 176, 184
	jdk8.stub, jdk8.implicit, jdk8.handlers, jdk8.end, jdk8.verifiedAt, jdk8.osr = 164, 192, 188, 196, 128, 136
	jdk8.metadata, jdk8.codeOffset, jdk8.oopMaps, jdk8.blobName, jdk8.oldMapData = 172, 32, 48, 8, 8
	jdk17.compileID, jdk17.scopesPCs, jdk17.dependencies, jdk17.scopesBegin = 304, 268, 272, 120
	jdk17.stub, jdk17.implicit, jdk17.handlers, jdk17.end, jdk17.verifiedAt, jdk17.osr = 252, 284, 280, 296, 224, 232
	jdk17.metadata, jdk17.codeBegin, jdk17.oopMaps, jdk17.blobName = 260, 32, 80, 96
	jdk17.mapSetBytes, jdk17.pairBytes, jdk17.heaps, jdk17.notes = 8, 8, 1<<21, true
	jdk25.compileID, jdk25.scopesPCs, jdk25.scopesData, jdk25.immutable = 212, 196, 200, 96
	jdk25.stub, jdk25.implicit, jdk25.handlers, jdk25.verified, jdk25.osr = 168, 192, 194, 154, 144
	jdk25.codeOffset, jdk25.blobName, jdk25.mutable, jdk25.relocationBytes = 36, 8, 16, 28
	jdk25.mapSetBytes, jdk25.pairBytes, jdk25.heaps, jdk25.notes, jdk25.excluded = 8, 8, 1<<21, true, 1
	return []debugLayout{jdk8, jdk17, jdk25}
}

// newJVMCode returns the code of a JVM whose memory has a layout.
func newJVMCode(memory remotememory.RemoteMemory, layout debugLayout) *jvmCode {
	return &jvmCode{
		runtimeCode: &runtimeCode{memory: memory}, debug: layout, flows: make(map[libpf.Address]keptFlow),
		methods: make(map[libpf.Address]*compiledMethod), byteCodes: make(map[libpf.Address]*byteCode),
	}
}

// A layout in which fields are missing, or are beyond their type, is not read by.
func TestJVMLayout(t *testing.T) {
	for i, known := range layouts() {
		assert.Check(t, known.check() == nil, "%d: %v", i, known.check())
		for name, spoil := range map[string]func(l *debugLayout){
			"no id":            func(l *debugLayout) { l.compileID = 0 },
			"no PcDescs":       func(l *debugLayout) { l.scopesPCs = 0 },
			"no code":          func(l *debugLayout) { l.codeBegin, l.codeOffset = 0, 0 },
			"no end":           func(l *debugLayout) { l.dependencies, l.scopesData = 0, 0 },
			"no maps":          func(l *debugLayout) { l.mapSetBytes, l.oldMapData = 0, 0 },
			"no pointer to it": func(l *debugLayout) { l.oopMaps, l.immutable = 0, 0 },
			"small PcDescs":    func(l *debugLayout) { l.pcDescBytes = l.scopeOffset + 3 },
			"small pairs, in both kinds of maps": func(l *debugLayout) {
				l.mapSetBytes, l.pairBytes, l.pairOffset, l.oldMapData = 8, 2, 100, 8
			},
			"far field": func(l *debugLayout) { l.pcOffset, l.pcDescBytes = maxFieldOffset+1, maxFieldOffset },
		} {
			spoiled := known
			spoil(&spoiled)
			assert.Check(t, spoiled.check() != nil, "%d, %s: it is read", i, name)
		}
	}
}

// Tables are read once for a request, and no more of them than is bounded; what could be known in another request is
// told from what is.
func TestKeptMethods(t *testing.T) {
	for _, layout := range layouts() {
		bytes := someMethod(&layout)
		if layout.mapSetBytes == 0 {
			binary.LittleEndian.PutUint32(bytes[2000+layout.oldMapCount:], 1<<17)
		} else {
			binary.LittleEndian.PutUint32(bytes[2000+layout.mapCount:], 1<<17)
		}
		binary.LittleEndian.PutUint64(bytes[layout.oopMaps:], 2000)
		memory := &anyMemory{bytes: bytes}
		c := newJVMCode(remotememory.RemoteMemory{ReaderAt: memory}, layout)
		m, err := c.methodAt(4096)
		assert.Assert(t, err == nil && m != nil && !c.isExhausted(), "%v", err)
		reads := memory.reads
		again, err := c.methodAt(4096)
		assert.Check(t, err == nil && again == m && memory.reads == reads)
		n := 1
		for ; m != nil && n < 100; n++ {
			m, err = c.methodAt(libpf.Address(4096 * (n + 1)))
			assert.NilError(t, err)
		}
		assert.Check(t, n < 10 && c.isExhausted(), "%d methods of 1<<17 entries", n)
	}
	for name, exhaust := range map[string]func(c *jvmCode){
		"work":       func(c *jvmCode) { c.work = maxWork },
		"entries":    func(c *jvmCode) { c.entries = maxEntries },
		"byte codes": func(c *jvmCode) { c.byteCodeBytes = maxByteCodes; c.byteCodeOf(0) },
	} {
		bytes := make([]byte, 4096)
		layout := layouts()[0]
		bytes[layout.codeBytes] = 1 // at 0, the method and its constMethod
		c := newJVMCode(remotememory.RemoteMemory{ReaderAt: &anyMemory{bytes: bytes}}, layout)
		assert.Check(t, !c.isExhausted())
		exhaust(c)
		assert.Check(t, c.isExhausted(), name)
		assert.Check(t, len(c.byteCodes) == 0, "byte code that was not read is kept")
	}
}

// The frames of places are counted as work, also those of little code.
func TestJVMWork(t *testing.T) {
	layout := layouts()[0]
	bytes := someMethod(&layout)
	const depth = 60
	for i := range depth { // each with the one before as its caller
		copy(bytes[512+3*i+3:], []byte{byte(3 * i), 1, 1})
	}
	c := newJVMCode(remotememory.RemoteMemory{ReaderAt: &anyMemory{bytes: bytes}}, layout)
	m := &compiledMethod{at: 4096, pcDescs: []pcDesc{{offset: 1, scope: 3 * depth}}}
	d := &methodFrames{target: &target{code: c}, method: m}
	assert.Check(t, len(d.scopes(1)) == depth && c.work == depth)
}

// scopeFrames are the frames of places by their scopes alone.
type scopeFrames struct{ methodFrames }

func (d *scopeFrames) root(places []int32) ([]Frame, error) {
	frames := []Frame{{Kind: JVMFrame}}
	for _, place := range places {
		for range d.scopes(place) {
			frames = append(frames, Frame{Kind: JVMFrame, Line: uint32(place)})
		}
	}
	return frames, nil
}

// someMethod returns memory with a compiled method at 0 of a layout: two instructions and a return.
func someMethod(l *debugLayout) []byte {
	memory := make([]byte, 4096)
	for field, value := range map[uint64]uint32{
		l.scopesPCs: 512, l.dependencies: 512, l.scopesData: 512, l.stub: 2048, l.codeOffset: 1024, l.implicit: 700,
		l.handlers: 700, l.end: 700,
	} {
		binary.LittleEndian.PutUint32(memory[field:], value)
	}
	copy(memory[1024:], "\x90\x90\xc3")
	return memory
}

// What was found of a compiled method is kept as long as it has the same id, within its user's quota, and forgotten
// with the process.
func TestKeptFlows(t *testing.T) {
	layout := layouts()[0]
	s := &server{handler: &handler{quotas: newQuotas(1000, func(string) uint64 { return 1000 })}}
	quota := s.handler.quotas.flowBytes
	newTarget := func(user worker.User) *target {
		memory := remotememory.RemoteMemory{ReaderAt: &anyMemory{bytes: someMethod(&layout)}}
		return &target{user: user, code: newJVMCode(memory, layout)}
	}
	find := func(of *target, at libpf.Address, id uint32) *flow {
		m, err := of.code.methodAt(at)
		assert.NilError(t, err)
		g, err := s.flowOf(of, m, id)
		assert.Assert(t, err == nil && g != nil && len(g.nodes) == 3, "%v, %+v", err, g)
		return g
	}
	first, second := newTarget("one"), newTarget("one")
	g := find(first, 4096, 1)
	one := quota.budget.Used()
	assert.Check(t, find(first, 4096, 1) == g && find(second, 4096, 1) != g && quota.budget.Used() == 2*one && one > 0)
	assert.Check(t, find(first, 4096, 2) != g && find(first, 8192, 2) != g && quota.budget.Used() == 3*one)
	s.forgetFlows(second)
	s.forgetFlows(second)
	assert.Check(t, quota.budget.Used() == 2*one && len(second.code.flows) == 0)

	assert.NilError(t, quota.take("one", uint64(quota.budget.Capacity()/2-2*one))) // one more would be too much
	find(first, 12288, 3)
	assert.Check(t, len(first.code.flows) == 1 && first.code.flows[12288].id == 3, "what is found last is kept")
	assert.NilError(t, quota.take("one", uint64(one)))
	find(second, 4096, 1)
	assert.Check(t, len(second.code.flows) == 0, "more than the quota is kept")
	assert.Check(t, len(first.code.flows) == 1, "what is kept of another process is forgotten")
}

// Whatever a process has in its memory as compiled methods, with all that belongs to them, their frames are looked
// for within bounds.
func FuzzCompiledMethod(f *testing.F) {
	for _, l := range layouts() {
		method := someMethod(&l)
		copy(method[1024:], "\x90\x74\x02\xe8\x00\x00\x00\x00\xeb\xf0\x89\x08\x0f\x84\x00\x00\x00\x00\xc3")
		f.Add(method, int32(8), true, []byte{})
		f.Add(method, int32(0), false, []byte{})
	}
	f.Add([]byte("\x01\x00"), int32(0), false, []byte("\x0e\x02\x00\x0f\x64\x00\x15\x08\x00"))
	f.Fuzz(checkMethod)
}

// mutate sets some fields of a layout, each by three bytes.
func mutate(l *debugLayout, bytes []byte) {
	fields := l.fields()
	names := slices.Sorted(maps.Keys(fields))
	for ; len(bytes) >= 3; bytes = bytes[3:] {
		*fields[names[int(bytes[0])%len(names)]] = uint64(binary.LittleEndian.Uint16(bytes[1:]))
	}
}

func checkMethod(t *testing.T, bytes []byte, at int32, returns bool, fields []byte) {
	if len(bytes) == 0 {
		return
	}
	for _, layout := range layouts() {
		memory := &anyMemory{bytes: bytes}
		c := newJVMCode(remotememory.RemoteMemory{ReaderAt: memory}, layout)
		assert.Check(t, layout.follows() && layout.check() == nil)
		mutate(&c.debug, fields)
		if c.debug.check() != nil || !c.debug.follows() {
			continue
		}
		m, err := c.methodAt(4096)
		if err != nil {
			continue
		}
		d := &scopeFrames{methodFrames{target: &target{code: c}, method: m}}
		g, _, err := c.flowOf(m, at)
		if g == nil || err != nil {
			continue
		}
		assert.Check(t, len(g.nodes) <= maxInstructions && c.work <= maxWork)
		if n := g.find(at, returns); n != none {
			frames, why, err := g.leaf(n, returns, d)
			assert.Check(t, err == nil && len(frames) > 0 && why <= UnknownBetween)
		}
		assert.Check(t, memory.reads < maxRequestReads, "%d times, memory was read", memory.reads)
	}
}

// codeWithCalls is byte code with calls, and codeWithLoop with a jump back, too.
func codeWithCalls(at ...int32) *byteCode { return &byteCode{known: true, calls: at} }

func codeWithLoop(from, to int32, at ...int32) *byteCode {
	return &byteCode{known: true, calls: at, back: [][2]int32{{from, to}}}
}

// scopesIn returns scopes of methods, each with a place.
func scopesIn(numbers ...int32) (s []scope) {
	for ; len(numbers) > 0; numbers = numbers[2:] {
		s = append(s, scope{libpf.Address(numbers[0]), numbers[1]})
	}
	return s
}

// A loop in which there are so many others in the code is that of the methods which has as many around it, or one in
// it. One that begins again from several places may be as many in the code.
func TestInLoop(t *testing.T) {
	const m, a, b = 1, 2, 3
	type places = [][]scope
	in, calls, loop := scopesIn, codeWithCalls, codeWithLoop
	twice := &byteCode{known: true, calls: []int32{5}, back: [][2]int32{{9, 0}, {4, 0}}}
	nested := &byteCode{known: true, calls: []int32{5, 30}, back: [][2]int32{{40, 0}, {9, 2}}}
	for name, c := range map[string]struct {
		all       places
		loops     int
		m, a      *byteCode
		want      int
		callsNone bool
	}{
		"the only one":                    {places{in(m, 5)}, 1, loop(9, 0), calls(), 1, true},
		"the only one, with a call":       {places{in(m, 5)}, 1, loop(9, 0, 7), calls(), 1, false},
		"the only one, after a call":      {places{in(m, 5)}, 1, loop(9, 2, 1), calls(), 1, true},
		"that of a caller":                {places{in(m, 5, a, 3)}, 1, loop(9, 0, 5), calls(), 1, false},
		"that of a callee":                {places{in(m, 15, a, 3)}, 1, loop(9, 0, 5), loop(4, 1), 2, true},
		"the outer one of two":            {places{in(m, 5, a, 3)}, 1, loop(9, 0, 5), loop(4, 1), 1, false},
		"the inner one of two":            {places{in(m, 5, a, 3)}, 2, loop(9, 0, 5), loop(4, 1), 2, true},
		"the outer one of a method's two": {places{in(m, 5)}, 1, nested, calls(), 1, false},
		"the inner one of a method's two": {places{in(m, 3)}, 2, nested, loop(4, 1), 1, false},
		"the third of three":              {places{in(m, 5, a, 3)}, 3, nested, loop(4, 1), 2, true},
		"more than there are":             {places{in(m, 5, a, 3)}, 3, loop(9, 0, 5), loop(4, 1), 0, false},
		"perhaps two of one":              {places{in(m, 4, a, 3)}, 2, twice, loop(4, 1), 1, false},
		"one in perhaps two of one":       {places{in(m, 4, a, 3)}, 3, twice, loop(4, 1), 2, true},
		"of two places": {places{in(m, 5, a, 3), in(m, 5, a, 2)}, 2, loop(9, 0), loop(4, 1), 2,
			true},
		"of two places, one of them in it": {places{in(m, 5, a, 3), in(m, 5, a, 9)}, 2, loop(9, 0), loop(4, 1), 0,
			false},
		"of places of two methods": {places{in(m, 5, a, 3), in(m, 5, b, 3)}, 2, loop(9, 0), loop(4, 1), 0,
			false},
		"of places of two methods, the outer": {places{in(m, 5, a, 3), in(m, 5, b, 3)}, 1, loop(9, 0), loop(4, 1), 1,
			true},
		"of a callee and its caller": {places{in(m, 5, a, 3), in(m, 5)}, 2, loop(9, 0), loop(4, 1), 0, false},
		"of a callee called twice": {places{in(m, 5, a, 3), in(m, 6, a, 3)}, 2, loop(9, 0), loop(4, 1), 0,
			false},
		"not understood": {places{in(m, 5, a, 3)}, 1, new(byteCode), loop(4, 1), 0, false},
		"of none":        {places{nil}, 1, loop(9, 0), loop(4, 1), 0, false},
	} {
		got, callsNone := inLoop(c.all, c.loops, func(method libpf.Address) *byteCode {
			return map[libpf.Address]*byteCode{m: c.m, a: c.a, b: calls()}[method]
		})
		assert.Check(t, got == c.want && callsNone == c.callsNone, "%s: %d, %v, want %d, %v", name, got, callsNone,
			c.want,
			c.callsNone)
	}
}

// Whether inlined calls may run between two places is asked of the methods down to that in which they differ; around a
// loop, of all of it.
func TestCallsBetween(t *testing.T) {
	const m, a, b = 1, 2, 3
	type places = [][]scope
	in, calls, loop := scopesIn, codeWithCalls, codeWithLoop
	simple := calls()
	for name, c := range map[string]struct {
		before, on places
		frames     int
		m, a       *byteCode
		want       int
	}{
		"nothing between":                   {places{in(m, 5)}, places{in(m, 9)}, 1, calls(5, 9), simple, 0},
		"a call between":                    {places{in(m, 5)}, places{in(m, 9)}, 1, calls(5, 7, 9), simple, 1},
		"not understood":                    {places{in(m, 5)}, places{in(m, 9)}, 1, new(byteCode), simple, 1},
		"from the beginning on":             {nil, places{in(m, 9)}, 1, calls(3, 9), simple, 1},
		"from the beginning on, the first":  {nil, places{in(m, 9)}, 1, calls(9, 12), simple, 0},
		"from the beginning on, in a loop":  {nil, places{in(m, 9)}, 1, loop(20, 8, 9, 12), simple, 1},
		"from the beginning of a callee on": {nil, places{in(m, 9, a, 4)}, 2, calls(9), calls(2), 2},
		"to the end":                        {places{in(m, 9)}, nil, 1, calls(9, 12), simple, 1},
		"to the end, the last":              {places{in(m, 9)}, nil, 1, calls(3, 9), simple, 0},
		"after a callee, to the end":        {places{in(m, 5, b, 1)}, nil, 2, calls(5, 9), simple, 1},
		"after a callee that is the last":   {places{in(m, 5, a, 1)}, nil, 2, calls(5), calls(0), 0},
		"after a callee's calls, others":    {places{in(m, 5, a, 1)}, nil, 2, calls(5), calls(3), 2},
		"inlined twice": {places{in(m, 5, a, 1)}, places{in(m, 9, a, 1)}, 2, calls(5, 9),
			simple, 0},
		"inlined twice, another between": {places{in(m, 5, a, 1)}, places{in(m, 9, a, 1)}, 2, calls(5, 7, 9),
			simple, 1},
		"on is deeper":                      {places{in(m, 5)}, places{in(m, 9, a, 0)}, 2, calls(7, 9), simple, 1},
		"on is deeper, nothing between":     {places{in(m, 5)}, places{in(m, 9, a, 0)}, 2, calls(9), calls(3), 0},
		"on is deeper, others before it":    {places{in(m, 5)}, places{in(m, 9, a, 4)}, 2, calls(9), calls(2), 0},
		"before is deeper":                  {places{in(m, 5, a, 3)}, places{in(m, 9)}, 2, calls(5, 7, 9), simple, 1},
		"before is deeper, nothing between": {places{in(m, 5, a, 3)}, places{in(m, 9)}, 2, calls(5, 9), calls(3), 0},
		"in the same callee": {places{in(m, 5, a, 3)}, places{in(m, 5, a, 9)}, 2, calls(5),
			calls(5), 2},
		"in the same callee, others after": {places{in(m, 5, a, 3)}, places{in(m, 5, a, 9)}, 2, calls(5, 7),
			simple, 0},
		"around a loop": {places{in(m, 30)}, places{in(m, 10)}, 1, loop(40, 4, 7), simple, 1},
		"around a loop, and on": {places{in(m, 30)}, places{in(m, 40), in(m, 10)}, 1, loop(50, 4, 7),
			simple, 1},
		"around a loop, from two": {places{in(m, 4), in(m, 30)}, places{in(m, 10)}, 1, loop(50, 2, 3),
			simple, 1},
		"around a caller's loop": {places{in(m, 5, a, 9)}, places{in(m, 5, a, 3)}, 2, loop(40, 4, 5, 7),
			simple, 1},
		"around a caller's loop of one call": {places{in(m, 5, a, 9)}, places{in(m, 5, a, 3)}, 2, loop(40, 4, 5),
			simple, 0},
		"on, in a loop": {places{in(m, 10)}, places{in(m, 30)}, 1, loop(40, 4, 7), simple, 0},
		"what two have called": {places{in(m, 5, a, 1), in(m, 5, b, 1)}, places{in(m, 9)}, 1, calls(5, 9),
			simple, 1},
		"several targets": {places{in(m, 5, a, 1)}, places{in(m, 5, b, 1)}, 2, calls(5), simple, 1},
	} {
		got := callsBetween(c.before, c.on, c.frames, func(method libpf.Address) *byteCode {
			return map[libpf.Address]*byteCode{m: c.m, a: c.a, b: simple}[method]
		})
		assert.Check(t, got == c.want, "%s: %d, want %d", name, got, c.want)
	}
}
