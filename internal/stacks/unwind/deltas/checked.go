package deltas

import (
	"errors"

	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// maxSpan bounds how far apart the code of a file may be, in pages of 64 KiB: the engine allocates two bytes for each,
// before a file with more than a few thousand is refused. It is 64 GiB.
const maxSpan = 1 << 20

var errPlaces = errors.New("the file describes code at places where none can be")

// check returns an error unless all code that a file describes is between the first and the last that it does, as the
// engine takes for granted: it counts by pages what each has.
func check(data *stackdeltatypes.IntervalData) error {
	blocks := data.Blocks
	if len(blocks) == 0 {
		return nil
	}
	const pageBits = support.StackDeltaPageBits
	first, last := blocks[0].Start>>pageBits, blocks[len(blocks)-1].End>>pageBits
	isOutside := func(addr uint64) bool { return addr>>pageBits < first || addr>>pageBits > last }
	if last < first || last-first >= maxSpan {
		return errPlaces
	}
	for i, block := range blocks {
		beforeGap := i+1 == len(blocks) || block.End+stackdeltatypes.MinimumGap < blocks[i+1].Start
		if beforeGap && isOutside(block.End) {
			return errPlaces
		}
		for _, delta := range block.Deltas {
			addr := block.Start + uint64(delta.Offset)
			isSignal := delta.Info.Flags&support.UnwindFlagCommand != 0 &&
				delta.Info.Param == support.UnwindCommandSignal
			if isOutside(addr) || isSignal && isOutside(addr-1) {
				return errPlaces
			}
		}
	}
	return nil
}
