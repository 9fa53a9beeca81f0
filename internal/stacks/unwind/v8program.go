package unwind

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"go.opentelemetry.io/ebpf-profiler/support"

	"correlator/bpf"
)

// From V8 13 on (Node.js 24), functions have no pointer to their code any more, but a number in a table, which the
// module's program does not know: it then hands over the function alone, without the place in it. So of these
// processes, the program is told that the function's description (SharedFunctionInfo) is its code, and what it
// reads of that is replaced, by instructions that are added to it, with what has it hand over the program counter:
//
//   - In code that was compiled while the process runs, a word of the kind "code", with the description, the low
//     24 bits of the program counter, and the others in the place of the code's size.
//   - In code of V8's own file, a word with the place in the byte code if the frame is that of a function which is
//     interpreted, and as above otherwise.

// v8Program is the program of V8, and v8Table its table.
const (
	v8Program = "perf_unwind_v8"
	v8Table   = "v8_procs"
)

// The words' second variable, as these instructions make it.
const (
	v8LowBits  = 24             // of the program counter, in the code's offset
	v8SizeMark = 1 << 27        // in the code's size: it is more than any offset
	v8HighMask = v8SizeMark - 1 // of the program counter, in the code's size
	v8KindMask = 0xf            // the bits of the kind of code that the words have
)

// Kinds of code, as these instructions make them. The program looks for a place in the byte code in those before
// v8Baseline, which none is.
const (
	v8Interpreted = iota // code of V8's own file, in the frame of a function that is interpreted
	v8Baseline
	v8Compiled // while the process runs
	v8Builtin  // other code of V8's own file
)

// What is replaced has the code's address, size and kind at these offsets.
const (
	v8FakeStart = 0
	v8FakeSize  = 8
	v8FakeKind  = 12
)

// What these instructions take for granted.
const (
	v8MapOffset       = 0   // of a pointer to an object's map in it
	v8TypeOffset      = 12  // of an object's type in its map
	v8ByteCodeAtFrame = -32 // of a pointer to byte code from the frame pointer
	v8TagMask, v8Tag  = 3, 1
	// v8ByteCodeType is where support.V8ProcInfo has nothing, for the type of byte code.
	v8ByteCodeType = 26
)

// handsOverPC changes what the program knows of a process for it to hand over program counters. byteCode is the
// type of V8's objects of byte code.
func handsOverPC(info *support.V8ProcInfo, byteCode uint16) {
	info.Off_JSFunction_code, info.Type_Code = info.Off_JSFunction_shared, info.Type_SharedFunctionInfo
	info.Code_instructions_is_pointer = 1
	info.Off_Code_instruction_start, info.Off_Code_instruction_size = v8FakeStart, v8FakeSize
	info.Off_Code_flags = v8FakeKind
	info.Codekind_shift, info.Codekind_mask, info.Codekind_baseline = 0, v8KindMask, v8Baseline
	info.Pad_cgo_0 = [2]byte{byte(byteCode), byte(byteCode >> 8)}
}

// programCounter returns the program counter in the second variable of a word of the kind "code", and the kind.
func programCounter(variable uint64) (pc uint64, kind uint8) {
	cookie := variable >> 32
	return cookie>>4&v8HighMask<<v8LowBits | variable&(1<<v8LowBits-1), uint8(cookie & v8KindMask)
}

// addProgramCounters adds the instructions to the program of V8: where it reads a function's code.
func addProgramCounters(instructions asm.Instructions, types *btf.Spec) (asm.Instructions, error) {
	const source = "bpf_probe_read_user(scratch->code,"
	code := func(call asm.Instruction, stackEnd int16) (asm.Instructions, error) {
		return programCounterCode(call, stackEnd, types)
	}
	return replaceCall(instructions, source, v8Back, code)
}

