package unwind

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// C2 compiles String.indexOf to code that has more on its stack than the size of the method's frame says: it keeps the
// stack pointer in rcx, makes room for copies of short texts (twice 16 bytes at most), pushes up to 3 words and rcx,
// searches, and pops rsp. The code is the same in JDK 8 to 25. The module's program looks in the 6 words above the
// frame for something that may be a return address, and takes what an earlier call has left there. So on x86-64,
// before it starts with an innermost frame, that is looked for:
//
//   - Neither rcx nor the word at rsp is an address up to movedBytes above rsp: it is not such code.
//   - Otherwise the code before the program counter says whether it is, and which of the two is the stack pointer.
//
// The frame is said to be larger by what that is above rsp. Where it cannot be said (rcx is not known when the kernel
// was interrupted), the stack ends.

const (
	// movedBytes is the most by which the code moves rsp.
	movedBytes = 64
	// movedWindow is how many bytes of code are looked at. From where rcx is pushed to where rsp is popped it has 190.
	movedWindow = 256
	// movedUnknown stands for what is not known.
	movedUnknown = -1

	// In memory, behind the code that is looked at, and not on the stack: else the verifier tries all of the program
	// with each value.
	movedWords    = movedWindow      // by how many words rsp was moved
	movedAbove    = movedWindow + 8  // how far rcx is above rsp
	movedTop      = movedWindow + 16 // how far the word at rsp is
	barrierCaller = movedWindow + 24 // see jvmbarrier.go
	barrierTime   = movedWindow + 32 // of the stack that it is of
	movedSpace    = movedWindow + 40
)

// Labels of what is added.
const (
	jvmMovedCount = "jvm_moved_count"
	jvmMovedScan  = "jvm_moved_scan"
	jvmMovedNext  = "jvm_moved_next"
	jvmMovedKept  = "jvm_moved_kept"
	jvmMovedPush  = "jvm_moved_push"
	jvmMovedTop   = "jvm_moved_top"
	jvmMovedWords = "jvm_moved_words"
	jvmMovedLost  = "jvm_moved_lost"
	jvmMovedDone  = "jvm_moved_done"
)

// Offsets of registers in pt_regs.
const (
	regsCX = 88
	regsIP = 128
	regsSP = 152
)

// addMovedStack adds to the program of JVMs that it notes in its scratch space by how many words rsp was moved.
func addMovedStack(instructions asm.Instructions, p jvmPlaces) asm.Instructions {
	added := slices.Concat(asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // the registers that were interrupted
	}, lookUpRecord(p.stack.key, jvmMovedDone), asm.Instructions{
		asm.LoadMem(asm.R1, asm.R0, p.offsets["state.return_address"], asm.Byte),
		asm.JNE.Imm(asm.R1, 0, jvmMovedDone),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.Add.Imm(asm.R7, int32(p.scratch)),
		asm.StoreImm(asm.R7, movedWords, 0, asm.Word),
		asm.LoadMem(asm.R8, asm.R0, p.offsets["state.sp"], asm.DWord),
		asm.LoadMem(asm.R9, asm.R0, p.offsets["state.pc"], asm.DWord),
		// r0 = how far rcx is above rsp, if these registers are those of the process
		asm.Mov.Imm(asm.R0, movedUnknown),
		asm.LoadMem(asm.R1, asm.R6, regsIP, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R9, jvmMovedCount),
		asm.LoadMem(asm.R1, asm.R6, regsSP, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R8, jvmMovedCount),
		asm.LoadMem(asm.R0, asm.R6, regsCX, asm.DWord),
		asm.Sub.Reg(asm.R0, asm.R8),
	}, movedCode())
	return addBefore(instructions, append(added, asm.Mov.Reg(asm.R1, asm.R6).WithSymbol(jvmMovedDone)))
}

// addBefore returns a program that begins with what is added, which has to leave the context in r1.
func addBefore(instructions, added asm.Instructions) asm.Instructions {
	first := instructions[0]
	added = append(added, first.WithMetadata(asm.Metadata{}))
	added[0] = added[0].WithMetadata(first.Metadata)
	return append(added, instructions[1:]...)
}

// movedScratch returns where in the record there are movedSpace bytes: programs share scratch space, of which that of
// JVMs does not need all.
func movedScratch(types *btf.Spec) (at int16, err error) {
	offsets, err := readOffsets(types, map[string][]string{
		"PerCPURecord": {"hotspotUnwindScratch.codeblob", "dotnetUnwindScratch.map"},
	})
	if err != nil {
		return 0, err
	}
	var all, own *btf.Struct
	if err := errors.Join(types.TypeByName("DotnetUnwindScratchSpace", &all),
		types.TypeByName("HotspotUnwindScratchSpace", &own)); err != nil {
		return 0, err
	}
	at = offsets["hotspotUnwindScratch.codeblob"] + int16(own.Size)
	if offsets["dotnetUnwindScratch.map"]+int16(all.Size) < at+movedSpace {
		return 0, errors.New("the unwinding program for JVMs has no scratch space that it does not use")
	}
	return at, nil
}

