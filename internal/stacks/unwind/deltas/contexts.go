package deltas

import (
	"bytes"
	"debug/elf"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"golang.org/x/arch/x86/x86asm"
)

// maxMakeContextBytes is more than glibc's makecontext has.
const maxMakeContextBytes = 1 << 10

// startContext is how glibc's __start_context begins, perhaps after branchTarget: mov rsp, rbx. What comes next depends
// on whether it was built for shadow stacks.
var startContext = []byte{0x48, 0x89, 0xdc}

// completeContexts has stacks of coroutines end that glibc's makecontext has made. The function of one returns to the
// beginning of __start_context, so that its caller is looked for in what is before that, which is described by nothing.
func completeContexts(file *pfelf.File, data *stackdeltatypes.IntervalData) error {
	symbol, err := file.LookupSymbol("makecontext")
	if file.Machine != elf.EM_X86_64 || err != nil || symbol.Address == 0 { // it is no glibc
		return nil
	}
	code := make([]byte, min(symbol.Size, maxMakeContextBytes))
	if _, err := file.ReadAt(code, int64(symbol.Address)); err != nil {
		return err
	}
	for at := 0; at < len(code); {
		i, err := x86asm.Decode(code[at:], 64)
		if err != nil {
			return nil
		}
		at += i.Len
		taken, is := i.Args[1].(x86asm.Mem)
		if i.Op != x86asm.LEA || !is || taken.Base != x86asm.RIP {
			continue
		}
		start := uint64(symbol.Address) + uint64(at) + uint64(taken.Disp)
		begins := make([]byte, len(branchTarget)+len(startContext))
		n, _ := file.ReadAt(begins, int64(start))
		data.Sort()
		if bytes.HasPrefix(bytes.TrimPrefix(begins[:n], branchTarget), startContext) && data.Find(start-1) == nil {
			before := stackdeltatypes.BasicBlock{Start: start - 1, End: start}
			before.Deltas.Add(0, stackdeltatypes.UnwindInfoStop)
			data.Add(before)
			data.Sort()
		}
	}
	return nil
}
