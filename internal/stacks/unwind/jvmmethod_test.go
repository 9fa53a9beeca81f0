package unwind

import (
	"encoding/binary"
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
		return &target{user: user, code: &jvmCode{
			runtimeCode: &runtimeCode{memory: memory}, debug: layout,
			flows: make(map[libpf.Address]keptFlow), byteCodes: make(map[libpf.Address]*byteCode),
		}}
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
		f.Add(method, int32(8), true)
		f.Add(method, int32(0), false)
	}
	f.Fuzz(checkMethod)
}

func checkMethod(t *testing.T, bytes []byte, at int32, returns bool) {
	if len(bytes) == 0 {
		return
	}
	for _, layout := range layouts() {
		memory := &anyMemory{bytes: bytes}
		c := &jvmCode{
			runtimeCode: &runtimeCode{memory: remotememory.RemoteMemory{ReaderAt: memory}}, debug: layout,
			byteCodes: make(map[libpf.Address]*byteCode),
		}
		assert.Check(t, layout.follows())
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
