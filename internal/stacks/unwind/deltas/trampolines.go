package deltas

import (
	"bytes"

	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// Trampolines is the name of a file, which is none, with trampolines of CPython: with -X perf, each function is called
// through one, whose address tells which function that is. They are copies of the same instructions, in memory of no
// file, and have no .eh_frame.
const Trampolines = "[trampolines of Python]"

// MaxTrampolineBytes bounds the trampolines that are side by side: some 380,000 functions.
const MaxTrampolineBytes = 4 << 20

// TrampolineStart is how many bytes AreTrampolines needs.
const TrampolineStart = 64

var (
	branchTarget    = []byte{0xf3, 0x0f, 0x1e, 0xfa}                                     // endbr64
	trampoline      = []byte{0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3} // sub, call rcx, add, ret
	trampolineCall  = trampoline[4:6]
	trampolineLeave = trampoline[6:10]
)

// AreTrampolines reports whether code begins with two copies of CPython's trampoline on x86-64, the second at the next
// byte, or at a multiple of 16.
func AreTrampolines(code []byte) bool {
	one := trampoline
	if bytes.HasPrefix(code, branchTarget) {
		one = append(bytes.Clone(branchTarget), trampoline...)
	}
	second := func(at int) bool { return len(code) >= at && bytes.HasPrefix(code[at:], one) }
	return bytes.HasPrefix(code, one) && (second(len(one)) || second((len(one)+15)&^15))
}

// InTrampoline reports whether code continues after a trampoline has made its frame, and before it leaves that.
func InTrampoline(code []byte) bool {
	return bytes.HasPrefix(code, trampolineCall) || bytes.HasPrefix(code, trampolineLeave)
}

// trampolines is how to unwind Trampolines at a call.
func trampolines() *stackdeltatypes.IntervalData {
	block := stackdeltatypes.BasicBlock{End: MaxTrampolineBytes}
	block.Deltas.Add(0, stackdeltatypes.UnwindInfo{BaseReg: support.UnwindRegSp, Param: 16})
	data := new(stackdeltatypes.IntervalData)
	data.Add(block)
	return data
}
