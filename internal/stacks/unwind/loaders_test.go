package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/interpreter"
	golang "go.opentelemetry.io/ebpf-profiler/interpreter/go"
	"go.opentelemetry.io/ebpf-profiler/interpreter/hotspot"
	"go.opentelemetry.io/ebpf-profiler/libc"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/unwind/deltas"
)

// Where a hostile file has its parts. It is mapped whole, at the address that it says.
const (
	dynamicAt    = 0x600
	hashAt       = 0x700
	symbolsAt    = 0x800
	namesAt      = 0xc00
	numbersAt    = 0x1000 // of its symbols, eight bytes each
	tablesAt     = 0x1400
	jvmBase      = 1 << 20
	vmEntryBytes = 32
)

// jvmNumbers are what a JVM has at its symbols, with tables of a type and of a field.
func jvmNumbers() map[string]uint64 {
	return map[string]uint64{
		"gHotSpotVMTypes": jvmBase + tablesAt, "gHotSpotVMTypeEntryArrayStride": vmEntryBytes,
		"gHotSpotVMTypeEntryTypeNameOffset": 0, "gHotSpotVMTypeEntrySizeOffset": 8,
		"gHotSpotVMStructs": jvmBase + tablesAt + 0x200, "gHotSpotVMStructEntryArrayStride": vmEntryBytes,
		"gHotSpotVMStructEntryTypeNameOffset": 0, "gHotSpotVMStructEntryFieldNameOffset": 8,
		"gHotSpotVMStructEntryOffsetOffset": 16, "gHotSpotVMStructEntryAddressOffset": 24,
	}
}

// symbolsELF returns a file that exports symbols, with a number at each.
func symbolsELF(numbers map[string]uint64) *testELF {
	names := slices.Sorted(maps.Keys(numbers))
	symbols, texts := make([]elf.Sym64, 1+len(names)), []byte{0}
	hash := []uint32{1, uint32(1 + len(names)), 1, 0} // one chain: 1, 2, ...
	f := &testELF{parts: map[int][]byte{}}
	for i, name := range names {
		at := uint64(numbersAt + 8*i)
		symbols[1+i] = elf.Sym64{
			Name: uint32(len(texts)), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT), Shndx: 1, Value: at, Size: 8,
		}
		texts = append(append(texts, name...), 0)
		hash = append(hash, uint32(i+2)%uint32(len(names)+1))
		f.parts[int(at)] = binary.LittleEndian.AppendUint64(nil, numbers[name])
	}
	dynamic := []elf.Dyn64{
		{Tag: int64(elf.DT_HASH), Val: hashAt}, {Tag: int64(elf.DT_SYMTAB), Val: symbolsAt},
		{Tag: int64(elf.DT_STRTAB), Val: namesAt}, {},
	}
	for at, part := range map[int]any{dynamicAt: dynamic, hashAt: hash, symbolsAt: symbols} {
		f.parts[at], _ = binary.Append(nil, binary.LittleEndian, part)
	}
	f.parts[namesAt] = texts
	f.header.Type, f.header.Machine, f.header.Version = uint16(elf.ET_DYN), uint16(pfelf.CurrentMachine), 1
	f.segments = []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: testBytes, Memsz: testBytes},
		{Type: uint32(elf.PT_DYNAMIC), Off: dynamicAt, Vaddr: dynamicAt, Filesz: uint64(16 * len(dynamic))},
	}
	return f
}

// jvmELF is a file that the engine takes for a JVM's, with some numbers that are others, and entries of its tables: of
// types, and 0x200 bytes later of fields.
func jvmELF(others map[string]uint64, tables ...byte) []byte {
	numbers := jvmNumbers()
	maps.Copy(numbers, others)
	f := symbolsELF(numbers)
	f.parts[tablesAt] = tables
	return f.encode()
}

// tables returns an entry of a type that has a size, and one of a field at an offset or address.
func tables(size, offset, address uint64) []byte {
	b := make([]byte, 0x200+2*vmEntryBytes)
	for at, number := range map[int]uint64{
		0: jvmBase, 8: size, 0x200: jvmBase, 0x208: jvmBase, 0x210: offset, 0x218: address,
	} {
		binary.LittleEndian.PutUint64(b[at:], number)
	}
	return b
}

// fileMemory is the memory of a process that has mapped a file at jvmBase.
type fileMemory []byte

