package deltas

import (
	"bytes"
	"slices"

	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// Trampolines is the name of a file, which is none, with trampolines of CPython: with -X perf, each function is called
// through one, whose address tells which function that is. They are copies of the same instructions, in memory of no
// file, and have no .eh_frame.
const Trampolines = "[trampolines of Python]"

// MaxTrampolineBytes bounds the trampolines that are side by side: some 130,000 functions.
const MaxTrampolineBytes = 4 << 20

// TrampolineBytes is the size of that file: it has each form of trampolines in MaxTrampolineBytes.
const TrampolineBytes = 2 * MaxTrampolineBytes

// TrampolineStart is how many bytes FindTrampolines needs.
const TrampolineStart = 64

// trampolineForm is one of the forms that trampolines have.
type trampolineForm struct {
	code   []byte
	within [][]byte // how code begins after the frame is made, and before it is left
	info   stackdeltatypes.UnwindInfo
}

var (
	branchTarget    = []byte{0xf3, 0x0f, 0x1e, 0xfa} // endbr64
	trampolineCall  = []byte{0xff, 0xd1}             // call rcx
	trampolineForms = []trampolineForm{
		{ // up to 3.13: sub, call, add, ret
			[]byte{0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3},
			[][]byte{trampolineCall, {0x48, 0x83, 0xc4, 8}},
			stackdeltatypes.UnwindInfo{BaseReg: support.UnwindRegSp, Param: 16},
		},
		{ // 3.14: push, mov, call, pop, ret
			[]byte{0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3},
			[][]byte{{0x48, 0x89, 0xe5}, trampolineCall, {0x5d, 0xc3}},
			stackdeltatypes.UnwindInfo{
				BaseReg: support.UnwindRegSp, Param: 16, AuxBaseReg: support.UnwindRegCfa, AuxParam: -16,
			},
		},
	}
)

// FindTrampolines reports whether code begins with two copies of a trampoline of CPython on x86-64, the second at the
// next byte, or at a multiple of 16 or 32, and which offset in Trampolines is of their form.
func FindTrampolines(code []byte) (offset uint64, are bool) {
	for i, form := range trampolineForms {
		one := form.code
		if bytes.HasPrefix(code, branchTarget) {
			one = append(bytes.Clone(branchTarget), form.code...)
		}
		second := func(at int) bool { return len(code) >= at && bytes.HasPrefix(code[at:], one) }
		n := len(one)
		if bytes.HasPrefix(code, one) && (second(n) || second((n+15)&^15) || second((n+31)&^31)) {
			return uint64(i) * MaxTrampolineBytes, true
		}
	}
	return 0, false
}

// InTrampoline reports whether code continues after a trampoline has made its frame, and before it leaves that.
func InTrampoline(code []byte) bool {
	return slices.ContainsFunc(trampolineForms, func(form trampolineForm) bool {
		return slices.ContainsFunc(form.within, func(begins []byte) bool { return bytes.HasPrefix(code, begins) })
	})
}

// trampolines is how to unwind Trampolines at a call.
func trampolines() *stackdeltatypes.IntervalData {
	block := stackdeltatypes.BasicBlock{End: TrampolineBytes}
	for i, form := range trampolineForms {
		block.Deltas.Add(uint32(i)*MaxTrampolineBytes, form.info)
	}
	data := new(stackdeltatypes.IntervalData)
	data.Add(block)
	return data
}
