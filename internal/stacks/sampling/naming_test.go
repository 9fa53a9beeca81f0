package sampling

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/lab/demo"
	"correlator/internal/stacks/unwind"
	"correlator/profile"
)

// The stacks of a user who is held back wait for as long as they may, not for anything else: nobody asks again and
// again.
func TestHeldBack(t *testing.T) {
	u := &unwinding{time: newEngineTime()}
	u.engine.Store(new(unwind.Engine)) // it is not asked
	p := new(program)
	p.unwound.target.User = "slow"
	u.time.add("slow")
	u.time.add("other")
	u.time.charge("slow", time.Hour, time.Now())
	deadline := time.Now().Add(50 * time.Millisecond)
	named, err := u.frames(p, [][]uint64{{1}}, deadline)
	if len(named) > 0 || !errors.Is(err, errLater) || time.Now().Before(deadline) {
		t.Errorf("%v, %v, %v before the deadline", named, err, time.Until(deadline))
	}
}

// Addresses stay as the engine gives them, which has subtracted 1 where that is to be: also that of the
// leaf behind frames of the kernel, which is none of a call when it was interrupted.
func TestAppendNamed(t *testing.T) {
	files, err := profile.NewFiles("/proc", 1)
	assert.NilError(t, err)
	space := profile.NewAddressSpace(files, probePace())
	for _, kernel := range [][]profile.Frame{nil, {{Address: 1}, {Address: 2}}} {
		frames, whole := appendNamed(kernel, space, newNamedFrames([]unwind.Frame{
			{Kind: unwind.NativeFrame, Address: 0x7000}, {Kind: unwind.JVMFrame, Function: "A.b", Line: 3},
			{Kind: unwind.NativeFrame, Address: 0x8000},
		}))
		assert.Assert(t, len(frames) == len(kernel)+3 && whole, "%+v", frames)
		for i, want := range []uint64{0x7000, 3, 0x8000} {
			if got := frames[len(kernel)+i].Address; got != want {
				t.Errorf("behind %d frames of the kernel, the address of frame %d is %#x, want %#x", len(kernel), i, got, want)
			}
		}
	}
}

// Frames of each runtime that the engine has are frames of that runtime.
func TestAppendRuntimeFrames(t *testing.T) {
	kinds := map[unwind.FrameKind]profile.Kind{
		unwind.JVMFrame: profile.JVMFrame, unwind.PythonFrame: profile.PythonFrame, unwind.V8Frame: profile.V8Frame,
		unwind.PHPFrame: profile.PHPFrame, unwind.InlinedFrame: profile.JVMFrame,
	}
	for kind := unwind.FrameKind(0); kind <= unwind.CutFrame; kind++ {
		want, ofRuntime := kinds[kind]
		assert.Check(t, kind.OfRuntime() == ofRuntime, "kind %d is of a runtime: %v", kind, !ofRuntime)
		if !ofRuntime {
			continue
		}
		frames, whole := appendNamed(nil, nil,
			newNamedFrames([]unwind.Frame{{Kind: kind, Function: "f", SourceFile: "/f", Line: 3}}))
		name, file, line := "f", "/f", uint32(3)
		if kind == unwind.InlinedFrame { // it is not known of which function
			name, file, line = profile.InlinedName, "", 0
		}
		assert.Check(t, whole && len(frames) == 1 && frames[0].Kind() == want && frames[0].Name() == name &&
			frames[0].SourceFile() == file && frames[0].Line == line,
			"kind %d: %+v", kind, frames)
	}
}

