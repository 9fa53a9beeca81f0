package deltas

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// The function by which V8 calls its garbage collector is unwound at each of its instructions; what describes itself
// stays, and in a file without V8 there is nothing of such a function.
func TestCompleteV8(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("it is followed on x86-64")
	}
	for _, mark := range []string{v8Mark, "other"} {
		path := filepath.Join(t.TempDir(), "library.so")
		build := exec.Command(testenv.NeedTool(t, "cc"), "-shared", "-DMARK="+mark, "-o", path, "testdata/v8.c")
		output, err := build.CombinedOutput()
		assert.NilError(t, err, "%s", output)
		ref := pfelf.NewReference(path, pfelf.SystemOpener)
		defer ref.Close()
		file, err := ref.GetELF()
		assert.NilError(t, err)
		var start uint64
		assert.NilError(t, file.VisitSymbols(func(s libpf.Symbol) bool {
			if s.Name == v8Collects {
				start = uint64(s.Address)
			}
			return true
		}))
		data, err := NewProvider().GetIntervalDataForFile(ref)
		assert.NilError(t, err)
		infoAt := func(addr uint64) (info stackdeltatypes.UnwindInfo) {
			if b := data.Find(addr); b != nil {
				for _, d := range b.Deltas {
					if b.Start+uint64(d.Offset) <= addr {
						info = d.Info
					}
				}
			}
			return info
		}
		saved := func(size int32) stackdeltatypes.UnwindInfo {
			return frameState{stack: size, saved: 16}.info()
		}
		const end = 33
		for offset, want := range map[uint64]stackdeltatypes.UnwindInfo{
			0: atEntry.info(), 1: saved(16), 4: saved(16), 9: saved(24), 10: saved(32), 12: saved(40), 14: saved(48),
			16: saved(56), 18: saved(64), 24: saved(64), 27: saved(64), 31: saved(16), 32: atEntry.info(),
		} {
			if mark != v8Mark {
				want = stackdeltatypes.UnwindInfo{}
			}
			assert.Check(t, infoAt(start+offset) == want, "%s, %d: %+v, want %+v", mark, offset, infoAt(start+offset),
				want)
		}
		behind := infoAt(start + end)
		assert.Check(t, behind == atEntry.info(), "%s: %+v", mark, behind)
	}
}
