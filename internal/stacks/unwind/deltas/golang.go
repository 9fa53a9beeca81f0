package deltas

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/arch/x86/x86asm"
)

// correctGo corrects how the functions of Go in a file are unwound, if there are any. With an error, nothing changes.
func correctGo(file *pfelf.File, own *stackdeltatypes.IntervalData) error {
	arch := architectures[file.Machine]
	if arch == nil {
		return nil
	}
	table, err := readGoTable(file)
	if err != nil || table == nil {
		return err
	}
	data := clone(own)
	code := &window{file: file}
	var (
		f        goFunction
		adjacent *block // the last one
		blocks   []*stackdeltatypes.BasicBlock
	)
	for i := 0; i < table.n && code.err == nil; i++ {
		start, _ := table.entry(i)
		old := data.Find(start)
		if old == nil {
			continue
		}
		if err := table.function(i, &f); err != nil {
			return err
		}
		switch {
		case f.start == f.end:
			continue
		case !byFramePointer(old):
			switch {
			case len(old.Deltas) == 1 && arch == architectures[elf.EM_X86_64] && table.isNamed(&f, "runtime.morestack"):
				cutSwitched(old, &f, code)
			case old.Start == f.start:
				arch.assembly(old, &f, code)
			}
			continue
		}
		if adjacent == nil || adjacent.End != f.start {
			adjacent = &block{stackdeltatypes.BasicBlock{Start: f.start}}
			blocks = append(blocks, &adjacent.BasicBlock)
		}
		adjacent.End = f.end
		if len(f.sizes) == 0 {
			adjacent.add(f.start, stackdeltatypes.UnwindInfoFramePointer)
		}
		arch.compiled(adjacent, &f, code)
	}
	if code.err != nil {
		return code.err
	}
	kept := slices.DeleteFunc(data.Blocks, byFramePointer)
	*own = stackdeltatypes.IntervalData{}
	for _, b := range append(blocks, kept...) {
		own.Add(*b)
	}
	own.Sort()
	return nil
}

// clone returns a copy that shares nothing.
func clone(data *stackdeltatypes.IntervalData) *stackdeltatypes.IntervalData {
	c := &stackdeltatypes.IntervalData{NumDeltas: data.NumDeltas, Blocks: slices.Clone(data.Blocks)}
	for i, b := range c.Blocks {
		c.Blocks[i] = &stackdeltatypes.BasicBlock{Start: b.Start, End: b.End, Deltas: slices.Clone(b.Deltas)}
	}
	return c
}

// byFramePointer reports whether the engine unwinds all of a block by frame pointers.
func byFramePointer(b *stackdeltatypes.BasicBlock) bool {
	return len(b.Deltas) == 1 && b.Deltas[0].Info == stackdeltatypes.UnwindInfoFramePointer
}

// block is how adjacent functions are unwound.
type block struct {
	stackdeltatypes.BasicBlock
}

// add says how the code from an address on is unwound.
func (b *block) add(addr uint64, info stackdeltatypes.UnwindInfo) {
	b.Deltas.Add(uint32(addr-b.Start), info)
}

// architecture is how functions of Go are unwound on a machine.
type architecture struct {
	// compiled says how a function is unwound whose frame pointer is that of its frame wherever it has one,
	// but at its ends.
	compiled func(to *block, f *goFunction, code *window)
	// assembly corrects what the engine says of a function for which it does not rely on that.
	assembly func(of *stackdeltatypes.BasicBlock, f *goFunction, code *window)
}

var architectures = map[elf.Machine]*architecture{
	elf.EM_X86_64:  {compiledX86, assemblyX86},
	elf.EM_AARCH64: {compiledARM64, func(*stackdeltatypes.BasicBlock, *goFunction, *window) {}},
}

// onStack is how a frame of x86-64 with size bytes on the stack is unwound where the frame pointer is its
// caller's.
func onStack(size int32) stackdeltatypes.UnwindInfo {
	return stackdeltatypes.UnwindInfo{BaseReg: support.UnwindRegSp, Param: size + 8}
}

// Since Go 1.21, a frame begins with push rbp; mov rbp, rsp; and ends with pop rbp.
const pushRBP = 0x55

var setRBP = []byte{0x48, 0x89, 0xe5}

// pushesRBP reports whether the code before an address pushes the frame pointer, and that after it sets
// another.
func pushesRBP(code *window, addr uint64) bool {
	b := code.at(addr-1, 1+len(setRBP))
	return len(b) > 0 && b[0] == pushRBP && bytes.Equal(b[1:], setRBP)
}

func compiledX86(to *block, f *goFunction, code *window) {
	before := int32(0)
	for i, s := range f.sizes {
		at, end := s.from, f.end
		if i+1 < len(f.sizes) {
			end = f.sizes[i+1].from
		}
		switch {
		case s.size == 0:
			to.add(at, onStack(0))
			duffCalls(to, at, end, onStack(0), framelessInDuffCall, code)
		case before == 0 && s.size == 8 && pushesRBP(code, at):
			to.add(at, onStack(8))
			at += uint64(len(setRBP))
			fallthrough
		default:
			to.add(at, stackdeltatypes.UnwindInfoFramePointer)
			duffCalls(to, at, end, stackdeltatypes.UnwindInfoFramePointer, inDuffCall, code)
		}
		before = s.size
	}
}

