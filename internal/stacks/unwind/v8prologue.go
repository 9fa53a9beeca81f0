package unwind

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// While a function makes its frame, rbp is that of the frame, but the frame has no function yet: what is there was left
// by an earlier call, mostly of another function, and V8's program takes it for the one that runs. In most functions
// that is so at two instructions; those that V8's first compiler has made call a builtin there, which looks at how
// often they were called. So on x86-64, where rsp says that the innermost frame has no function yet,
//
//   - one that begins with a marker has no function: if it was pushed, or is pushed next;
//   - at pop rbp, all of the frame is there still;
//   - else the function is in rdi, by V8's calling convention. Its place is not known.

// Labels of what is added.
const (
	v8Slots      = "slots"
	v8SlotsBack  = "slots_back"
	v8SlotsMake  = "slots_make"
	v8SlotsStore = "slots_store"
	v8SlotsDone  = "slots_done"
	v8SlotsKeep  = "slots_keep"
)

const (
	x86PushByte = 0x6a

	// In what the program reads of a frame: its context, or its marker, and its function. All before them is not there
	// yet, either.
	v8ContextSlot  = support.V8FpContextSize - 8
	v8FunctionSlot = support.V8FpContextSize - 16

	// v8Markers is more than any marker of a frame: addresses are greater.
	v8Markers = 1 << 8
)

// addFunctions adds the instructions to the program of V8: where it reads a frame.
func addFunctions(instructions asm.Instructions, types *btf.Spec) (asm.Instructions, error) {
	offsets, err := functionOffsets(types)
	if err != nil {
		return nil, err
	}
	// The arguments of the call are in the next lines.
	return replaceCall(instructions, "if (bpf_probe_read_user(\n", v8SlotsBack,
		func(call asm.Instruction, stackEnd int16) (asm.Instructions, error) {
			if stackEnd&^7-16 < -maxStackOffset {
				return nil, errors.New("the unwinding program for V8 has no room on its stack")
			}
			return functionCode(call, stackEnd, offsets), nil
		})
}

// functionOffsets returns where there is what functionCode needs.
func functionOffsets(types *btf.Spec) (map[string]int16, error) {
	return readOffsets(types, map[string][]string{
		"PerCPURecord": {
			"state.pc", "state.sp", "state.fp", "state.rdi", "state.return_address", "v8UnwindScratch.fp_ctx",
		},
	})
}

// functionCode returns the instructions at the reading of a frame.
func functionCode(call asm.Instruction, stackEnd int16, offsets map[string]int16) asm.Instructions {
	frame, code := stackEnd&^7-8, stackEnd&^7-16
	load := func(to asm.Register, member string, size asm.Size) asm.Instruction { // r1 = what was read, in the record
		return asm.LoadMem(to, asm.R1, offsets[member]-offsets["v8UnwindScratch.fp_ctx"], size)
	}
	added := slices.Concat(asm.Instructions{
		asm.StoreMem(asm.RFP, frame, asm.R1, asm.DWord).WithSymbol(v8Slots),
		call.WithMetadata(asm.Metadata{}),
		asm.JNE.Imm(asm.R0, 0, v8SlotsKeep),
		asm.LoadMem(asm.R1, asm.RFP, frame, asm.DWord),
		load(asm.R2, "state.return_address", asm.Byte),
		asm.JNE.Imm(asm.R2, 0, v8SlotsDone),
		load(asm.R2, "state.fp", asm.DWord),
		load(asm.R3, "state.sp", asm.DWord),
		asm.Sub.Reg(asm.R2, asm.R3),
		asm.JGE.Imm(asm.R2, 16, v8SlotsDone),
		asm.JLT.Imm(asm.R2, 8, v8SlotsMake),
		asm.LoadMem(asm.R2, asm.R1, v8ContextSlot, asm.DWord),
		asm.JLT.Imm(asm.R2, v8Markers, v8SlotsDone),
		load(asm.R3, "state.pc", asm.DWord).WithSymbol(v8SlotsMake),
	}, readToStack(code, 2), asm.Instructions{
		asm.JNE.Imm(asm.R0, 0, v8SlotsDone),
		asm.LoadMem(asm.R2, asm.RFP, code, asm.Byte),
		asm.JEq.Imm(asm.R2, x86PopRBP, v8SlotsDone),
		asm.LoadMem(asm.R1, asm.RFP, frame, asm.DWord),
		load(asm.R3, "state.rdi", asm.DWord),
		asm.Mov.Imm(asm.R4, v8Tag), // an object, and no marker
		asm.JNE.Imm(asm.R2, x86PushByte, v8SlotsStore),
		asm.LoadMem(asm.R4, asm.RFP, code+1, asm.Byte),
		asm.StoreMem(asm.R1, v8ContextSlot, asm.R4, asm.DWord).WithSymbol(v8SlotsStore),
		asm.StoreMem(asm.R1, v8FunctionSlot, asm.R3, asm.DWord),
		asm.Mov.Imm(asm.R2, 0),
	})
	for slot := int16(0); slot < v8FunctionSlot; slot += 8 {
		added = append(added, asm.StoreMem(asm.R1, slot, asm.R2, asm.DWord))
	}
	return slices.Concat(added, asm.Instructions{
		asm.Mov.Imm(asm.R0, 0).WithSymbol(v8SlotsDone),
		asm.Ja.Label(v8SlotsBack).WithSymbol(v8SlotsKeep),
	})
}
