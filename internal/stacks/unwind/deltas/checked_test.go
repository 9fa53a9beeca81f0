package deltas

import (
	"errors"
	"math"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"gotest.tools/v3/assert"
)

// A file whose code is out of order, or where none can be, is refused before the engine allocates for what is between.
func TestCheck(t *testing.T) {
	block := func(start, end uint64, info stackdeltatypes.UnwindInfo, offset uint32) *stackdeltatypes.BasicBlock {
		b := &stackdeltatypes.BasicBlock{Start: start, End: end}
		b.Deltas.Add(offset, info)
		return b
	}
	plain, signal := stackdeltatypes.UnwindInfoFramePointer, stackdeltatypes.UnwindInfoSignal
	for name, c := range map[string]struct {
		blocks []*stackdeltatypes.BasicBlock
		want   error
	}{
		"none":                {nil, nil},
		"one":                 {[]*stackdeltatypes.BasicBlock{block(0, 1, plain, 0)}, nil},
		"the largest":         {[]*stackdeltatypes.BasicBlock{block(1<<16, 1<<16+(maxSpan-1)<<16, plain, 0)}, nil},
		"too large":           {[]*stackdeltatypes.BasicBlock{block(0, maxSpan<<16, plain, 0)}, errPlaces},
		"as large as can be":  {[]*stackdeltatypes.BasicBlock{block(0, math.MaxUint64, plain, 0)}, errPlaces},
		"an end before":       {[]*stackdeltatypes.BasicBlock{block(1<<20, 0, plain, 0)}, errPlaces},
		"a place behind":      {[]*stackdeltatypes.BasicBlock{block(0, 1, plain, 1<<16)}, errPlaces},
		"a signal":            {[]*stackdeltatypes.BasicBlock{block(1<<16+8, 1<<17, signal, 0)}, nil},
		"a signal before all": {[]*stackdeltatypes.BasicBlock{block(1<<16, 1<<17, signal, 0)}, errPlaces},
		"disorder": {[]*stackdeltatypes.BasicBlock{
			block(1<<20, 1<<21, plain, 0), block(0, 1<<22, plain, 0),
		}, errPlaces},
		"an end behind all": {[]*stackdeltatypes.BasicBlock{
			block(0, 1<<20, plain, 0), block(1<<21, 1<<21+1, plain, 0),
		}, nil},
		"an end behind the last one's": {[]*stackdeltatypes.BasicBlock{
			block(0, 1<<20, plain, 1<<19), block(1, 2, plain, 0),
		}, errPlaces},
	} {
		err := check(&stackdeltatypes.IntervalData{Blocks: c.blocks})
		assert.Check(t, errors.Is(err, c.want), "%s: %v", name, err)
	}
}
