package deltas

import (
	"bytes"
	"debug/elf"
	"encoding/binary"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// maxFollowedBytes bounds the code that is followed, and tables of it: musl's library has 0.4 MB.
const maxFollowedBytes = 4 << 20

// completeLibrary says how code of musl's C library is unwound, in the library or in a static program, and the
// table of calls through pointers (PLT) of a static program. None of these has an .eh_frame. With an error, nothing
// changes but for where a program starts.
func completeLibrary(file *pfelf.File, data *stackdeltatypes.IntervalData) error {
	if file.Machine != elf.EM_X86_64 || file.IsGolang() {
		return nil
	}
	data.Sort()
	addStart(file, data)
	isStatic := file.ProgByType(elf.PT_INTERP) == nil && file.IsExecutable()
	if !isStatic && !isMusl(file) {
		return nil
	}
	code := codeOf(file)
	if code == nil {
		return nil
	}
	if code.Filesz > maxFollowedBytes {
		return errTooMuchCode
	}
	b := make([]byte, code.Filesz)
	if _, err := code.ReadAt(b, 0); err != nil {
		return err
	}
	f := newFollower(code.Vaddr, b, file.ReadAt)
	data.Sort()
	for _, do := range []func(start, end uint64){f.exclude, f.addCalled} {
		end := uint64(0)
		for _, b := range data.Blocks {
			do(max(b.Start, end), b.End)
			end = max(end, b.End)
		}
	}
	var signal *stackdeltatypes.BasicBlock
	if at := bytes.Index(b, returnFromSignal); at >= 0 && f.at[at] == notFollowed {
		signal = &stackdeltatypes.BasicBlock{Start: f.start + uint64(at)}
		signal.End = signal.Start + uint64(len(returnFromSignal))
		signal.Deltas.Add(0, stackdeltatypes.UnwindInfoSignal)
		f.exclude(signal.Start, signal.End)
	}
	for _, table := range []string{".dynsym", ".symtab"} {
		if err := f.addFunctions(file.Section(table)); err != nil {
			return err
		}
	}
	f.addCalls(file.Section(".plt"))
	if err := f.addPointers(file.Section(".rela.dyn")); err != nil {
		return err
	}
	f.follow()
	blocks := f.blocks()
	if f.full {
		return errTooMuchCode
	}
	if signal != nil {
		data.Add(*signal)
	}
	for _, b := range blocks {
		data.Add(*b)
	}
	data.Sort()
	return nil
}

// returnFromSignal is what handlers of signals return to: mov rax, SYS_rt_sigreturn; syscall.
var returnFromSignal = []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}

// Where programs for musl start: xor rbp, rbp; mov rdi, rsp; lea rsi, ...; and rsp, -16; call ...
var (
	startBegins = []byte{0x48, 0x31, 0xed, 0x48, 0x89, 0xe7, 0x48, 0x8d, 0x35}
	startEnds   = []byte{0x48, 0x83, 0xe4, 0xf0, 0xe8}
)

const startBytes = 9 + 4 + 5 + 4 // with the distances of lea and call

// addStart adds where a program for musl starts, which ends stacks. The engine knows it only if what it calls comes
// next.
func addStart(file *pfelf.File, data *stackdeltatypes.IntervalData) {
	if file.Entry == 0 || data.Find(file.Entry) != nil {
		return
	}
	b := make([]byte, startBytes)
	if n, _ := file.ReadAt(b, int64(file.Entry)); n < len(b) {
		return // it is no program
	}
	if bytes.HasPrefix(b, startBegins) && bytes.HasPrefix(b[len(startBegins)+4:], startEnds) {
		start := stackdeltatypes.BasicBlock{Start: file.Entry, End: file.Entry + startBytes}
		start.Deltas.Add(0, stackdeltatypes.UnwindInfoStop)
		data.Add(start)
		data.Sort()
	}
}

// isMusl reports whether a file is musl's C library. It need not have a name (DT_SONAME), but unlike glibc it
// has no versions of symbols.
func isMusl(file *pfelf.File) bool {
	start, err := file.LookupSymbol("__libc_start_main")
	return err == nil && start.Address != 0 && file.Section(".gnu.version_d") == nil
}

// codeOf returns the segment with the code of a file, nil if there is none.
func codeOf(file *pfelf.File) *pfelf.Prog {
	for i := range file.Progs {
		if p := &file.Progs[i]; p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			return p
		}
	}
	return nil
}

// eachEntry calls a function with each entry of a section.
func eachEntry(section *pfelf.Section, size int, do func(entry []byte)) error {
	if section == nil || section.Type == elf.SHT_NOBITS {
		return nil
	}
	b, err := section.Data(maxFollowedBytes)
	for ; len(b) >= size; b = b[size:] {
		do(b[:size])
	}
	return err
}

// addFunctions adds the functions of a table of symbols.
func (f *follower) addFunctions(symbols *pfelf.Section) error {
	return eachEntry(symbols, elf.Sym64Size, func(symbol []byte) {
		if elf.ST_TYPE(symbol[4]) == elf.STT_FUNC {
			f.addEntry(binary.LittleEndian.Uint64(symbol[8:]))
		}
	})
}

// addPointers adds the functions to which the loader makes pointers in the file's data.
func (f *follower) addPointers(relocations *pfelf.Section) error {
	const bytes = 24
	return eachEntry(relocations, bytes, func(r []byte) {
		if elf.R_X86_64(binary.LittleEndian.Uint32(r[8:])) == elf.R_X86_64_RELATIVE {
			if to := binary.LittleEndian.Uint64(r[16:]) - f.start; to < uint64(len(f.code)) {
				f.taken = append(f.taken, f.start+to)
			}
		}
	})
}

// callBytes is the length of a call in a PLT, or half of it.
const callBytes = 8

// addCalls adds calls of a PLT: endbr64 or a jump through a pointer.
func (f *follower) addCalls(plt *pfelf.Section) {
	if plt == nil {
		return
	}
	for addr := plt.Addr; addr < plt.Addr+plt.FileSize; addr += callBytes {
		if !f.contains(addr) || !f.contains(addr+callBytes-1) {
			return
		}
		switch binary.LittleEndian.Uint16(f.code[addr-f.start:]) {
		case 0x25ff, 0xfff2, 0x0ff3:
			f.addEntry(addr)
		}
	}
}
