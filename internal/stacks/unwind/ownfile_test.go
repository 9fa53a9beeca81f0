package unwind

import (
	"debug/elf"
	"os"
	"runtime"
	"strings"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// All of our own code is unwound by frame pointers, but for the function that goroutines return to, where stacks end.
// Other files, and one whose addresses are not those in memory, are read.
func TestOwnFile(t *testing.T) {
	own := newOwnFile("/proc")
	path, err := os.Executable()
	assert.NilError(t, err)
	assert.Check(t, own.path == path && own.root != 0 &&
		runtime.FuncForPC(uintptr(own.root)).Name() == "runtime.goexit")
	file := pfelf.NewReference(path, pfelf.SystemOpener)
	defer file.Close()
	data := own.intervals(file)
	if data == nil {
		testenv.Missing(t, "the test's addresses are not those of its file")
	}
	assert.Assert(t, len(data.Blocks) == 1 && data.NumDeltas == 3)
	block := data.Blocks[0]
	at := func(address uint64) (info stackdeltatypes.UnwindInfo) {
		for _, d := range block.Deltas {
			if block.Start+uint64(d.Offset) <= address {
				info = d.Info
			}
		}
		return info
	}
	counter, _, _, _ := runtime.Caller(0)
	assert.Check(t, block.Start <= uint64(counter) && uint64(counter) < block.End)
	assert.Check(t, at(uint64(counter)) == stackdeltatypes.UnwindInfoFramePointer)
	assert.Check(t, at(own.root) == stackdeltatypes.UnwindInfoStop && at(own.root+1) == stackdeltatypes.UnwindInfoStop)
	assert.Check(t, at(own.root-1) == stackdeltatypes.UnwindInfoFramePointer)
	assert.Check(t, at(own.root+rootBytes) == stackdeltatypes.UnwindInfoFramePointer)

	for _, other := range []ownFile{{path: path + "2", root: own.root}, {path: path}, {path: path, root: block.End}} {
		assert.Check(t, other.intervals(file) == nil, other)
	}
}

// What stands for our own executable has its segments that are loaded, and nothing in which a runtime is looked for.
func TestSegmentsOf(t *testing.T) {
	path, err := os.Executable()
	assert.NilError(t, err)
	whole, err := elf.Open(path)
	assert.NilError(t, err)
	defer whole.Close()
	file, err := os.Open(path)
	assert.NilError(t, err)
	defer file.Close()
	segments, err := segmentsOf(file)
	assert.NilError(t, err)
	own, err := elf.NewFile(segments)
	assert.NilError(t, err)
	assert.Check(t, len(own.Sections) == 0 && own.Type == whole.Type && own.Machine == whole.Machine)
	var loaded, want []elf.ProgHeader
	for _, p := range own.Progs {
		loaded = append(loaded, p.ProgHeader)
	}
	for _, p := range whole.Progs {
		if p.Type == elf.PT_LOAD {
			want = append(want, p.ProgHeader)
		}
	}
	assert.DeepEqual(t, loaded, want)
	asked, err := pfelf.NewFile(segments, 0, false)
	assert.Check(t, err == nil && !asked.IsGolang())
	_, err = segmentsOf(strings.NewReader("#!/bin/sh"))
	assert.Check(t, err != nil)
}
