package elfsym

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
)

// threadContextName is the pointer to what a thread works on (OTEP 4947).
const threadContextName = "otel_thread_ctx_v1"

// Variable is a thread-local variable of a file: a pointer.
type Variable struct {
	File
	TLSOffset  uint64 // of the variable in the file's TLS block (st_value)
	Relocation TLSRelocation
}

// ParseThreadContext finds OpenTelemetry's thread context in any ELF file that a process can map.
// ErrNoSymbols is expected of nearly all, also of what is no ELF file or for another machine, as
// code that is mapped from shared memory: without PT_TLS, as most are, a file costs no more reads
// than by ParseFile, and a few more when it exports nothing of the name. It blocks as long as r
// does.
//
// OTEP 4947 wants the symbol exported. Static executables export nothing, and linkers hide what
// they are not told to export, so it is searched in .symtab, too (findInSymtab).
func ParseThreadContext(r io.ReaderAt, size int64) (*Variable, error) {
	h, err := parseHeaders(r, size)
	if errors.Is(err, errNotELF) || errors.Is(err, ErrClass) || errors.Is(err, ErrMachine) {
		err = fmt.Errorf("%w: %w", ErrNoSymbols, err)
	}
	if err != nil {
		return nil, err
	}
	if elf.ProgType(h.tls.Type) != elf.PT_TLS {
		return nil, ErrNoSymbols
	}
	if h.tls.Memsz > maxTLSBlock {
		return nil, fmt.Errorf("%w: TLS block of %#x bytes", errMalformed, h.tls.Memsz)
	}
	m := image{pages: h.pages, segments: h.file.Segments}
	var d dynamic // static executables have none
	if elf.ProgType(h.dynamic.Type) == elf.PT_DYNAMIC {
		if d, err = readDynamic(m, h.dynamic); err != nil {
			return nil, fmt.Errorf("reading PT_DYNAMIC: %w", err)
		}
	}
	found, err := findThreadContext(m, d)
	if err != nil {
		return nil, err
	}
	v := &Variable{File: h.file}
	if err := v.place(found, threadContextName, h.tls); err != nil {
		return nil, err
	}
	search := relocationSearch{v: v, m: m, symbol: found.index}
	if v.Relocation, err = search.best(d); err != nil {
		return nil, fmt.Errorf("looking for the TLS relocation: %w", err)
	}
	if v.Relocation.Kind == 0 {
		if h.kind != elf.ET_EXEC && elf.DynFlag1(d[elf.DT_FLAGS_1])&elf.DF_1_PIE == 0 {
			return nil, errNoRelocation
		}
		if v.Relocation, err = v.localExec(h.tls); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// findThreadContext returns the symbol; its index is 0 when it is not a dynamic one.
func findThreadContext(m image, d dynamic) (symbol, error) {
	exported, ok, err := openExports(m, d)
	if err != nil {
		return symbol{}, err
	}
	if ok {
		found, ok, err := exported.lookup(threadContextName)
		if ok || err != nil {
			return found, err
		}
	}
	found, ok, err := m.pages.findInSymtab(threadContextName)
	if err == nil && !ok {
		err = ErrNoSymbols
	}
	return found, err
}

// place sets the variable's offset in the TLS block from its symbol.
func (v *Variable) place(s symbol, name string, tls elf.Prog64) error {
	if err := checkKind(s, elf.STT_TLS); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if tls.Memsz < pointerBytes || s.Value > tls.Memsz-pointerBytes {
		return fmt.Errorf("%w: %s at %#x of a TLS block of %#x bytes", errMalformed, name, s.Value, tls.Memsz)
	}
	v.TLSOffset = s.Value
	return nil
}

// maxTLSBlock bounds a file's TLS block, and its alignment: code reaches variables by displacements
// of 32 bits, signed, at most.
const maxTLSBlock = 1 << 31

// localExec places a variable of an executable, which needs no relocation: the executable's block
// is next to the thread pointer, so that linkers know the distance. It is that of lld's
// getTlsTpOffset (ELF/InputSection.cpp), of glibc's _dl_determine_tlsoffset (elf/dl-tls.c) and of
// musl's static_init_tls (src/env/__init_tls.c):
//
//	x86-64   the block ends at the thread pointer, or before where its address would not be
//	         congruent to p_vaddr, modulo p_align
//	aarch64  it begins behind the 16 bytes that are the ABI's, with the same congruence
//
// Linkers align p_vaddr, so these are -align_up(p_memsz, p_align) and align_up(16, p_align).
func (v *Variable) localExec(tls elf.Prog64) (TLSRelocation, error) {
	align := max(tls.Align, 1)
	if align&(align-1) != 0 || align > maxTLSBlock {
		return TLSRelocation{}, fmt.Errorf("%w: TLS block aligned to %#x", errMalformed, align)
	}
	const reserved = 16
	block := -tls.Memsz - (-tls.Memsz-tls.Vaddr)&(align-1)
	if v.Machine == elf.EM_AARCH64 {
		block = reserved + (tls.Vaddr-reserved)&(align-1)
	}
	return TLSRelocation{Kind: LocalExec, Offset: int64(block + v.TLSOffset)}, nil
}
