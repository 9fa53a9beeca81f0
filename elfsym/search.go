package elfsym

import (
	"debug/elf"
	"fmt"
	"io"
)

// maxRelocations bounds the relocations of a file that has the variable, which are all read, in
// pieces: 48 MiB of file, some tens of milliseconds. Browsers of 200 MB have about a million,
// unless they are packed (DT_RELR, which has no thread-local ones, and is not read).
const maxRelocations = 2 << 20

// relocationSearch looks for the relocation that leads to a variable best. Every file with a
// variable has one for each way in which its code reaches it, or none.
//
// A relocation that names the symbol is better than one without: it is what the loader itself
// resolves for it. Of either sort TPOFF64 is best, since the word is all; then comes TLSDESC, which
// says more than DTPMOD64. Without a symbol, TPOFF64 has to be of the variable itself; TLSDESC
// leads to a place in the same block, from which the distance is known, as does DTPMOD64
// (local-dynamic code knows the distance from the start of the block).
type relocationSearch struct {
	v      *Variable
	m      image
	symbol uint32 // index of the dynamic symbol; 0: there is none

	found TLSRelocation
	rank  int // of found
}

// ranks by kind; those that name the symbol have namedRank more.
var ranks = map[RelocationKind]int{TPOFF64: 3, TLSDESC: 2, DTPMOD64: 1}

const namedRank = 4

// best returns the best relocation, the zero one when there is none.
func (s *relocationSearch) best(d dynamic) (TLSRelocation, error) {
	tables, err := relocations(s.m, d)
	if err != nil {
		return s.found, err
	}
	left := uint64(maxRelocations)
	for _, t := range tables {
		count := t.size / relaBytes
		if count > left {
			return s.found, fmt.Errorf("%w: more than %d relocations", ErrLimit, maxRelocations)
		}
		left -= count
		if err := s.read(t, count); err != nil {
			return s.found, err
		}
	}
	return s.found, nil
}

// read goes by all relocations of a table, past the cache of pages and its limit.
func (s *relocationSearch) read(t table, count uint64) error {
	r, err := t.pages.stream(t.off, count*relaBytes)
	if err != nil {
		return err
	}
	var b [relaBytes]byte
	for range count {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return truncated(err)
		}
		if err := s.consider(decodeRelocation(&b)); err != nil {
			return err
		}
	}
	return nil
}

// consider takes a relocation if it is better than what was found.
func (s *relocationSearch) consider(r elf.Rela64) error {
	kind, index := relocationKind(s.v.Machine, r), elf.R_SYM64(r.Info)
	if kind == 0 || index != s.symbol && index != 0 {
		return nil
	}
	rank := ranks[kind]
	if index != 0 {
		rank += namedRank
	}
	if rank < s.rank {
		return nil
	}
	words := uint64(2)
	if kind == TPOFF64 {
		words = 1
	}
	if !s.m.contains(r.Off, words*pointerBytes) {
		return fmt.Errorf("%w: relocation of %#x, outside every segment", errMalformed, r.Off)
	}
	leads, ok, err := s.leads(kind, r)
	if err != nil || !ok {
		return err
	}
	found := TLSRelocation{Kind: kind, Addr: r.Off, Offset: int64(s.v.TLSOffset - leads)}
	if rank > s.rank || found.Offset < s.found.Offset {
		s.found, s.rank = found, rank
	}
	return nil
}

// leads returns the offset in the block that a relocation leads to, which is not behind the
// variable; false when it is of no use.
func (s *relocationSearch) leads(kind RelocationKind, r elf.Rela64) (offset uint64, ok bool, err error) {
	variable, addend := s.v.TLSOffset, uint64(r.Addend)
	if elf.R_SYM64(r.Info) != 0 {
		return variable, addend == 0 || kind == DTPMOD64, nil
	}
	switch kind {
	case TPOFF64:
		return addend, addend == variable, nil
	case TLSDESC:
		return addend, addend <= variable, nil
	}
	if s.rank == ranks[DTPMOD64] && s.found.Offset == 0 {
		return 0, false, nil // this one cannot be nearer: the file need not be read
	}
	offset, err = storedOffset(s.m, r)
	return offset, offset <= variable, err
}
