package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/processmanager/ebpfapi"
	"go.opentelemetry.io/ebpf-profiler/support"
	"go.opentelemetry.io/ebpf-profiler/util"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/unwind/deltas"
)

// What gcc has taken out of the interpreter is found, and nothing else that it jumps to.
func TestColdRange(t *testing.T) {
	const start, size, cold = 0x1000, 0x100, 0x5000
	inFrame := support.UnwindInfo{BaseReg: support.UnwindRegSp, Param: 64}
	atEntry := support.UnwindInfo{BaseReg: support.UnwindRegSp, Param: 8}
	data := new(stackdeltatypes.IntervalData)
	for _, block := range []struct {
		start uint64
		info  support.UnwindInfo
	}{
		{start, atEntry}, {cold, inFrame}, {0x6000, inFrame}, {0x7000, atEntry},
		{0x8000, stackdeltatypes.UnwindInfoInvalid},
	} {
		data.Blocks = append(data.Blocks, &stackdeltatypes.BasicBlock{
			Start: block.start, End: block.start + size, Deltas: stackdeltatypes.StackDeltaArray{{Info: block.info}},
		})
	}
	data.Blocks = append(data.Blocks, &stackdeltatypes.BasicBlock{Start: 0x9000, End: 0x9000 + size})
	jumps := func(opcodes string, targets ...uint64) (code []byte) {
		for _, to := range targets {
			code = append(code, opcodes...)
			code = binary.LittleEndian.AppendUint32(code, uint32(to-(start+uint64(len(code))+4)))
		}
		return code
	}
	const jne, jmp, call, unknown = "\x0f\x85", "\xe9", "\xe8", "\x06" // the last was PUSH ES
	found := util.Range{Start: cold, End: cold + size - 1}
	for name, c := range map[string]struct {
		code    []byte
		want    util.Range
		isKnown bool
	}{
		"within":            {jumps(jne, cold, cold+8, start+size-1, start), found, true},
		"the last byte":     {jumps(jne, cold+size-1), found, true},
		"its beginning":     {jumps(jne, cold, cold), util.Range{}, false},
		"two":               {jumps(jne, cold+8, 0x6008), util.Range{}, false},
		"other functions":   {jumps(jne, 0x7008), util.Range{}, false},
		"not to be unwound": {jumps(jne, 0x8008), util.Range{}, false},
		"no way to unwind":  {jumps(jne, 0x9008), util.Range{}, false},
		"nothing":           {jumps(jne, cold+8, 0x500), util.Range{}, false},
		"behind the end":    {jumps(jne, start+size), util.Range{}, false},
		"tail calls":        {slices.Concat(jumps(jmp, cold+8), []byte{0x90}), util.Range{}, true},
		"calls":             {jumps(call, cold+8), util.Range{}, true},
		"unknown first":     {append([]byte(unknown), jumps(jne, cold+8)...), util.Range{}, false},
		"unknown later":     {append(jumps(jne, cold+8), unknown+jne+"\x00\x00\x00\x70"...), found, true},
		"no jump":           {[]byte{0x90, 0xf3, 0x0f, 0x1e, 0xfa, 0xc3}, util.Range{}, true},
		"none":              {nil, util.Range{}, false},
	} {
		code := append(c.code, bytes.Repeat([]byte{0x90}, size)...)[:size]
		if name == "none" {
			code = nil // of what is longer than what is read
		}
		got, isKnown := coldRange(code, start, size, data)
		assert.Check(t, got == c.want && isKnown == c.isKnown, "%s: %#x, %v, want %#x", name, got, isKnown, c.want)
	}
}

// Of what gcc compiles, the rest of the interpreter is found.
func TestColdCode(t *testing.T) {
	if pfelf.CurrentMachine != elf.EM_X86_64 {
		testenv.Missing(t, "the code of PHP's interpreter is in two functions on x86-64 alone")
	}
	path := filepath.Join(t.TempDir(), "libphp.so")
	compile := exec.Command(testenv.NeedTool(t, "gcc"), "-O2", "-shared", "-fPIC", "-x", "c", "-o", path, "-")
	compile.Stdin = strings.NewReader(`
extern void report(int);
int count;
__attribute__((noinline, cold)) void failed(int n) { report(n); report(n + 1); }
void execute_ex(int n) {
	for (int i = 0; i < n; i++) {
		count += i;
		if (__builtin_expect(count == 77, 0)) { failed(i); count = 3; }
		if (__builtin_expect(count == 99, 0)) { failed(i); count = 5; }
	}
}`)
	output, err := compile.CombinedOutput()
	assert.NilError(t, err, "%s", output)
	file := pfelf.NewReference(path, pfelf.SystemOpener)
	defer file.Close()
	h, _ := madeUp()
	uncorrected := uint64(0)
	p := provider{StackDeltaProvider: deltas.NewProvider(), handler: h, uncorrected: &uncorrected}
	_, err = p.GetIntervalDataForFile(file)
	assert.NilError(t, err)
	own, err := elf.Open(path)
	assert.NilError(t, err)
	defer own.Close()
	symbols, err := own.Symbols()
	assert.NilError(t, err)
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "execute_ex.cold" })
	assert.Assert(t, i >= 0, "gcc has taken nothing out")
	found := h.cold
	assert.Check(t, found.Start == symbols[i].Value && found.End == symbols[i].Value+symbols[i].Size-1, "%+v", found)
	other := pfelf.NewReference("/proc/self/exe", pfelf.SystemOpener)
	defer other.Close()
	_, err = p.GetIntervalDataForFile(other)
	assert.NilError(t, err)
	assert.Check(t, h.cold == util.Range{}, "of a file without PHP: %+v", h.cold)
	assert.Check(t, uncorrected == 0)

	f := symbolsELF(map[string]uint64{"execute_ex": 0x06}) // an instruction that is not known
	hidden := referenceOf("libphp.so", f.encode())
	defer hidden.Close()
	p.StackDeltaProvider = noDeltas{}
	_, err = p.GetIntervalDataForFile(hidden)
	assert.NilError(t, err)
	assert.Check(t, h.cold == util.Range{} && uncorrected == 1, "%+v, %d", h.cold, uncorrected)
}

