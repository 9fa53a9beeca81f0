package tlsdesc

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/memread"
	"correlator/procscan"
)

// FuzzResolve: whatever the process holds, the outcome is a rule within its bounds or one of the
// package's errors.
func FuzzResolve(f *testing.F) {
	f.Add(false, false, uint64(resolver), signed(-0x98), code.x86Static, []byte{}, loaderGlibc)
	f.Add(false, false, uint64(resolver), signed(-8), code.x86StaticPad, []byte{}, libcMusl)
	f.Add(true, false, uint64(resolver), uint64(0xb8), code.armStaticNop, []byte{}, "/lib/ld-linux-aarch64.so.1")
	f.Add(false, false, uint64(resolver), uint64(argument), code.x86GlibcDynamic,
		[]byte("\x02\x00\x00\x00\x00\x00\x00\x00\x18\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00"),
		loaderGlibc)
	f.Add(true, false, uint64(resolver), uint64(argument), code.armMuslDynamic,
		[]byte("\x02\x00\x00\x00\x00\x00\x00\x00\x18\x00\x00\x00\x00\x00\x00\x00"), "/lib/libc.so")
	f.Add(false, true, uint64(3), uint64(tlsOffset), []byte{}, []byte{}, "/lib/libc-2.31.so")
	f.Add(false, true, uint64(1)<<63, uint64(tlsOffset), []byte{}, []byte{}, "")
	f.Add(false, false, ^uint64(0), ^uint64(0), code.x86Static, []byte{}, loaderGlibc)
	f.Add(false, false, uint64(bias+0x8f0), uint64(bias+0x400), []byte{}, []byte{}, loaderGlibc)

	f.Fuzz(func(t *testing.T, arm, dtpmod bool, first, second uint64, code, argument []byte, file string) {
		machine, kind := elf.EM_X86_64, elfsym.TLSDESC
		if arm {
			machine = elf.EM_AARCH64
		}
		if dtpmod {
			kind = elfsym.DTPMOD64
		}
		lib := library(machine, kind)
		m := new(image).bytes(second, argument...).bytes(first, code...).words(pairAddr, first, second)
		rule, err := Resolve(lib, bias, m, []procscan.Mapping{{Start: first, End: first + 1, Path: file}})
		if err != nil {
			known := errors.Is(err, ErrUnresolved) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrMalformed)
			assert.Check(t, rule == Rule{} && known, "rule %+v, error %v", rule, err)
			return
		}
		switch rule.Kind {
		case Static:
			want := Rule{Kind: Static, Libc: libcOf(file), Offset: int64(second)}
			assert.Check(t, rule == want, "%+v, not %+v", rule, want)
			if below := rule.Offset < 0; below == arm || rule.Offset > maxOffset || rule.Offset < -maxOffset {
				t.Errorf("static offset %#x", rule.Offset)
			}
		case Dynamic, DTPMod:
			assert.Check(t, (rule.Kind == DTPMod) == dtpmod && rule.Libc != LibcUnknown && rule.Libc == libcOf(file),
				"%+v, file %q", rule, file)
			if rule.Module < 1 || rule.Module > maxModule || rule.Offset != tlsOffset || rule.DTVStride == 0 {
				t.Errorf("%+v", rule)
			}
			assert.Check(t, rule.Generation == 0 || rule.Libc != Musl && !dtpmod, "generation %d", rule.Generation)
		default:
			t.Errorf("%+v", rule)
		}
	})
}

