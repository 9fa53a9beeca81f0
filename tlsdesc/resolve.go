package tlsdesc

import (
	"encoding/binary"
	"fmt"

	"correlator/elfsym"
	"correlator/memread"
	"correlator/procscan"
)

// Resolve returns the rule for the variable of a file that is loaded at bias (load address minus
// ELF address, modulo 2^64). It makes one batch of reads, another one for a TLS descriptor, and
// none for local-exec, whose file must be the program's.
//
// Call it when the process has published its storage, or its process context. Then dlopen has
// returned, so the relocation is complete, unless it is bound lazily, and static blocks are
// initialized in every thread. If called before, Resolve can read words that the loader is about to
// store. It returns ErrUnresolved when it can detect that: a word is still zero, or the words
// differ when they are read again.
//
// mappings are the process's executable file mappings. The C library is recognized by the name of
// the file that the resolver is mapped from, so a second one in the same process does not matter. A
// DTPMOD64 pair has no resolver; for it, there must be exactly one C library among the mappings,
// else the error is ErrUnsupported.
//
// A rule holds until the library is unloaded or the process executes another program.
func Resolve(lib *elfsym.Variable, bias uint64, mem Memory, mappings []procscan.Mapping) (Rule, error) {
	p, ok := platformOf(lib.Machine)
	if !ok {
		return Rule{}, fmt.Errorf("%w: machine %v", ErrUnsupported, lib.Machine)
	}
	v := variable{lib: lib, bias: bias, platform: p, mappings: mappings}
	switch lib.Relocation.Kind {
	case elfsym.TLSDESC, elfsym.DTPMOD64, elfsym.TPOFF64:
	case elfsym.LocalExec:
		return v.fromExecutable()
	default:
		return Rule{}, fmt.Errorf("%w: relocation %v", ErrUnsupported, lib.Relocation.Kind)
	}

	var words [2 * wordBytes]byte
	request := []memread.Request{{Addr: bias + lib.Relocation.Addr, Buf: words[:]}}
	if lib.Relocation.Kind == elfsym.TPOFF64 {
		request[0].Buf = words[:wordBytes]
	}
	if err := mem.ReadBatch(request); err != nil {
		return Rule{}, fmt.Errorf("reading TLS relocation: %w", err)
	}
	if err := request[0].Err; err != nil {
		return Rule{}, fmt.Errorf("reading TLS relocation at %#x: %w", request[0].Addr, err)
	}

	stored := decodePair(&words)
	switch lib.Relocation.Kind {
	case elfsym.TLSDESC:
		return v.fromDescriptor(stored, mem)
	case elfsym.TPOFF64:
		return v.fromDistance(int64(stored.first))
	}
	return v.fromModule(stored)
}

// variable is the thread-local variable of a loaded file.
type variable struct {
	lib      *elfsym.Variable
	bias     uint64
	platform platform
	mappings []procscan.Mapping
}

// pair is what the loader stores for the relocation: {resolver, argument} for TLSDESC, {module id,
// offset in the module's block} for DTPMOD64.
type pair struct{ first, second uint64 }

func decodePair(b *[2 * wordBytes]byte) pair {
	return pair{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[wordBytes:])}
}

