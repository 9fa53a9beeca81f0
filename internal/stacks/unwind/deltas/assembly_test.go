package deltas

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
		path := buildAssembly(t, mark)
		file, err := pfelf.Open(path)
		assert.NilError(t, err)
		defer file.Close()
		data, provider := extract(t, path)
		assert.Check(t, provider.Uncorrected == 0)
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
					want = stackdeltatypes.UnwindInfoInvalid
				}
				got := infoAt(data, start+offset)
				assert.Check(t, got == want, "%s, %s, %d: %+v, want %+v", mark, f.name, offset, got, want)
			}
			behind := infoAt(data, start+f.size)
			assert.Check(t, behind == atEntry.info(), "%s, %s: %+v", mark, f.name, behind)
		}
	}
}

// buildAssembly builds the library with the functions, and a symbol.
func buildAssembly(t *testing.T, mark string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "library.so")
	build := exec.Command(testenv.NeedTool(t, "cc"), "-shared", "-DMARK="+mark, "-o", path, "testdata/assembly.c")
	output, err := build.CombinedOutput()
	assert.NilError(t, err, "%s", output)
	return path
}

// Of files that lie, as much is unwound as can be, and they are counted: a function that is nowhere keeps no other one
// from being found; tables that are broken, or larger than any, are not read.
func TestHostileAssembly(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("they are followed on x86-64")
	}
	for _, c := range []struct {
		name    string
		found   bool // a function of the library
		corrupt func(b []byte, file *elf.File)
	}{
		{"a function that is nowhere", true, func(b []byte, file *elf.File) {
			symbol := assemblySymbol(b, file, "SpinPause")
			binary.LittleEndian.PutUint64(symbol[8:], 0xdead0000)
		}},
		{"a hash table without buckets", false, func(b []byte, file *elf.File) {
			clear(b[file.Section(".gnu.hash").Offset:][:4])
		}},
		{"more symbols than any", false, func(b []byte, file *elf.File) {
			sectionSize(b, file, ".symtab", (maxAssemblySymbols+1)*elf.Sym64Size)
		}},
		{"longer names than any", false, func(b []byte, file *elf.File) {
			sectionSize(b, file, ".strtab", maxAssemblyNames+1)
		}},
		{"names that are not in the file", false, func(b []byte, file *elf.File) {
			sectionSize(b, file, ".strtab", maxAssemblyNames)
		}},
		{"more places of a name than any", false, func(b []byte, file *elf.File) {
			names := slices.IndexFunc(file.Sections, func(s *elf.Section) bool { return s.Name == ".names" })
			assert.Assert(t, names > 0)
			binary.LittleEndian.PutUint32(sectionHeader(b, file, ".symtab")[40:], uint32(names))
		}},
		{"names that no section has", false, func(b []byte, file *elf.File) {
			link := sectionHeader(b, file, ".symtab")[40:]
			binary.LittleEndian.PutUint32(link, 1<<31)
		}},
	} {
		path := buildAssembly(t, "gHotSpotVMStructs")
		b, err := os.ReadFile(path)
		assert.NilError(t, err)
		file, err := elf.NewFile(bytes.NewReader(b))
		assert.NilError(t, err)
		start := binary.LittleEndian.Uint64(assemblySymbol(b, file, "SafeFetch32_impl")[8:])
		c.corrupt(b, file)
		assert.NilError(t, os.WriteFile(path, b, 0o700))
		data, provider := extract(t, path)
		assert.Check(t, provider.Uncorrected == 1, "%s: %d", c.name, provider.Uncorrected)
		want := stackdeltatypes.UnwindInfoInvalid
		if c.found {
			want = atEntry.info()
		}
		assert.Check(t, infoAt(data, start) == want, "%s: %+v", c.name, infoAt(data, start))
	}
}

// The names in a file are read by parts, wherever one that is searched is, which may be the end of a longer one.
func TestFindNames(t *testing.T) {
	b, err := os.ReadFile(buildAssembly(t, "other"))
	assert.NilError(t, err)
	file, err := elf.NewFile(bytes.NewReader(b))
	assert.NilError(t, err)
	names := bytes.Repeat([]byte("a name\x00"), 1<<16)
	names = append(names, "SpinPause\x00"...)
	want := map[uint32]libpf.SymbolName{uint32(len(names) - 10): "SpinPause"}
	names = append(names, bytes.Repeat([]byte("longer "), 1<<16)...)
	names = append(names, bytes.Repeat([]byte("another\x00"), 1<<16)...)
	names = append(names, "OtherSpinPause\x00SpinPauses"...)
	want[uint32(len(names)-20)] = "SpinPause"
	binary.LittleEndian.PutUint64(sectionHeader(b, file, ".strtab")[24:], uint64(len(b)))
	sectionSize(b, file, ".strtab", uint64(len(names)))
	from := &largestRead{from: bytes.NewReader(append(b, names...))}
	library, err := pfelf.NewFile(from, 0, false)
	assert.NilError(t, err)
	table := library.Section(".strtab")
	from.bytes = 0
	places, err := findNames(table, []libpf.SymbolName{"SpinPause"})
	assert.NilError(t, err)
	assert.DeepEqual(t, places, want)
	assert.Assert(t, from.bytes > 0 && from.bytes <= 1<<16, "%d bytes at once", from.bytes)
}

// largestRead notes how much is read at once, at most.
type largestRead struct {
	from  io.ReaderAt
	bytes int
}

func (r *largestRead) ReadAt(b []byte, at int64) (int, error) {
	r.bytes = max(r.bytes, len(b))
	return r.from.ReadAt(b, at)
}

// assemblySymbol returns the bytes of a symbol.
func assemblySymbol(b []byte, file *elf.File, name string) []byte {
	symbols, _ := file.Symbols()
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
	return b[int(file.Section(".symtab").Offset)+(i+1)*elf.Sym64Size:] // without the first
}

// sectionHeader returns the bytes of a section's header.
func sectionHeader(b []byte, file *elf.File, name string) []byte {
	i := slices.IndexFunc(file.Sections, func(s *elf.Section) bool { return s.Name == name })
	return b[int(binary.LittleEndian.Uint64(b[40:]))+64*i:] // e_shoff
}

// sectionSize sets how long a section is.
func sectionSize(b []byte, file *elf.File, name string, size uint64) {
	binary.LittleEndian.PutUint64(sectionHeader(b, file, name)[32:], size)
}
