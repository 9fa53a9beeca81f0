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

// Code is taken for trampolines if there are two copies of one, as near to each other as CPython has them. Each form
// has a part of the file of its own.
func TestFindTrampolines(t *testing.T) {
	pad := func(code []byte, n int) []byte { return append(bytes.Clone(code), make([]byte, n)...) }
	for i, form := range trampolineForms {
		one, marked := form.code, slices.Concat(branchTarget, form.code)
		other := trampolineForms[1-i].code
		for n, test := range []struct {
			code []byte
			want bool
		}{
			{slices.Concat(one, one), true},
			{slices.Concat(pad(one, 16-len(one)), one), true},
			{slices.Concat(pad(one, 32-len(one)), one), true},
			{slices.Concat(marked, marked), true},
			{slices.Concat(pad(marked, 16-len(marked)), marked), true},
			{slices.Concat(pad(marked, 32-len(marked)), marked), true},
			{slices.Concat(one, marked), false},
			{slices.Concat(one, other), false},
			{slices.Concat(pad(one, 15-len(one)), one), false},
			{one, false},
			{slices.Concat(one, one[:len(one)-1]), false},
			{slices.Concat([]byte{0x90}, one, one), false},
			{nil, false},
			{make([]byte, TrampolineStart), false},
		} {
			offset, are := FindTrampolines(test.code)
			assert.Check(t, are == test.want && (!are || offset == uint64(i)*MaxTrampolineBytes), "%d, %d: %d", i, n,
				offset)
		}
	}
}

// A trampoline has a frame from its first instruction, which makes it, to the one after that which removes it.
func TestInTrampoline(t *testing.T) {
	for i, within := range [][]int{{4, 6}, {1, 4, 6}} {
		code := trampolineForms[i].code
		for at := range len(code) {
			in := InTrampoline(code[at:min(at+4, len(code))])
			assert.Check(t, in == slices.Contains(within, at), "%d, %d: %v", i, at, in)
		}
	}
}

// All of the file that stands for trampolines is unwound as at the calls of their form, without looking into it.
func TestProviderOfTrampolines(t *testing.T) {
	data, err := NewProvider().GetIntervalDataForFile(pfelf.NewReferenceWithOpenFunc(Trampolines, nil, nil))
	assert.NilError(t, err)
	assert.Assert(t, len(data.Blocks) == 1 && data.NumDeltas == 2, data)
	block := data.Blocks[0]
	want := stackdeltatypes.UnwindInfo{BaseReg: support.UnwindRegSp, Param: 16}
	assert.Check(t, block.Start == 0 && block.End == 2*MaxTrampolineBytes && block.Deltas[0].Info == want, block)
	want.AuxBaseReg, want.AuxParam = support.UnwindRegCfa, -16
	assert.Check(t, block.Deltas[1].Offset == MaxTrampolineBytes && block.Deltas[1].Info == want, block)
}
