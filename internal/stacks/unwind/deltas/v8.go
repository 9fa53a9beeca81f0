package deltas

import (
	"debug/elf"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

const (
	// v8Mark is a symbol that each file with V8 has for debuggers.
	v8Mark = "v8dbg_HeapObjectTag"

	// v8Collects is the function in assembly by which V8 calls its garbage collector from the thread of a program. It
	// has at most maxV8CollectsBytes, and no .eh_frame.
	v8Collects         = "PushAllRegistersAndIterateStack"
	maxV8CollectsBytes = 64
)

// completeV8 says how v8Collects is unwound, in a file with V8.
func completeV8(file *pfelf.File, data *stackdeltatypes.IntervalData) error {
	if _, err := file.LookupSymbol(v8Mark); err != nil || file.Machine != elf.EM_X86_64 ||
		file.Section(".symtab") == nil {
		return nil
	}
	var start uint64
	is := func(s libpf.Symbol) bool {
		if s.Name == v8Collects {
			start = uint64(s.Address)
		}
		return start == 0
	}
	if err := file.VisitSymbols(is); err != nil || start == 0 {
		return err
	}
	code := make([]byte, maxV8CollectsBytes)
	n, err := file.ReadAt(code, int64(start))
	if n == 0 {
		return err
	}
	data.Sort()
	f := newFollower(start, code[:n], file.ReadAt)
	for _, b := range data.Blocks {
		f.exclude(b.Start, b.End)
	}
	f.addEntry(start)
	f.follow()
	for _, b := range f.blocks() {
		data.Add(*b)
	}
	data.Sort()
	return nil
}
