package unwind

import (
	"slices"

	"github.com/cilium/ebpf/asm"
)

// After a garbage collection, compiled methods call a barrier where they begin, each once: a stub of the JVM that
// makes a frame with rbp, and calls the JVM's own code (in JDK 17 with ZGC, in 21 and later with all collectors). On
// x86-64, the stub has pushed -1 before rbp, for a stack pointer that it may be told to return with. The module's
// program takes that for the return address, and the stack ends. The JVM's code has an instruction there that
// virtual machines emulate (cpuid), so it takes 1 to 3 % of the time of a load with many collections.
//
// So where a frame is that of code which is not said to have one, as are these stubs, and its return address is -1, the
// word above it is one, which is noted: the method that is called from there has one word more on its stack. Its frame
// is complete, although it counts as being made. The record in which that is noted is there for all stacks of a CPU, of
// all processes: it counts in the stack with the same time.

// Labels of what is added.
const (
	jvmFrameRead     = "jvm_frame"
	jvmFrameReadBack = "jvm_frame_back"
	jvmFrameReadDone = "jvm_frame_done"
)

// barrierCookie is what the stub pushes.
const barrierCookie = -1

// barrierCode returns the instructions at the reading of a frame's rbp and return address.
func barrierCode(call asm.Instruction, p jvmPlaces) asm.Instructions {
	stack, offsets, scratch := p.stack, p.offsets, p.scratch
	process := lookUpProcess(hotspotMap, stack.record, stack.key, offsets["trace.pid"], jvmFrameReadDone)
	return slices.Concat(asm.Instructions{
		asm.StoreMem(asm.RFP, stack.code, asm.R1, asm.DWord).WithSymbol(jvmFrameRead),
		asm.StoreMem(asm.RFP, stack.address, asm.R3, asm.DWord),
		call.WithMetadata(asm.Metadata{}),
		asm.LoadMem(asm.R1, asm.RFP, stack.code, asm.DWord),
		asm.LoadMem(asm.R2, asm.R1, 8, asm.DWord),
		asm.JNE.Imm(asm.R2, barrierCookie, jvmThawed),
	}, lookUpRecord(stack.key, jvmFrameReadDone), process, asm.Instructions{
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
		// what it is the frame of has no size
		asm.LoadMem(asm.R1, asm.R0, offsets["codeblob_framesize"], asm.Byte),
		asm.Add.Reg(asm.R1, asm.R5),
		asm.LoadMem(asm.R1, asm.R1, offsets["hotspotUnwindScratch.codeblob"], asm.Word),
		asm.JNE.Imm(asm.R1, 0, jvmFrameReadDone),
		asm.LoadMem(asm.R3, asm.RFP, stack.address, asm.DWord),
		asm.Add.Imm(asm.R3, 16),
		asm.Mov.Imm(asm.R2, 8),
		asm.LoadMem(asm.R1, asm.RFP, stack.code, asm.DWord),
		asm.Add.Imm(asm.R1, 8),
		asm.FnProbeReadUser.Call(),
		asm.LoadMem(asm.R0, asm.RFP, stack.record, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, stack.code, asm.DWord),
		asm.LoadMem(asm.R2, asm.R1, 8, asm.DWord),
		asm.StoreMem(asm.R0, scratch+barrierCaller, asm.R2, asm.DWord),
		asm.LoadMem(asm.R2, asm.R0, offsets["trace.ktime"], asm.DWord),
		asm.StoreMem(asm.R0, scratch+barrierTime, asm.R2, asm.DWord),
		asm.Ja.Label(jvmFrameReadDone),
	}, thawedCode(stack), stubCode(stack, offsets), asm.Instructions{
		asm.Mov.Imm(asm.R0, 0).WithSymbol(jvmFrameReadDone),
		asm.Ja.Label(jvmFrameReadBack),
	})
}
