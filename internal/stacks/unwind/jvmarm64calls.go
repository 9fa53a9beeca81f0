package unwind

import (
	"slices"
	"strconv"

	"github.com/cilium/ebpf/asm"
)

// On arm64, compiled code has more on its stack than the size of its frame says where it calls barriers of garbage
// collectors: C2's saves the registers that it needs (ZGC; from JDK 24 on also G1), that of C1 has arguments there
// (ZGC). The engine reads the return address too low then, so that the stack ends, or goes on with what an earlier call
// has left. So does C1's code where it checks types. These calls are straight code: registers are saved, arguments set,
// the call, registers loaded, and a branch. So from the program counter on, or from where a call returns to, that is
// followed as long as it is made of the instructions of such code, up to a branch, wherever that leads, and what moves
// the stack pointer on this way is how far it has been moved, if that is up: what code pushes it pops, so that a way
// that begins with nothing pushed has a sum of 0, and all that is popped is above it. Other code of methods moves the
// stack pointer up only to remove a frame, which is where x29 and x30 are loaded.
//
// A method that calls a barrier where it begins has its frame, although that does not count as made.
//
// Where code goes on behind the end of the frame and a branch, the engine takes that for the end, and x30, which is of
// the last call, for the return address. The frame is there, so that the engine is told that it cannot read that end;
// but it is not in code that stops at a safepoint on return, where x30 is right.

const (
	// armRestores is how many instructions are followed to the branch back: to save and restore a word of each of 17
	// registers and of 24 of vectors, in pairs, takes 42, if all are in use.
	armRestores = 56

	// armEpilogue is how many instructions before the program counter the engine looks for the end of a frame.
	armEpilogue = 5

	armPushesReturn  = 0xa9bf27ff - 1<<32 // stp xzr, x9, [sp, #-16]!
	armCall          = 0x94000000 >> 26   // bl
	armBranch        = 0x14000000 >> 26   // b
	armCallsX8       = 0xd63f0100 - 1<<32 // blr x8
	armJumps         = 0xd61f0000 - 1<<32 // br, or ret with another bit
	armTakesPlace    = 0x10000008         // adr x8
	armSavesPlace    = 0xf9000388 - 1<<32 // str x8, [x28, #x]
	armSkipsWord     = 0x14000002         // b to the instruction after the next
	armSetsPredicate = 0x2518e3e7         // ptrue p7.b
	armFrees16       = 0x910043ff - 1<<32 // add sp, sp, #16
	armFrees32       = 0x910083ff - 1<<32 // add sp, sp, #32
	armTakes16       = 0xd10043ff - 1<<32 // sub sp, sp, #16
	armTakes32       = 0xd10083ff - 1<<32 // sub sp, sp, #32
)

// Labels of what is added.
const (
	armCaller    = "jvm_arm64_caller"
	armRestore   = "jvm_arm64_restore_" // and its number
	armRestores0 = armRestore + "0"
	armPop       = "jvm_arm64_pop_"
	armPushes    = "jvm_arm64_pushes"
	armRestored  = "jvm_arm64_restored"
	armBehind    = "jvm_arm64_behind"
	armStops     = "jvm_arm64_stops"
	armEnd       = "jvm_arm64_end"
	armEndBack   = "jvm_arm64_end_back"
	armFollows   = "jvm_arm64_follows"
	armCalled    = "jvm_arm64_called"
	armComplete  = "jvm_arm64_complete"
)