func (m fileMemory) ReadAt(b []byte, at int64) (int, error) {
	if at < jvmBase || at >= jvmBase+int64(len(m)) {
		return 0, io.EOF
	}
	n := copy(b, m[at-jvmBase:])
	clear(b[n:])
	return len(b), nil
}

func referenceOf(name string, file []byte) *pfelf.Reference {
	return pfelf.NewReferenceWithOpenFunc(name, nil, func() (*pfelf.File, error) {
		patches, err := elfPatches(bytes.NewReader(file))
		if err != nil {
			return nil, err
		}
		var b budget
		b.reset()
		limited := &limitedReader{from: notClosed{bytes.NewReader(file)}, budget: &b, patches: patches}
		return pfelf.NewFile(limited, 0, false)
	})
}

// A JVM's description of itself by numbers that none has is not given to the engine; what one has is, and what is not
// there yet.
func TestJVMTables(t *testing.T) {
	with := func(name string, value uint64) map[string]uint64 { return map[string]uint64{name: value} }
	for name, c := range map[string]struct {
		others map[string]uint64
		tables []byte
		want   error
	}{
		"a JVM":                     {nil, tables(4096, 96, 0), nil},
		"a variable":                {nil, tables(4096, 96, jvmBase+1<<20), nil},
		"no tables":                 {map[string]uint64{"gHotSpotVMTypes": 0}, nil, errNotAttached},
		"nothing yet":               {map[string]uint64{"gHotSpotVMStructEntryArrayStride": 0}, nil, errNotAttached},
		"long entries of types":     {with("gHotSpotVMTypeEntryArrayStride", 1<<36), nil, errVMTables},
		"long entries of fields":    {with("gHotSpotVMStructEntryArrayStride", 1<<36), nil, errVMTables},
		"a name beyond all":         {with("gHotSpotVMTypeEntryTypeNameOffset", 1<<64-4), nil, errVMTables},
		"a size beyond all":         {with("gHotSpotVMTypeEntrySizeOffset", 1<<64-4), nil, errVMTables},
		"a field's name beyond all": {with("gHotSpotVMStructEntryFieldNameOffset", 1<<64-4), nil, errVMTables},
		"an offset beyond all":      {with("gHotSpotVMStructEntryOffsetOffset", 1<<64-4), nil, errVMTables},
		"an address beyond all":     {with("gHotSpotVMStructEntryAddressOffset", 1<<64-4), nil, errVMTables},
		"a large type":              {nil, tables(maxVMTypeBytes+1, 96, 0), errVMTables},
		"a field far away":          {nil, tables(4096, 1<<64-4, 0), errVMTables},
		"a variable far away":       {nil, tables(4096, 96, jvmBase-4), errVMTables},
		"no end": {
			map[string]uint64{"gHotSpotVMTypeEntryArrayStride": 8}, bytes.Repeat([]byte{1}, testBytes), errVMTables,
		},
	} {
		file := jvmELF(c.others, c.tables...)
		reference := referenceOf("/libjvm.so", file)
		elf, err := reference.GetELF()
		assert.NilError(t, err)
		err = checkJVM(elf, remotememory.RemoteMemory{ReaderAt: fileMemory(file)}, jvmBase)
		if name == "no end" { // the memory has one
			assert.Check(t, err != nil)
			continue
		}
		assert.Check(t, errors.Is(err, c.want), "%s: %v", name, err)
		reference.Close()
	}
}

// mapFile starts a process that has mapped a file at jvmBase.
func mapFile(t *testing.T, name string, file []byte) *exec.Cmd {
	t.Helper()
	python := testenv.NeedTool(t, "python3")
	const script = `import ctypes, mmap, os, sys
size = os.path.getsize(sys.argv[1])
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
fd = os.open(sys.argv[1], os.O_RDONLY)
at = libc.mmap(ctypes.c_void_p(int(sys.argv[2])), ctypes.c_size_t(size), 5, 0x12, fd, ctypes.c_size_t(0))
print("ready" if at == int(sys.argv[2]) else at, flush=True)
sys.stdin.read()`
	path := filepath.Join(t.TempDir(), name)
	testenv.WriteFile(t, path, file)
	cmd := exec.Command(python, "-c", script, path, fmt.Sprint(jvmBase))
	stdin, stdout := testenv.Start(t, cmd)
	t.Cleanup(func() { stdin.Close() })
	line := make([]byte, 6)
	_, err := io.ReadFull(stdout, line)
	assert.Assert(t, err == nil && string(line) == "ready\n", "%s, %v", line, err)
	return cmd
}