// replaceCall replaces the call by which a program reads a process's memory at a line of its source: by instructions,
// which begin with a symbol and go on at another, back. They may have more of the stack, below stackEnd.
func replaceCall(instructions asm.Instructions, source, back string,
	by func(call asm.Instruction, stackEnd int16) (asm.Instructions, error)) (asm.Instructions, error) {
	at := -1
	for i := range instructions {
		isRead := instructions[i].IsBuiltinCall() && instructions[i].Constant == int64(asm.FnProbeReadUser)
		if isRead && strings.Contains(statement(instructions[:i+1]), source) {
			if at >= 0 {
				return nil, fmt.Errorf("the unwinding program has %q in several places", source)
			}
			at = i
		}
	}
	if at < 0 || at+1 == len(instructions) {
		return nil, fmt.Errorf("the unwinding program has no %q", source)
	}
	added, err := by(instructions[at], stackEnd(instructions))
	if err != nil {
		return nil, err
	}
	changed := append(asm.Instructions{}, instructions...)
	changed[at] = asm.Ja.Label(added[0].Symbol())
	changed[at].Metadata = instructions[at].Metadata
	changed[at] = changed[at].WithReference(added[0].Symbol())
	changed[at+1] = changed[at+1].WithSymbol(back)
	return append(changed, added...), nil
}

// statement returns the lines of the source that the last of instructions is of, and those since the call or jump
// before it: a call's arguments may be on others.
func statement(instructions asm.Instructions) (lines string) {
	last := len(instructions) - 1
	for i := last; i >= 0; i-- {
		class := instructions[i].OpCode.Class()
		if lines != "" && i < last && class.IsJump() {
			break
		}
		if line := instructions[i].Source(); line != nil { // a line's first instruction has it
			lines = line.String() + "\n" + lines
		}
	}
	return lines
}

// maxStackOffset is the size of a program's stack.
const maxStackOffset = 512

// Labels of what is added.
const (
	v8Added = "program_counter"
	v8Back  = "program_counter_back"
	v8Done  = "program_counter_done"
	v8Keep  = "program_counter_keep"
)

// stackEnd returns below which offset a program has nothing on its stack.
func stackEnd(instructions asm.Instructions) (end int16) {
	for i, ins := range instructions {
		if ins.OpCode.Class().IsStore() && ins.Dst == asm.RFP || ins.OpCode.Class().IsLoad() && ins.Src == asm.RFP {
			end = min(end, ins.Offset)
		}
		ofFrame := i > 0 && instructions[i-1].OpCode.ALUOp() == asm.Mov && instructions[i-1].Src == asm.RFP
		if ofFrame && ins.OpCode.ALUOp() == asm.Add && ins.Constant < 0 && ins.Constant > math.MinInt16 {
			end = min(end, int16(ins.Constant))
		}
	}
	return end
}

// readOffsets returns the offsets of members of types, by their paths.
func readOffsets(types *btf.Spec, of map[string][]string) (map[string]int16, error) {
	offsets := make(map[string]int16)
	for typeName, paths := range of {
		var of *btf.Struct
		if err := types.TypeByName(typeName, &of); err != nil {
			return nil, fmt.Errorf("reading the unwinding programs' BTF: %w", err)
		}
		for _, path := range paths {
			offset, ok := bpf.OffsetOf(of, path)
			if !ok || offset > math.MaxInt16 {
				return nil, fmt.Errorf("the unwinding programs' %s has no %s", typeName, path)
			}
			offsets[path] = int16(offset)
		}
	}
	return offsets, nil
}

