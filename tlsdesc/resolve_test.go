package tlsdesc

import (
	"debug/elf"
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/memread"
	"correlator/procscan"
)

// Where things are in the images of these tests.
const (
	bias     = 0x7f00_0000_0000
	pairAddr = bias + 0x3010 // the relocation's pair of words
	resolver = 0x7f10_0000_5000
	argument = 0x5600_0000_1000

	tlsOffset = 0x18 // of the variable in the library's block
)

func library(machine elf.Machine, kind elfsym.RelocationKind) *elfsym.Variable {
	return &elfsym.Variable{
		File: elfsym.File{Machine: machine, Segments: []elfsym.Segment{
			{Vaddr: 0, Filesz: 0x900, Memsz: 0x900, Flags: elf.PF_R | elf.PF_X},
			{Vaddr: 0x2f00, Off: 0x1f00, Filesz: 0x128, Memsz: 0x130, Flags: elf.PF_R | elf.PF_W},
		}},
		TLSOffset:  tlsOffset,
		Relocation: elfsym.TLSRelocation{Kind: kind, Addr: 0x3010},
	}
}

// mapped is a process that maps the files, the last of them with the resolver.
func mapped(files ...string) []procscan.Mapping {
	mappings := []procscan.Mapping{
		{Start: bias, End: bias + 0x1000, Path: "/tmp/elastic-jvmti-linux-x64-0-1.so"},
		{Start: 0x5500_0000_0000, End: 0x5500_0000_1000, Path: "/usr/bin/java"},
	}
	for i, file := range files {
		start := uint64(resolver&^0xfff) - uint64(len(files)-1-i)<<32
		mappings = append(mappings, procscan.Mapping{Start: start, End: start + 0x1000, Path: file})
	}
	return mappings
}

const (
	loaderGlibc = "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
	libcGlibc   = "/usr/lib/x86_64-linux-gnu/libc.so.6"
	libcMusl    = "/lib/ld-musl-x86_64.so.1"
)

// Beginnings of resolvers, as found in processes and, where noted, as the assembler makes them of
// the rules.
var code = struct {
	x86Static, x86StaticPad, x86GlibcDynamic, x86MuslDynamic, x86StaticOther []byte
	armStatic, armStaticNop, armStaticPad, armGlibcDynamic, armMuslDynamic   []byte
}{
	x86Static:       []byte("\x48\x8b\x40\x08\xc3\x66\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00"), // glibc 2.36
	x86StaticPad:    []byte("\xf3\x0f\x1e\xfa\x48\x8b\x40\x08\xc3\x66\x66\x2e\x0f\x1f\x84\x00"), // assembled
	x86GlibcDynamic: []byte("\x48\x89\x74\x24\xf0\x64\x48\x8b\x34\x25\x08\x00\x00\x00\x48\x89"), // glibc 2.36
	x86MuslDynamic:  []byte("\x48\x8b\x40\x08\x52\x64\x48\x8b\x14\x25\x08\x00\x00\x00\x51\x48"), // musl 1.2.3
	x86StaticOther:  []byte("\x48\x8b\x40\x08\x64\x48\x2b\x04\x25\x00\x00\x00\x00\xc3\x90\x90"), // assembled: minus %fs:0
	armStatic:       []byte("\x00\x04\x40\xf9\xc0\x03\x5f\xd6\xe1\x0b\xbf\xa9\x41\xd0\x3b\xd5"), // musl 1.2.3
	armStaticNop:    []byte("\x1f\x20\x03\xd5\x00\x04\x40\xf9\xc0\x03\x5f\xd6\x1f\x20\x03\xd5"), // glibc 2.36
	armStaticPad:    []byte("\x5f\x24\x03\xd5\x00\x04\x40\xf9\xc0\x03\x5f\xd6\x1f\x20\x03\xd5"), // assembled
	armGlibcDynamic: []byte("\x1f\x20\x03\xd5\xe1\x0b\xbe\xa9\xe3\x13\x01\xa9\x44\xd0\x3b\xd5"), // glibc 2.36
	armMuslDynamic:  []byte("\xe1\x0b\xbf\xa9\x41\xd0\x3b\xd5\x00\x04\x40\xf9\x00\x08\x40\xa9"), // musl 1.2.3
}