// A process that has mapped a hostile library of a JVM is walked by frame pointers, for a reason, and costs no worker.
func TestHostileJVM(t *testing.T) {
	e := shareEngine(t)
	started := e.counters.Started.Load()
	for name, others := range map[string]map[string]uint64{
		"types": {"gHotSpotVMTypeEntryArrayStride": 1 << 36}, "fields": {"gHotSpotVMStructEntryArrayStride": 1 << 36},
	} {
		cmd := mapFile(t, "libjvm.so", jvmELF(others, tables(8, 8, 0)...))
		_, err := e.Synchronize(t.Context(), identify(t, cmd.Process.Pid))
		assert.Check(t, errors.Is(err, ErrNotReady), "%s: %v", name, err)
		assert.ErrorContains(t, err, errVMTables.Error())
	}
	assert.Check(t, e.counters.Started.Load() == started, "a worker ended")
}

// v8Versions are the symbols at which the version of V8 is.
func v8Versions() map[string]uint64 {
	numbers := make(map[string]uint64)
	for _, name := range []string{"major", "minor", "build", "patch"} {
		numbers["_ZN2v88internal7Version6"+name+"_E"] = 12
	}
	return numbers
}

// A file at which the engine panics, or which it reads for ever, costs its process what is known of it, and no worker;
// and the same process, with the next file, neither.
func TestHostileFiles(t *testing.T) {
	e := shareEngine(t)
	python := map[string]uint64{"_PyRuntime": 0, "PyGILState_GetThisThreadState": 0}
	libc := map[string]uint64{"__pthread_getspecific": 0, "__tls_get_addr": 0}
	sized := func(numbers map[string]uint64) *testELF { // its symbols have the largest of sizes
		f := symbolsELF(numbers)
		for at := 24; at < len(f.parts[symbolsAt]); at += 24 {
			binary.LittleEndian.PutUint64(f.parts[symbolsAt][at+16:], 1<<63)
		}
		return f
	}
	section := func(name string, size uint64, contents string) *testELF {
		f := symbolsELF(jvmNumbers())
		f.sections = []elf.Section64{
			{}, {Type: uint32(elf.SHT_STRTAB), Off: 0x1e00, Size: 64},
			{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: tablesAt, Addr: tablesAt, Size: size},
		}
		f.header.Shstrndx, f.parts[0x1e00], f.parts[tablesAt] = 1, append([]byte{0}, name...), []byte(contents)
		return f
	}
	// A description of functions, and one of a function, which goes on behind the file.
	const frames = "\x14\x00\x00\x00\x00\x00\x00\x00\x01zR\x00\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01\x00\x00" +
		"\x00\x20\x00\x00\x1c\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\x0f\x00\x41\x0e\x10"
	started := e.counters.Started.Load()
	// So many ways to unwind in one function take more memory than the worker may have.
	ways := slices.Concat([]byte(frames[:24]+"\xff\xff\xff\x02"+frames[28:]),
		bytes.Repeat([]byte("\x41\x0e\x10\x41\x0e\x18"), 8<<20))
	many := section(".eh_frame", 1<<30, "")
	many.sections[2].Off, many.sections[2].Addr = testBytes, testBytes
	for name, c := range map[string]struct {
		path string
		file *testELF
		more []byte
	}{
		"a debug link":  {"liba.so", section(".gnu_debuglink", 1<<63, ""), nil},
		"V8":            {"node", sized(v8Versions()), nil},
		"CPython":       {"libpython3.11.so.1.0", sized(python), nil},
		"a C library":   {"libc.so.6", sized(libc), nil},
		"frames, ended": {"libb.so", section(".eh_frame", 1<<20, frames), nil},
		"frames, many":  {"libd.so", many, ways},
	} {
		cmd := mapFile(t, c.path, append(c.file.encode(), c.more...))
		for range 2 {
			_, err := e.Synchronize(t.Context(), identify(t, cmd.Process.Pid))
			assert.ErrorContains(t, err, errEngine.Error(), name)
		}
	}
	assert.Check(t, e.counters.Started.Load() == started, "a worker ended")
}

