package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

const (
	headerBytes        = 64 // sizeof(Elf64_Ehdr)
	programHeaderBytes = 56 // sizeof(Elf64_Phdr), the only e_phentsize that loaders take
	sectionHeaderBytes = 64 // sizeof(Elf64_Shdr)
)

// header reads and checks the ELF header.
func (p *pages) header() (elf.Header64, error) {
	var h elf.Header64
	b := p.scratch[:min(headerBytes, p.size)]
	if err := p.read(0, b); err != nil {
		return h, err
	}
	if len(b) < len(elf.ELFMAG) || string(b[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return h, errNotELF
	}
	if _, err := binary.Decode(b, binary.LittleEndian, &h); err != nil {
		return h, fmt.Errorf("%w: %d bytes", errTruncated, len(b))
	}
	class, data := elf.Class(h.Ident[elf.EI_CLASS]), elf.Data(h.Ident[elf.EI_DATA])
	if class != elf.ELFCLASS64 || data != elf.ELFDATA2LSB {
		return h, fmt.Errorf("%w: %v, %v", ErrClass, class, data)
	}
	return h, nil
}

// headers returns the table of the program headers or of the section headers, which must have the
// given size.
func (p *pages) headers(off uint64, count, entryBytes, wantBytes uint16) (table, error) {
	if count > 0 && entryBytes != wantBytes {
		return table{}, fmt.Errorf("%w: headers of %d bytes", errMalformed, entryBytes)
	}
	return p.table(off, uint64(count)*uint64(wantBytes))
}
