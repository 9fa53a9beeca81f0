package deltas

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/arch/x86/x86asm"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// followCode follows code at 0x1000 from its start on, with a file that has data at 0x9000.
func followCode(code, data []byte, entries ...uint64) (*follower, *stackdeltatypes.IntervalData) {
	f := newFollower(0x1000, code, func(b []byte, addr int64) (int, error) {
		if addr < 0x9000 || addr > 0x9000+int64(len(data)) {
			return 0, nil
		}
		return copy(b, data[addr-0x9000:]), nil
	})
	for _, entry := range append(entries, 0x1000) {
		f.addEntry(entry)
	}
	f.follow()
	var all stackdeltatypes.IntervalData
	for _, b := range f.blocks() {
		all.Add(*b)
	}
	return f, &all
}

// Where the stack pointer is, and where the caller's frame pointer, follows from the instructions before, on every
// way to one; what is not known is said.
func TestFollow(t *testing.T) {
	sp := func(size int32) stackdeltatypes.UnwindInfo { return onStack(size - 8) }
	saved := func(info stackdeltatypes.UnwindInfo, at int32) stackdeltatypes.UnwindInfo {
		info.AuxBaseReg, info.AuxParam = support.UnwindRegCfa, at
		return info
	}
	fp := func(size, at int32) stackdeltatypes.UnwindInfo {
		return saved(stackdeltatypes.UnwindInfo{BaseReg: support.UnwindRegFp, Param: size}, at)
	}
	unknown := stackdeltatypes.UnwindInfoInvalid
	for name, c := range map[string]struct {
		code []byte
		data []byte
		want map[uint64]stackdeltatypes.UnwindInfo // by offset
	}{
		"push and pop": {
			// push rbx; push rbp; sub rsp, 0x28; add rsp, 0x28; pop rbp; pop rbx; ret
			code: []byte{0x53, 0x55, 0x48, 0x83, 0xec, 0x28, 0x48, 0x83, 0xc4, 0x28, 0x5d, 0x5b, 0xc3},
			want: map[uint64]stackdeltatypes.UnwindInfo{
				0: sp(8), 1: sp(16), 2: saved(sp(24), -24), 6: saved(sp(64), -24),
				10: saved(sp(24), -24), 11: sp(16), 12: sp(8),
			},
		},
		"a frame pointer": {
			// push rbp; mov rbp, rsp; sub rsp, rax; and rsp, -16; lea rsp, [rbp-8]; leave; ret
			code: []byte{
				0x55, 0x48, 0x89, 0xe5, 0x48, 0x29, 0xc4, 0x48, 0x83, 0xe4, 0xf0, 0x48, 0x8d, 0x65, 0xf8, 0xc9, 0xc3,
			},
			want: map[uint64]stackdeltatypes.UnwindInfo{
				1: saved(sp(16), -16), 4: saved(sp(16), -16), 7: fp(16, -16), 11: fp(16, -16),
				15: saved(sp(24), -16), 16: sp(8),
			},
		},
		"a stack pointer from elsewhere": {
			// mov rsp, rdi; ret
			code: []byte{0x48, 0x89, 0xfc, 0xc3}, want: map[uint64]stackdeltatypes.UnwindInfo{0: sp(8), 3: unknown},
		},
		"a frame pointer that is another number": {
			// push rbp; mov rbp, rdi; sub rsp, rax; ret
			code: []byte{0x55, 0x48, 0x89, 0xfd, 0x48, 0x29, 0xc4, 0xc3},
			want: map[uint64]stackdeltatypes.UnwindInfo{4: saved(sp(16), -16), 7: unknown},
		},
		"more popped than there is": {
			code: []byte{0x58, 0xc3}, want: map[uint64]stackdeltatypes.UnwindInfo{1: unknown}, // pop rax; ret
		},
		"a call that does not return": {
			// push rax; je +6; call +4; (at 8: pop rax; ret); (at 12: hlt)
			code: []byte{0x50, 0x74, 0x05, 0xe8, 0x04, 0, 0, 0, 0x58, 0xc3, 0x90, 0x90, 0xf4},
			want: map[uint64]stackdeltatypes.UnwindInfo{3: sp(16), 8: sp(16), 9: sp(8), 10: unknown, 12: sp(8)},
		},
		"a call that returns": {
			// push rax; call +3; pop rax; ret; nop; ret
			code: []byte{0x50, 0xe8, 0x03, 0, 0, 0, 0x58, 0xc3, 0x90, 0xc3},
			want: map[uint64]stackdeltatypes.UnwindInfo{6: sp(16), 7: sp(8), 8: unknown, 9: sp(8)},
		},
		"a table": {
			// push rax; cmp esi, 1; lea rcx, [rip+0x7ff5]; jmp rdx; (at 13: pop rax; ret); (at 15: push rax; jmp -5)
			code: []byte{
				0x50, 0x83, 0xfe, 0x01, 0x48, 0x8d, 0x0d, 0xf5, 0x7f, 0, 0, 0xff, 0xe2, 0x58, 0xc3, 0x58, 0xc3, 0x58,
			},
			data: tableOf(0x100d-0x9000, 0x100f-0x9000, 0x1011-0x9000),
			want: map[uint64]stackdeltatypes.UnwindInfo{13: sp(16), 14: sp(8), 15: sp(16), 17: unknown},
		},
		"a table that is none": {
			code: []byte{
				0x50, 0x83, 0xfe, 0x01, 0x48, 0x8d, 0x0d, 0xf5, 0x7f, 0, 0, 0xff, 0xe2, 0x58, 0xc3, 0x58, 0xc3,
			},
			data: tableOf(0, 0x100f-0x9000),
			want: map[uint64]stackdeltatypes.UnwindInfo{13: unknown, 15: unknown},
		},
		"a function whose address is used": {
			// lea rax, [rip-0 +2]; jmp rax; hlt; (at 10: push rbx; pop rbx; ret)
			code: []byte{0x48, 0x8d, 0x05, 0x03, 0, 0, 0, 0xff, 0xe0, 0xf4, 0x53, 0x5b, 0xc3},
			want: map[uint64]stackdeltatypes.UnwindInfo{9: unknown, 10: sp(8), 11: sp(16), 12: sp(8)},
		},
	} {
		f, data := followCode(c.code, c.data)
		assert.Check(t, !f.full, name)
		for off, want := range c.want {
			got := infoAt(data, 0x1000+off)
			assert.Check(t, got == want, "%s: at %d: %+v, not %+v", name, off, got, want)
		}
	}
}