func signed(v int64) uint64 { return uint64(v) }

func TestResolve(t *testing.T) {
	const x86, arm = elf.EM_X86_64, elf.EM_AARCH64
	const tlsdesc, dtpmod = elfsym.TLSDESC, elfsym.DTPMOD64
	glibc, musl := []string{libcGlibc, loaderGlibc}, []string{libcMusl}
	armGlibc, armMusl := []string{"/lib/ld-linux-aarch64.so.1"}, []string{"/lib/ld-musl-aarch64.so.1"}
	type pair = [2]uint64
	static := func(libc Libc, offset int64) Rule { return Rule{Kind: Static, Libc: libc, Offset: offset} }
	glibcDTV := func(kind Kind, module, generation uint64, dtvOffset int64) Rule {
		return Rule{Kind: kind, Libc: Glibc, Offset: tlsOffset, Module: module, Generation: generation,
			DTVOffset: dtvOffset, DTVStride: 16, DTVCapacityOffset: -16}
	}
	muslDTV := func(kind Kind, module uint64, dtvOffset int64) Rule {
		return Rule{Kind: kind, Libc: Musl, Offset: tlsOffset, Module: module, DTVOffset: dtvOffset, DTVStride: 8}
	}

	for _, test := range []struct {
		name    string
		machine elf.Machine
		kind    elfsym.RelocationKind
		pair    pair
		code    []byte
		arg     []uint64
		files   []string
		want    Rule
	}{
		{"x86-64 glibc static", x86, tlsdesc, pair{resolver, signed(-0x98)}, code.x86Static, nil, glibc,
			static(Glibc, -0x98)},
		{"x86-64 glibc static with landing pad", x86, tlsdesc, pair{resolver, signed(-0x98)}, code.x86StaticPad, nil,
			glibc, static(Glibc, -0x98)},
		{"x86-64 musl static", x86, tlsdesc, pair{resolver, signed(-8)}, code.x86Static, nil, musl, static(Musl, -8)},
		{"x86-64 static of an unknown C library", x86, tlsdesc, pair{resolver, signed(-1 << 31)}, code.x86Static, nil,
			[]string{"/opt/other/loader"}, Rule{Kind: Static, Offset: -1 << 31}},
		{"x86-64 glibc dynamic", x86, tlsdesc, pair{resolver, argument}, code.x86GlibcDynamic,
			[]uint64{2, tlsOffset, 7}, glibc, glibcDTV(Dynamic, 2, 7, 8)},
		{"x86-64 musl dynamic, third word not part of it", x86, tlsdesc, pair{resolver, argument},
			code.x86MuslDynamic, []uint64{1, tlsOffset, 0x5600_0000_2000}, musl, muslDTV(Dynamic, 1, 8)},
		{"x86-64 musl dynamic, nothing mapped after it", x86, tlsdesc, pair{resolver, argument}, code.x86MuslDynamic,
			[]uint64{1, tlsOffset}, musl, muslDTV(Dynamic, 1, 8)},
		{"x86-64 glibc DTPMOD64", x86, dtpmod, pair{3, tlsOffset}, nil, nil, glibc, glibcDTV(DTPMod, 3, 0, 8)},
		{"x86-64 musl DTPMOD64", x86, dtpmod, pair{maxModule, tlsOffset}, nil, nil, musl,
			muslDTV(DTPMod, maxModule, 8)},

		{"aarch64 glibc static", arm, tlsdesc, pair{resolver, 0xb8}, code.armStatic, nil, armGlibc,
			static(Glibc, 0xb8)},
		{"aarch64 glibc static after a no-op", arm, tlsdesc, pair{resolver, 0xb8}, code.armStaticNop, nil, armGlibc,
			static(Glibc, 0xb8)},
		{"aarch64 glibc static with landing pad", arm, tlsdesc, pair{resolver, 0xb8}, code.armStaticPad, nil,
			armGlibc, static(Glibc, 0xb8)},
		{"aarch64 musl static", arm, tlsdesc, pair{resolver, tlsOffset}, code.armStatic, nil, armMusl,
			static(Musl, tlsOffset)},
		{"aarch64 glibc dynamic", arm, tlsdesc, pair{resolver, argument}, code.armGlibcDynamic,
			[]uint64{2, tlsOffset, 7}, armGlibc, glibcDTV(Dynamic, 2, 7, 0)},
		{"aarch64 musl dynamic", arm, tlsdesc, pair{resolver, argument}, code.armMuslDynamic, []uint64{1, tlsOffset},
			armMusl, muslDTV(Dynamic, 1, -8)},
		{"aarch64 glibc DTPMOD64", arm, dtpmod, pair{3, tlsOffset}, nil, nil, armGlibc, glibcDTV(DTPMod, 3, 0, 0)},
		{"aarch64 musl DTPMOD64", arm, dtpmod, pair{3, tlsOffset}, nil, nil, armMusl, muslDTV(DTPMod, 3, -8)},

		// The file with the resolver counts, not the others.
		{"musl's resolver where glibc is mapped too", x86, tlsdesc, pair{resolver, argument}, code.x86MuslDynamic,
			[]uint64{1, tlsOffset}, []string{libcGlibc, loaderGlibc, libcMusl}, muslDTV(Dynamic, 1, 8)},
		{"glibc's resolver where musl is mapped too", x86, tlsdesc, pair{resolver, argument}, code.x86GlibcDynamic,
			[]uint64{1, tlsOffset, 0}, []string{libcMusl, libcGlibc}, glibcDTV(Dynamic, 1, 0, 8)},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := new(image).words(pairAddr, test.pair[:]...).bytes(resolver, test.code...).words(argument, test.arg...)
			got, err := Resolve(library(test.machine, test.kind), bias, m, mapped(test.files...))
			assert.NilError(t, err)
			assert.Check(t, got == test.want, "got  %+v\nwant %+v", got, test.want)
			assert.Check(t, m.batches <= 2, "%d batches of reads", m.batches)
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	const tlsdesc, dtpmod = elfsym.TLSDESC, elfsym.DTPMOD64
	glibc := []string{libcGlibc, loaderGlibc}
	// descriptor is a process with a filled TLS descriptor and what it leads to.
	descriptor := func(arg uint64, code []byte, argWords ...uint64) *image {
		return new(image).words(pairAddr, resolver, arg).bytes(resolver, code...).words(argument, argWords...)
	}

	for _, test := range []struct {
		name  string
		kind  elfsym.RelocationKind
		mem   *image
		files []string
		want  []error
		text  string
	}{
		{"zero words", tlsdesc, new(image).words(pairAddr, 0, 0), glibc, []error{ErrUnresolved}, ""},
		{"no resolver yet", tlsdesc, new(image).words(pairAddr, 0, signed(-8)), glibc, []error{ErrUnresolved}, ""},
		{"no argument yet, static", tlsdesc, descriptor(0, code.x86Static), glibc, []error{ErrUnresolved}, ""},
		{"no argument yet, dynamic", tlsdesc, descriptor(0, code.x86GlibcDynamic), glibc, []error{ErrUnresolved}, ""},
		{"lazily bound, stub of the library", tlsdesc,
			new(image).words(pairAddr, bias+0x8f0, bias+0x400).bytes(bias+0x8f0, code.x86Static...), glibc,
			[]error{ErrUnresolved}, "lazily"},
		{"being bound, argument still the relocation entry", tlsdesc,
			new(image).words(pairAddr, resolver, bias+0x400).bytes(resolver, code.x86GlibcDynamic...).
				words(bias+0x400, 0x3010, 0x1_0000_0024, 0), glibc,
			[]error{ErrUnresolved}, "lazily"},
		{"bound while it was read", tlsdesc, descriptor(argument, code.x86GlibcDynamic, 2, tlsOffset, 1).
			changing(2, func(m *image) { m.words(pairAddr, resolver+0x100, signed(-0x40)) }), glibc,
			[]error{ErrUnresolved}, "changed"},
		{"unloaded while it was read", tlsdesc, descriptor(argument, code.x86GlibcDynamic, 2, tlsOffset, 1).
			changing(2, func(m *image) { m.areas = nil }), glibc, []error{ErrUnresolved}, "changed"},
		{"DTPMOD64 not filled", dtpmod, new(image).words(pairAddr, 0, tlsOffset), glibc, []error{ErrUnresolved}, ""},
		{"no module id in the argument yet", tlsdesc, descriptor(argument, code.x86GlibcDynamic, 0, 0, 0), glibc,
			[]error{ErrUnresolved}, ""},

		{"pair not mapped", tlsdesc, new(image), glibc, []error{memread.ErrUnmapped}, "0x7f0000003010"},
		{"second word of the pair not mapped", dtpmod, new(image).words(pairAddr, 1), glibc,
			[]error{memread.ErrUnmapped}, "0x7f0000003010"},
		{"resolver not mapped", tlsdesc, new(image).words(pairAddr, resolver, argument).words(argument, 1, tlsOffset,
			1), glibc,
			[]error{ErrMalformed, memread.ErrUnmapped}, "0x7f1000005000"},
		{"resolver ends within the static one's code", tlsdesc, descriptor(signed(-8), code.x86Static[:4]), glibc,
			[]error{ErrMalformed, memread.ErrUnmapped}, ""},
		{"resolver at the end of the address space", tlsdesc,
			new(image).words(pairAddr, ^uint64(0)-3, argument).bytes(^uint64(0)-3, code.x86Static[:4]...), glibc,
			[]error{ErrMalformed, memread.ErrUnmapped}, ""},
		{"argument not mapped", tlsdesc, descriptor(argument, code.x86GlibcDynamic), glibc,
			[]error{ErrUnsupported, memread.ErrUnmapped}, "0x560000001000"},
		{"argument wraps", tlsdesc, descriptor(^uint64(0)-7, code.x86GlibcDynamic).words(^uint64(0)-7, 1), glibc,
			[]error{ErrUnsupported, memread.ErrUnmapped}, ""},
		{"generation not mapped", tlsdesc, descriptor(argument, code.x86GlibcDynamic, 1, tlsOffset), glibc,
			[]error{ErrUnsupported, memread.ErrUnmapped}, ""},
		{"static resolver compiled in another way", tlsdesc, descriptor(signed(-8), code.x86StaticOther), glibc,
			[]error{ErrUnsupported, memread.ErrUnmapped}, "unknown TLS resolver"},
		{"resolver of no known C library", tlsdesc, descriptor(argument, code.x86GlibcDynamic, 1, tlsOffset, 1),
			[]string{libcGlibc, "/system/bin/linker64"}, []error{ErrUnsupported}, "no known C library"},
		{"resolver in no file", tlsdesc, descriptor(argument, code.x86GlibcDynamic, 1, tlsOffset, 1), nil,
			[]error{ErrUnsupported}, "no known C library"},

		{"static above the thread pointer", tlsdesc, descriptor(0x98, code.x86Static), glibc, []error{ErrMalformed},
			"+0x98"},
		{"static overlapping the thread pointer", tlsdesc, descriptor(signed(-7), code.x86Static), glibc,
			[]error{ErrMalformed}, ""},
		{"static too far", tlsdesc, descriptor(signed(-1<<31-8), code.x86Static), glibc, []error{ErrMalformed}, ""},
		{"static absurd", tlsdesc, descriptor(1<<63, code.x86Static), glibc, []error{ErrMalformed}, ""},
		{"module id absurd", tlsdesc, descriptor(argument, code.x86GlibcDynamic, maxModule+1, tlsOffset, 1), glibc,
			[]error{ErrMalformed}, "module id 0x100001"},
		{"module id all ones", dtpmod, new(image).words(pairAddr, ^uint64(0), tlsOffset), glibc, []error{ErrMalformed},
			""},
		{"offset of another variable", tlsdesc, descriptor(argument, code.x86GlibcDynamic, 1, tlsOffset+8, 1), glibc,
			[]error{ErrMalformed}, "0x20"},
		{"offset not filled", dtpmod, new(image).words(pairAddr, 1, 0), glibc, []error{ErrMalformed}, ""},

		{"DTPMOD64 where both are mapped", dtpmod, new(image).words(pairAddr, 1, tlsOffset),
			[]string{libcMusl, libcGlibc, loaderGlibc}, []error{ErrUnsupported}, "both C libraries"},
		{"DTPMOD64 where none is mapped", dtpmod, new(image).words(pairAddr, 1, tlsOffset), nil,
			[]error{ErrUnsupported}, "no known C library"},
		{"another relocation", 99, new(image).words(pairAddr, 1, tlsOffset), glibc, []error{ErrUnsupported}, ""},

		{"process gone before", tlsdesc, &image{gone: true}, glibc, []error{memread.ErrGone}, ""},
		{"process gone meanwhile", tlsdesc, descriptor(argument, code.x86GlibcDynamic, 2, tlsOffset, 1).
			changing(2, func(m *image) { m.gone = true }), glibc, []error{memread.ErrGone}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			rule, err := Resolve(library(elf.EM_X86_64, test.kind), bias, test.mem, mapped(test.files...))
			assert.Check(t, rule == Rule{}, "rule %+v", rule)
			for _, want := range test.want {
				assert.Check(t, errors.Is(err, want), "error %v is not %v", err, want)
			}
			for _, other := range []error{ErrUnresolved, ErrUnsupported, ErrMalformed} {
				assert.Check(t, test.want[0] == other || !errors.Is(err, other), "error %v is %v", err, other)
			}
			assert.Check(t, err == nil || strings.Contains(err.Error(), test.text),
				"error %q does not say %q", err, test.text)
		})
	}
}

