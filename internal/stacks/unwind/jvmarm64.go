package unwind

import (
	"math"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// On arm64, of most stubs (see jvmstub.go) the engine knows where they begin, and takes from their first instructions
// whether they have a frame, for all of the stub. Of others it takes x29 for their frame. C2's code has x29 for its own
// use: so a stack ends there, or, where x29 is still that of an interpreted method, all between are missing. And
// String.indexOf, as C2 compiles it (see jvmmoved.go), has a table of 256 bytes on the stack.
//
// So what is to come at an innermost frame is followed, from the program counter on, on one of the ways that lead from
// there: branches with a condition are taken if they lead forward, which is where loops end. Whatever way the code will
// take, what it does with the stack on this one tells where that is now. The first of these decides:
//
//   - it returns, or makes a frame: the return address is in x30, if nothing on the way has changed that, or sp, but by
//     loading registers that are on the stack;
//   - it removes a frame (mov sp, x29): x29 is that of its frame, if nothing on the way has changed it;
//   - it frees 256 bytes, but not those of a method's frame: it is indexOf, and these are on the stack.
//
// If that says nothing of a stub, and the engine knows nothing of it (in JDK 25 of none: it does not find where a JVM
// has their addresses), x29 is that of its frame if the call before its return address leads to code nearby that begins
// with making one; else the stack ends. Code that C1 calls, if it begins with making a frame, has that until it
// returns, or removes it to jump by a register (when it has changed code): where such a jump decides, the stack ends.
// Its frame's size is said to be -1, which the engine would take for one, of 4 GiB.
//
// A method makes its frame by sub sp, sp, N; stp x29, x30, [sp, N-16], or, if that is large or the method is native, by
// stp x29, x30, [sp, -16]!; sub sp, sp, N-16. The engine takes the last instruction before the frame counts as made for
// this stp, and sp for unmoved before. But a barrier may come between (in 17 with ZGC, by its sources in 21 and later
// with all collectors): the caller is right then, and that one's caller is read N bytes below where it is. So what
// comes before the program counter says how far it is.

const (
	// armSteps is how many instructions are followed. In JDK 17, that is enough in stubs, but in some that the engine
	// knows: those that encrypt or hash, and sines.
	armSteps = 64

	armIndexWords = 256 / 8

	// armBarrier is how many instructions there are at most from where a frame is made to the last of a barrier.
	armBarrier = 16

	// armStubFrame is how far the frame of a stub may be above sp.
	armStubFrame = 1 << 12

	// What is kept in memory that the program does not use: see movedScratch.
	armInstruction = 0
	armBefore      = 8  // the one before it
	armChanged     = 16 // 1: x30 or sp was
	armLoaded      = 24 // how many words were loaded from sp on, which has moved by them
	armFound       = 32 // what decides
	armCode        = 40 // so many instructions before the program counter, and that at it; or behind a call

	// What decides: what the engine has of a stub beside the address of a table.
	armUnknown = 0
	armIndexOf = 1 // of a method

	armJumpsOn   = 2 // by a register
	armBehindEnd = 3 // of a method's frame

	armLink   = 1 << support.HSTSIDIsStubBit
	armPushed = armLink | 2<<support.HSTSIDStackDeltaBit // and so many words are on the stack
	armFrame  = armLink | 1<<support.HSTSIDHasFrameBit
)

// Instructions, as signed numbers.
const (
	armReturns     = 0xd65f03c0 - 1<<32 // ret
	armPushesFrame = 0xa9bf7bfd - 1<<32 // stp x29, x30, [sp, #-16]!
	armSetsFrame   = 0x910003fd - 1<<32 // mov x29, sp
	armLeavesFrame = 0x910003bf - 1<<32 // mov sp, x29
	armPopsFrame   = 0xa8c17bfd - 1<<32 // ldp x29, x30, [sp], #16
	armFreesTable  = 0x910403ff - 1<<32 // add sp, sp, #256
	armLoadsFrame  = 0xa9407bfd - 1<<32 // ldp x29, x30, [sp, #x]
	armSavesFrame  = 0xa9007bfd         // stp x29, x30, [sp, #x], unsigned
	armGrowsFrame  = 0xd10003ff         // sub sp, sp, #x, likewise
	armGrowsLarge  = 0xcb2863ff - 1<<32 // sub sp, sp, x8

	armMakesFrame = 0x910003fd_a9bf7bfd - 1<<64 // stp x29, x30, [sp, #-16]!; mov x29, sp
)

// Labels of what is added.
const (
	armNext    = "jvm_arm64_next"
	armMakes   = "jvm_arm64_makes"
	armLinked  = "jvm_arm64_link"
	armSets    = "jvm_arm64_sets"
	armLeaves  = "jvm_arm64_leaves"
	armPops    = "jvm_arm64_pops"
	armFrees   = "jvm_arm64_frees"
	armJumped  = "jvm_arm64_jumped"
	armStore   = "jvm_arm64_store"
	armDone    = "jvm_arm64_done"
	armBlob    = "jvm_arm64_blob"
	armStub    = "jvm_arm64_stub"
	armEnds    = "jvm_arm64_ends"
	armSay     = "jvm_arm64_say"
	armBack    = "jvm_arm64_back"
	armGoOn    = "jvm_arm64_go_on"
	armNothing = "jvm_arm64_nothing"

	armMethod    = "jvm_arm64_method"
	armStart     = "jvm_arm64_start"
	armSaved     = "jvm_arm64_saved"
	armMade      = "jvm_arm64_made"
	armPushedNow = "jvm_arm64_pushed_now"
	armPushedOld = "jvm_arm64_pushed_old"

	armOfC1      = "jvm_arm64_of_c1"
	armOfC1Start = "jvm_arm64_of_c1_start"
	armFramed    = "jvm_arm64_framed"
	armLost      = "jvm_arm64_lost"
)

// Names of code, the first 4 bytes.
const (
	nameMethod      = 'n' | 'm'<<8 | 'e'<<16 | 't'<<24
	nameNative      = 'n' | 'a'<<8 | 't'<<16 | 'i'<<24
	nameInterpreter = 'I' | 'n'<<8 | 't'<<16 | 'e'<<24
	nameVtable      = 'v' | 't'<<8 | 'a'<<16 | 'b'<<24
)

// addLinkRegister adds to the program of JVMs, on arm64, that it follows what is to come at an innermost frame, and
// uses that when it has read what the code is of.
func addLinkRegister(instructions asm.Instructions, types *btf.Spec) (asm.Instructions, error) {
	p, err := newJVMPlaces(types, stackEnd(instructions), armFields)
	if err != nil {
		return nil, err
	}
	for _, reading := range []struct {
		what, back string
		code       func(call asm.Instruction, p jvmPlaces) asm.Instructions
	}{{"scratch->codeblob", armBack, armBlobCode}, {"window", armEndBack, armEndCode}} {
		instructions, err = replaceCall(instructions, "bpf_probe_read_user("+reading.what+",", reading.back,
			func(call asm.Instruction, _ int16) (asm.Instructions, error) { return reading.code(call, p), nil })
		if err != nil {
			return nil, err
		}
	}
	added := slices.Concat(asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // the context
	}, lookUpRecord(p.stack.key, armDone), asm.Instructions{
		asm.LoadMem(asm.R1, asm.R0, p.offsets["state.return_address"], asm.Byte),
		asm.JNE.Imm(asm.R1, 0, armDone),
		asm.LoadMem(asm.R8, asm.R0, p.offsets["state.pc"], asm.DWord),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.Add.Imm(asm.R7, int32(p.scratch)),
	}, armFollow())
	return addBefore(instructions, append(added, asm.Mov.Reg(asm.R1, asm.R6).WithSymbol(armDone))), nil
}

