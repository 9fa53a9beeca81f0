package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

const headerBytes = 64 // sizeof(Elf64_Ehdr)

// header is what the ELF header says of a file of the class that this package reads.
type header struct {
	machine            elf.Machine
	programs, sections headerTable
}

// headerTable is where the program headers or the section headers are.
type headerTable struct {
	off               uint64
	entryBytes, count uint16
}

// decodeHeader decodes the fields of an Elf64_Ehdr that are used (elf.h; all little-endian):
//
//	offset size field
//	     0    4 magic number
//	     4    1 EI_CLASS
//	     5    1 EI_DATA
//	    18    2 e_machine
//	    32    8 e_phoff
//	    40    8 e_shoff
//	    54    2 e_phentsize
//	    56    2 e_phnum
//	    58    2 e_shentsize
//	    60    2 e_shnum
//
// b is the beginning of the file, and shorter than the header only when the file is.
func decodeHeader(b []byte) (header, error) {
	if len(b) < len(elf.ELFMAG) || string(b[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return header{}, errNotELF
	}
	if len(b) < headerBytes {
		return header{}, fmt.Errorf("%w: %d bytes", errTruncated, len(b))
	}
	class, data := elf.Class(b[elf.EI_CLASS]), elf.Data(b[elf.EI_DATA])
	if class != elf.ELFCLASS64 || data != elf.ELFDATA2LSB {
		return header{}, fmt.Errorf("%w: %v, %v", ErrClass, class, data)
	}
	return header{
		machine: elf.Machine(binary.LittleEndian.Uint16(b[18:])),
		programs: headerTable{
			off:        binary.LittleEndian.Uint64(b[32:]),
			entryBytes: binary.LittleEndian.Uint16(b[54:]),
			count:      binary.LittleEndian.Uint16(b[56:]),
		},
		sections: headerTable{
			off:        binary.LittleEndian.Uint64(b[40:]),
			entryBytes: binary.LittleEndian.Uint16(b[58:]),
			count:      binary.LittleEndian.Uint16(b[60:]),
		},
	}, nil
}