// On aarch64 blocks lie at the thread pointer or above.
func TestResolveStaticOnAArch64(t *testing.T) {
	for _, test := range []struct {
		argument  int64
		tlsOffset uint64
		want      error
	}{
		{0, 0, nil}, // musl, in a program without TLS of its own
		{8, 0, nil},
		{1 << 31, 0, nil},
		{0, 8, ErrUnresolved},
		{-8, 0, ErrMalformed},
		{1<<31 + 8, 0, ErrMalformed},
	} {
		lib := library(elf.EM_AARCH64, elfsym.TLSDESC)
		lib.TLSOffset = test.tlsOffset
		m := new(image).words(pairAddr, resolver, signed(test.argument)).bytes(resolver, code.armStatic...)
		rule, err := Resolve(lib, bias, m, mapped("/lib/ld-musl-aarch64.so.1"))
		assert.Check(t, errors.Is(err, test.want), "%+v: %v", test, err)
		assert.Check(t, err != nil || rule == Rule{Kind: Static, Libc: Musl, Offset: test.argument},
			"%+v: %+v", test, rule)
	}
}

// The code of another machine is not recognized.
func TestResolveOtherMachine(t *testing.T) {
	m := new(image).words(pairAddr, resolver, signed(-8)).bytes(resolver, code.x86Static...)
	for _, machine := range []elf.Machine{elf.EM_AARCH64, elf.EM_RISCV} {
		lib := library(machine, elfsym.TLSDESC)
		_, err := Resolve(lib, bias, m, mapped(loaderGlibc))
		assert.Check(t, errors.Is(err, ErrUnsupported), "x86-64 resolver on %v: %v", machine, err)
	}
}