// noDeltas knows nothing of any file.
type noDeltas struct {
	nativeunwind.StackDeltaProvider
}

func (noDeltas) GetIntervalDataForFile(*pfelf.Reference) (*stackdeltatypes.IntervalData, error) {
	return new(stackdeltatypes.IntervalData), nil
}

// A block in which another function begins is not the interpreter's alone, nor one of which that is not known.
func TestBeginsWithin(t *testing.T) {
	const address = 0x2000
	header := func(encodings string, count uint32, starts ...int32) []byte {
		b := binary.LittleEndian.AppendUint32(append([]byte(encodings), 0, 0, 0, 0), count)
		for _, start := range starts {
			b = binary.LittleEndian.AppendUint32(b, uint32(start-address))
			b = append(b, 0, 0, 0, 0)
		}
		return b
	}
	const usual = "\x01\x1b\x03\x3b"
	in := util.Range{Start: 0x1000, End: 0x10ff}
	for name, c := range map[string]struct {
		header []byte
		want   bool
	}{
		"none":              {header(usual, 0), false},
		"this one":          {header(usual, 3, 0xfff, 0x1000, 0x1100), false},
		"another":           {header(usual, 3, 0x1000, 0x1001, 0x1100), true},
		"at the end":        {header(usual, 2, 0x1000, 0x10ff), true},
		"fewer than it has": {header(usual, 1, 0x1000, 0x1001), false},
		"more than it has":  {header(usual, 2, 0x1000), true},
		"other numbers":     {header("\x01\x1b\x03\x3c", 1, 0x1000), true},
		"too short":         {header(usual, 0)[:11], true},
	} {
		assert.Check(t, beginsWithin(c.header, address, in) == c.want, name)
	}
}

// A function that says to have all of the address space is read as far as it may be.
func TestInterpreterCodeHostile(t *testing.T) {
	for _, size := range []uint64{maxInterpreter + 1, 1<<63 - 1, 1 << 63, math.MaxUint64} {
		f := symbolsELF(map[string]uint64{"execute_ex": 0})
		f.segments[0].Memsz = 1 << 62
		binary.LittleEndian.PutUint64(f.parts[symbolsAt][24+16:], size)
		file := referenceOf("libphp.so", f.encode())
		program, err := file.GetELF()
		assert.NilError(t, err)
		code, symbol, err := interpreterCode(program)
		assert.NilError(t, err)
		assert.Check(t, len(code) == maxInterpreter && symbol.Size == size, "%#x: %d bytes", size, len(code))
		file.Close()
	}
}

// Where the rest of an interpreter is goes with the file that was read last, if that is PHP.
func TestColdCodeStored(t *testing.T) {
	testenv.NeedRoot(t)
	h, _ := madeUp()
	h.tables, h.newTable = newFileTables(t)
	offsets, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Hash, KeySize: 8, ValueSize: uint32(unsafe.Sizeof(support.OffsetRange{})), MaxEntries: 8,
	})
	assert.NilError(t, err)
	defer offsets.Close()
	h.offsets = offsets
	h.data.switchOn = func(*runtimeKind) (*ebpf.Map, error) { return offsets, nil }
	h.begin("user")
	own, cold, other := util.Range{Start: 1, End: 2}, util.Range{Start: 8, End: 9}, util.Range{Start: 5, End: 6}
	for i, c := range []struct {
		program uint16
		cold    util.Range
		ranges  []util.Range
		second  util.Range
	}{
		{support.ProgUnwindPHP, cold, []util.Range{own}, cold},
		{support.ProgUnwindPHP, util.Range{}, []util.Range{own}, util.Range{}},
		{support.ProgUnwindPHP, cold, []util.Range{own, other}, other},
		{support.ProgUnwindPython, cold, []util.Range{own}, util.Range{}},
	} {
		file := host.FileID(i + 1)
		_, err := h.UpdateExeIDToStackDeltas(file, make([]ebpfapi.StackDeltaEBPF, 300))
		assert.NilError(t, err)
		h.setColdCode(c.cold)
		assert.NilError(t, h.UpdateInterpreterOffsets(c.program, file, c.ranges))
		var stored support.OffsetRange
		assert.NilError(t, offsets.Lookup(uint64(file), unsafe.Pointer(&stored)))
		first := util.Range{Start: stored.Lower_offset1, End: stored.Upper_offset1}
		second := util.Range{Start: stored.Lower_offset2, End: stored.Upper_offset2}
		assert.Check(t, first == own && second == c.second && stored.Program_index == c.program, "%d: %+v", i, stored)
	}
	assert.NilError(t, h.flush())
}
