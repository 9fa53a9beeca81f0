package symbolizer

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

func TestOriginOf(t *testing.T) {
	file := func(kind profile.Kind, path string) *profile.File { return &profile.File{Kind: kind, Path: path} }
	for _, test := range []struct {
		frame profile.Frame
		want  Origin
	}{
		{profile.Frame{Address: 0x1000}, ProcessOrigin},
		{profile.Frame{File: file(profile.NativeFrame, "/lib/libc.so"), Address: 0x1000}, ProcessOrigin},
		{profile.Frame{File: file(profile.NativeFrame, "[vdso]"), Address: 0x1000}, VDSOOrigin},
		{profile.Frame{File: file(profile.KernelFrame, VMLinuxPath), Address: 0x1000}, KernelOrigin},
		{profile.Frame{Address: KernelSpace}, KernelOrigin},
		{profile.Frame{Address: 0xffffffffff5fffff}, KernelOrigin},
		{profile.Frame{Address: 0xffffffffff600000}, NoOrigin}, // vsyscall: any process can have many of them
		{profile.Frame{Address: 0xffffffffff600fff}, NoOrigin},
		{profile.Frame{Address: 0xffffffffff601000}, KernelOrigin},
		{profile.NewCutFrame(), NoOrigin},
		{profile.NewJVMFrame(profile.NewFunction("f", ""), 1), NoOrigin},
		{profile.NewRuntimeFrame(profile.V8Frame, profile.NewFunction("f", ""), 1), NoOrigin},
		{profile.Frame{Function: profile.NewFunction("f", ""), Address: 1}, NoOrigin},
	} {
		got := OriginOf(test.frame)
		assert.Check(t, got == test.want, "%v: %d, want %d", test.frame, got, test.want)
	}
}
