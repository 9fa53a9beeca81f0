package unwind

import (
	"runtime"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/x86/x86asm"
)

// instruction is how code of this machine goes on after one of its instructions.
type instruction struct {
	size   int32 // 0: it is not understood, or where it goes is not known
	jumps  bool  // it goes, or may go, to its end plus jump
	jump   int32 // also of a call that says where to
	goesOn bool  // it goes, or may go, to the next one; calls do
	calls  bool
	stores bool // it moves something to memory, and does nothing else
	leaves bool // it returns to the caller
	stops  bool // it ends the process: compilers put it where code never comes to
}

const maxInstructionBytes = 16

// decode decodes the first instruction of code.
func decode(code []byte) instruction {
	if runtime.GOARCH == "arm64" {
		return decodeARM64(code)
	}
	return decodeX86(code)
}

func decodeX86(code []byte) instruction {
	switch code[0] {
	case 0xc4, 0xc5, 0x62:
		n := vectorBytes(code)
		return instruction{size: int32(n), goesOn: n > 0}
	case 0xd5: // REX2
		return instruction{}
	}
	decoded, err := x86asm.Decode(code, 64)
	if err != nil || decoded.Op == 0 { // a prefix alone is none
		return instruction{}
	}
	i := instruction{size: int32(decoded.Len), goesOn: true}
	switch decoded.Op {
	case x86asm.RET:
		return instruction{leaves: true}
	case x86asm.UD2, x86asm.HLT, x86asm.INT:
		return instruction{stops: true}
	case x86asm.LRET, x86asm.IRET, x86asm.IRETD, x86asm.IRETQ, x86asm.UD0, x86asm.UD1, x86asm.INTO, x86asm.LJMP,
		x86asm.XBEGIN, x86asm.XABORT:
		return instruction{}
	case x86asm.CALL, x86asm.LCALL:
		to, _ := decoded.Args[0].(x86asm.Rel)
		i.calls, i.jump = true, int32(to)
		return i
	case x86asm.MOV:
		_, i.stores = decoded.Args[0].(x86asm.Mem)
	}
	to, relative := decoded.Args[0].(x86asm.Rel)
	switch {
	case relative:
		i.jumps, i.jump, i.goesOn = true, int32(to), decoded.Op != x86asm.JMP
	case decoded.Op == x86asm.JMP:
		return instruction{}
	}
	return i
}

func decodeARM64(code []byte) instruction {
	decoded, err := arm64asm.Decode(code)
	if err != nil {
		return instruction{}
	}
	i := instruction{size: 4, goesOn: true}
	switch decoded.Op {
	case arm64asm.BL, arm64asm.BLR:
		i.calls = true
		if to, relative := decoded.Args[0].(arm64asm.PCRel); relative {
			i.jump = int32(to) - i.size
		}
	case arm64asm.STR, arm64asm.STRB, arm64asm.STRH, arm64asm.STUR, arm64asm.STURB, arm64asm.STURH:
		i.stores = true
	case arm64asm.RET:
		return instruction{leaves: true}
	case arm64asm.BRK, arm64asm.HLT:
		return instruction{stops: true}
	case arm64asm.BR, arm64asm.ERET, arm64asm.DRPS:
		return instruction{}
	case arm64asm.B, arm64asm.CBZ, arm64asm.CBNZ, arm64asm.TBZ, arm64asm.TBNZ:
		for _, arg := range decoded.Args {
			if to, relative := arg.(arm64asm.PCRel); relative {
				_, conditional := decoded.Args[0].(arm64asm.Cond)
				i.jumps, i.jump = true, int32(to)-i.size
				i.goesOn = conditional || decoded.Op != arm64asm.B
				return i
			}
		}
		return instruction{}
	}
	return i
}

// vectorBytes returns the length of an x86-64 instruction with a VEX or EVEX prefix, none of which
// jumps; 0 if it is not known. (The decoder knows few of them.) Intel SDM, volume 2, sections 2.3
// and 2.7:
//
//	VEX   C5, 1 byte; C4, 2 bytes, the first one's low 5 bits the map
//	EVEX  62, 3 bytes, the first one's low 3 bits the map
//	      opcode, ModRM, SIB and displacement as that says, an immediate byte with some opcodes
func vectorBytes(code []byte) (n int) {
	var b [maxInstructionBytes]byte
	copy(b[:], code)
	opcodes := byte(1) // the map: 1 is 0F, 2 0F38, 3 0F3A
	evex := false
	switch b[0] {
	case 0xc5:
		n = 2
	case 0xc4:
		n, opcodes = 3, b[1]&0x1f
	case 0x62:
		n, opcodes, evex = 4, b[1]&7, true
	}
	switch {
	case n == 0, opcodes == 0, opcodes > 6, opcodes == 4: // 4: what was not a vector instruction
		return 0
	case opcodes > 3 && !evex:
		return 0
	}
	opcode, modRM := b[n], b[n+1]
	if opcodes == 1 && opcode == 0x77 && !evex { // VZEROUPPER, VZEROALL
		return n + 1
	}
	n += 2
	mode, base := modRM>>6, modRM&7
	if mode != 3 && base == 4 {
		base = b[n] & 7 // of the SIB byte
		n++
	}
	switch {
	case mode == 1:
		n++
	case mode == 2, mode == 0 && base == 5:
		n += 4
	}
	shuffles := opcode >= 0x70 && opcode <= 0x73 || opcode == 0xc2 || opcode >= 0xc4 && opcode <= 0xc6
	if opcodes == 3 || opcodes == 1 && shuffles { // these have an immediate byte
		n++
	}
	return n
}
