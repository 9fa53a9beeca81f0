package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"correlator/internal/host/label"
)

// RelocationKind is what the loader stores into the words by which code finds a thread-local
// variable.
type RelocationKind uint8

const (
	// TLSDESC pairs are {resolver function, its argument}.
	TLSDESC RelocationKind = iota + 1
	// DTPMOD64 pairs are {module id, offset in the module's block}.
	DTPMOD64
	// TPOFF64 is one word: the distance from the thread pointer (TPREL64 on aarch64).
	TPOFF64
	// LocalExec is no relocation: the linker knows the distance from the thread pointer.
	LocalExec
)

var relocationKinds = []string{TLSDESC: "TLSDESC", DTPMOD64: "DTPMOD64", TPOFF64: "TPOFF64", LocalExec: "local-exec"}

// String returns the name.
func (k RelocationKind) String() string { return label.Of(relocationKinds, k) }

// TLSRelocation is the relocation that serves the thread-local symbol, or leads near it. Addr is
// the ELF address of the words that it fills, 0 of LocalExec.
type TLSRelocation struct {
	Kind RelocationKind
	Addr uint64
	// Offset is where the variable is from where the relocation leads: 0, or the distance from another
	// variable in the block, or its start; of LocalExec from the thread pointer.
	Offset int64
}

const relaBytes = 24 // sizeof(Elf64_Rela)

// relocations returns .rela.plt and .rela.dyn, as far as there are such.
func relocations(m image, d dynamic) (tables []table, err error) {
	for _, part := range []struct{ addr, size uint64 }{
		{d[elf.DT_JMPREL], d[elf.DT_PLTRELSZ]}, {d[elf.DT_RELA], d[elf.DT_RELASZ]},
	} {
		if part.addr == 0 || part.size == 0 {
			continue
		}
		t, err := m.at(part.addr)
		if err == nil {
			t, err = t.first(part.size)
		}
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// findRelocation searches for the relocation that serves the thread-local symbol. A library linked
// from objects of both TLS dialects can have both kinds, which lead to the same variable: TLSDESC
// is preferred.
func (l *Library) findRelocation(m image, d dynamic, symbol uint32) (TLSRelocation, error) {
	var found TLSRelocation
	tables, err := relocations(m, d)
	if err != nil {
		return found, err
	}
	for _, t := range tables {
		for pos := uint64(0); t.size-pos >= relaBytes; pos += relaBytes {
			r, err := readRelocation(t, pos)
			if err != nil {
				return found, err
			}
			kind, err := l.served(m, r, symbol)
			if err != nil {
				return found, err
			}
			switch {
			case kind == TLSDESC:
				return TLSRelocation{Kind: kind, Addr: r.Off}, nil
			case kind == DTPMOD64 && found.Kind == 0:
				found = TLSRelocation{Kind: kind, Addr: r.Off}
			}
		}
	}
	if found.Kind == 0 {
		return found, errNoRelocation
	}
	return found, nil
}

// readRelocation reads an Elf64_Rela.
func readRelocation(t table, pos uint64) (elf.Rela64, error) {
	var b [relaBytes]byte
	if err := t.read(pos, b[:]); err != nil {
		return elf.Rela64{}, err
	}
	return decodeRelocation(&b), nil
}

// decodeRelocation decodes an Elf64_Rela (elf.h; all little-endian):
//
//	offset size field
//	     0    8 r_offset
//	     8    8 r_info: type in the lower half, symbol index in the upper
//	    16    8 r_addend, signed
func decodeRelocation(b *[relaBytes]byte) elf.Rela64 {
	return elf.Rela64{
		Off:    binary.LittleEndian.Uint64(b[0:]),
		Info:   binary.LittleEndian.Uint64(b[8:]),
		Addend: int64(binary.LittleEndian.Uint64(b[16:])),
	}
}

// served returns the kind of a relocation that serves the thread-local symbol, 0 when it serves
// something else. Where the linker bound the symbol locally, the relocation has symbol index 0, and
// the variable's offset in the module's block is the addend of TLSDESC, or the stored second word
// of a DTPMOD64 pair. (Otherwise a DTPOFF64 relocation fills that word, which adds nothing.)
func (l *Library) served(m image, r elf.Rela64, symbol uint32) (RelocationKind, error) {
	kind, index := relocationKind(l.Machine, r), elf.R_SYM64(r.Info)
	if kind != TLSDESC && kind != DTPMOD64 || index != symbol && index != 0 {
		return 0, nil
	}
	if !m.contains(r.Off, 2*pointerBytes) {
		return 0, fmt.Errorf("%w: relocation of %#x, outside every segment", errMalformed, r.Off)
	}
	if kind == TLSDESC {
		if index == symbol && r.Addend == 0 || index == 0 && uint64(r.Addend) == l.TLSOffset {
			return TLSDESC, nil
		}
		return 0, nil
	}
	if index == symbol {
		return DTPMOD64, nil
	}
	offset, err := storedOffset(m, r)
	if err != nil || offset != l.TLSOffset {
		return 0, err
	}
	return DTPMOD64, nil
}

// storedOffset returns the second word of a DTPMOD64 pair, as it is in the file.
func storedOffset(m image, r elf.Rela64) (uint64, error) {
	pair, err := m.at(r.Off)
	if err != nil {
		return 0, err
	}
	return pair.uint64(pointerBytes)
}

// relocationKind returns the kind of a relocation of a thread-local variable, 0 of all others
// (psABI supplements).
func relocationKind(machine elf.Machine, r elf.Rela64) RelocationKind {
	kind := elf.R_TYPE64(r.Info)
	if machine == elf.EM_AARCH64 {
		switch elf.R_AARCH64(kind) {
		case elf.R_AARCH64_TLSDESC:
			return TLSDESC
		case elf.R_AARCH64_TLS_DTPMOD64:
			return DTPMOD64
		case elf.R_AARCH64_TLS_TPREL64:
			return TPOFF64
		}
		return 0
	}
	switch elf.R_X86_64(kind) {
	case elf.R_X86_64_TLSDESC:
		return TLSDESC
	case elf.R_X86_64_DTPMOD64:
		return DTPMOD64
	case elf.R_X86_64_TPOFF64:
		return TPOFF64
	}
	return 0
}
