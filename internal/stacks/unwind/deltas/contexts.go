package deltas

import (
	"bytes"
	"debug/elf"
	"encoding/binary"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// maxMakeContextBytes is more than glibc's makecontext has.
const maxMakeContextBytes = 1 << 10

// leaBytes is the length of an instruction that takes an address by its distance: lea register, [rip + 4 bytes].
const leaBytes = 7

// startContext is how glibc's __start_context begins, perhaps after branchTarget: mov rsp, rbx. What comes next depends
// on whether it was built for shadow stacks.
var startContext = []byte{0x48, 0x89, 0xdc}

// completeContexts has stacks of coroutines end that glibc's makecontext has made. The function of one returns to the
// beginning of __start_context, so that its caller is looked for in what is before that. If that is padding, nothing
// describes it. Static programs are not completed: they have no table of symbols by hash.
func completeContexts(file *pfelf.File, data *stackdeltatypes.IntervalData) error {
	symbol, err := file.LookupSymbol("makecontext")
	if file.Machine != elf.EM_X86_64 || err != nil || symbol.Address == 0 { // it is no glibc
		return nil
	}
	code := make([]byte, min(symbol.Size, maxMakeContextBytes))
	if _, err := file.ReadAt(code, int64(symbol.Address)); err != nil {
		return err
	}
	for at := leaBytes; at <= len(code); at++ {
		lea := code[at-leaBytes : at]
		if lea[0]&^4 != 0x48 || lea[1] != 0x8d || lea[2]&0xc7 != 5 {
			continue
		}
		distance := int32(binary.LittleEndian.Uint32(lea[3:]))
		start := uint64(symbol.Address) + uint64(at) + uint64(distance)
		begins := make([]byte, len(branchTarget)+len(startContext))
		n, _ := file.ReadAt(begins, int64(start))
		if start == 0 || !bytes.HasPrefix(bytes.TrimPrefix(begins[:n], branchTarget), startContext) {
			continue
		}
		if data.Sort(); data.Find(start-1) == nil {
			before := stackdeltatypes.BasicBlock{Start: start - 1, End: start}
			before.Deltas.Add(0, stackdeltatypes.UnwindInfoStop)
			data.Add(before)
			data.Sort()
		}
		return nil
	}
	return nil
}