// Up to Go 1.25, compiled code calls into the middle of runtime.duffzero and runtime.duffcopy, which have no frame,
// with a frame pointer for them: mov [rsp-16], rbp; lea rbp, [rsp-16]; call; mov rbp, [rbp]. From the call on, and when
// it has returned, that of the frame is where the register points (cmd/internal/obj/x86, asm6.go).
var (
	beforeDuff = []byte{0x48, 0x89, 0x6c, 0x24, 0xf0, 0x48, 0x8d, 0x6c, 0x24, 0xf0, 0xe8}
	afterDuff  = []byte{0x48, 0x8b, 0x6d, 0x00}

	behindFP, _ = stackdeltatypes.PackDerefParam(0, 16)
	inDuffCall  = stackdeltatypes.UnwindInfo{
		Flags: support.UnwindFlagDerefCfa, BaseReg: support.UnwindRegFp, Param: behindFP,
		AuxBaseReg: support.UnwindRegCfa, AuxParam: -16,
	}
	framelessInDuffCall = stackdeltatypes.UnwindInfo{
		BaseReg: support.UnwindRegSp, Param: 8, AuxBaseReg: support.UnwindRegCfa, AuxParam: -24,
	}
)

// duffCalls says how such calls between addresses are unwound, and what is around them.
func duffCalls(to *block, from, end uint64, around, within stackdeltatypes.UnwindInfo, code *window) {
	if end <= from || end-from > windowBytes {
		return
	}
	b := code.at(from, int(end-from))
	for at := 0; ; {
		i := bytes.Index(b[at:], beforeDuff)
		if i < 0 {
			return
		}
		call := at + i + len(beforeDuff) - 1
		at = call + 1
		if after := call + 5; after < len(b) && bytes.HasPrefix(b[after:], afterDuff) {
			at = after + len(afterDuff)
			to.add(from+uint64(call), within)
			to.add(from+uint64(at), around)
		}
	}
}

// assemblyX86: where the assembler has made a frame, the caller's frame pointer is in it. The engine
// does not look for it there.
func assemblyX86(of *stackdeltatypes.BasicBlock, f *goFunction, code *window) {
	if len(f.sizes) < 2 || f.sizes[0].size != 0 || !pushesRBP(code, f.sizes[1].from) {
		return
	}
	for i := range of.Deltas {
		info := &of.Deltas[i].Info
		if info.Flags == 0 && info.BaseReg == support.UnwindRegSp && info.AuxBaseReg == support.UnwindRegInvalid &&
			info.Param >= 16 {
			info.AuxBaseReg, info.AuxParam = support.UnwindRegCfa, -16
		}
	}
}

// cutSwitched marks what is called on another stack as cut: its callers are described in the runtime's memory.
// Else they would be what is left at the start of the other stack. On arm64 they are in a register that is not
// known.
func cutSwitched(of *stackdeltatypes.BasicBlock, f *goFunction, code *window) {
	b := code.at(f.start, int(min(f.end-f.start, maxSwitchBytes)))
	for at := 0; at < len(b); {
		i, err := x86asm.Decode(b[at:], 64)
		if err != nil {
			return
		}
		at += i.Len
		if i.Op == x86asm.MOV && i.Args[0] == x86asm.RSP {
			cut := block{stackdeltatypes.BasicBlock{Start: of.Start}}
			cut.Deltas = of.Deltas[:1:1]
			cut.add(f.start+uint64(at), stackdeltatypes.UnwindInfoInvalid)
			if f.end < of.End {
				cut.add(f.end, of.Deltas[0].Info)
			}
			of.Deltas = cut.Deltas
			return
		}
	}
}

// maxSwitchBytes bounds the code of a function that switches stacks.
const maxSwitchBytes = 1024

// Instructions at the ends of frames on arm64.
const (
	saveX29     = 0xf81f83fd // stur x29, [sp, #-8]
	setX29      = 0xd10023fd // sub x29, sp, #8
	restoreX29  = 0xf85f83fd // ldur x29, [sp, #-8]
	restoreBoth = 0xa97ffbfd // ldp x29, x30, [sp, #-8]

	// maxEndBytes is how far before the end of a frame its registers are restored.
	maxEndBytes = 16
)

// compiledARM64: the instruction that makes room stores the return address there; then the frame pointer is
// saved and set. At the end both are loaded, and the room is given back with the latter or after it.
func compiledARM64(to *block, f *goFunction, code *window) {
	before := int32(0)
	for _, s := range f.sizes {
		at := s.from
		switch {
		case s.size == 0:
			if before != 0 {
				endARM64(to, at, before, code)
			}
			to.add(at, stackdeltatypes.UnwindInfoLR)
		case before == 0:
			if instructionAt(code, at) == saveX29 {
				to.add(at, returnOnStack(s.size))
				at += 4
			}
			if instructionAt(code, at) == setX29 {
				to.add(at, returnOnStack(s.size))
				at += 4
			}
			fallthrough
		default:
			to.add(at, stackdeltatypes.UnwindInfoFramePointer)
		}
		before = s.size
	}
}

// endARM64: from where the registers of the caller are restored until there is no frame.
func endARM64(to *block, end uint64, size int32, code *window) {
	for at := end - 4; at >= end-maxEndBytes; at -= 4 {
		switch instructionAt(code, at) {
		case restoreX29:
			to.add(at+4, returnOnStack(size))
			return
		case restoreBoth:
			to.add(at+4, stackdeltatypes.UnwindInfo{
				BaseReg: support.UnwindRegSp, Param: size, AuxBaseReg: support.UnwindRegLr,
			})
			return
		}
	}
}

// returnOnStack is how a frame of arm64 is unwound whose return address is at its end, and in whose code the
// frame pointer is its caller's.
func returnOnStack(size int32) stackdeltatypes.UnwindInfo {
	return stackdeltatypes.UnwindInfo{BaseReg: support.UnwindRegSp, Param: size, AuxBaseReg: support.UnwindRegSp}
}

func instructionAt(code *window, addr uint64) uint32 {
	if b := code.at(addr, 4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}
