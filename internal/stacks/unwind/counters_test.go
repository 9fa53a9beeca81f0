package unwind

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// What frames lack is counted, once for each of them, whatever numbers a worker answers with.
func TestCountFrames(t *testing.T) {
	c := new(Counters)
	c.Count(slices.Values([]Frame{
		{Kind: NativeFrame, Address: 1}, {Kind: NativeFrame},
		{Kind: V8Frame, Function: "f", SourceFile: "a.js", Line: 3}, {Kind: V8Frame, Function: "f", SourceFile: "a.js"},
		{Kind: V8Frame, Function: "V8::EntryFrame"}, {Kind: JVMFrame, SourceFile: "A.java"},
		{Kind: InlinedFrame, Address: uint64(UnknownInCall)}, {Kind: InlinedFrame, Address: 1 << 40},
		{Kind: CutFrame}, {Kind: CutFrame},
	}), true)
	c.Count(slices.Values([]Frame{{Kind: JVMFrame, Function: "A.a"}}), false)
	c.Count(slices.Values([]Frame{{Kind: JVMFrame, Function: "A.a"}}), true)
	for what, counted := range map[string][2]uint64{
		"stacks":   {c.Stacks.Load(), 3},
		"cut":      {c.StacksCut.Load(), 2},
		"frames":   {c.Frames.Load(), 12},
		"unmapped": {c.FramesUnmapped.Load(), 1},
		"unnamed":  {c.FramesUnnamed.Load(), 1},
		"unplaced": {c.FramesUnplaced.Load(), 1},
		"in calls": {c.InlinedUnknown[UnknownInCall].Load(), 1},
		"between":  {c.InlinedUnknown[UnknownBetween].Load(), 1},
	} {
		assert.Check(t, counted[0] == counted[1], "%s: %d, not %d", what, counted[0], counted[1])
	}
}
