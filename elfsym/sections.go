package elfsym

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
)

const sectionHeaderBytes = 64 // sizeof(Elf64_Shdr)

// source is a file that is read in pieces of any size. Unlike pages, it keeps nothing of it.
type source struct {
	r    io.ReaderAt
	size uint64
}

// read fills buf. Beyond the end of the file the error is errTruncated.
func (f source) read(off uint64, buf []byte) error {
	if off > f.size || uint64(len(buf)) > f.size-off {
		return fmt.Errorf("%w: %d bytes at %#x of %d", errTruncated, len(buf), off, f.size)
	}
	return readFull(f.r, buf, off)
}

// stream reads a piece of the file from its start to its end.
func (f source) stream(off, size uint64) (*bufio.Reader, error) {
	if off > f.size || size > f.size-off {
		return nil, fmt.Errorf("%w: %d bytes at %#x of %d", errTruncated, size, off, f.size)
	}
	return bufio.NewReaderSize(io.NewSectionReader(f.r, int64(off), int64(size)), streamBytes), nil
}

// section is what is used of a section header.
type section struct {
	kind       elf.SectionType
	flags      uint64
	addr       uint64
	off, size  uint64
	link       uint32
	entryBytes uint64
}

// sections reads the ELF header and the section headers.
func (f source) sections() ([]section, error) {
	b := make([]byte, min(headerBytes, f.size))
	if err := f.read(0, b); err != nil {
		return nil, err
	}
	header, err := decodeHeader(b)
	if err != nil {
		return nil, err
	}
	// Extended numbering (more than 65535 sections) is not supported: linked files have some forty.
	// Only object files, which are never mapped, can have more.
	headers := header.sections
	if headers.off == 0 || headers.count == 0 {
		return nil, nil
	}
	if headers.entryBytes != sectionHeaderBytes {
		return nil, fmt.Errorf("%w: section headers of %d bytes", errMalformed, headers.entryBytes)
	}
	r, err := f.stream(headers.off, uint64(headers.count)*sectionHeaderBytes)
	if err != nil {
		return nil, err
	}
	sections := make([]section, headers.count)
	var entry [sectionHeaderBytes]byte
	for i := range sections {
		if _, err := io.ReadFull(r, entry[:]); err != nil {
			return nil, truncated(err)
		}
		sections[i] = decodeSection(&entry)
	}
	return sections, nil
}

// decodeSection decodes an Elf64_Shdr (elf.h; all little-endian):
//
//	offset size field
//	     0    4 sh_name, not used
//	     4    4 sh_type
//	     8    8 sh_flags
//	    16    8 sh_addr
//	    24    8 sh_offset
//	    32    8 sh_size
//	    40    4 sh_link
//	    44    4 sh_info, not used
//	    48    8 sh_addralign, not used
//	    56    8 sh_entsize
func decodeSection(b *[sectionHeaderBytes]byte) section {
	return section{
		kind:       elf.SectionType(binary.LittleEndian.Uint32(b[4:])),
		flags:      binary.LittleEndian.Uint64(b[8:]),
		addr:       binary.LittleEndian.Uint64(b[16:]),
		off:        binary.LittleEndian.Uint64(b[24:]),
		size:       binary.LittleEndian.Uint64(b[32:]),
		link:       binary.LittleEndian.Uint32(b[40:]),
		entryBytes: binary.LittleEndian.Uint64(b[56:]),
	}
}
