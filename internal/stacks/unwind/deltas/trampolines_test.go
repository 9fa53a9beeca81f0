package deltas

import (
	"bytes"
	"slices"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
	"gotest.tools/v3/assert"
)

// Code is taken for trampolines if there are two copies of one, as near to each other as CPython has them.
func TestAreTrampolines(t *testing.T) {
	pad := func(code []byte, n int) []byte { return append(bytes.Clone(code), make([]byte, n)...) }
	marked := slices.Concat(branchTarget, trampoline)
	for i, test := range []struct {
		code []byte
		want bool
	}{
		{slices.Concat(trampoline, trampoline), true},
		{slices.Concat(pad(trampoline, 5), trampoline), true},
		{slices.Concat(marked, marked), true},
		{slices.Concat(pad(marked, 1), marked), true},
		{slices.Concat(trampoline, marked), false},
		{slices.Concat(pad(trampoline, 4), trampoline), false},
		{trampoline, false},
		{slices.Concat(trampoline, trampoline[:10]), false},
		{slices.Concat([]byte{0x90}, trampoline, trampoline), false},
		{nil, false},
		{make([]byte, TrampolineStart), false},
	} {
		assert.Check(t, AreTrampolines(test.code) == test.want, i)
	}
	for at := range len(trampoline) {
		inside := at == 4 || at == 6
		assert.Check(t, InTrampoline(trampoline[at:min(at+4, len(trampoline))]) == inside, at)
	}
}

// All of the file that stands for trampolines is unwound as at their call, without looking into it.
func TestProviderOfTrampolines(t *testing.T) {
	data, err := NewProvider().GetIntervalDataForFile(pfelf.NewReferenceWithOpenFunc(Trampolines, nil, nil))
	assert.NilError(t, err)
	assert.Assert(t, len(data.Blocks) == 1 && data.NumDeltas == 1, data)
	block := data.Blocks[0]
	want := stackdeltatypes.UnwindInfo{BaseReg: support.UnwindRegSp, Param: 16}
	assert.Check(t, block.Start == 0 && block.End == MaxTrampolineBytes && block.Deltas[0].Info == want, block)
}
