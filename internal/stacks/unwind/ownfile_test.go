package unwind

import (
	"os"
	"runtime"
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