// Where a caller may be missing, a stack that was walked has a frame that says so, and counts as cut. From the
// addresses after it, 1 is subtracted as from all return addresses.
func TestUnknownCaller(t *testing.T) {
	files, err := profile.NewFiles("/proc", 1)
	assert.NilError(t, err)
	space := profile.NewAddressSpace(files, probePace())
	whole := appendWalked(nil, space, []uint64{0x7000, 0x8000}, false)
	frames := appendWalked(nil, space, []uint64{0x7000, bpf.UnknownCaller, 0x8000, 0x9000}, false)
	assert.Assert(t, len(whole) == 2 && len(frames) == 4 && frames[1].Kind() == profile.CutFrame, frames)
	assert.Check(t, frames[0] == whole[0] && frames[2] == whole[1] && frames[3].Address == 0x8fff, frames)
	addrs := slices.Repeat([]uint64{0x7000}, bpf.MaxFrames) // further ones are not walked
	deep, most := appendWalked(nil, space, addrs[1:], false), appendWalked(nil, space, addrs, false)
	assert.Check(t, deep[len(deep)-1] == deep[len(deep)-2] && most[len(most)-1].Kind() == profile.CutFrame)
	store, err := profile.NewStore(8, 1<<16)
	assert.NilError(t, err)
	assert.Check(t, store.Put(profile.TraceID(frames), frames).Cut && !store.Put(profile.TraceID(whole), whole).Cut)
}

// The end of a chain is marked that was walked though the engine unwinds the program, if the process
// has a C library and the chain ends elsewhere. A static program, as of Go, begins its threads itself:
// there, nothing is known to be missing.
func TestEndOfChain(t *testing.T) {
	s := open(t, bpf.SamplerOptions{})
	p := demo.Start(t, demo.Options{Manual: true})
	program := s.start(p, newReceiver(t, 0))
	static := profile.NewAddressSpace(s.files, probePace()) // it has no files at all
	assert.NilError(t, program.space.Update(time.Now(), program.memory))
	mappings, err := program.memory.ExecutableMappings()
	assert.NilError(t, err)
	var own, library uint64
	for _, m := range mappings {
		switch {
		case (&profile.File{Path: m.Path}).IsCLibrary():
			library = m.Start + 16
		case filepath.Base(m.Path) == "demo":
			own = m.Start + 16
		}
	}
	assert.Assert(t, own != 0 && library != 0, mappings)
	for _, test := range []struct {
		space *profile.AddressSpace
		addrs []uint64
		ends  bool
		want  bool
	}{
		{program.space, []uint64{library, own}, true, true}, {program.space, []uint64{own, library}, true, false},
		{program.space, []uint64{library, own}, false, false}, {program.space, nil, true, false},
		{program.space, []uint64{own, library, own}, true, false}, // _start
		{program.space, []uint64{library, own, own}, true, true}, {static, []uint64{own, own}, true, false},
	} {
		frames := appendWalked(nil, test.space, test.addrs, test.ends)
		marked := len(frames) > len(test.addrs) && frames[len(frames)-1].Kind() == profile.CutFrame
		assert.Check(t, marked == test.want && (marked || len(frames) == len(test.addrs)), "%+v: %+v", test, frames)
	}
}

// A stack whose functions of PHP are not in their places is named without these, as one that is cut, but not one that
// is cut anyway; words of PHP last, but not a function that was not found.
func TestNameablePHP(t *testing.T) {
	native := []uint64{libpf.NewEbpfFrameHeader(libpf.NativeFrame, 0, 2, 0), 1}
	called := []uint64{libpf.NewEbpfFrameHeader(libpf.PHPFrame, 0, 3, 0), 4096, 1<<48 | 5<<32}
	p := &pendingSample{raw: bpf.Stack{Words: slices.Concat(native, called)}}
	raw, whole := nameable(p, time.Now())
	assert.Check(t, whole && slices.Equal(raw.Words, native) && raw.Error == bpf.TooManyWords, "%+v", raw)
	p.raw.Error = bpf.TooManyWords
	raw, whole = nameable(p, time.Now())
	assert.Check(t, whole && len(raw.Words) == 5, "%+v", raw)
	for name, want := range map[string]bool{"f": true, "": false} {
		frames := newNamedFrames([]unwind.Frame{{Kind: unwind.PHPFrame, Function: name}})
		assert.Check(t, isLasting(raw, frames) == want, "%q", name)
	}
}