// armFields are those that the added instructions need.
var armFields = map[string][]string{
	"PerCPURecord": {
		"trace.pid", "state.pc", "state.sp", "state.fp", "state.lr", "state.return_address", "state.text_section_id",
		"hotspotUnwindScratch.codeblob",
	},
	"HotspotProcInfo": {
		"codeblob_codestart", "codeblob_framecomplete", "codeblob_framesize", "codeblob_name", "nmethod_uses_offsets",
	},
}

// armFollow returns the instructions that follow code from r8 on, with memory at r7. They leave r6 alone.
//
// No branch comes back to the loop, since the verifier would follow that again and again.
func armFollow() asm.Instructions {
	code := asm.Instructions{
		asm.Mov.Imm(asm.R1, armUnknown),
		asm.StoreMem(asm.R7, armFound, asm.R1, asm.DWord),
		asm.StoreMem(asm.R7, armChanged, asm.R1, asm.DWord),
		asm.StoreMem(asm.R7, armLoaded, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.Sub.Imm(asm.R3, 4),
		asm.Mov.Imm(asm.R2, 4),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, armBefore),
		asm.FnProbeReadUser.Call(), // 0 if it could not be read
		asm.Mov.Imm(asm.R9, armSteps),
		asm.Mov.Reg(asm.R3, asm.R8).WithSymbol(armNext),
		asm.Mov.Imm(asm.R2, 4),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.FnProbeReadUser.Call(),
		asm.JNE.Imm(asm.R0, 0, armDone),
		asm.LoadMem(asm.R1, asm.R7, armInstruction, asm.Word),
		asm.JEq.Imm32(asm.R1, armReturns, armLinked),
		asm.JEq.Imm32(asm.R1, armPushesFrame, armMakes),
		asm.JEq.Imm32(asm.R1, armSetsFrame, armSets),
		asm.JEq.Imm32(asm.R1, armLeavesFrame, armLeaves),
		asm.JEq.Imm32(asm.R1, armPopsFrame, armPops),
		asm.JEq.Imm32(asm.R1, armFreesTable, armFrees),
	}
	// is sets a bit of a register if some of the instruction's bits are these.
	is := func(to asm.Register, of, bits uint32) {
		code = append(code,
			asm.Mov.Reg(asm.R2, asm.R1),
			asm.And.Imm32(asm.R2, int32(of)),
			asm.Xor.Imm32(asm.R2, int32(bits)),
			asm.Sub.Imm(asm.R2, 1),
			asm.RSh.Imm(asm.R2, 63),
			asm.Or.Reg(to, asm.R2))
	}
	code = append(code,
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.And.Imm32(asm.R2, 0xfffffc1f-1<<32),
		asm.JEq.Imm32(asm.R2, armJumps, armJumped))
	// Where it goes on is not known, or nowhere: other branches to registers, exceptions, and what is no instruction.
	code = append(code, asm.Mov.Imm(asm.R4, 0))
	is(asm.R4, 0xfe200000, 0xd6000000)
	is(asm.R4, 0xff000000, 0xd4000000)
	is(asm.R4, 0xffff0000, 0)
	// A vector's element, or a floating-point number, in one of the last four registers: JVMs do not do that.
	is(asm.R4, 0xbfe0ec1c, 0x0e002c1c)
	is(asm.R4, 0x5f22fc1c, 0x1e20001c)
	is(asm.R4, 0x5f27fc1c, 0x1e26001c)
	// It sets x29: r5 = the register that it sets, or, if it is a branch or of vectors, more than any.
	const noRegister = 1<<0b1010 | 1<<0b1011 | 1<<0b0110 | 1<<0b1110 | 1<<0b0111 | 1<<0b1111
	code = append(code,
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 25),
		asm.And.Imm(asm.R2, 0xf),
		asm.Mov.Imm(asm.R5, noRegister),
		asm.RSh.Reg(asm.R5, asm.R2),
		asm.And.Imm(asm.R5, 1),
		asm.LSh.Imm(asm.R5, 5),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.And.Imm(asm.R2, 0x1f),
		asm.Or.Reg(asm.R5, asm.R2),
		asm.JEq.Imm(asm.R5, 29, armDone))
	is(asm.R4, 0x1e007c00, 0x08000000|29<<10) // as the second of two
	code = append(code, asm.JNE.Imm(asm.R4, 0, armDone))
	// r3 = 1 if it loads two registers from sp on, and moves that behind them, r4 = 1 if it changes x30, or sp
	// otherwise
	code = append(code, asm.Mov.Imm(asm.R3, 0))
	is(asm.R3, 0xffe003e0, 0xa8c003e0)
	is(asm.R3, 0xffe003e0, 0x6cc003e0)
	is(asm.R4, 0x3a8003e0, 0x288003e0) // a load or store of two that moves sp
	code = append(code,
		asm.Xor.Reg(asm.R4, asm.R3),
		asm.Xor.Imm(asm.R5, 30),
		asm.Sub.Imm(asm.R5, 1),
		asm.RSh.Imm(asm.R5, 63),
		asm.Or.Reg(asm.R4, asm.R5))
	is(asm.R4, 0x1e007c00, 0x08000000|30<<10)
	is(asm.R4, 0xfc000000, 0x94000000) // bl
	is(asm.R4, 0xfe200000, 0xd6200000) // blr
	is(asm.R4, 0x3b2007e0, 0x380007e0) // a load or store of one
	is(asm.R4, 0xbe8003e0, 0x0c8003e0) // of vectors
	is(asm.R4, 0x3f80001f, 0x1100001f) // add or sub, of a number
	is(asm.R4, 0x3fe0001f, 0x0b20001f) // of a register
	is(asm.R4, 0xbf80001f, 0x9200001f) // and
	code = append(code,
		asm.LoadMem(asm.R2, asm.R7, armChanged, asm.DWord),
		asm.Or.Reg(asm.R2, asm.R4),
		asm.StoreMem(asm.R7, armChanged, asm.R2, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 15),
		asm.And.Imm(asm.R2, 0x3f),
		asm.Mul.Reg(asm.R3, asm.R2),
		asm.LoadMem(asm.R2, asm.R7, armLoaded, asm.DWord),
		asm.Add.Reg(asm.R3, asm.R2),
		asm.StoreMem(asm.R7, armLoaded, asm.R3, asm.DWord),
		asm.StoreMem(asm.R7, armBefore, asm.R1, asm.Word))
	// goesTo moves r8 as branches of some kind do, before the next instruction.
	goesTo := func(left, right, mask int32, branches ...[2]uint32) {
		code = append(code, asm.Mov.Imm(asm.R4, 0))
		for _, b := range branches {
			is(asm.R4, b[0], b[1])
		}
		code = append(code,
			asm.Mov.Reg(asm.R3, asm.R1),
			asm.LSh.Imm(asm.R3, left),
			asm.ArSh.Imm(asm.R3, right),
			asm.And.Imm(asm.R3, mask),
			asm.Sub.Imm(asm.R3, 4),
			asm.Mul.Reg(asm.R3, asm.R4),
			asm.Add.Reg(asm.R8, asm.R3))
	}
	goesTo(38, 36, -1, [2]uint32{0xfc000000, 0x14000000})                                       // b
	goesTo(0, 3, 0xffffc, [2]uint32{0xff800010, 0x54000000}, [2]uint32{0x7e800000, 0x34000000}) // b.cond, cbz
	goesTo(0, 3, 0x7ffc, [2]uint32{0x7e040000, 0x36000000})                                     // tbz
	return append(code,
		asm.Add.Imm(asm.R8, 4),
		asm.Sub.Imm(asm.R9, 1),
		asm.JNE.Imm(asm.R9, 0, armNext),
		asm.Ja.Label(armDone),

		asm.LoadMem(asm.R1, asm.R7, armLoaded, asm.DWord).WithSymbol(armMakes),
		asm.JNE.Imm(asm.R1, 0, armDone),
		asm.LoadMem(asm.R1, asm.R7, armChanged, asm.DWord).WithSymbol(armLinked),
		asm.JNE.Imm(asm.R1, 0, armDone),
		asm.LoadMem(asm.R2, asm.R7, armLoaded, asm.DWord),
		asm.JGT.Imm(asm.R2, support.HSTSIDStackDeltaMask, armDone),
		asm.LSh.Imm(asm.R2, support.HSTSIDStackDeltaBit),
		asm.LoadImm(asm.R1, math.MinInt64, asm.DWord), // armLink
		asm.Or.Reg(asm.R1, asm.R2),
		asm.Ja.Label(armStore),
		// What decides is not followed: if it comes before, this is the first instruction.
		asm.LoadMem(asm.R1, asm.R7, armBefore, asm.Word).WithSymbol(armSets),
		asm.JNE.Imm32(asm.R1, armPushesFrame, armDone),
		asm.LoadImm(asm.R1, armPushed-1<<64, asm.DWord),
		asm.Ja.Label(armStore),
		asm.LoadMem(asm.R1, asm.R7, armBefore, asm.Word).WithSymbol(armPops),
		asm.JNE.Imm32(asm.R1, armLeavesFrame, armDone),
		asm.LoadImm(asm.R1, armFrame-1<<64, asm.DWord).WithSymbol(armLeaves),
		asm.Ja.Label(armStore),
		asm.LoadMem(asm.R1, asm.R7, armChanged, asm.DWord).WithSymbol(armFrees),
		asm.LoadMem(asm.R2, asm.R7, armLoaded, asm.DWord),
		asm.Or.Reg(asm.R1, asm.R2),
		asm.JNE.Imm(asm.R1, 0, armDone),
		asm.LoadMem(asm.R1, asm.R7, armBefore, asm.Word),
		asm.And.Imm32(asm.R1, 0xffc07fff-1<<32),
		asm.JEq.Imm32(asm.R1, armLoadsFrame, armDone),
		asm.Mov.Imm(asm.R1, armIndexOf),
		asm.Ja.Label(armStore),
		asm.Mov.Imm(asm.R1, armJumpsOn).WithSymbol(armJumped),
		asm.StoreMem(asm.R7, armFound, asm.R1, asm.DWord).WithSymbol(armStore),
	)
}