// fromDescriptor makes the rule from a TLS descriptor, {resolver, argument}.
//
// glibc before 2.34 on x86-64 binds lazily. Until the first use the resolver is a stub of the
// library itself; while a thread is binding, it is one of the loader's, and the argument still
// points to the library's relocation entry.
func (v variable) fromDescriptor(d pair, mem Memory) (Rule, error) {
	switch {
	case d.first == 0:
		return Rule{}, fmt.Errorf("%w: no TLS resolver", ErrUnresolved)
	case v.holds(d.first):
		return Rule{}, fmt.Errorf("%w: bound lazily, and not used yet", ErrUnresolved)
	}

	var code [resolverBytes]byte
	var argument [argumentBytes]byte
	var again [2 * wordBytes]byte
	requests := []memread.Request{
		{Addr: d.first, Buf: code[:]},
		{Addr: d.second, Buf: argument[:]}, // not an address when the resolver is static
		{Addr: v.bias + v.lib.Relocation.Addr, Buf: again[:]},
	}
	if err := mem.ReadBatch(requests); err != nil {
		return Rule{}, fmt.Errorf("following TLS descriptor: %w", err)
	}
	resolver, argumentRead, pairAgain := &requests[0], &requests[1], &requests[2]
	libc := v.libcAt(d.first)
	switch {
	case pairAgain.Err != nil || decodePair(&again) != d:
		return Rule{}, fmt.Errorf("%w: TLS descriptor changed while it was read", ErrUnresolved)
	case v.platform.isStatic(code[:resolver.N]):
		return v.staticRule(int64(d.second), libc)
	case resolver.Err != nil:
		return Rule{}, fmt.Errorf("%w: reading TLS resolver at %#x: %w", ErrMalformed, d.first, resolver.Err)
	case d.second == 0:
		return Rule{}, fmt.Errorf("%w: no argument for the TLS resolver", ErrUnresolved)
	case v.holds(d.second):
		return Rule{}, fmt.Errorf("%w: being bound lazily", ErrUnresolved)
	case libc == LibcUnknown:
		return Rule{}, fmt.Errorf("%w: TLS resolver at %#x is of no known C library", ErrUnsupported, d.first)
	}
	return v.dynamicRule(libc, argumentRead)
}

// staticRule makes the rule from the argument of a static resolver. It can be 0 only where a block
// can begin at the thread pointer, and only for what is first in the block.
func (v variable) staticRule(argument int64, libc Libc) (Rule, error) {
	leads := v.lib.TLSOffset - uint64(v.lib.Relocation.Offset) // in the block
	if argument == 0 && (v.platform.staticMax < 0 || leads != 0) {
		return Rule{}, fmt.Errorf("%w: no argument for the static TLS resolver", ErrUnresolved)
	}
	return v.distanceRule(argument, v.lib.Relocation.Offset, libc)
}

// distanceRule makes a static rule from a distance from the thread pointer that the loader stored,
// and from where the variable is from there. The block is on one side of the thread pointer, with
// both places.
func (v variable) distanceRule(stored, further int64, libc Libc) (Rule, error) {
	for _, offset := range []int64{stored, further, stored + further} {
		if offset < -maxOffset || offset > maxOffset {
			return Rule{}, fmt.Errorf("%w: %+#x from the thread pointer, on %v", ErrMalformed, offset, v.lib.Machine)
		}
	}
	for _, offset := range []int64{stored, stored + further} {
		if offset < v.platform.staticMin || offset > v.platform.staticMax {
			return Rule{}, fmt.Errorf("%w: %+#x from the thread pointer, on %v", ErrMalformed, offset, v.lib.Machine)
		}
	}
	return Rule{Kind: Static, Libc: libc, Offset: stored + further}, nil
}

// fromDistance makes the rule from the word of a TPOFF64 relocation.
//
// Before the loader stores it, the word is 0, or what some linkers put there: the variable's offset
// in its block. Both are distances of a block that begins at the thread pointer, which is possible
// on aarch64, with musl, which loads such libraries with the program alone: then the word is
// complete.
func (v variable) fromDistance(distance int64) (Rule, error) {
	libc, offset := v.onlyLibc(), v.lib.TLSOffset
	atThreadPointer := v.platform.staticMax > 0 && libc == Musl && uint64(distance) == offset
	if (distance == 0 || uint64(distance) == offset) && !atThreadPointer {
		return Rule{}, fmt.Errorf("%w: no distance from the thread pointer", ErrUnresolved)
	}
	return v.distanceRule(distance, v.lib.Relocation.Offset, libc)
}

// fromExecutable makes the rule of a variable of the program itself, in whose code the distance is.
func (v variable) fromExecutable() (Rule, error) {
	return v.distanceRule(v.lib.Relocation.Offset, 0, v.onlyLibc())
}

// argumentBytes is glibc's struct tlsdesc_dynamic_arg (sysdeps/x86_64/dl-tlsdesc.h):
//
//	offset size field
//	     0    8 module id
//	     8    8 offset in the module's block
//	    16    8 generation that the DTV must have reached
//
// musl's (struct td_index in ldso/dynlink.c) has the first two.
const argumentBytes = 3 * wordBytes