// FuzzResolveOTel: the same for what code of other TLS models leads to, and for a relocation of
// another place in the block.
func FuzzResolveOTel(f *testing.F) {
	f.Add(false, uint8(elfsym.TPOFF64), int64(0), signed(-0x98), uint64(0), []byte{}, loaderGlibc)
	f.Add(true, uint8(elfsym.TPOFF64), int64(0), uint64(tlsOffset), uint64(0), []byte{}, libcMusl)
	f.Add(false, uint8(elfsym.LocalExec), int64(-8), uint64(0), uint64(0), []byte{}, "")
	f.Add(true, uint8(elfsym.LocalExec), int64(0x28), uint64(0), uint64(0), []byte{}, "")
	f.Add(false, uint8(elfsym.DTPMOD64), int64(tlsOffset), uint64(3), uint64(0), []byte{}, libcGlibc)
	f.Add(false, uint8(elfsym.TLSDESC), int64(tlsOffset), uint64(resolver), signed(-0x98), code.x86Static, loaderGlibc)
	f.Add(true, uint8(elfsym.TLSDESC), int64(8), uint64(resolver), uint64(0x10), code.armStatic, libcMusl)
	f.Add(false, uint8(elfsym.LocalExec), int64(-1<<63), uint64(0), uint64(0), []byte{}, "")
	f.Add(false, uint8(elfsym.TLSDESC), int64(1<<62), uint64(resolver), uint64(1<<63), code.x86Static, loaderGlibc)

	f.Fuzz(func(t *testing.T, arm bool, kind uint8, offset int64, first, second uint64, code []byte, file string) {
		machine := elf.EM_X86_64
		if arm {
			machine = elf.EM_AARCH64
		}
		v := library(machine, elfsym.RelocationKind(kind))
		v.Relocation.Offset = offset
		m := new(image).bytes(second, 3, 0, 0, 0, 0, 0, 0, 0).bytes(first, code...).words(pairAddr, first, second)
		rule, err := Resolve(v, bias, m, []procscan.Mapping{{Start: first, End: first + 1, Path: file}})
		if err != nil {
			known := errors.Is(err, ErrUnresolved) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrMalformed)
			assert.Check(t, rule == Rule{} && known, "rule %+v, error %v", rule, err)
			return
		}
		if rule.Kind != Static {
			if rule.Offset != tlsOffset || rule.Libc != libcOf(file) || rule.Module < 1 || rule.Module > maxModule {
				t.Errorf("%+v, file %q", rule, file)
			}
			return
		}
		want := map[elfsym.RelocationKind]int64{elfsym.TPOFF64: int64(first) + offset, elfsym.LocalExec: offset,
			elfsym.TLSDESC: int64(second) + offset}[elfsym.RelocationKind(kind)]
		assert.Check(t, rule == (Rule{Kind: Static, Libc: libcOf(file), Offset: want}),
			"%+v, not %+d of %v", rule, want, libcOf(file))
		if below := rule.Offset < 0; below == arm || rule.Offset > maxOffset || rule.Offset < -maxOffset {
			t.Errorf("static offset %#x", rule.Offset)
		}
	})
}

// reference is the procedure in Rule's comment, for one thread and one word after the other.
func reference(r Rule, m *image, tp uint64) (uint64, error) {
	var failed error
	word := func(base uint64, off int64) uint64 {
		addr := base + uint64(off)
		if off < 0 && addr > base || off > 0 && addr < base {
			failed = errors.Join(failed, ErrMalformed)
			return 0
		}
		var b [8]byte
		request := []memread.Request{{Addr: addr, Buf: b[:]}}
		if m.ReadBatch(request); failed == nil && request[0].Err != nil {
			failed = request[0].Err
		}
		return binary.LittleEndian.Uint64(b[:])
	}
	dtv := word(tp, r.DTVOffset)
	if failed != nil || dtv == 0 {
		return 0, failed
	}
	capacity, generation := word(dtv, r.DTVCapacityOffset), word(dtv, 0)
	if failed != nil || capacity < r.Module || generation < r.Generation {
		return 0, failed
	}
	block := word(dtv, int64(r.Module*r.DTVStride))
	if failed != nil || block == 0 || block == ^uint64(0) {
		return 0, failed
	}
	if block+uint64(r.Offset) < block {
		return 0, ErrMalformed
	}
	return block + uint64(r.Offset), nil
}

// FuzzVariableAddr: whatever the thread's memory holds, the result is the one that the rule's
// description gives.
func FuzzVariableAddr(f *testing.F) {
	const base = 0x1000
	thread := func(words ...uint64) []byte {
		return new(image).words(0, words...).areas[0].bytes
	}
	f.Add(uint8(0), uint64(1), uint64(7), uint64(base), thread(base, base+0x30, 0, 0, 15, 0, 7, 0, block))
	f.Add(uint8(0), uint64(1), uint64(7), uint64(base), thread(base, base+0x30, 0, 0, 15, 0, 6, 0, block))
	f.Add(uint8(0), uint64(1), uint64(7), uint64(base), thread(base, base+0x30, 0, 0, 15, 0, 7, 0, unallocated))
	f.Add(uint8(1), uint64(1), uint64(0), uint64(base), thread(base, base+0x10, 1, block))
	f.Add(uint8(2), uint64(1), uint64(7), uint64(base), thread(base+0x20, 0, 15, 0, 7, 0, block))
	f.Add(uint8(3), uint64(2), uint64(0), uint64(base+8), thread(base+0x10, 0, 2, 0, block))
	f.Add(uint8(0), uint64(maxModule), uint64(1), ^uint64(0), thread(1, 2, 3))
	f.Add(uint8(0), uint64(1), uint64(0), uint64(base), thread(base, 15))

	f.Fuzz(func(t *testing.T, platform uint8, module, generation, tp uint64, memory []byte) {
		r := [...]Rule{x86Glibc, x86Musl, armGlibc, armMusl}[platform%4]
		r.Module = 1 + module%maxModule
		if r.Libc == Glibc {
			r.Generation = generation
		}
		if tp == 0 {
			return // means that there is no thread pointer
		}
		m := new(image).bytes(base, memory...)
		got, err := r.VariableAddr(m, tp)
		want, wantErr := reference(r, m, tp)
		assert.Check(t, got == want && (err == nil) == (wantErr == nil),
			"%#x, %v, not %#x, %v", got, err, want, wantErr)
	})
}