// armBlobCode returns the instructions at the reading of what code is of.
func armBlobCode(call asm.Instruction, p jvmPlaces) asm.Instructions {
	stack, offsets, scratch := p.stack, p.offsets, p.scratch
	blob := offsets["hotspotUnwindScratch.codeblob"]
	process := lookUpProcess(hotspotMap, stack.record, stack.key, offsets["trace.pid"], armNothing)
	ofC1 := lookUpRecord(stack.key, armNothing)
	ofC1[0] = ofC1[0].WithSymbol(armOfC1)
	return slices.Concat(asm.Instructions{
		asm.StoreMem(asm.RFP, stack.code, asm.R3, asm.DWord).WithSymbol(armBlob),
		call.WithMetadata(asm.Metadata{}),
		asm.JNE.Imm(asm.R0, 0, armGoOn),
	}, lookUpRecord(stack.key, armNothing), process, asm.Instructions{
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, offsets["codeblob_framesize"], asm.Byte),
		asm.Add.Reg(asm.R1, asm.R5),
		asm.StoreMem(asm.RFP, stack.address, asm.R1, asm.DWord),
		asm.LoadMem(asm.R2, asm.R5, offsets["state.return_address"], asm.Byte),
		asm.JNE.Imm(asm.R2, 0, armCaller),
		asm.LoadMem(asm.R1, asm.R0, offsets["codeblob_name"], asm.Byte),
		asm.Add.Reg(asm.R1, asm.R5),
		asm.LoadMem(asm.R3, asm.R1, blob, asm.DWord),
	}, readToStack(stack.window, 8), asm.Instructions{
		// r1 = the name, r2 = where the size of its frame is, r3 = that, r4 = what is to come, r5 = the record
		asm.LoadMem(asm.R1, asm.RFP, stack.window, asm.Word), // 0 if it could not be read
		asm.LoadMem(asm.R2, asm.RFP, stack.address, asm.DWord),
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
		asm.LoadMem(asm.R3, asm.R2, blob, asm.Word),
		asm.LoadMem(asm.R4, asm.R5, scratch+armFound, asm.DWord),
		asm.JEq.Imm(asm.R1, nameNative, armMethod),
		asm.JNE.Imm(asm.R1, nameMethod, armStub),
		asm.JNE.Imm(asm.R4, armIndexOf, armMethod),
		asm.Add.Imm(asm.R3, armIndexWords),
		asm.StoreMem(asm.R2, blob, asm.R3, asm.Word),
		asm.Ja.Label(armNothing),
		asm.JEq.Imm(asm.R1, nameInterpreter, armNothing).WithSymbol(armStub),
		asm.JEq.Imm(asm.R1, nameVtable, armNothing),
		asm.LoadMem(asm.R1, asm.R5, offsets["state.text_section_id"], asm.DWord),
		asm.JEq.Imm32(asm.R3, -1, armOfC1), // if it is not known
		// Else its size is not known if it is 0. Others may be entered from a signal handler, as after a call
		// (SafepointBlob), or replace frames (DeoptimizationBlob).
		asm.JNE.Imm(asm.R3, 0, armNothing),
		asm.JSLT.Imm(asm.R4, 0, armSay),
		asm.JSLT.Imm(asm.R1, 0, armNothing), // the engine knows it
		// where x29 is the address of a frame, its return address
		asm.LoadMem(asm.R3, asm.R5, offsets["state.fp"], asm.DWord),
		asm.LoadMem(asm.R2, asm.R5, offsets["state.sp"], asm.DWord),
		asm.Mov.Reg(asm.R4, asm.R3),
		asm.Sub.Reg(asm.R4, asm.R2),
		asm.JGT.Imm(asm.R4, armStubFrame, armEnds),
		asm.Add.Imm(asm.R3, 8),
	}, readToStack(stack.window, 8), asm.Instructions{
		asm.JNE.Imm(asm.R0, 0, armLost),
		// the call before that
		asm.LoadMem(asm.R3, asm.RFP, stack.window, asm.DWord),
		asm.Sub.Imm(asm.R3, 4),
		asm.StoreMem(asm.RFP, stack.address, asm.R3, asm.DWord),
	}, readToStack(stack.window, 4), asm.Instructions{
		asm.JNE.Imm(asm.R0, 0, armLost),
		asm.LoadMem(asm.R1, asm.RFP, stack.window, asm.Word),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 26),
		asm.JNE.Imm(asm.R2, armCall, armLost),
		// where that goes to
		asm.LSh.Imm(asm.R1, 38),
		asm.ArSh.Imm(asm.R1, 36),
		asm.LoadMem(asm.R3, asm.RFP, stack.address, asm.DWord),
		asm.Add.Reg(asm.R3, asm.R1),
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
		asm.LoadMem(asm.R1, asm.R5, offsets["state.pc"], asm.DWord),
		asm.Sub.Reg(asm.R1, asm.R3),
		asm.Add.Imm(asm.R1, stubDistance),
		asm.JGT.Imm(asm.R1, 2*stubDistance, armLost),
	}, readToStack(stack.window, 8), asm.Instructions{
		asm.JNE.Imm(asm.R0, 0, armLost),
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
		asm.LoadMem(asm.R1, asm.R5, offsets["state.text_section_id"], asm.DWord),
		asm.LoadMem(asm.R2, asm.RFP, stack.window, asm.DWord),
		asm.LoadImm(asm.R3, armMakesFrame, asm.DWord),
		asm.JEq.Reg(asm.R2, asm.R3, armFramed),
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord).WithSymbol(armLost),
		asm.LoadMem(asm.R1, asm.R5, offsets["state.text_section_id"], asm.DWord),
		// Without a return address, the stack ends.
		asm.Mov.Imm(asm.R4, 0).WithSymbol(armEnds),
		asm.StoreMem(asm.R5, offsets["state.lr"], asm.R4, asm.DWord),
		asm.LoadImm(asm.R4, math.MinInt64, asm.DWord), // armLink
		asm.LSh.Imm(asm.R1, 64-support.HSTSIDStackDeltaBit).WithSymbol(armSay),
		asm.RSh.Imm(asm.R1, 64-support.HSTSIDStackDeltaBit),
		asm.Or.Reg(asm.R1, asm.R4),
		asm.StoreMem(asm.R5, offsets["state.text_section_id"], asm.R1, asm.DWord),
		asm.Ja.Label(armNothing),
	}, ofC1, process, asm.Instructions{
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
	}, armCodeStart(stack, offsets, armOfC1Start), asm.Instructions{
		asm.Mov.Reg(asm.R3, asm.R4),
	}, readToStack(stack.window, 8), asm.Instructions{
		// r1 = what is known of the area, r4 = what is to come, or the frame
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
		asm.LoadMem(asm.R1, asm.R5, offsets["state.text_section_id"], asm.DWord),
		asm.LoadMem(asm.R2, asm.RFP, stack.window, asm.DWord), // 0 if it could not be read
		asm.LoadImm(asm.R3, armMakesFrame, asm.DWord),
		asm.JNE.Reg(asm.R2, asm.R3, armEnds),
		asm.LoadMem(asm.R2, asm.R5, offsets["state.return_address"], asm.Byte),
		asm.LoadMem(asm.R4, asm.R5, scratch+armFound, asm.DWord),
		asm.JNE.Imm(asm.R2, 0, armFramed),
		asm.JSLT.Imm(asm.R4, 0, armSay),
		asm.JEq.Imm(asm.R4, armJumpsOn, armEnds),
		asm.LoadMem(asm.R3, asm.R5, offsets["state.fp"], asm.DWord),
		asm.LoadMem(asm.R2, asm.R5, offsets["state.sp"], asm.DWord),
		asm.Sub.Reg(asm.R3, asm.R2),
		asm.JGT.Imm(asm.R3, armStubFrame, armEnds),
		asm.LoadImm(asm.R4, armFrame-1<<64, asm.DWord).WithSymbol(armFramed),
		asm.Ja.Label(armSay),
	}, armMethodCode(stack, offsets, scratch), armCallerCode(p), asm.Instructions{
		asm.Mov.Imm(asm.R0, 0).WithSymbol(armNothing),
		asm.Ja.Label(armBack).WithSymbol(armGoOn),
	})
}