// Symbols of which a chain goes on behind what the file has, where a segment is zero for ever, are looked up to an end.
func TestEndlessChain(t *testing.T) {
	f := symbolsELF(jvmNumbers())
	const at = testBytes - 28
	f.parts[dynamicAt], _ = binary.Append(nil, binary.LittleEndian, []elf.Dyn64{
		{Tag: int64(elf.DT_GNU_HASH), Val: at}, {Tag: int64(elf.DT_SYMTAB), Val: symbolsAt},
		{Tag: int64(elf.DT_STRTAB), Val: namesAt}, {},
	})
	// A bucket, the first symbol of the chain, a word of the filter, which everything passes; the filter; the bucket.
	f.parts[at], _ = binary.Append(nil, binary.LittleEndian, []uint32{1, 1, 1, 0, 1<<32 - 1, 1<<32 - 1, 1})
	f.segments[0].Memsz = 1 << 62
	file := referenceOf("libc.so.6", f.encode())
	defer file.Close()
	elf, err := file.GetELF()
	assert.NilError(t, err)
	_, err = elf.LookupSymbol("gHotSpotVMTypes")
	assert.ErrorContains(t, err, "no matching segment")
}

// Whatever a file and the memory of a process contain, loaders of runtimes allocate within bounds, and none panics.
func FuzzLoaders(f *testing.F) {
	f.Add(jvmELF(nil, tables(8, 8, 0)...), uint16(0))
	for name := range jvmNumbers() {
		for _, n := range []uint64{1 << 36, 1<<64 - 4} {
			f.Add(jvmELF(map[string]uint64{name: n}, tables(n, n, n)...), uint16(0))
		}
	}
	python := symbolsELF(map[string]uint64{"_PyRuntime": 1 << 36, "PyCode_Type": 1 << 36, "Py_Version": 0x030b0000})
	f.Add(python.encode(), uint16(1))
	f.Add(symbolsELF(v8Versions()).encode(), uint16(2))
	notes := symbolsELF(v8Versions())
	notes.segments = append(notes.segments, elf.Prog64{Type: uint32(elf.PT_NOTE), Off: tablesAt, Filesz: 1 << 40})
	notes.parts[tablesAt] = note(1<<32-1, "")
	f.Add(notes.encode(), uint16(3))
	loaders := []struct {
		name   string
		loader interpreter.Loader
	}{
		{"/usr/lib/libjvm.so", hotspot.GetLoader(hotspot.Config{})},
		{"/usr/lib/libpython3.11.so.1.0", runtimeKinds[0].loader},
		{"/usr/bin/node", runtimeKinds[1].loader},
		{"/usr/bin/program", golang.GetLoader(golang.Config{})},
		{"/usr/lib/libc.so.6", nil},
	}
	f.Fuzz(func(t *testing.T, file []byte, which uint16) {
		const most = 256 << 20
		l := loaders[int(which)%len(loaders)]
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		loadRuntime(l.name, l.loader, file)
		runtime.ReadMemStats(&after)
		assert.Check(t, after.TotalAlloc-before.TotalAlloc < most, "%d bytes", after.TotalAlloc-before.TotalAlloc)
	})
}

// loadRuntime does with a file, which is mapped, what the engine does.
func loadRuntime(name string, loader interpreter.Loader, file []byte) {
	reference := referenceOf(name, file)
	defer reference.Close()
	elf, err := reference.GetELF()
	if err != nil {
		return
	}
	_, _ = elf.GetBuildID()
	_, _ = elf.GetGoBuildID()
	_, _ = deltas.NewProvider().GetIntervalDataForFile(reference)
	if loader == nil {
		_, _ = libc.ExtractLibcInfo(elf)
		return
	}
	var b budget
	b.reset()
	p := newPages()
	p.begin(fileMemory(file))
	p.isWhole = true
	t := &target{budget: &b, pages: p}
	memory := t.GetRemoteMemory()
	if name == "/usr/lib/libjvm.so" && checkJVM(elf, memory, jvmBase) != nil {
		return
	}
	data, err := loader(noTables{}, interpreter.NewLoaderInfo(0, reference, nil))
	if err != nil || data == nil {
		return
	}
	instance, err := data.Attach(noTables{}, libpf.PID(os.Getpid()), jvmBase, memory)
	if err != nil {
		return
	}
	_ = instance.SynchronizeMappings(noTables{}, nil, t, nil)
}
