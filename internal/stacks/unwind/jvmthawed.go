package unwind

import (
	"slices"

	"github.com/cilium/ebpf/asm"
)

// A virtual thread that goes on after it has waited has its compiled methods' frames copied to the stack of its
// carrier, below one of Continuation.enterSpecial. The rbp that the outermost of them has saved is of the frame of
// enterSpecial that first ran it, on any carrier at any depth: HotSpot's fast path does not correct it, as the code
// after the call needs rsp only. The module's program takes rbp for a method's frame from the end of that of the callee
// on, up to 48 bytes above its own, and finds no return address there: up to a third of the stacks of virtual threads
// ended (JDK 25; by its sources, that of 21 is alike). So on x86-64, where such an rbp was read, and the code at the
// return address is that after the call, it is made to be no address of the process: then the program goes by the size
// of enterSpecial's frame, which is fixed. On arm64 it may be as well; that was not looked at.

// jvmThawed is the label of what is added.
const jvmThawed = "jvm_thawed"

const (
	// thawedDistance is more than the size of enterSpecial's frame, 80 bytes, and 48.
	thawedDistance = 256

	// What is after the call: a nop of 8 bytes, of which the last 4 are data of the JVM, and two instructions.
	x86PostCallNop = 0x00841f0f
	x86LoadRBX     = 0x245c8b48 // mov rbx, [rsp+x]
	x86StoreRBX    = 0x9f8949   // mov [r15+x], rbx
)

// thawedCode returns the instructions after the reading of a frame's rbp and return address, r2, to where r1 points.
func thawedCode(stack jvmStack) asm.Instructions {
	return slices.Concat(asm.Instructions{
		asm.Mov.Reg(asm.R3, asm.R2).WithSymbol(jvmThawed),
		// how far rbp is above the frame
		asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, stack.address, asm.DWord),
		asm.Sub.Reg(asm.R2, asm.R1),
		asm.JGT.Imm(asm.R2, thawedDistance, jvmStub),
	}, readToStack(stack.window, 16), asm.Instructions{
		asm.LoadMem(asm.R1, asm.RFP, stack.window, asm.Word), // 0 if it could not be read
		asm.JNE.Imm(asm.R1, x86PostCallNop, jvmStub),
		asm.LoadMem(asm.R1, asm.RFP, stack.window+8, asm.Word),
		asm.JNE.Imm(asm.R1, x86LoadRBX, jvmStub),
		asm.LoadMem(asm.R1, asm.RFP, stack.window+12, asm.Word),
		asm.RSh.Imm(asm.R1, 8),
		asm.JNE.Imm(asm.R1, x86StoreRBX, jvmStub),
		asm.LoadMem(asm.R1, asm.RFP, stack.code, asm.DWord),
		asm.StoreImm(asm.R1, 4, -1, asm.Word), // to the upper half: above all addresses of processes
	})
}