// armCodeStart returns the instructions that read where the code starts, to r4, of what is known of it. r0 is the
// process, r5 the record.
func armCodeStart(stack jvmStack, offsets map[string]int16, label string) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R1, asm.R0, offsets["codeblob_codestart"], asm.Byte),
		asm.Add.Reg(asm.R1, asm.R5),
		asm.LoadMem(asm.R4, asm.R1, offsets["hotspotUnwindScratch.codeblob"], asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, offsets["nmethod_uses_offsets"], asm.Byte),
		asm.JEq.Imm(asm.R1, 0, label),
		asm.LSh.Imm(asm.R4, 32),
		asm.RSh.Imm(asm.R4, 32),
		asm.LoadMem(asm.R1, asm.RFP, stack.code, asm.DWord),
		asm.Add.Reg(asm.R4, asm.R1),
		asm.Mov.Reg(asm.R1, asm.R4).WithSymbol(label),
	}
}

// armMethodCode returns the instructions that say how far an innermost method has made its frame: where that counts as
// made, the engine takes x29 and x30 from it; at the instruction before, it takes x30 as it is, and the frame's size
// for that by which sp was moved.
func armMethodCode(stack jvmStack, offsets map[string]int16, scratch int16) asm.Instructions {
	blob := offsets["hotspotUnwindScratch.codeblob"]
	offset, complete := stack.incomplete, stack.window
	record := lookUpRecord(stack.key, armNothing)
	record[0] = record[0].WithSymbol(armMethod)
	code := slices.Concat(record, lookUpProcess(hotspotMap, stack.record, stack.key, offsets["trace.pid"], armNothing),
		asm.Instructions{
			asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
		}, armCodeStart(stack, offsets, armStart), asm.Instructions{
			// r1 = the offset in it, r2 = where that is at which the frame counts as made
			asm.LoadMem(asm.R3, asm.R5, offsets["state.pc"], asm.DWord),
			asm.Mov.Reg(asm.R1, asm.R3),
			asm.Sub.Reg(asm.R1, asm.R4),
			asm.LoadMem(asm.R2, asm.R0, offsets["codeblob_framecomplete"], asm.Byte),
			asm.Add.Reg(asm.R2, asm.R5),
			asm.LoadMem(asm.R4, asm.R2, blob, asm.Half),
			asm.JGE.Reg(asm.R1, asm.R4, armPushes),
			asm.StoreMem(asm.RFP, offset, asm.R1, asm.DWord),
			asm.StoreMem(asm.RFP, complete, asm.R2, asm.DWord),
			asm.Sub.Imm(asm.R3, 4*armBarrier),
			asm.Mov.Imm(asm.R2, 4*armBarrier+4),
			asm.Mov.Reg(asm.R1, asm.R5),
			asm.Add.Imm(asm.R1, int32(scratch)+armCode),
			asm.FnProbeReadUser.Call(),
			asm.JNE.Imm(asm.R0, 0, armNothing),
			// r0 = stp, r4 = sub, of a frame of this size
			asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
			asm.LoadMem(asm.R2, asm.RFP, stack.address, asm.DWord),
			asm.LoadMem(asm.R3, asm.R2, blob, asm.Word),
			asm.Sub.Imm(asm.R3, 2),
			asm.LoadImm(asm.R0, armSavesFrame, asm.DWord),
			asm.LoadImm(asm.R4, armGrowsFrame, asm.DWord),
			asm.Mov.Reg(asm.R1, asm.R3),
			asm.LSh.Imm(asm.R1, 15),
			asm.Or.Reg(asm.R0, asm.R1),
			asm.LSh.Imm(asm.R3, 13),
			asm.Or.Reg(asm.R4, asm.R3),
		})
	at := func(before int16) asm.Instruction {
		return asm.LoadMem(asm.R1, asm.R5, scratch+armCode+4*(armBarrier-before), asm.Word)
	}
	saved := armSaved // x29 is the caller's up to the next instruction
	for i := range int16(armBarrier + 1) {
		code = append(code, at(i), asm.JEq.Reg(asm.R1, asm.R0, saved))
		if i > 0 {
			code = append(code, asm.JEq.Reg(asm.R1, asm.R4, armMade), asm.JEq.Imm32(asm.R1, armGrowsLarge, armMade))
			saved = armMade
		}
	}
	for i, label := range []string{armPushedNow, armPushedOld, armPushedOld} { // x29 may be set, and the size loaded
		code = append(code, at(int16(i+1)), asm.JEq.Imm32(asm.R1, armPushesFrame, label))
	}
	return append(code,
		asm.Ja.Label(armNothing),
		asm.StoreImm(asm.R2, blob, 2, asm.Word).WithSymbol(armPushedNow),
		asm.LoadMem(asm.R1, asm.RFP, offset, asm.DWord).WithSymbol(armSaved),
		asm.Add.Imm(asm.R1, 4),
		asm.LoadMem(asm.R2, asm.RFP, complete, asm.DWord),
		asm.StoreMem(asm.R2, blob, asm.R1, asm.Half),
		asm.Ja.Label(armNothing),
		asm.StoreImm(asm.R2, blob, 2, asm.Word).WithSymbol(armPushedOld),
		asm.LoadMem(asm.R2, asm.RFP, complete, asm.DWord).WithSymbol(armMade),
		asm.StoreImm(asm.R2, blob, 0, asm.Half),
		asm.Ja.Label(armNothing),
	)
}
