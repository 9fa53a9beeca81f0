package deltas

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// buildLeaves compiles the Go program of testdata.
func buildLeaves(t testing.TB, toolchain, arch string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "leaves")
	source, err := filepath.Abs("testdata/leaves/main.go")
	assert.NilError(t, err)
	cmd := exec.Command("go", append(append([]string{"build", "-o", program}, flags...), source)...)
	cmd.Dir = dir // outside of our module, which needs another toolchain
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN="+toolchain, "GOARCH="+arch, "GOFLAGS=-trimpath")
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	return program
}

// infoAt returns how the code at an address is unwound.
func infoAt(data *stackdeltatypes.IntervalData, addr uint64) stackdeltatypes.UnwindInfo {
	b := data.Find(addr)
	if b == nil {
		return stackdeltatypes.UnwindInfoInvalid
	}
	after := sort.Search(len(b.Deltas), func(i int) bool { return b.Start+uint64(b.Deltas[i].Offset) > addr })
	if after == 0 {
		return stackdeltatypes.UnwindInfoInvalid
	}
	return b.Deltas[after-1].Info
}

// On arm64, the return address is taken from the register where there is no frame, from the stack where there
// is one, and by frame pointer only between the instruction that sets it and that which restores it: at each
// instruction of the program's own functions.
func TestGoARM64(t *testing.T) {
	ref := pfelf.NewReference(buildLeaves(t, "local", "arm64"), pfelf.SystemOpener)
	defer ref.Close()
	data, err := NewProvider().GetIntervalDataForFile(ref)
	assert.NilError(t, err)
	file, err := ref.GetELF()
	assert.NilError(t, err)
	table, err := readGoTable(file)
	assert.NilError(t, err)
	code := &window{file: file}
	var f goFunction
	checked := make(map[string]int)
	for i := range table.n {
		assert.NilError(t, table.function(i, &f))
		own := false
		for _, name := range []string{"leaf", "small", "large", "huge", "early", "deferred", "work", "closures"} {
			own = own || table.isNamed(&f, "main."+name)
		}
		if !own {
			continue
		}
		size, set, inRegister := int32(0), false, false
		for at := f.start; at < f.end; at += 4 {
			for _, s := range f.sizes {
				if s.from == at {
					i := instructionAt(code, at)
					set = size == 0 && i != saveX29 && i != setX29 || size != 0 && set
					inRegister = size != 0 && inRegister
					size = s.size
				}
			}
			info, want := infoAt(data, at), ""
			switch {
			case size == 0:
				want = "register"
				assert.Check(t, info == stackdeltatypes.UnwindInfoLR, "%x: %+v", at, info)
			case set:
				want = "frame pointer"
				assert.Check(t, info == stackdeltatypes.UnwindInfoFramePointer, "%x: %+v", at, info)
			case inRegister:
				want = "register, frame"
				assert.Check(t, info.AuxBaseReg == support.UnwindRegLr && info.Param == size, "%x: %+v", at, info)
			default:
				want = "stack"
				assert.Check(t, info == returnOnStack(size), "%x: %+v", at, info)
			}
			checked[want]++
			switch instructionAt(code, at) {
			case setX29:
				set = true
			case restoreX29:
				set = false
			case restoreBoth:
				set, inRegister = false, true
			}
		}
	}
	for _, what := range []string{"register", "frame pointer", "register, frame", "stack"} {
		assert.Check(t, checked[what] > 4, checked)
	}
}

// Where compiled code has set a frame pointer for runtime.duffzero, that of the frame is found by it, from the call on
// until it is restored: by code that is put into functions with a frame and without. TestSoakGoCallers runs compilers
// that make such calls.
func TestGoDuffCalls(t *testing.T) {
	program := buildLeaves(t, "local", "amd64")
	b, err := os.ReadFile(program)
	assert.NilError(t, err)
	file, err := pfelf.Open(program)
	assert.NilError(t, err)
	defer file.Close()
	table, err := readGoTable(file)
	assert.NilError(t, err)
	code := slices.Concat(beforeDuff, []byte{1, 2, 3, 4}, afterDuff)
	call := uint64(len(beforeDuff) - 1)
	puts := make(map[uint64][2]stackdeltatypes.UnwindInfo)
	var f goFunction
	for i := range table.n {
		assert.NilError(t, table.function(i, &f))
		for j, s := range f.sizes {
			end := f.end
			if j+1 < len(f.sizes) {
				end = f.sizes[j+1].from
			}
			at := end - uint64(len(code)) - 1
			switch {
			case end-s.from < uint64(len(code))+8: // with what comes before a frame
				continue
			case s.size == 0 && table.isNamed(&f, "main.leaf"):
				puts[at] = [2]stackdeltatypes.UnwindInfo{onStack(0), framelessInDuffCall}
			case s.size > 0 && table.isNamed(&f, "main.large"):
				puts[at] = [2]stackdeltatypes.UnwindInfo{stackdeltatypes.UnwindInfoFramePointer, inDuffCall}
			default:
				continue
			}
			copy(b[fileOffset(file, at):], code)
		}
	}
	assert.Assert(t, len(puts) >= 2, puts)
	assert.NilError(t, os.WriteFile(program, b, 0o700))
	data, _ := extract(t, program)
	for at, want := range puts {
		for offset := range uint64(len(code)) + 1 {
			info, in := infoAt(data, at+offset), offset >= call && offset < uint64(len(code))
			assert.Check(t, !in && info == want[0] || in && info == want[1], "%d bytes from %x: %+v", offset, at, info)
		}
	}
}