// movedCode returns the instructions that find by how many words rsp was moved: r0 is how far rcx is above rsp, r7
// where they have movedSpace bytes, r8 rsp and r9 the program counter. They leave r6 alone.
func movedCode() asm.Instructions {
	return asm.Instructions{
		asm.StoreMem(asm.R7, movedAbove, asm.R0, asm.DWord).WithSymbol(jvmMovedCount),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.Mov.Imm(asm.R2, 8),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, movedTop),
		asm.FnProbeReadUser.Call(),
		asm.LoadMem(asm.R1, asm.R7, movedTop, asm.DWord), // 0 if it could not be read
		asm.Sub.Reg(asm.R1, asm.R8),
		asm.StoreMem(asm.R7, movedTop, asm.R1, asm.DWord),
		asm.JLE.Imm(asm.R1, movedBytes, jvmMovedScan),
		asm.LoadMem(asm.R1, asm.R7, movedAbove, asm.DWord),
		asm.JLE.Imm(asm.R1, movedBytes, jvmMovedScan),
		asm.JNE.Imm(asm.R1, movedUnknown, jvmMovedDone),
		asm.Mov.Reg(asm.R3, asm.R9).WithSymbol(jvmMovedScan),
		asm.Sub.Imm(asm.R3, movedWindow),
		asm.Mov.Imm(asm.R2, movedWindow),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.FnProbeReadUser.Call(),
		asm.JNE.Imm(asm.R0, 0, jvmMovedLost),
		// Back from the program counter: r1 = where the last of them ends, r2 = how many are left, r3 = 4 bytes, in the
		// machine's order, r4 = the last 3 of them. Nothing comes back to the loop: the verifier follows that again and
		// again.
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, movedWindow),
		asm.Mov.Imm(asm.R2, movedWindow-5),
		asm.LoadMem(asm.R3, asm.R1, -4, asm.Word).WithSymbol(jvmMovedNext),
		asm.JEq.Imm(asm.R3, 0x51575650, jvmMovedTop),  // push rax; push rsi; push rdi; push rcx
		asm.JEq.Imm(asm.R3, 0x51000000, jvmMovedPush), // mov eax, less than 256; push rcx
		asm.Mov.Reg(asm.R4, asm.R3),
		asm.RSh.Imm(asm.R4, 8),
		asm.JEq.Imm(asm.R4, 0xcc8b48, jvmMovedKept), // mov rcx, rsp
		asm.JEq.Imm(asm.R4, 0x5cdf2b, jvmMovedDone), // sub ebx, edi; pop rsp
		asm.JEq.Imm(asm.R4, 0x5cebd1, jvmMovedDone), // shr ebx, 1; pop rsp
		asm.JEq.Imm(asm.R4, 0x5c01eb, jvmMovedDone), // the same, in JDK 8 and 11
		asm.Sub.Imm(asm.R1, 1),
		asm.Sub.Imm(asm.R2, 1),
		asm.JNE.Imm(asm.R2, 0, jvmMovedNext),
		asm.Ja.Label(jvmMovedDone),
		asm.LoadMem(asm.R3, asm.R1, -6, asm.Byte).WithSymbol(jvmMovedPush),
		asm.JNE.Imm(asm.R3, 0xb8, jvmMovedDone),
		asm.LoadMem(asm.R1, asm.R7, movedTop, asm.DWord).WithSymbol(jvmMovedTop),
		asm.JEq.Imm(asm.R1, 0, jvmMovedLost),
		asm.Ja.Label(jvmMovedWords),
		asm.LoadMem(asm.R1, asm.R7, movedAbove, asm.DWord).WithSymbol(jvmMovedKept),
		asm.JGT.Imm(asm.R1, movedBytes, jvmMovedLost).WithSymbol(jvmMovedWords),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.And.Imm(asm.R2, 7),
		asm.JNE.Imm(asm.R2, 0, jvmMovedLost),
		asm.RSh.Imm(asm.R1, 3),
		asm.StoreMem(asm.R7, movedWords, asm.R1, asm.Word),
		asm.Ja.Label(jvmMovedDone),
		asm.StoreImm(asm.R7, movedWords, movedUnknown, asm.Word).WithSymbol(jvmMovedLost),
	}
}