// tableOf encodes a table of distances.
func tableOf(distances ...int32) (b []byte) {
	for _, d := range distances {
		b = binary.LittleEndian.AppendUint32(b, uint32(d))
	}
	return b
}

// Any bytes can be followed.
func FuzzFollow(f *testing.F) {
	f.Add([]byte{0x55, 0x48, 0x89, 0xe5, 0xe8, 0, 0, 0, 0, 0xff, 0xe2, 0xc3}, make([]byte, 8), uint64(0x1003))
	f.Add([]byte{0xff, 0x24, 0xc5, 0, 0x90, 0, 0, 0xc3}, []byte{0, 0x10, 0, 0, 0, 0, 0, 0}, uint64(0))
	f.Fuzz(func(t *testing.T, code, data []byte, entry uint64) {
		follower, all := followCode(code, data, entry)
		assert.Check(t, len(follower.done) <= numReasons+len(code), "%d instructions", len(follower.done))
		assert.Check(t, len(follower.taken) <= len(code), "%d addresses", len(follower.taken))
		for _, b := range all.Blocks {
			within := b.Start >= 0x1000 && b.Start < b.End && b.End <= 0x1000+uint64(len(code))+16
			assert.Check(t, within, "from %x to %x", b.Start, b.End)
		}
	})
}

// Of code that would take more memory than there may be, no more is kept, whatever it is made of; and that is said.
func TestFollowTooMuch(t *testing.T) {
	const limit = 1 << 18
	repeat := func(code ...byte) []byte { return bytes.Repeat(code, 1<<15/len(code)) }
	calls := repeat(0xe8, 0, 0, 0, 0)
	for off := 0; off+5 <= len(calls); off += 5 { // each of another function
		binary.LittleEndian.PutUint32(calls[off+1:], uint32(-off+off/5*3))
	}
	for name, code := range map[string][]byte{
		"instructions": repeat(0x90), "blocks": repeat(0xeb, 1, 0x90), "jumps": repeat(0x74, 0), "calls": calls,
		"addresses": repeat(0x48, 0x8d, 5, 0, 0, 0, 0),
	} {
		for limit, full := range map[int]bool{limit: name != "addresses", 1 << 24: false} {
			f := newFollower(0x1000, code, nil)
			f.limit = limit
			if name == "calls" {
				f.addCalled(0x1000, 0x1000+uint64(len(code)))
			}
			f.addEntry(0x1000)
			f.follow()
			f.blocks()
			kept := followedBytes*len(f.done) + placeBytes*len(f.todo) + pointerBytes*len(f.taken) +
				functionBytes*len(f.entries) + f.kept
			assert.Check(t, kept <= limit+4*blockBytes, "%s: %d bytes", name, kept)
			assert.Check(t, f.full == full, "%s: %d", name, limit)
		}
	}
}

// Tables of jumps that are too large, or too many, are not followed, nor is a frame that is none.
func TestFollowTableLimits(t *testing.T) {
	const entries = maxTableEntries
	data := bytes.Repeat([]byte{0x10, 0, 0, 0}, entries+1) // 16 bytes behind the table
	f := newFollower(0x1000, make([]byte, 64), func(b []byte, _ int64) (int, error) { return copy(b, data), nil })
	f.left, f.known = maxTablesEntries, []uint64{0x1000}
	follow := func(n uint64) (int, bool) {
		f.todo = f.todo[:0]
		at := place{addr: 0x1001, of: new(function)}
		f.followTable(at, &x86asm.Inst{Args: x86asm.Args{x86asm.RAX}}, 0x1000, n-1)
		return len(f.todo), at.of.returns
	}
	n, returns := follow(entries + 1)
	assert.Check(t, n == 0 && returns && f.left == maxTablesEntries)
	for range maxTablesEntries / entries {
		n, returns = follow(entries)
		assert.Assert(t, n == entries && !returns)
	}
	n, _ = follow(1)
	assert.Check(t, n == 0, "%d entries more than may be read", n)
	for stack, want := range map[int32]int32{maxFrameBytes: maxFrameBytes, maxFrameBytes + 8: 0} {
		assert.Check(t, frameState{stack: stack}.known().stack == want, stack)
	}
}

// A library of glibc, which says how it is unwound, is not followed, nor is a program that is not static.
func TestNotFollowed(t *testing.T) {
	libraries, err := filepath.Glob("/lib/*/libc.so.6")
	assert.Check(t, err == nil && len(libraries) > 0, err)
	for _, path := range append(libraries, testenv.NeedTool(t, "cc"), "/proc/self/exe") {
		ref := pfelf.NewReference(path, pfelf.SystemOpener)
		file, err := ref.GetELF()
		assert.NilError(t, err)
		var data stackdeltatypes.IntervalData
		if path == "/proc/self/exe" || file.ProgByType(elf.PT_INTERP) != nil {
			assert.Check(t, completeLibrary(file, &data))
			assert.Check(t, len(data.Blocks) == 0, path)
		}
		ref.Close()
	}
}
