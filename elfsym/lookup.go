package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

const (
	symbolBytes = 24 // sizeof(Elf64_Sym)

	// maxChain bounds how many symbols one lookup visits. Linkers aim at less than ten per hash
	// bucket; a chain without an end, or a circular one, ends here.
	maxChain = 1024
)

// exports is a library's dynamic symbol table, searched by its hash table as the loader does.
type exports struct {
	entries, names table
	hash           table
	gnu            bool // hash is DT_GNU_HASH, else DT_HASH
}

// symbol is a defined symbol that is visible from outside.
type symbol struct {
	index uint32
	elf.Sym64
}

// openExports reports false when there is no hash table or no symbol table: then the loader finds
// no symbol in this library either.
func openExports(m image, d dynamic) (exports, bool, error) {
	s := exports{gnu: d[elf.DT_GNU_HASH] != 0}
	hash := d[elf.DT_GNU_HASH]
	if !s.gnu {
		hash = d[elf.DT_HASH]
	}
	if hash == 0 || d[elf.DT_SYMTAB] == 0 || d[elf.DT_STRTAB] == 0 {
		return s, false, nil
	}
	var err error
	if s.hash, err = m.at(hash); err != nil {
		return s, false, fmt.Errorf("locating symbol hash table: %w", err)
	}
	if s.entries, err = m.at(d[elf.DT_SYMTAB]); err != nil {
		return s, false, fmt.Errorf("locating symbol table: %w", err)
	}
	if s.names, err = m.at(d[elf.DT_STRTAB]); err == nil {
		s.names, err = s.names.first(d[elf.DT_STRSZ])
	}
	if err != nil {
		return s, false, fmt.Errorf("locating string table: %w", err)
	}
	return s, true, nil
}

// lookup returns the exported symbol of a name, false when there is none.
func (s *exports) lookup(name string) (found symbol, ok bool, err error) {
	walk := s.walkSysV
	if s.gnu {
		walk = s.walkGNU
	}
	err = walk(name, func(index uint32) (bool, error) {
		sym, err := s.symbol(index)
		if err != nil || elf.SectionIndex(sym.Shndx) == elf.SHN_UNDEF || elf.ST_BIND(sym.Info) == elf.STB_LOCAL {
			return false, err
		}
		if ok, err = s.named(sym.Name, name); ok {
			found = sym
		}
		return ok, err
	})
	return found, ok, err
}

// count returns how many symbols the table has, which only its hash table tells: see walkGNU and walkSysV.
func (s *exports) count() (uint64, error) {
	if !s.gnu {
		n, err := s.hash.uint32(4)
		return uint64(n), err
	}
	var head [16]byte
	if err := s.hash.read(0, head[:]); err != nil {
		return 0, fmt.Errorf("reading DT_GNU_HASH: %w", err)
	}
	bucketCount, first := uint64(binary.LittleEndian.Uint32(head[0:])), binary.LittleEndian.Uint32(head[4:])
	buckets := uint64(len(head)) + 8*uint64(binary.LittleEndian.Uint32(head[8:]))
	last := uint32(0)
	for i := range bucketCount {
		index, err := s.hash.uint32(buckets + 4*i)
		if err != nil {
			return 0, fmt.Errorf("reading DT_GNU_HASH: %w", err)
		}
		last = max(last, index)
	}
	if last < first {
		return uint64(first), nil // none of them is exported
	}
	for ; ; last++ {
		h, err := s.hash.uint32(buckets + 4*bucketCount + 4*uint64(last-first))
		if err != nil {
			return 0, fmt.Errorf("reading DT_GNU_HASH: %w", err)
		}
		if h&1 != 0 {
			return uint64(last) + 1, nil
		}
	}
}

func (s *exports) symbol(index uint32) (symbol, error) {
	var b [symbolBytes]byte
	if err := s.entries.read(uint64(index)*symbolBytes, b[:]); err != nil {
		return symbol{}, fmt.Errorf("reading symbol %d: %w", index, err)
	}
	return symbol{index: index, Sym64: decodeSymbol(&b)}, nil
}

// decodeSymbol decodes an Elf64_Sym (elf.h; all little-endian):
//
//	offset size field
//	     0    4 st_name
//	     4    1 st_info
//	     5    1 st_other, not used
//	     6    2 st_shndx
//	     8    8 st_value
//	    16    8 st_size
func decodeSymbol(b *[symbolBytes]byte) elf.Sym64 {
	return elf.Sym64{
		Name:  binary.LittleEndian.Uint32(b[0:]),
		Info:  b[4],
		Shndx: binary.LittleEndian.Uint16(b[6:]),
		Value: binary.LittleEndian.Uint64(b[8:]),
		Size:  binary.LittleEndian.Uint64(b[16:]),
	}
}

