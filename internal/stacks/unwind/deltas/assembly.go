package deltas

import (
	"debug/elf"
	"slices"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// assembly are the functions in assembly that files of a kind have, without an .eh_frame, by a symbol that all files
// of that kind have.
var assembly = map[libpf.SymbolName][]libpf.SymbolName{
	// of V8, for debuggers: by the function it calls its garbage collector from the thread of a program
	"v8dbg_HeapObjectTag": {"PushAllRegistersAndIterateStack"},
	// of JVMs, likewise: what their threads call while they wait for each other, read memory that may not be there, and
	// copy
	"gHotSpotVMStructs": {
		"SpinPause", "SafeFetch32_impl", "SafeFetchN_impl", "_Copy_arrayof_conjoint_bytes",
		"_Copy_arrayof_conjoint_jshorts", "_Copy_conjoint_jints_atomic", "_Copy_conjoint_jlongs_atomic",
	},
}

// maxAssemblyBytes is more than any of these functions has.
const maxAssemblyBytes = 512

// completeAssembly says how the functions in assembly are unwound, in a file that has them.
func completeAssembly(file *pfelf.File, data *stackdeltatypes.IntervalData) error {
	if file.Machine != elf.EM_X86_64 || file.Section(".symtab") == nil {
		return nil
	}
	var names []libpf.SymbolName
	for mark, functions := range assembly {
		if _, err := file.LookupSymbol(mark); err == nil {
			names = append(names, functions...)
		}
	}
	if len(names) == 0 {
		return nil
	}
	var starts []uint64
	err := file.VisitSymbols(func(s libpf.Symbol) bool {
		if i := slices.Index(names, s.Name); i >= 0 && s.Address != 0 { // 0: it is another file's
			starts = append(starts, uint64(s.Address))
			names = slices.Delete(names, i, i+1)
		}
		return len(names) > 0
	})
	if err != nil {
		return err
	}
	data.Sort()
	for _, start := range starts {
		code := make([]byte, maxAssemblyBytes)
		n, err := file.ReadAt(code, int64(start))
		if n == 0 {
			return err
		}
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
	}
	return nil
}
