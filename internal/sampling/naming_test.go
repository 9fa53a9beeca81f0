package sampling

import (
	"testing"

	"correlator/internal/unwind"
	"correlator/profile"
)

// Addresses stay as the engine gives them, which has subtracted 1 where that is to be: also that of the
// leaf behind frames of the kernel, which is none of a call when it was interrupted.
func TestAppendNamed(t *testing.T) {
	files, err := profile.NewFiles("/proc", 1)
	if err != nil {
		t.Fatal(err)
	}
	space := profile.NewAddressSpace(files, probePace())
	for _, kernel := range [][]profile.Frame{nil, {{Address: 1}, {Address: 2}}} {
		frames, whole := appendNamed(kernel, space, []unwind.Frame{
			{Kind: unwind.NativeFrame, Address: 0x7000}, {Kind: unwind.JVMFrame, Function: "A.b", Line: 3},
			{Kind: unwind.NativeFrame, Address: 0x8000},
		})
		if len(frames) != len(kernel)+3 || !whole {
			t.Fatalf("%+v", frames)
		}
		for i, want := range []uint64{0x7000, 3, 0x8000} {
			if got := frames[len(kernel)+i].Address; got != want {
				t.Errorf("behind %d frames of the kernel, the address of frame %d is %#x, want %#x", len(kernel), i, got, want)
			}
		}
	}
}
