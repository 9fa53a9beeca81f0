package unwind

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"go.opentelemetry.io/ebpf-profiler/support"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// What is read of a frame that is being made has the function that makes it, or the marker that comes next, and nothing
// that was left there; other frames are as they are.
func TestFunctionCode(t *testing.T) {
	testenv.NeedRoot(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the function is looked for in a register of x86-64")
	}
	program := functionProgram(t)
	const context, function, rdi, left, marker = 0x1001, 0x2001, 0x3001, 0x4001, 0x1e
	for _, c := range []struct {
		name      string
		above     int64  // how far rbp is above rsp
		word      uint64 // below rbp
		code      string
		isCaller  bool
		first     uint64 // what then is the first word: context or marker
		isChanged bool
	}{
		{"with a function", 16, context, "\x50", false, context, false},
		{"with more", 64, context, "\xe8", false, context, false},
		{"of a caller", 0, context, "\x56", true, context, false},
		{"rbp is elsewhere", -8, context, "\x56", false, context, false},
		{"after mov rbp, rsp", 0, left, "\x56", false, v8Tag, true},
		{"after push rsi", 8, context, "\x57", false, v8Tag, true},
		{"in the builtin", 8, 0x7f0000001040, "\x4c\x8b", false, v8Tag, true},
		{"likewise, after an odd address", 8, 0x7f0000001041, "\x4c\x8b", false, v8Tag, true},
		{"before a marker", 0, left, "\x6a\x1e", false, marker, true},
		{"after a marker", 8, marker, "\x48\x83", false, marker, false},
		{"before pop rbp", 0, context, "\x5d", false, context, false},
		{"code that cannot be read", 0, left, "", false, left, false},
	} {
		words := [10]uint64{left, left, left, left, left, left, function, c.word, 7, 8} // rbp: the last but one
		code := append([]byte(c.code), 0)
		pc := addressOf(&code[0])
		if c.code == "" {
			pc = 8
		}
		want := words
		if c.isChanged {
			want = [10]uint64{6: rdi, 7: c.first, 8: 7, 9: 8}
		}
		got := program(&words, map[string]uint64{
			"state.pc": pc, "state.fp": 1 << 20, "state.sp": uint64(1<<20 - c.above), "state.rdi": rdi,
		}, c.isCaller)
		assert.Check(t, got == want, "%s: %x, not %x", c.name, got, want)
	}
}

// functionProgram returns a program that returns what it reads of a frame.
func functionProgram(t *testing.T) func(*[10]uint64, map[string]uint64, bool) [10]uint64 {
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	offsets, err := functionOffsets(full.Types)
	assert.NilError(t, err)
	records := newTable(t, ebpf.Array, full.Maps[recordsMap].ValueSize)
	read := offsets["v8UnwindScratch.fp_ctx"]
	run := newProgram(t, map[string]*ebpf.Map{recordsMap: records}, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
	}, lookUpRecord(-8, "end"), asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Add.Imm(asm.R1, int32(read)),
		asm.Mov.Imm(asm.R2, support.V8FpContextSize+16),
		asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord),
		asm.Ja.Label(v8Slots),
		asm.Return().WithSymbol(v8SlotsBack),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("end"),
		asm.Return(),
	}, functionCode(readUser, -8, offsets))
	return func(words *[10]uint64, state map[string]uint64, isCaller bool) (got [10]uint64) {
		record := make([]byte, full.Maps[recordsMap].ValueSize)
		for member, value := range state {
			binary.LittleEndian.PutUint64(record[offsets[member]:], value)
		}
		if isCaller {
			record[offsets["state.return_address"]] = 1
		}
		assert.NilError(t, records.Put(uint32(0), record))
		result := run(addressOf(words))
		assert.Assert(t, result == 0, "%d", result)
		assert.NilError(t, records.Lookup(uint32(0), &record))
		for i := range got {
			got[i] = binary.LittleEndian.Uint64(record[int(read)+8*i:])
		}
		return got
	}
}

// A function is that which its caller calls, also while it makes its frame, where another one had its frame before. The
// line of that is the call's, or not known.
func TestV8Callers(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the function is looked for in a register of x86-64")
	}
	node := testenv.NeedTool(t, "node")
	e := shareEngine(t)
	e.sample(t)
	j := startBusy(t, node, "--no-opt", "--always-sparkplug", "testdata/calls.js")
	e.synchronize(t, j.target)
	calls, lines := map[string]string{"callsFirst": "first", "callsSecond": "second"}, make(map[string]uint32)
	for i, line := range strings.Split(string(testenv.ReadFile(t, "testdata/calls.js")), "\n") {
		if _, function, ok := strings.Cut(line, " // "); ok {
			lines[function] = uint32(i + 1)
		}
	}
	e.eachWhole(t, j.target, 60, func(frames []Frame) bool {
		if len(frames) < 2 || frames[0].SourceFile == "" || calls[frames[1].Function] == "" {
			return false
		}
		caller := frames[1]
		assert.Check(t, frames[0].Function == calls[caller.Function], "%+v", frames[:2])
		assert.Check(t, caller.Line == 0 || caller.Line == lines[caller.Function], "%+v", frames[:2])
		return true
	})
}
