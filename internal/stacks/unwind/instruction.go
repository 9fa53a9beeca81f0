package unwind

import (
	"runtime"
	"slices"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/x86/x86asm"
)

// instruction is how code of this machine goes on after one of its instructions.
type instruction struct {
	size   int32 // 0: it is not understood, or where it goes is not known
	jumps  bool  // it goes, or may go, to its end plus jump
	jump   int32
	goesOn bool // it goes, or may go, to the next one; calls do
	calls  bool
}

const maxInstructionBytes = 16

// maxCallBytes is the length of the longest call: through a pointer, with prefix, SIB byte and displacement.
const maxCallBytes = 8

// mayEndInCall reports whether code may end in a call. It is wrong only in reporting more.
func mayEndInCall(code []byte) bool {
	if runtime.GOARCH == "arm64" {
		return len(code) >= 4 && decodeARM64(code[len(code)-4:]).calls
	}
	for size := 2; size <= min(len(code), maxCallBytes); size++ {
		padded := append(slices.Clone(code[len(code)-size:]), make([]byte, maxInstructionBytes)...)
		if i := decodeX86(padded); i.calls && int(i.size) == size {
			return true
		}
	}
	return false
}

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
	case x86asm.RET, x86asm.LRET, x86asm.IRET, x86asm.IRETD, x86asm.IRETQ, x86asm.UD0, x86asm.UD1, x86asm.UD2,
		x86asm.HLT, x86asm.INT, x86asm.INTO, x86asm.LJMP, x86asm.XBEGIN, x86asm.XABORT:
		return instruction{}
	case x86asm.CALL, x86asm.LCALL:
		i.calls = true
		return i
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
	case arm64asm.BR, arm64asm.RET, arm64asm.ERET, arm64asm.DRPS, arm64asm.BRK, arm64asm.HLT:
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

const (
	// maxInstructions bounds the code that is decoded for one leaf.
	maxInstructions = 256

	// maxPlaces bounds how many places are named for one leaf.
	maxPlaces = 8
)

// reachable returns the first ones of the known places on all ways through code from an offset on, that of the
// way without jumps first; or nothing when there is a way that is not understood, or that leaves the code.
// Those to which a call may return are known only when one does.
func reachable(from int32, known, isReturn func(int32) bool, at func(int32) instruction) (places []int32) {
	type arrival struct {
		offset int32
		called bool // by the return of a call
	}
	seen := make(map[arrival]bool)
	for ways := []int32{from}; len(ways) > 0; {
		offset, called := ways[0], false
		ways = ways[1:]
		for !seen[arrival{offset, called}] {
			if len(seen) == maxInstructions || offset < 0 || offset > maxCodeOffset {
				return nil
			}
			seen[arrival{offset, called}] = true
			if known(offset) && (called || !isReturn(offset)) {
				if !slices.Contains(places, offset) {
					places = append(places, offset)
				}
				if len(places) > maxPlaces {
					return nil
				}
				break
			}
			i := at(offset)
			if i.size == 0 {
				return nil
			}
			if i.jumps && i.goesOn {
				ways = append(ways, offset+i.size+i.jump)
			}
			if offset += i.size; !i.goesOn {
				offset += i.jump
			}
			called = i.calls
		}
	}
	return places
}
