package unwind

import (
	"slices"

	"github.com/cilium/ebpf/asm"
)

// Compiled code calls stubs of the JVM (StubRoutines) that copy, hash, and compute sines. Of their frames no size is
// known: the module's program takes rbp for their frame. But where a stub begins and where it returns, rbp is that of
// its caller, as it is in all of a stub without a frame, and in adapters between compiled and interpreted code.
// Compiled code does not keep it, and often it is that of an interpreted method further up: then all methods between
// are missing. Of short copies, a tenth of the samples are where a stub begins or ends. So on x86-64
//
//   - an innermost frame of unknown size is that of a return address alone at push rbp; mov rbp, rsp and at ret, and of
//     rbp and one at the second of these;
//   - elsewhere, rbp is taken for the frame of what was interrupted only where the call before its return address leads
//     to code nearby that begins with making a frame: else the stack ends;
//   - an adapter's frame is never known.

// Labels of what is added.
const (
	jvmStub        = "jvm_stub"
	jvmStubTarget  = "jvm_stub_target"
	jvmStubDirect  = "jvm_stub_direct"
	jvmStubAdapter = "jvm_stub_adapter"
	jvmStubLost    = "jvm_stub_lost"

	jvmStubFrame  = "jvm_stub_frame"
	jvmStubReturn = "jvm_stub_return"
	jvmSized      = "jvm_sized"
)

const (
	x86MakesFrame = 0xec8b4855 - 1<<32 // push rbp; mov rbp, rsp, as a signed number
	x86Call       = 0xe8
	adapterName   = 'I' | '2'<<8 | 'C'<<16 | '/'<<24 // "I2C/C2I adapters"

	// stubDistance is how far from where it was entered code of a stub may be: they jump to each other's.
	stubDistance = 1 << 14
)

// stubSize returns the instructions that correct the size of an innermost frame, r1, in words, by the code in the
// window, which begins 4 bytes before the program counter. They use r3 and r4.
func stubSize(stack jvmStack) asm.Instructions {
	return asm.Instructions{
		asm.JEq.Imm(asm.R1, 0, jvmStubFrame),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.Add.Imm(asm.R3, 1),
		asm.RSh.Imm(asm.R3, 32),
		asm.JEq.Imm(asm.R3, 0, jvmSized), // not -1, as stubs of C1 say that make a frame with rbp
		asm.Mov.Imm(asm.R1, 0),
		asm.LoadMem(asm.R3, asm.RFP, stack.window+4, asm.Word).WithSymbol(jvmStubFrame), // from the program counter on
		asm.Mov.Reg(asm.R4, asm.R3),
		asm.And.Imm(asm.R4, 0xff),
		asm.JEq.Imm(asm.R4, x86Return, jvmStubReturn),
		asm.LSh.Imm(asm.R3, 32),
		asm.ArSh.Imm(asm.R3, 32),
		asm.JEq.Imm(asm.R3, x86MakesFrame, jvmStubReturn),
		asm.LSh.Imm(asm.R3, 8),
		asm.LoadMem(asm.R4, asm.RFP, stack.window, asm.Word),
		asm.RSh.Imm(asm.R4, 24),
		asm.Or.Reg(asm.R3, asm.R4),
		asm.LSh.Imm(asm.R3, 32),
		asm.ArSh.Imm(asm.R3, 32),
		asm.JNE.Imm(asm.R3, x86MakesFrame, jvmSized),
		asm.Mov.Imm(asm.R1, 2),
		asm.Ja.Label(jvmSized),
		asm.Mov.Imm(asm.R1, 1).WithSymbol(jvmStubReturn),
	}
}

