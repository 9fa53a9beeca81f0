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

// The functions in assembly of V8 and of JVMs are unwound at each of their instructions; what describes itself stays,
// and in other files there is nothing of functions of their names.
func TestCompleteAssembly(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("they are followed on x86-64")
	}
	saved := func(size int32) stackdeltatypes.UnwindInfo {
		return frameState{stack: size, saved: 16}.info()
	}
	functions := []struct {
		mark, name string
		infos      map[uint64]stackdeltatypes.UnwindInfo // by offset
		size       uint64
	}{
		{"v8dbg_HeapObjectTag", "PushAllRegistersAndIterateStack", map[uint64]stackdeltatypes.UnwindInfo{
			0: atEntry.info(), 1: saved(16), 4: saved(16), 9: saved(24), 10: saved(32), 12: saved(40), 14: saved(48),
			16: saved(56), 18: saved(64), 24: saved(64), 27: saved(64), 31: saved(16), 32: atEntry.info(),
		}, 33},
		{"gHotSpotVMStructs", "SpinPause", map[uint64]stackdeltatypes.UnwindInfo{
			0: atEntry.info(), 2: atEntry.info(), 9: atEntry.info(),
		}, 10},
	}
	for _, mark := range []string{functions[0].mark, functions[1].mark, "other"} {
		path := filepath.Join(t.TempDir(), "library.so")
		build := exec.Command(testenv.NeedTool(t, "cc"), "-shared", "-DMARK="+mark, "-o", path, "testdata/assembly.c")
		output, err := build.CombinedOutput()
		assert.NilError(t, err, "%s", output)
		ref := pfelf.NewReference(path, pfelf.SystemOpener)
		defer ref.Close()
		file, err := ref.GetELF()
		assert.NilError(t, err)
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
		for _, f := range functions {
			var start uint64
			assert.NilError(t, file.VisitSymbols(func(s libpf.Symbol) bool {
				if string(s.Name) == f.name {
					start = uint64(s.Address)
				}
				return true
			}))
			for offset, want := range f.infos {
				if mark != f.mark {
					want = stackdeltatypes.UnwindInfo{}
				}
				got := infoAt(start + offset)
				assert.Check(t, got == want, "%s, %s, %d: %+v, want %+v", mark, f.name, offset, got, want)
			}
			behind := infoAt(start + f.size)
			assert.Check(t, behind == atEntry.info(), "%s, %s: %+v", mark, f.name, behind)
		}
	}
}
