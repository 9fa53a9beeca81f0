package profiles

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// Of a symbol whose name is mangled both names are sent; its stack has the id that it has without any.
func TestSystemNames(t *testing.T) {
	frames := []profile.Frame{
		{File: library, Address: 0x10, Function: profile.NewSymbol("_ZN6Thread3runEv", "Thread::run")},
		{File: library, Address: 0x20, Function: profile.NewSymbol("_ZN6Thread3runEi", "Thread::run")},
		{File: library, Address: 0x30, Function: profile.NewSymbol("os_run", "")},
	}
	d := one(t, testOptions(&counter{}), sampleOf(shop, frames...)).Dictionary
	want := [][2]string{{"Thread::run", "_ZN6Thread3runEv"}, {"Thread::run", "_ZN6Thread3runEi"}, {"os_run", ""}}
	stack := d.StackTable[1]
	for i, l := range stack.LocationIndices {
		f := d.FunctionTable[d.LocationTable[l].Lines[0].FunctionIndex]
		got := [2]string{d.StringTable[f.NameStrindex], d.StringTable[f.SystemNameStrindex]}
		assert.Check(t, got == want[i], "%q, want %q", got, want[i])
	}
	for i := range frames {
		frames[i].Function = nil
	}
	if got := stackTraceID(t, d, stack); got != profile.TraceID(frames) || len(stack.LocationIndices) != len(want) {
		t.Errorf("stack-trace-id %x, %d frames", got, len(stack.LocationIndices))
	}
}
