package unwind

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"
	"go.opentelemetry.io/ebpf-profiler/support"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// What is added to the program of JVMs comes before it and is called in some places, and leaves all else as it is; a
// program without these places, or with one of them twice, is not changed.
func TestAddReturnAddresses(t *testing.T) {
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	program := full.Programs[hotspotProgram].Instructions
	for _, c := range []struct {
		add    func(asm.Instructions, *btf.Spec) (asm.Instructions, error)
		places int
		last   string // label of what comes before the program
		others string // architecture whose program has not all of the places
	}{
		{addReturnAddresses, 4, jvmMovedDone, "arm64"},
		{addLinkRegister, 2, armDone, "amd64"},
	} {
		if c.others == runtime.GOARCH {
			continue
		}
		changed, err := c.add(program, full.Types)
		assert.NilError(t, err)
		different, before := 0, slices.IndexFunc(changed, func(ins asm.Instruction) bool {
			return ins.Symbol() == c.last
		})+1
		assert.Check(t, changed[0].Symbol() == hotspotProgram && changed[before].Symbol() == "")
		for i := range program {
			if ins := changed[before+i]; ins.OpCode != program[i].OpCode || ins.Constant != program[i].Constant {
				different++
			}
		}
		assert.Check(t, different == c.places && before > 1 && len(changed) > before+len(program),
			"%d instructions of the program differ", different)
		_, err = c.add(append(program[:len(program):len(program)], program...), full.Types)
		assert.Check(t, err != nil)
		_, err = c.add(full.Programs[v8Program].Instructions, full.Types)
		assert.Check(t, err != nil)
	}
}

// At each instruction that makes a method's frame, or comes between its end and the return, the program is told where
// the return address is. Other instructions are left to it.
func TestReturnAddressCode(t *testing.T) {
	testenv.NeedRoot(t)
	program := returnAddressProgram(t)
	for _, c := range []struct {
		// instructions, each with what is said at it: n no frame, f rbp and return address, c complete
		name, code string
		makes      bool
	}{
		{"C2, with a check of the stack", "n:89842400c0feff n:55 f:4883ec10 c:90", true},
		{"a large frame", "n:89842400c0feff n:55 f:4881ec00010000 c:41817f2001000000 c:0f8500010000", true},
		{"with a barrier", "n:55 f:4883ec20 c:41837f2001 c:0f8500010000", true},
		{"with a barrier far away", "n:55 f:4883ec20 c:4181bf0002000000000000 c:740c 6690 c:e800000000", true},
		{"likewise, short", "n:55 f:4883ec20 c:4183bf0002000000 c:0f8500010000", true},
		{"C2, without a check of the stack", "n:4883ec18 c:48896c2410 c:90", true},
		{"likewise, large", "n:4881ec18010000 c:4889ac2410010000 c:90", true},
		{"with a frame pointer", "n:55 f:488bec f:4883ec10 c:41817f2001000000", true},
		{"with another encoding of it", "n:55 f:4889e5 f:4883ec10 c:41817f2001000000", true},
		{"a check of the class", "n:448b5608 n:493bc2 n:0f8500010000 n:666690", true},
		{"a return", "-:4883c410 f:5d n:493ba750030000 n:0f8700010000 -:c3", false},
		{"with a near poll", "-:4883c410 f:5d n:493b6728 n:0f8700010000 -:c3", false},
		{"a return of JDK 8", "-:4883c410 f:5d n:850512345600 -:c3", false},
		{"with a poll far away", "-:4881c410010000 f:5d n:49ba0010ca38887f0000 -:418502 -:c3", false},
		{"without more than rbp", "f:5d -:850512345600 -:c3", false},
		{"of 11", "-:4883c410 f:5d n:4d8b9708010000 -:418502 -:c3", false},
		{"of 11, near", "f:5d -:4d8b5770 -:418502 -:c3", false},
		{"with an exception", "-:4883c420 f:5d n:e9123456c3 -:f4", false},
		{"with one, large", "-:4881c420010000 f:5d n:e912345600 -:f4", false},
		{"of a native method", "-:c9 -:49837f0800 -:0f8500010000 -:c3", false},
		{"code like leave", "-:4863c9 c:4963c0 -:488bd8 -:488bc1 -:480fafc3", false},
		{"a test like leave", "-:85c9 c:0f8500010000 -:8bc3", false},
		{"likewise, with a byte like ret", "-:85c9 c:0f85000100c3 -:90", false},
		{"a poll behind code like leave", "-:448bc9 c:850512345600 -:3bc3", false},
		{"one of 11", "-:448bc9 c:4d8b9708010000 -:418502 -:3bc3", false},
		{"one of 11, near", "-:448bc9 c:4d8b5770 -:418502 -:3bc3", false},
		{"a check behind code like leave", "-:33c9 c:49837f0800 -:0f8500010000 -:8bc3", false},
		{"code like pop rbp", "-:83c15d c:480fafc3", false},
		{"a jump behind it", "-:83c15d c:e9001000c3", false},
		{"other code", "-:493bc2 -:0f8700010000 f:5d c:90 -:e800000000 -:41817f2001000000", false},
	} {
		code, places := make([]byte, 64), map[int]byte{}
		at := jvmWindow
		for instruction := range strings.FieldsSeq(c.code) {
			said, digits, found := strings.Cut(instruction, ":")
			if !found {
				digits = said
			} else {
				places[at] = said[0]
			}
			bytes, err := hex.DecodeString(digits)
			assert.NilError(t, err)
			at += copy(code[at:], bytes)
		}
		for at, want := range places {
			if c.makes && want == 'c' && code[at] == 0x90 {
				continue // the frame has been made
			}
			assert.Check(t, program(code, at, c.makes) == want, "%s: at %x", c.name, code[at:at+8])
		}
	}
}

