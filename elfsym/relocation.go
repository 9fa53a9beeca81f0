package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// RelocationKind is what the loader stores into a pair of words by which code finds a thread-local
// variable.
type RelocationKind uint8

const (
	// TLSDESC pairs are {resolver function, its argument}.
	TLSDESC RelocationKind = iota + 1
	// DTPMOD64 pairs are {module id, offset in the module's block}.
	DTPMOD64
)

func (k RelocationKind) String() string {
	switch k {
	case TLSDESC:
		return "TLSDESC"
	case DTPMOD64:
		return "DTPMOD64"
	}
	return fmt.Sprintf("RelocationKind(%d)", uint8(k))
}

// TLSRelocation is the relocation that serves the thread-local symbol. Addr is the ELF address of
// the pair of words that it fills.
type TLSRelocation struct {
	Kind RelocationKind
	Addr uint64
}

const relaBytes = 24 // sizeof(Elf64_Rela)

// findRelocation searches .rela.plt and .rela.dyn for the relocation that serves the thread-local
// symbol. A library linked from objects of both TLS dialects can have both kinds, which lead to the
// same variable: TLSDESC is preferred.
func (l *Library) findRelocation(m image, d dynamic, symbol uint32) (TLSRelocation, error) {
	var found TLSRelocation
	for _, part := range []struct{ addr, size uint64 }{
		{d[elf.DT_JMPREL], d[elf.DT_PLTRELSZ]}, {d[elf.DT_RELA], d[elf.DT_RELASZ]},
	} {
		if part.addr == 0 || part.size == 0 {
			continue
		}
		relocations, err := m.at(part.addr)
		if err == nil {
			relocations, err = relocations.first(part.size)
		}
		if err != nil {
			return found, err
		}
		for pos := uint64(0); relocations.size-pos >= relaBytes; pos += relaBytes {
			r, err := readRelocation(relocations, pos)
			if err != nil {
				return found, err
			}
			kind, err := l.served(m, r, symbol)
			if err != nil {
				return found, err
			}
			switch {
			case kind == TLSDESC:
				return TLSRelocation{kind, r.Off}, nil
			case kind == DTPMOD64 && found.Kind == 0:
				found = TLSRelocation{kind, r.Off}
			}
		}
	}
	if found.Kind == 0 {
		return found, errNoRelocation
	}
	return found, nil
}

// readRelocation reads an Elf64_Rela (elf.h; all little-endian):
//
//	offset size field
//	     0    8 r_offset
//	     8    8 r_info: type in the lower half, symbol index in the upper
//	    16    8 r_addend, signed
func readRelocation(t table, pos uint64) (elf.Rela64, error) {
	var b [relaBytes]byte
	if err := t.read(pos, b[:]); err != nil {
		return elf.Rela64{}, err
	}
	return elf.Rela64{
		Off:    binary.LittleEndian.Uint64(b[0:]),
		Info:   binary.LittleEndian.Uint64(b[8:]),
		Addend: int64(binary.LittleEndian.Uint64(b[16:])),
	}, nil
}

// served returns the kind of a relocation that serves the thread-local symbol, 0 when it serves
// something else. Where the linker bound the symbol locally, the relocation has symbol index 0, and
// the variable's offset in the module's block is the addend of TLSDESC, or the stored second word
// of a DTPMOD64 pair. (Otherwise a DTPOFF64 relocation fills that word, which adds nothing.)
func (l *Library) served(m image, r elf.Rela64, symbol uint32) (RelocationKind, error) {
	tlsdesc, dtpmod64 := relocationTypes(l.Machine)
	kind, index := elf.R_TYPE64(r.Info), elf.R_SYM64(r.Info)
	if kind != tlsdesc && kind != dtpmod64 || index != symbol && index != 0 {
		return 0, nil
	}
	if !m.contains(r.Off, 2*pointerBytes) {
		return 0, fmt.Errorf("%w: relocation of %#x, outside every segment", errMalformed, r.Off)
	}
	if kind == tlsdesc {
		if index == symbol && r.Addend == 0 || index == 0 && uint64(r.Addend) == l.TLSOffset {
			return TLSDESC, nil
		}
		return 0, nil
	}
	if index == symbol {
		return DTPMOD64, nil
	}
	pair, err := m.at(r.Off)
	if err != nil {
		return 0, err
	}
	offset, err := pair.uint64(pointerBytes)
	if err != nil || offset != l.TLSOffset {
		return 0, err
	}
	return DTPMOD64, nil
}

// relocationTypes returns the machine's numbers of the two relocation types that a dlopened library
// has for its thread-local variables (psABI supplements).
func relocationTypes(machine elf.Machine) (tlsdesc, dtpmod64 uint32) {
	if machine == elf.EM_AARCH64 {
		return uint32(elf.R_AARCH64_TLSDESC), uint32(elf.R_AARCH64_TLS_DTPMOD64)
	}
	return uint32(elf.R_X86_64_TLSDESC), uint32(elf.R_X86_64_DTPMOD64)
}