// armCallerCode returns the instructions that say how much more than its frame a method has on the stack where it calls
// a barrier, and that its frame is complete if that is where it begins. r1 is where its frame's size is, r5 the record.
func armCallerCode(p jvmPlaces) asm.Instructions {
	stack, offsets, scratch := p.stack, p.offsets, p.scratch
	blob := offsets["hotspotUnwindScratch.codeblob"]
	code := asm.Instructions{
		asm.LoadMem(asm.R3, asm.R1, blob, asm.Word).WithSymbol(armCaller),
		asm.JEq.Imm32(asm.R3, -1, armOfC1),
		asm.JEq.Imm(asm.R3, 0, armNothing), // no method
		asm.LoadMem(asm.R3, asm.R5, offsets["state.pc"], asm.DWord).WithSymbol(armPushes),
		asm.Sub.Imm(asm.R3, 4*armEpilogue),
		asm.Mov.Imm(asm.R2, 4*(armEpilogue+armRestores)),
		asm.Mov.Reg(asm.R1, asm.R5),
		asm.Add.Imm(asm.R1, int32(scratch)+armCode),
		asm.FnProbeReadUser.Call(),
		asm.JNE.Imm(asm.R0, 0, armNothing),
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
		asm.Mov.Imm(asm.R4, 0),
		asm.StoreMem(asm.R5, scratch+armLoaded, asm.R4, asm.DWord),
	}
	at := func(to asm.Register, i int) asm.Instruction { // i after the program counter
		return asm.LoadMem(to, asm.R5, scratch+armCode+4*int16(armEpilogue+i), asm.Word)
	}
	// Behind the end of a frame and a branch, if that is not behind another end.
	code = append(code,
		at(asm.R1, -2),
		asm.And.Imm32(asm.R1, 0xffc07fff-1<<32),
		asm.JEq.Imm32(asm.R1, armLoadsFrame, armFollows))
	for end := -armEpilogue; end < -2; end++ {
		next := armBehind + strconv.Itoa(-end)
		code = append(code,
			at(asm.R1, end),
			asm.And.Imm32(asm.R1, 0xffc07fff-1<<32),
			asm.JNE.Imm32(asm.R1, armLoadsFrame, next))
		for i := end + 2; i < 0; i++ {
			code = append(code,
				at(asm.R1, i),
				asm.Mov.Reg(asm.R2, asm.R1),
				asm.And.Imm32(asm.R1, 0xffbffc1f-1<<32),
				asm.JEq.Imm32(asm.R1, armJumps, armBehind),
				asm.RSh.Imm(asm.R2, 26),
				asm.JEq.Imm(asm.R2, armBranch, armBehind))
		}
		code = append(code, asm.Mov.Imm(asm.R1, 0).WithSymbol(next))
	}
	code = append(code, asm.Ja.Label(armFollows), asm.Mov.Imm(asm.R3, armBehindEnd).WithSymbol(armBehind))
	for i := -2; i < 1; i++ {
		next := armStops + strconv.Itoa(-i)
		code = append(code,
			at(asm.R1, i),
			asm.And.Imm32(asm.R1, 0x9f00001f-1<<32),
			asm.JNE.Imm32(asm.R1, armTakesPlace, next),
			at(asm.R1, i+1),
			asm.And.Imm32(asm.R1, 0xffc003ff-1<<32),
			asm.JEq.Imm32(asm.R1, armSavesPlace, armFollows),
			asm.Mov.Imm(asm.R1, 0).WithSymbol(next))
	}
	code = append(code,
		asm.StoreMem(asm.R5, scratch+armFound, asm.R3, asm.DWord),
		at(asm.R1, -2).WithSymbol(armFollows),
		asm.JEq.Imm32(asm.R1, armPushesReturn, armNothing), // which the engine knows
		at(asm.R1, -1),
		at(asm.R2, 0),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.And.Imm32(asm.R3, 0xffc07fff-1<<32),
		asm.JEq.Imm32(asm.R3, armLoadsFrame, armNothing), // a frame is being removed
		asm.JNE.Imm32(asm.R1, armCallsX8, armRestores0),
		asm.JEq.Imm32(asm.R2, armSkipsWord, armCalled),
		asm.Ja.Label(armRestores0))
	label := func(i int) string { return armRestore + strconv.Itoa(i) }
	for i := range armRestores {
		next, pops := label(i+1), armPop+strconv.Itoa(i)
		code = append(code, at(asm.R1, i).WithSymbol(label(i)))
		// is goes to a label if some of the instruction's bits are one of these.
		is := func(of uint32, label string, bits ...uint32) {
			code = append(code, asm.Mov.Reg(asm.R2, asm.R1), asm.And.Imm32(asm.R2, int32(of)))
			for _, b := range bits {
				code = append(code, asm.JEq.Imm32(asm.R2, int32(b), label))
			}
		}
		is(0xfc000000, armRestored, 0x14000000)                                                      // b
		is(0xff000010, armRestored, 0x54000000)                                                      // b.cond
		is(0x7e000000, armRestored, 0x34000000)                                                      // cbz, cbnz
		is(0xfc000000, next, 0x94000000)                                                             // bl
		is(0xfc007fff, armNothing, 0xa8007bfd)                                                       // of x29 and x30
		is(0xffc003e0, next, 0xa94003e0, 0x6d4003e0, 0xad4003e0, 0xf94003e0, 0xfd4003e0, 0x3dc003e0) // loads from sp
		is(0xffc003e0, next, 0xa90003e0, 0x6d0003e0, 0xad0003e0, 0xf90003e0, 0xfd0003e0, 0x3d8003e0) // stores
		is(0xffe0ffe0, next, 0xaa0003e0)                                                             // mov
		is(0x7f800000, next, 0x52800000, 0x72800000)                                                 // movz, movk
		is(0x1f000000, next, 0x10000000)                                                             // adr, adrp
		is(0xff200000, next, 0x8b000000)                                                             // add
		code = append(code, asm.JEq.Imm32(asm.R1, armSetsPredicate, next), asm.JEq.Imm32(asm.R1, armCallsX8, next))
		for _, of := range []struct{ words, bits int32 }{
			{2, armFrees16}, {4, armFrees32}, {-2, armTakes16}, {-4, armTakes32},
		} {
			code = append(code, asm.Mov.Imm(asm.R3, of.words), asm.JEq.Imm32(asm.R1, of.bits, pops))
		}
		is(0xff80001f, armNothing, 0x9100001f) // other sums in sp
		is(0xffe0001f, armNothing, 0x8b20001f)
		is(0xff800000, next, 0x91000000)
		is(0xffe00000, next, 0x8b200000)
		code = append(code, asm.Mov.Imm(asm.R3, 2))
		is(0xffffffe0, pops, 0xfc4107e0, 0x3cc107e0) // one vector, from 16 bytes
		code = append(code, asm.Mov.Imm(asm.R3, -2))
		is(0xffffffe0, pops, 0xfc1f0fe0, 0x3c9f0fe0)
		code = append(code, asm.Mov.Reg(asm.R3, asm.R1), asm.LSh.Imm(asm.R3, 42), asm.ArSh.Imm(asm.R3, 57))
		is(0xffc003e0, pops, 0xa8c003e0, 0x6cc003e0, 0xa98003e0, 0x6d8003e0)
		code = append(code, asm.LSh.Imm(asm.R3, 1))
		is(0xffc003e0, pops, 0xacc003e0, 0xad8003e0)
		code = append(code,
			asm.Ja.Label(armNothing),
			asm.LoadMem(asm.R2, asm.R5, scratch+armLoaded, asm.DWord).WithSymbol(pops),
			asm.Add.Reg(asm.R2, asm.R3),
			asm.StoreMem(asm.R5, scratch+armLoaded, asm.R2, asm.DWord))
	}
	return slices.Concat(code, asm.Instructions{
		asm.Ja.Label(armNothing).WithSymbol(label(armRestores)),
		asm.LoadMem(asm.R1, asm.R5, scratch+armLoaded, asm.DWord).WithSymbol(armRestored),
		asm.JSLE.Imm(asm.R1, 0, armNothing),
		asm.Mov.Reg(asm.R0, asm.R5).WithSymbol(armCalled),
	}, lookUpProcess(hotspotMap, stack.record, stack.key, offsets["trace.pid"], armNothing), asm.Instructions{
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, offsets["codeblob_framecomplete"], asm.Byte),
		asm.Add.Reg(asm.R1, asm.R5),
		asm.StoreMem(asm.RFP, stack.incomplete, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, offsets["codeblob_name"], asm.Byte),
		asm.Add.Reg(asm.R1, asm.R5),
		asm.LoadMem(asm.R3, asm.R1, blob, asm.DWord),
	}, readToStack(stack.window, 8), asm.Instructions{
		asm.LoadMem(asm.R1, asm.RFP, stack.window, asm.Word), // 0 if it could not be read
		asm.JEq.Imm(asm.R1, nameNative, armComplete),
		asm.JNE.Imm(asm.R1, nameMethod, armNothing),
		asm.LoadMem(asm.R2, asm.RFP, stack.incomplete, asm.DWord).WithSymbol(armComplete),
		asm.StoreImm(asm.R2, blob, 0, asm.Half),
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
		asm.LoadMem(asm.R4, asm.R5, scratch+armLoaded, asm.DWord),
		asm.LoadMem(asm.R2, asm.RFP, stack.address, asm.DWord),
		asm.LoadMem(asm.R3, asm.R2, blob, asm.Word),
		asm.Add.Reg(asm.R3, asm.R4),
		asm.StoreMem(asm.R2, blob, asm.R3, asm.Word),
	})
}

// armEndCode returns the instructions at the reading of what may be the end of a frame: behind it that fails.
func armEndCode(call asm.Instruction, p jvmPlaces) asm.Instructions {
	return slices.Concat(asm.Instructions{
		call.WithMetadata(asm.Metadata{}).WithSymbol(armEnd),
		asm.JNE.Imm(asm.R0, 0, armEndBack),
	}, lookUpRecord(p.stack.key, armEndBack), asm.Instructions{
		asm.LoadMem(asm.R1, asm.R0, p.scratch+armFound, asm.DWord),
		asm.Mov.Imm(asm.R0, 0),
		asm.JNE.Imm(asm.R1, armBehindEnd, armEndBack),
		asm.Mov.Imm(asm.R0, -1),
		asm.Ja.Label(armEndBack),
	})
}
