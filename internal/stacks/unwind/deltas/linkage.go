package deltas

import (
	"debug/elf"
	"encoding/binary"
	"slices"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// linkageHeader is the size of what a PLT of arm64 has before its calls, if it has it.
const linkageHeader = 32

// completeLinkage says how calls through the PLT are unwound on arm64, where linkers describe none: they jump on,
// with what returns in the link register. That which finds a function at its first call, before them, pushes.
func completeLinkage(file *pfelf.File, data *stackdeltatypes.IntervalData) error {
	plt := file.Section(".plt")
	if file.Machine != elf.EM_AARCH64 || plt == nil || plt.FileSize < 16 || plt.FileSize > maxFollowedBytes {
		return nil
	}
	var code [8]byte
	if _, err := plt.ReadAt(code[:], 0); err != nil {
		return err
	}
	const pushX16X30, bti = 0xa9bf7bf0, 0xd503245f
	first, second := binary.LittleEndian.Uint32(code[:]), binary.LittleEndian.Uint32(code[4:])
	calls := stackdeltatypes.BasicBlock{Start: plt.Addr, End: plt.Addr + plt.FileSize}
	if first == pushX16X30 || first == bti && second == pushX16X30 {
		calls.Start += linkageHeader
	}
	if calls.Start >= calls.End || slices.ContainsFunc(data.Blocks, func(b *stackdeltatypes.BasicBlock) bool {
		return b.Start < calls.End && calls.Start < b.End
	}) {
		return nil
	}
	calls.Deltas.Add(0, stackdeltatypes.UnwindInfoLR)
	data.Sort()
	data.Add(calls)
	data.Sort()
	return nil
}
