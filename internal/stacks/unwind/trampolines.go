package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"runtime"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"

	"correlator/internal/stacks/unwind/deltas"
	"correlator/procscan"
)

// trampolines reports whether memory of no file has trampolines of CPython, and which place in the file that stands for
// them it has.
func (t *target) trampolines(m procscan.Mapping) (offset uint64, are bool) {
	var start [deltas.TrampolineStart]byte
	if runtime.GOARCH != "amd64" || m.End-m.Start < deltas.TrampolineStart {
		return 0, false
	}
	if _, err := t.memory().ReadAt(start[:], int64(m.Start)); err != nil {
		return 0, false
	}
	return deltas.FindTrampolines(start[:])
}

// trampolinesID returns the id of the file that stands for them.
func (t *target) trampolinesID() libpf.FileID {
	id := t.salted([]byte(deltas.Trampolines))
	return libpf.NewFileID(binary.LittleEndian.Uint64(id[:]), binary.LittleEndian.Uint64(id[8:]))
}

// trampolinesFile is the file that stands for trampolines: all of it is code.
func trampolinesFile() *bytes.Reader {
	return fileOf(elf.ET_DYN, elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Filesz: deltas.TrampolineBytes, Memsz: deltas.TrampolineBytes, Align: pageBytes,
	})
}

// fileOf returns an ELF file of a type that has segments, and nothing else.
func fileOf(kind elf.Type, segments ...elf.Prog64) *bytes.Reader {
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{
			0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT),
		},
		Type: uint16(kind), Machine: uint16(pfelf.CurrentMachine), Version: uint32(elf.EV_CURRENT),
		Phnum: uint16(len(segments)),
	}
	header.Phoff, header.Phentsize = uint64(binary.Size(header)), uint16(binary.Size(elf.Prog64{}))
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, header)
	_ = binary.Write(&b, binary.LittleEndian, segments)
	return bytes.NewReader(b.Bytes())
}

// isTrampoline reports whether a native frame is that of a trampoline, and whether it is unwound right.
func (s *server) isTrampoline(pid libpf.PID, word libpf.EbpfFrame) (is, right bool) {
	t := s.targets[pid]
	if t == nil || !t.hasTrampolines || host.FileID(word.Variable(0)) != host.FileIDFromLibpf(t.trampolinesID()) {
		return false, false
	}
	if word.Flags().ReturnAddress() {
		return true, true
	}
	var code [4]byte
	address, _, ok := s.handler.address(pid, host.FileID(word.Variable(0)), word.Data())
	if !ok {
		return true, false
	}
	_, err := s.pages.ReadAt(code[:], int64(address))
	return true, err == nil && deltas.InTrampoline(code[:])
}

// isShim reports whether a frame is of no function: CPython 3.12 has one wherever native code calls its interpreter.
func isShim(f Frame) bool { return f.Kind == PythonFrame && f.Function == "<interpreter trampoline>" }