// dynamicRule makes the rule from the argument of a dynamic resolver.
func (v variable) dynamicRule(libc Libc, argument *memread.Request) (Rule, error) {
	need := argumentBytes
	if libc == Musl {
		need = 2 * wordBytes
	}
	if argument.N < need {
		// Not malformed: it can be the static resolver of a C library that was compiled
		// differently, and its argument not an address.
		return Rule{}, fmt.Errorf("%w: reading argument of an unknown TLS resolver of %v at %#x: %w",
			ErrUnsupported, libc, argument.Addr, argument.Err)
	}
	var generation uint64
	if libc == Glibc {
		generation = binary.LittleEndian.Uint64(argument.Buf[2*wordBytes:])
	}
	return v.moduleRule(Dynamic, libc, decodePair((*[2 * wordBytes]byte)(argument.Buf)), generation)
}

// fromModule makes the rule from a DTPMOD64 pair.
func (v variable) fromModule(p pair) (Rule, error) {
	mapped := v.libcs()
	switch {
	case mapped[Glibc] && mapped[Musl]:
		return Rule{}, fmt.Errorf("%w: both C libraries are mapped, and a DTPMOD64 pair does not say whose it is",
			ErrUnsupported)
	case mapped[Glibc]:
		return v.moduleRule(DTPMod, Glibc, p, 0)
	case mapped[Musl]:
		return v.moduleRule(DTPMod, Musl, p, 0)
	}
	return Rule{}, fmt.Errorf("%w: no known C library is mapped", ErrUnsupported)
}

// libcs returns which C libraries are mapped.
func (v variable) libcs() (mapped [Musl + 1]bool) {
	for _, m := range v.mappings {
		mapped[libcOf(m.Path)] = true
	}
	return mapped
}

// onlyLibc returns the C library that is mapped, if one alone is.
func (v variable) onlyLibc() Libc {
	switch mapped := v.libcs(); {
	case mapped[Glibc] && !mapped[Musl]:
		return Glibc
	case mapped[Musl] && !mapped[Glibc]:
		return Musl
	}
	return LibcUnknown
}

// moduleRule makes a rule that goes through the DTV. The loader computes the offset from the
// symbol's value or from the addend alone, so only one is possible. (Another one is possible when
// the variable of a different build of the library, in the global scope, serves this one too. That
// is refused, since a half-filled pair can look the same.)
func (v variable) moduleRule(kind Kind, libc Libc, p pair, generation uint64) (Rule, error) {
	module, offset := p.first, p.second
	switch {
	case module == 0:
		return Rule{}, fmt.Errorf("%w: no module id", ErrUnresolved)
	case module > maxModule:
		return Rule{}, fmt.Errorf("%w: module id %#x, at most %#x", ErrMalformed, module, maxModule)
	case offset > maxOffset:
		return Rule{}, fmt.Errorf("%w: offset %#x in the block of module %d, at most %#x",
			ErrMalformed, offset, module, maxOffset)
	case v.lib.TLSOffset > maxOffset:
		return Rule{}, fmt.Errorf("%w: offset %#x in the library, at most %#x",
			ErrMalformed, v.lib.TLSOffset, maxOffset)
	case offset+uint64(v.lib.Relocation.Offset) != v.lib.TLSOffset:
		return Rule{}, fmt.Errorf("%w: offset %#x in the block of module %d, and %#x%+#x in the library",
			ErrMalformed, offset, module, v.lib.TLSOffset, -v.lib.Relocation.Offset)
	}
	r := Rule{Kind: kind, Offset: int64(v.lib.TLSOffset), Module: module, Generation: generation}
	r.setDTV(v.platform, libc)
	return r, nil
}

// holds reports whether addr lies in one of the library's segments.
func (v variable) holds(addr uint64) bool {
	for _, s := range v.lib.Segments {
		if addr-(v.bias+s.Vaddr) < s.Memsz {
			return true
		}
	}
	return false
}

// libcAt returns the C library whose file is mapped at addr.
func (v variable) libcAt(addr uint64) Libc {
	for _, m := range v.mappings {
		if m.Start <= addr && addr < m.End {
			return libcOf(m.Path)
		}
	}
	return LibcUnknown
}