// programCounterCode returns the instructions that are added: the call, and what comes after it.
func programCounterCode(call asm.Instruction, stackEnd int16, types *btf.Spec) (asm.Instructions, error) {
	offsets, err := readOffsets(types, map[string][]string{
		"PerCPURecord": {
			"trace.pid", "state.pc", "state.text_section_id", "v8UnwindScratch.fp_ctx", "v8UnwindScratch.code",
		},
		"V8ProcInfo": {"off_JSFunction_code", "off_JSFunction_shared"},
	})
	if err != nil {
		return nil, err
	}
	key, record, process := stackEnd&^7-8, stackEnd&^7-16, stackEnd&^7-24
	if process < -maxStackOffset {
		return nil, fmt.Errorf("the unwinding program for V8 has no room on its stack")
	}
	code := offsets["v8UnwindScratch.code"]
	frame := offsets["v8UnwindScratch.fp_ctx"] + support.V8FpContextSize
	return slices.Concat(asm.Instructions{
		call.WithMetadata(asm.Metadata{}).WithSymbol(v8Added),
		asm.JNE.Imm(asm.R0, 0, v8Keep),
	}, lookUpRecord(key, v8Keep), lookUpProcess(v8Table, record, key, offsets["trace.pid"], v8Keep), asm.Instructions{
		asm.StoreMem(asm.RFP, process, asm.R0, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, offsets["off_JSFunction_code"], asm.Byte),
		asm.LoadMem(asm.R2, asm.R0, offsets["off_JSFunction_shared"], asm.Byte),
		asm.JNE.Reg(asm.R1, asm.R2, v8Done),
		// The program counter, without its low bits, is the code's start; the others are in its size.
		asm.LoadMem(asm.R0, asm.RFP, record, asm.DWord),
		asm.LoadMem(asm.R2, asm.R0, offsets["state.pc"], asm.DWord),
		asm.RSh.Imm(asm.R2, v8LowBits),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.LSh.Imm(asm.R3, v8LowBits),
		asm.StoreMem(asm.R0, code+v8FakeStart, asm.R3, asm.DWord),
		asm.And.Imm(asm.R2, v8HighMask),
		asm.Or.Imm(asm.R2, v8SizeMark),
		asm.StoreMem(asm.R0, code+v8FakeSize, asm.R2, asm.Word),
		// Code in no file was compiled while the process runs.
		asm.Mov.Imm(asm.R1, v8Compiled),
		asm.StoreMem(asm.R0, code+v8FakeKind, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, asm.R0, offsets["state.text_section_id"], asm.DWord),
		asm.JEq.Imm(asm.R1, 0, v8Done),
		asm.Mov.Imm(asm.R1, v8Builtin),
		asm.StoreMem(asm.R0, code+v8FakeKind, asm.R1, asm.Word),
		// Of a function that is interpreted, the frame has its byte code.
		asm.LoadMem(asm.R3, asm.R0, frame+v8ByteCodeAtFrame, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R3),
		asm.And.Imm(asm.R1, v8TagMask),
		asm.JNE.Imm(asm.R1, v8Tag, v8Done),
		asm.Add.Imm(asm.R3, v8MapOffset-v8Tag),
	}, readToStack(key, 8), asm.Instructions{
		asm.JNE.Imm(asm.R0, 0, v8Done),
		asm.LoadMem(asm.R3, asm.RFP, key, asm.DWord),
		asm.Add.Imm(asm.R3, v8TypeOffset-v8Tag),
	}, readToStack(key, 2), asm.Instructions{
		asm.JNE.Imm(asm.R0, 0, v8Done),
		asm.LoadMem(asm.R1, asm.RFP, key, asm.Half),
		asm.LoadMem(asm.R0, asm.RFP, process, asm.DWord),
		asm.LoadMem(asm.R2, asm.R0, v8ByteCodeType, asm.Half),
		asm.JNE.Reg(asm.R1, asm.R2, v8Done),
		asm.LoadMem(asm.R0, asm.RFP, record, asm.DWord),
		asm.Mov.Imm(asm.R1, v8Interpreted),
		asm.StoreMem(asm.R0, code+v8FakeKind, asm.R1, asm.Word),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(v8Done),
		asm.Ja.Label(v8Back).WithSymbol(v8Keep),
	}), nil
}
