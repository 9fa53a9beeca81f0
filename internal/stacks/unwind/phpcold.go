package unwind

import (
	"debug/elf"
	"encoding/binary"

	"go.opentelemetry.io/ebpf-profiler/asm/amd"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
	"go.opentelemetry.io/ebpf-profiler/util"
	"golang.org/x/arch/x86/x86asm"
)

const (
	// maxInterpreter bounds what is read of PHP's interpreter. In 8.2 it has 37 KB.
	maxInterpreter = 256 << 10
	// maxFunctionTable bounds what is read of the table of functions. In 8.2 it has 77 KB.
	maxFunctionTable = 1 << 20
)

// coldCode returns where the rest of PHP's interpreter is in a file on x86-64, if there is one: gcc puts code that is
// executed rarely into a function without a name (execute_ex.cold), of which the engine does not know. isKnown is false
// if there may be one that was not found: stacks there are native.
func coldCode(file *pfelf.Reference, data *stackdeltatypes.IntervalData) (cold util.Range, isKnown bool) {
	program, err := file.GetELF()
	if err != nil || program.Machine != elf.EM_X86_64 {
		return util.Range{}, true
	}
	code, symbol, err := interpreterCode(program)
	if symbol == nil {
		return util.Range{}, true
	}
	if err != nil {
		return util.Range{}, false
	}
	cold, isKnown = coldRange(code, uint64(symbol.Address), symbol.Size, data)
	if cold == (util.Range{}) {
		return util.Range{}, isKnown
	}
	section := program.Section(".eh_frame_hdr")
	if section == nil {
		return util.Range{}, false
	}
	table, err := section.Data(maxFunctionTable)
	if err != nil || beginsWithin(table, section.Addr, cold) {
		return util.Range{}, false // the module makes one block of functions that are unwound alike
	}
	return cold, true
}

// interpreterCode returns the code of PHP's interpreter, of all that it says to be no more than maxInterpreter, and its
// symbol, nil if there is none.
func interpreterCode(program *pfelf.File) (code []byte, symbol *libpf.Symbol, err error) {
	symbol, err = program.LookupSymbol("execute_ex")
	if err != nil {
		return nil, nil, err
	}
	code = make([]byte, min(symbol.Size, maxInterpreter))
	_, err = program.ReadAt(code, int64(symbol.Address))
	return code, symbol, err
}

// beginsWithin reports whether a function begins within a range, behind its start, by an .eh_frame_hdr section that is
// at an address (Linux Standard Base, 10.6.2). It does if the section is not one as linkers write them.
func beginsWithin(header []byte, address uint64, in util.Range) bool {
	const entries, entryBytes = 12, 8
	// Version 1: a pointer relative to itself, a count of 4 bytes, and a table of numbers relative to the section.
	if len(header) < entries || string(header[:4]) != "\x01\x1b\x03\x3b" {
		return true
	}
	count := uint64(binary.LittleEndian.Uint32(header[8:]))
	if count > uint64(len(header)-entries)/entryBytes {
		return true
	}
	for i := range count {
		start := address + uint64(int32(binary.LittleEndian.Uint32(header[entries+i*entryBytes:])))
		if start > in.Start && start <= in.End {
			return true
		}
	}
	return false
}

// coldRange returns the block to which a function of size bytes at start jumps if conditions hold. It is no other
// function: jumps lead into it, not just to its beginning, and at its beginning there is a frame. All of them lead
// there, up to the first instruction that is not known. isKnown is false if it jumps elsewhere, or may do so.
func coldRange(code []byte, start, size uint64, data *stackdeltatypes.IntervalData) (r util.Range, isKnown bool) {
	var cold *stackdeltatypes.BasicBlock
	hasInner, isRead := false, uint64(len(code)) == size
	for at := 0; at < len(code); {
		n, to, isJump := conditionalJump(code[at:])
		if n == 0 {
			isRead = false
			break
		}
		at += n
		target := start + uint64(at) + uint64(to)
		if !isJump || target-start < size {
			continue
		}
		block := data.Find(target)
		if block == nil || cold != nil && cold != block {
			return util.Range{}, false
		}
		cold = block
		hasInner = hasInner || target != block.Start
	}
	if cold == nil {
		return util.Range{}, isRead
	}
	if !hasInner || isEntry(cold) {
		return util.Range{}, false
	}
	return util.Range{Start: cold.Start, End: cold.End - 1}, true // the engine has the end in it
}

// isEntry reports whether a block begins as functions do, with nothing but the return address on the stack.
func isEntry(block *stackdeltatypes.BasicBlock) bool {
	if len(block.Deltas) == 0 {
		return true
	}
	first := block.Deltas[0].Info
	return first.Flags&support.UnwindFlagCommand != 0 || first.BaseReg == support.UnwindRegSp && first.Param <= 8
}

// conditionalJump returns the length of the first instruction, 0 if it is not known, and how far from its end it jumps,
// if it does so on a condition.
func conditionalJump(code []byte) (n int, to int64, isJump bool) {
	if ok, n := amd.DecodeSkippable(code); ok {
		return n, 0, false
	}
	instruction, err := x86asm.Decode(code, 64)
	if err != nil {
		return 0, 0, false
	}
	rel, ok := instruction.Args[0].(x86asm.Rel)
	isJump = ok && instruction.Op != x86asm.JMP && instruction.Op != x86asm.CALL
	return instruction.Len, int64(rel), isJump
}
