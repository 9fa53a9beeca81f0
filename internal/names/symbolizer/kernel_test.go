package symbolizer

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbols"
	"correlator/profile"
)

// Frames of the kernel, of modules and of code that it compiled have the names in kallsyms, in the range of
// a symbol, each counted from the start of its file's text; where that is not shown, they may have names.
func TestKernelNames(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		assert.NilError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		testenv.WriteFile(t, filepath.Join(dir, name), text)
	}
	kallsyms := "ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000040 T schedule\nffffffff81000080 t yield\n" +
		"ffffffff82000000 T _etext\nffffffffc0001010 t nft_do\t[nf_tables]\nffffffffc0001030 t nft_end\t[nf_tables]\n" +
		"ffffffffc0003000 t bpf_prog_1f_f\t[bpf]\nffffffffc0003010 t bpf_prog_2f_f\t[bpf]\n"
	write("kallsyms", kallsyms)
	write("module/nf_tables/sections/.text", "0xffffffffc0001000\n")
	write("module/hidden/sections/.text", "0x0000000000000000\n")
	frame := func(path string, addr uint64) profile.Frame {
		return profile.Frame{File: &profile.File{Kind: profile.KernelFrame, Path: path}, Address: addr}
	}
	type test struct {
		frame   profile.Frame
		name    string
		around  symbols.Range
		located bool
	}
	tests := []test{
		{frame(VMLinuxPath, 0x50), "schedule", symbols.Range{Start: 0x40, End: 0x80}, true},
		{frame("nf_tables", 0x15), "nft_do", symbols.Range{Start: 0x10, End: 0x30}, true},
		{profile.Frame{Address: 0xffffffffc0003008}, "bpf_prog_1f_f",
			symbols.Range{Start: 0xffffffffc0003000, End: 0xffffffffc0003010}, true},
		{frame("hidden", 0x15), "", symbols.Range{End: 1<<64 - 1}, false},
		{frame("unloaded", 0x15), "", symbols.Range{End: 1<<64 - 1}, false},
	}
	var frames []profile.Frame
	for _, test := range tests {
		frames = append(frames, test.frame)
	}
	kernel := NewKernel(dir, dir)
	for range 2 {
		names, err := kernel.Read(t.Context(), frames)
		assert.NilError(t, err)
		for _, want := range tests {
			got := test{want.frame, names.Name(want.frame), names.Range(want.frame), names.Located(want.frame)}
			assert.Check(t, got == want, "%+v, want %+v", got, want)
		}
	}
	os.Remove(filepath.Join(dir, "kallsyms"))
	if names, err := kernel.Read(t.Context(), frames); err == nil || names.Name(tests[0].frame) != "" {
		t.Errorf("%q without kallsyms, %v", names.Name(tests[0].frame), err)
	}
	names, err := kernel.Read(t.Context(), nil)
	assert.Check(t, err == nil && names.Name(tests[0].frame) == "", "nothing is read of nothing: %v", err)
}

// The vDSO of a frame is named by our own, if that is the same file.
func TestReadVDSO(t *testing.T) {
	image, err := profile.ReadVDSO("/proc")
	assert.NilError(t, err)
	contents, size := bytes.NewReader(image), int64(len(image))
	file, err := elfsym.ParseFile(contents, size)
	assert.NilError(t, err)
	tables, err := elfsym.ReadSymbolTables(contents, size)
	assert.NilError(t, err)
	var addrs []uint64
	if err := tables.Dynamic.Functions(func(f elfsym.Function) error {
		addrs = append(addrs, f.Start)
		return nil
	}); err != nil || len(addrs) == 0 {
		t.Fatal(addrs, err)
	}
	addr := addrs[0]
	names, err := ReadVDSO("/proc", file.HTLHash, []uint64{addr})
	if err != nil || names.Name(addr) == "" || names.Range(addr).Start != addr {
		t.Errorf("%q, %v, %v", names.Name(addr), names.Range(addr), err)
	}
	if names, err := ReadVDSO("/proc", profile.FileID{1}, []uint64{addr}); err != errOtherVDSO || names.Name(addr) != "" {
		t.Errorf("%q of another file, %v", names.Name(addr), err)
	}
	_, err = ReadVDSO(t.TempDir(), file.HTLHash, []uint64{addr})
	assert.Check(t, err != nil, "read from nowhere")
}

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