// stubCode returns the instructions after the reading of a frame's rbp and return address, which say that there is none
// where it is not of the code that was interrupted.
func stubCode(stack jvmStack, offsets map[string]int16) asm.Instructions {
	return slices.Concat(asm.Instructions{
		asm.StoreImm(asm.RFP, stack.key, 0, asm.Word).WithSymbol(jvmStub),
	}, lookUp(recordsMap, stack.key, jvmFrameReadDone), asm.Instructions{
		// was rbp taken for the frame?
		asm.LoadMem(asm.R1, asm.R0, offsets["state.fp"], asm.DWord),
		asm.LoadMem(asm.R2, asm.RFP, stack.address, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, jvmFrameReadDone),
	}, lookUpProcess(hotspotMap, stack.record, stack.key, offsets["trace.pid"], jvmFrameReadDone), asm.Instructions{
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, offsets["codeblob_framesize"], asm.Byte),
		asm.Add.Reg(asm.R1, asm.R5),
		asm.LoadMem(asm.R1, asm.R1, offsets["hotspotUnwindScratch.codeblob"], asm.Word),
		asm.JNE.Imm(asm.R1, 0, jvmFrameReadDone), // a method's, which is in range
		asm.LoadMem(asm.R1, asm.R5, offsets["state.return_address"], asm.Byte),
		asm.JNE.Imm(asm.R1, 0, jvmStubAdapter),
		// the call, 16 bytes of code up to its end
		asm.LoadMem(asm.R1, asm.RFP, stack.code, asm.DWord),
		asm.LoadMem(asm.R3, asm.R1, 8, asm.DWord),
		asm.Sub.Imm(asm.R3, 16),
	}, readToStack(stack.window, 16), asm.Instructions{
		asm.JNE.Imm(asm.R0, 0, jvmStubLost),
		asm.LoadMem(asm.R1, asm.RFP, stack.window+11, asm.Byte),
		asm.JEq.Imm(asm.R1, x86Call, jvmStubDirect),
		// mov r10, target; call r10
		asm.LoadMem(asm.R1, asm.RFP, stack.window, asm.DWord),
		asm.LoadMem(asm.R3, asm.RFP, stack.window+8, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R3),
		asm.RSh.Imm(asm.R2, 40),
		asm.JNE.Imm(asm.R2, 0xd2ff41, jvmStubLost),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 24),
		asm.And.Imm(asm.R2, 0xffff),
		asm.JNE.Imm(asm.R2, 0xba49, jvmStubLost),
		asm.RSh.Imm(asm.R1, 40),
		asm.LSh.Imm(asm.R3, 24),
		asm.Or.Reg(asm.R3, asm.R1),
		asm.Ja.Label(jvmStubTarget),
		// call target
		asm.LoadMem(asm.R1, asm.RFP, stack.window+12, asm.Word).WithSymbol(jvmStubDirect),
		asm.LSh.Imm(asm.R1, 32),
		asm.ArSh.Imm(asm.R1, 32),
		asm.LoadMem(asm.R2, asm.RFP, stack.code, asm.DWord),
		asm.LoadMem(asm.R3, asm.R2, 8, asm.DWord),
		asm.Add.Reg(asm.R3, asm.R1),
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord).WithSymbol(jvmStubTarget),
		asm.LoadMem(asm.R1, asm.R5, offsets["state.pc"], asm.DWord),
		asm.Sub.Reg(asm.R1, asm.R3),
		asm.Add.Imm(asm.R1, stubDistance),
		asm.JGT.Imm(asm.R1, 2*stubDistance, jvmStubLost),
	}, readToStack(stack.window, 8), asm.Instructions{
		asm.LoadMem(asm.R1, asm.RFP, stack.window, asm.Word), // 0 if it could not be read
		asm.LSh.Imm(asm.R1, 32),
		asm.ArSh.Imm(asm.R1, 32),
		asm.JEq.Imm(asm.R1, x86MakesFrame, jvmFrameReadDone),
		asm.Ja.Label(jvmStubLost),
		// the name of what calls the JVM's own code
		asm.LoadMem(asm.R1, asm.R0, offsets["codeblob_name"], asm.Byte).WithSymbol(jvmStubAdapter),
		asm.Add.Reg(asm.R1, asm.R5),
		asm.LoadMem(asm.R3, asm.R1, offsets["hotspotUnwindScratch.codeblob"], asm.DWord),
	}, readToStack(stack.window, 8), asm.Instructions{
		asm.LoadMem(asm.R1, asm.RFP, stack.window, asm.Word),
		asm.JNE.Imm(asm.R1, adapterName, jvmFrameReadDone),
		asm.LoadMem(asm.R1, asm.RFP, stack.code, asm.DWord).WithSymbol(jvmStubLost),
		asm.Mov.Imm(asm.R2, 0),
		asm.StoreMem(asm.R1, 8, asm.R2, asm.DWord),
	})
}