// fileOffset returns where in a file the code at an address is.
func fileOffset(file *pfelf.File, addr uint64) uint64 {
	for _, p := range file.Progs {
		if addr-p.Vaddr < p.Filesz {
			return addr - p.Vaddr + p.Off
		}
	}
	return 0
}

// A program of a Go without a table that is known is left as it is; one whose table has no function is no error.
func TestOtherTables(t *testing.T) {
	program := buildLeaves(t, "local", "amd64", "-ldflags=-s -w")
	whole, err := os.ReadFile(program)
	assert.NilError(t, err)
	read := func(change func(header []byte)) (*goTable, error) {
		file, err := pfelf.Open(program)
		assert.NilError(t, err)
		defer file.Close()
		section := file.Section(".gopclntab")
		changed := append([]byte(nil), whole...)
		change(changed[section.Offset:][:headerBytes])
		path := filepath.Join(t.TempDir(), "changed")
		assert.NilError(t, os.WriteFile(path, changed, 0o700))
		other, err := pfelf.Open(path)
		assert.NilError(t, err)
		defer other.Close()
		return readGoTable(other)
	}
	put := func(at int, word uint64) func([]byte) {
		return func(header []byte) { binary.LittleEndian.PutUint64(header[at:], word) }
	}
	table, err := read(func([]byte) {})
	assert.Check(t, err == nil && table != nil && table.n > 1000, err)
	for name, change := range map[string]func([]byte){
		"another magic": func(h []byte) { h[0] = 0xfa }, "32 bits": func(h []byte) { h[7] = 4 },
	} {
		table, err := read(change)
		assert.Check(t, err == nil && table == nil, "%s: %v", name, err)
	}
	for name, change := range map[string]func([]byte){
		"no quantum": func(h []byte) { h[6] = 0 }, "many functions": put(8, 1<<62), "one too many": put(8, 1<<28),
		"functions beyond the end": put(64, 1<<40), "values after functions": put(56, 1<<63),
	} {
		_, err := read(change)
		assert.ErrorIs(t, err, errTable, name)
	}
	_, err = read(put(56, 0))
	assert.Check(t, err, "values from the start on")
}

// Whatever bytes a table has, functions are read within their bounds, or refused.
func FuzzGoFunction(f *testing.F) {
	f.Add([]byte{0, 2, 11, 16, 3, 48, 100, 95, 1, 0}, uint32(1), uint32(0), uint32(200))
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, uint32(1), uint32(0), uint32(9))
	f.Fuzz(func(t *testing.T, values []byte, where, start, end uint32) {
		functions := make([]byte, 2*entryBytes+functionSize)
		binary.LittleEndian.PutUint32(functions, start)
		binary.LittleEndian.PutUint32(functions[4:], 2*entryBytes)
		binary.LittleEndian.PutUint32(functions[entryBytes:], end)
		binary.LittleEndian.PutUint32(functions[2*entryBytes+pcspAt:], where)
		table := goTable{text: 1 << 20, quantum: 1, values: values, functions: functions, n: 1, left: 1000}
		var fn goFunction
		if table.function(0, &fn) != nil {
			return
		}
		assert.Check(t, len(fn.sizes) < 1000, len(fn.sizes))
		to := block{stackdeltatypes.BasicBlock{Start: fn.start}}
		for _, s := range fn.sizes {
			assert.Check(t, fn.start <= s.from && s.from <= fn.end, "%x is not from %x to %x", s.from, fn.start, fn.end)
		}
		compiledX86(&to, &fn, &window{file: &pfelf.File{}})
		compiledARM64(&to, &fn, &window{file: &pfelf.File{}})
	})
}