// newTable returns a table of one entry.
func newTable(t *testing.T, kind ebpf.MapType, valueSize uint32) *ebpf.Map {
	t.Helper()
	table, err := ebpf.NewMap(&ebpf.MapSpec{Type: kind, KeySize: 4, ValueSize: valueSize, MaxEntries: 1})
	assert.NilError(t, err)
	t.Cleanup(func() { table.Close() })
	return table
}

// newProgram returns what runs instructions, with tables by their names, and some words as the context: r0 at the end.
func newProgram(t *testing.T, tables map[string]*ebpf.Map, instructions ...asm.Instructions) func(...uint64) uint32 {
	t.Helper()
	all := slices.Concat(instructions...)
	for name, table := range tables {
		assert.NilError(t, all.AssociateMap(name, table))
	}
	assert.NilError(t, rlimit.RemoveMemlock()) // before Linux 5.11, programs count; the engine does not run there
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: all})
	assert.NilError(t, err)
	t.Cleanup(func() { program.Close() })
	return func(context ...uint64) uint32 {
		result, err := program.Run(&ebpf.RunOptions{Context: context})
		assert.NilError(t, err)
		return result
	}
}

// readUser stands for the call that instructions are added at.
var readUser = asm.FnProbeReadUser.Call()

// addressOf returns where this process has something.
func addressOf[T any](what *T) uint64 { return uint64(uintptr(unsafe.Pointer(what))) }

// returnAddressProgram returns what the added instructions say of a place in code: '-' for nothing.
func returnAddressProgram(t *testing.T) func(code []byte, at int, makes bool) byte {
	const buffer = -16
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	p, err := newJVMPlaces(full.Types, buffer, methodFields)
	assert.NilError(t, err)
	instructions := asm.Instructions{
		asm.LoadMem(asm.R3, asm.R1, 0, asm.DWord),
		asm.LoadMem(asm.R2, asm.R1, 8, asm.DWord),
		asm.StoreMem(asm.RFP, p.stack.incomplete, asm.R2, asm.Word),
		asm.StoreImm(asm.RFP, buffer+12, 0, asm.Word),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, buffer),
		asm.Mov.Imm(asm.R2, jvmCodeBytes),
		asm.Add.Imm(asm.R3, -jvmCodeBefore),
		asm.Ja.Label(jvmRead),
		asm.LoadMem(asm.R2, asm.RFP, buffer, asm.DWord).WithSymbol(jvmReadBack),
		asm.LoadMem(asm.R3, asm.RFP, buffer+8, asm.DWord),
		asm.JNE.Imm(asm.R0, 0, "failed"),
		// The result: two bytes from the program counter on, and whether there are others.
		asm.Mov.Reg(asm.R0, asm.R2),
		asm.RSh.Imm(asm.R0, 8),
		asm.And.Imm(asm.R0, 0xffff),
		asm.RSh.Imm(asm.R2, 24),
		asm.Or.Reg(asm.R2, asm.R3),
		asm.JEq.Imm(asm.R2, 0, "end"),
		asm.Or.Imm(asm.R0, 1<<16),
		asm.Return().WithSymbol("end"),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("failed"),
		asm.Return(),
	}
	run := newProgram(t, nil, instructions, returnAddressCode(readUser, p))
	return func(code []byte, at int, makes bool) byte {
		incomplete := uint64(0)
		if makes {
			incomplete = 1
		}
		switch result := run(addressOf(&code[at]), incomplete); {
		case result == 0:
			return 'c'
		case result&0xffff == x86PopRBP|x86Return<<8:
			return 'f'
		case result&0xff == x86Return && code[at] != x86Return:
			return 'n'
		case result&0xffff == uint32(binary.LittleEndian.Uint16(code[at:])):
			return '-'
		default:
			return fmt.Sprintf("%x", result)[0]
		}
	}
}

// Of words that may be a return address, only the first is left where the frame is not the innermost.
func TestReturnAddressSearched(t *testing.T) {
	testenv.NeedRoot(t)
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	const buffer = -8 * jvmSearched
	p, err := newJVMPlaces(full.Types, buffer, methodFields)
	assert.NilError(t, err)
	records := newTable(t, ebpf.Array, full.Maps[recordsMap].ValueSize)
	instructions := asm.Instructions{
		asm.LoadMem(asm.R3, asm.R1, 0, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, buffer),
		asm.Mov.Imm(asm.R2, 8*jvmSearched),
		asm.Ja.Label(jvmSearch),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(jvmSearchBack),
	}
	for i := range int16(jvmSearched) { // a decimal digit of the result each
		instructions = append(instructions,
			asm.Mul.Imm(asm.R0, 10),
			asm.LoadMem(asm.R1, asm.RFP, buffer+8*i, asm.DWord),
			asm.Add.Reg(asm.R0, asm.R1))
	}
	run := newProgram(t, map[string]*ebpf.Map{recordsMap: records}, append(instructions, asm.Return()),
		searchCode(readUser, p))
	words := [jvmSearched]uint64{1, 2, 3, 4, 5, 6}
	for isNext, want := range []uint32{123456, 100000} {
		record := make([]byte, full.Maps[recordsMap].ValueSize)
		record[p.offsets["state.return_address"]] = byte(isNext)
		assert.NilError(t, records.Put(uint32(0), record))
		result := run(addressOf(&words))
		assert.Check(t, result == want, "%d", result)
	}
}
