package deltas

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"gotest.tools/v3/assert"
)

// A static program with more code than is followed is said to be one.
func TestTooMuchCode(t *testing.T) {
	const head = 64 + 56
	for size, want := range map[uint64]error{maxFollowedBytes: nil, maxFollowedBytes + 1: errTooMuchCode} {
		b, err := binary.Append(nil, binary.LittleEndian, elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1},
			Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Phoff: 64, Phnum: 1,
		})
		assert.NilError(t, err)
		b, err = binary.Append(b, binary.LittleEndian, elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: 1 << 20, Filesz: size, Memsz: size,
		})
		assert.NilError(t, err)
		b = append(b, make([]byte, maxFollowedBytes+1-head)...)
		file, err := pfelf.NewFile(bytes.NewReader(b), 0, false)
		assert.NilError(t, err)
		err = completeLibrary(file, &stackdeltatypes.IntervalData{})
		assert.Check(t, errors.Is(err, want), "%d bytes: %v", size, err)
	}
}