// A table without a section of its own is found by symbols, and the same comes of it.
func TestTableBySymbols(t *testing.T) {
	program := buildLeaves(t, "local", "amd64")
	renamed := program + ".renamed"
	out, err := exec.Command(testenv.NeedTool(t, "objcopy"), "--rename-section", ".gopclntab=.other", program,
		renamed).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	var all []*stackdeltatypes.IntervalData
	for _, path := range []string{program, renamed} {
		ref := pfelf.NewReference(path, pfelf.SystemOpener)
		data, err := NewProvider().GetIntervalDataForFile(ref)
		assert.NilError(t, err)
		ref.Close()
		all = append(all, data)
	}
	assert.Assert(t, all[0].NumDeltas == all[1].NumDeltas && all[0].NumDeltas > 1000, "%d, %d", all[0].NumDeltas,
		all[1].NumDeltas)
}

// sharing returns a table of Go's functions in which all have the same sizes of their frames.
func sharing(functions, sizes int) *goTable {
	t := &goTable{quantum: 1, values: []byte{0}, n: functions, left: maxSizes}
	for range sizes {
		t.values = append(t.values, 2, 1)
	}
	at := (functions + 1) * entryBytes
	t.functions = make([]byte, at+functionSize)
	for i := range functions + 1 {
		binary.LittleEndian.PutUint32(t.functions[i*entryBytes:], uint32(i*sizes))
		binary.LittleEndian.PutUint32(t.functions[i*entryBytes+4:], uint32(at))
	}
	binary.LittleEndian.PutUint32(t.functions[at+pcspAt:], 1)
	return t
}

// A function with more sizes than one has is refused, and so are functions that have more together, though they share
// the sizes in the table.
func TestTooManySizes(t *testing.T) {
	var f goFunction
	assert.NilError(t, sharing(1, maxFunctionSizes).function(0, &f))
	assert.Check(t, len(f.sizes) == maxFunctionSizes, len(f.sizes))
	assert.ErrorIs(t, sharing(1, maxFunctionSizes+1).function(0, &f), errTooManySizes)
	table, read := sharing(2*maxSizes/maxFunctionSizes, maxFunctionSizes), 0
	var err error
	for i := 0; i < table.n && err == nil; i++ {
		err = table.function(i, &f)
		read += len(f.sizes)
	}
	assert.ErrorIs(t, err, errTooManySizes)
	assert.Check(t, read <= maxSizes, read)
	for tableBytes, want := range map[int]int{0: maxSizes, maxTableBytes: 2 << 20} { // with 64 MiB beside the table
		assert.Check(t, mostSizes(tableBytes) == want, "%d beside %d bytes", mostSizes(tableBytes), tableBytes)
	}
}

// Where a table of Go is damaged, what the engine knows of the file is what there is, and the file is counted.
func TestUncorrected(t *testing.T) {
	path := buildLeaves(t, "local", "amd64")
	own, corrected := extract(t, path)
	assert.Check(t, corrected.Uncorrected == 0)
	file, err := pfelf.Open(path)
	assert.NilError(t, err)
	section := file.Section(".gopclntab")
	table, err := readGoTable(file)
	assert.NilError(t, err)
	_, described := table.entry(table.n - 1)
	end := int64(section.Offset + section.FileSize)
	assert.NilError(t, file.Close())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	assert.NilError(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte{0xff}, 4), end-int64(len(table.functions))+int64(described)+pcspAt)
	assert.NilError(t, err)
	assert.NilError(t, f.Close())
	damaged, provider := extract(t, path)
	assert.Check(t, provider.Uncorrected == 1)
	assert.Check(t, damaged.NumDeltas < own.NumDeltas, "it was corrected")
	plain, err := provider.StackDeltaProvider.GetIntervalDataForFile(pfelf.NewReference(path, pfelf.SystemOpener))
	assert.NilError(t, err)
	plain.Sort()
	assert.DeepEqual(t, damaged, plain)

	// A table that is said to be larger than any is not read.
	b, err := os.ReadFile(path)
	assert.NilError(t, err)
	sections := binary.LittleEndian.Uint64(b[40:]) // e_shoff
	for at := sections; at+64 <= uint64(len(b)); at += 64 {
		if binary.LittleEndian.Uint64(b[at+24:]) == section.Offset { // sh_offset, then sh_size
			binary.LittleEndian.PutUint64(b[at+32:], maxTableBytes+1<<20)
		}
	}
	assert.NilError(t, os.WriteFile(path, b, 0o700))
	file, err = pfelf.Open(path)
	assert.NilError(t, err)
	defer file.Close()
	_, err = readGoTable(file)
	assert.ErrorIs(t, err, errTooLarge)
}

// extract returns how the code of a file is unwound, and who says so.
func extract(t *testing.T, path string) (*stackdeltatypes.IntervalData, *Provider) {
	t.Helper()
	ref := pfelf.NewReference(path, pfelf.SystemOpener)
	defer ref.Close()
	provider := NewProvider()
	data, err := provider.GetIntervalDataForFile(ref)
	assert.NilError(t, err)
	return data, provider
}