// The offset is part of a rule only when it can be a distance.
func TestResolveOffsetAbsurd(t *testing.T) {
	for offset, want := range map[uint64]error{maxOffset: nil, maxOffset + 1: ErrMalformed, 1 << 63: ErrMalformed} {
		lib := library(elf.EM_X86_64, elfsym.DTPMOD64)
		lib.TLSOffset = offset
		m := new(image).words(pairAddr, 3, offset)
		rule, err := Resolve(lib, bias, m, mapped(libcGlibc))
		assert.Check(t, errors.Is(err, want) && (err != nil || rule.Offset == int64(offset)),
			"%#x: %+v, %v", offset, rule, err)
	}
}

// The bias of a library that is linked to a high address is "negative".
func TestResolveBiasWraps(t *testing.T) {
	lib := library(elf.EM_X86_64, elfsym.DTPMOD64)
	const base = 0x7fff_0000_0000
	lib.Relocation.Addr += base
	for i := range lib.Segments {
		lib.Segments[i].Vaddr += base
	}
	var zero uint64
	m := new(image).words(pairAddr, 3, tlsOffset)
	rule, err := Resolve(lib, zero+bias-base, m, mapped(libcGlibc))
	assert.Check(t, err == nil && rule.Module == 3, "%+v, %v", rule, err)
}