// named reports whether the string at a position of the string table is name.
func (s *exports) named(pos uint32, name string) (bool, error) {
	if uint64(pos) >= s.names.size {
		return false, fmt.Errorf("%w: name at %#x of a string table of %#x bytes", errMalformed, pos, s.names.size)
	}
	if s.names.size-uint64(pos) < uint64(len(name)+1) {
		return false, nil
	}
	var b [maxNameBytes]byte
	if err := s.names.read(uint64(pos), b[:len(name)+1]); err != nil {
		return false, fmt.Errorf("reading symbol name: %w", err)
	}
	return string(b[:len(name)]) == name && b[len(name)] == 0, nil
}

// walkGNU visits the symbols whose hash is that of the name, until visit returns true. The table
// (4-byte words, but the filter's of 8 bytes, all little-endian; glibc's elf/dl-lookup.c and
// elf/dl-setup_hash.c):
//
//	offset size field
//	     0    4 number of buckets
//	     4    4 index of the first symbol in the table
//	     8    4 number of words of the Bloom filter
//	    12    4 shift of the Bloom filter, not used
//	    16      Bloom filter, not used: it saves lookups in large tables
//	            buckets: index of the first symbol of each; 0 = empty
//	            hashes of all symbols in the table, those of a bucket in a row;
//	            in the last one of a bucket the lowest bit is set
func (s *exports) walkGNU(name string, visit func(index uint32) (stop bool, err error)) error {
	var head [16]byte
	if err := s.hash.read(0, head[:]); err != nil {
		return fmt.Errorf("reading DT_GNU_HASH: %w", err)
	}
	bucketCount := binary.LittleEndian.Uint32(head[0:])
	first := binary.LittleEndian.Uint32(head[4:])
	buckets := uint64(len(head)) + 8*uint64(binary.LittleEndian.Uint32(head[8:]))
	hashes := buckets + 4*uint64(bucketCount)
	if bucketCount == 0 {
		return nil
	}
	hash := gnuHash(name)
	index, err := s.hash.uint32(buckets + 4*uint64(hash%bucketCount))
	if err != nil {
		return fmt.Errorf("reading DT_GNU_HASH: %w", err)
	}
	if index == 0 {
		return nil
	}
	if index < first {
		return fmt.Errorf("%w: DT_GNU_HASH begins with symbol %d, a bucket with %d", errMalformed, first, index)
	}
	for range maxChain {
		h, err := s.hash.uint32(hashes + 4*uint64(index-first))
		if err != nil {
			return fmt.Errorf("reading DT_GNU_HASH: %w", err)
		}
		if h|1 == hash|1 {
			if stop, err := visit(index); stop || err != nil {
				return err
			}
		}
		if h&1 != 0 {
			return nil
		}
		index++
	}
	return fmt.Errorf("%w: more than %d symbols in a bucket of DT_GNU_HASH", ErrLimit, maxChain)
}

// walkSysV visits the symbols of the name's bucket, until visit returns true. The table (4-byte
// words, little-endian; System V gABI, "Hash Table"):
//
//	offset size field
//	     0    4 number of buckets
//	     4    4 number of symbols, for count alone
//	     8      buckets: index of the first symbol of each; 0 = empty
//	            for each symbol, the index of the next one of its bucket; 0 = last
func (s *exports) walkSysV(name string, visit func(index uint32) (stop bool, err error)) error {
	const buckets = 8
	bucketCount, err := s.hash.uint32(0)
	if err != nil {
		return fmt.Errorf("reading DT_HASH: %w", err)
	}
	if bucketCount == 0 {
		return nil
	}
	next := buckets + 4*uint64(sysvHash(name)%bucketCount)
	for range maxChain {
		index, err := s.hash.uint32(next)
		if err != nil {
			return fmt.Errorf("reading DT_HASH: %w", err)
		}
		if index == 0 {
			return nil
		}
		if stop, err := visit(index); stop || err != nil {
			return err
		}
		next = buckets + 4*(uint64(bucketCount)+uint64(index))
	}
	return fmt.Errorf("%w: more than %d symbols in a bucket of DT_HASH", ErrLimit, maxChain)
}

// gnuHash is the hash of DT_GNU_HASH.
func gnuHash(name string) uint32 {
	h := uint32(5381)
	for _, c := range []byte(name) {
		h = h*33 + uint32(c)
	}
	return h
}

// sysvHash is the hash of DT_HASH (System V gABI, "Hash Table").
func sysvHash(name string) uint32 {
	var h uint32
	for _, c := range []byte(name) {
		h = h<<4 + uint32(c)
		h = (h ^ h>>24&0xf0) & 0x0fffffff
	}
	return h
}
