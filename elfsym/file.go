package elfsym

import (
	"debug/elf"
	"fmt"
	"io"
	"math"
	"os"
)

const (
	// maxProgramHeaders is what fits in 64 KiB, where the kernel refuses to execute a file
	// (fs/binfmt_elf.c). Linkers write up to 15.
	maxProgramHeaders = 64 << 10 / programHeaderBytes

	// maxSegments bounds the memory of a parsed file. Linkers write up to 9 PT_LOAD headers and
	// tools that edit files add one per edit.
	maxSegments = 64
)

// Segment is a PT_LOAD program header. Neither Off+Filesz nor Vaddr+Memsz wraps, and Filesz is not
// larger than Memsz; the file can still end before Off+Filesz.
type Segment struct {
	Vaddr, Off, Filesz, Memsz uint64
	Flags                     elf.ProgFlag
}

// File is what is needed of the file of a mapping. It keeps no reference to the reader that it was
// parsed from.
type File struct {
	Machine   elf.Machine
	Segments  []Segment // in the file's order
	BuildID   []byte    // the GNU build id; nil: no PT_NOTE has one that can be read (Go's linker places it outside)
	GoBuildID string    // process.executable.build_id.go: that of Go's linker; empty: there is none
	HTLHash   [16]byte  // process.executable.build_id.htlhash
}

// ParseFile parses any ELF file that a process can map: libraries, executables with a fixed or free
// address, static or not, with or without sections. It reads the first and the last 4 KiB, and more
// only where program headers or notes are elsewhere: some 80 reads of 4 KiB at worst, however large
// the file is. It blocks as long as r does.
func ParseFile(r io.ReaderAt, size int64) (*File, error) {
	h, err := parseHeaders(r, size)
	if err != nil {
		return nil, err
	}
	return &h.file, nil
}

// headers is the contents of the ELF header, the program headers and the notes.
type headers struct {
	pages   *pages
	kind    elf.Type
	file    File
	dynamic elf.Prog64 // PT_DYNAMIC; Type is PT_NULL when there is none
	tls     elf.Prog64 // PT_TLS; the same
}

func parseHeaders(r io.ReaderAt, size int64) (*headers, error) {
	p, err := newPages(r, size)
	if err != nil {
		return nil, err
	}
	h := &headers{pages: p}
	programs, err := h.readHeader()
	if err != nil {
		return nil, fmt.Errorf("reading ELF header: %w", err)
	}
	if err := h.readProgramHeaders(programs); err != nil {
		return nil, fmt.Errorf("reading program headers: %w", err)
	}
	if h.file.HTLHash, err = htlHash(p); err != nil {
		return nil, fmt.Errorf("hashing: %w", err)
	}
	return h, nil
}

// readHeader checks the ELF header and returns where the program headers are.
func (h *headers) readHeader() (table, error) {
	header, err := h.pages.header()
	if err != nil {
		return table{}, err
	}
	h.kind, h.file.Machine = elf.Type(header.Type), elf.Machine(header.Machine)
	if h.file.Machine != elf.EM_X86_64 && h.file.Machine != elf.EM_AARCH64 {
		return table{}, fmt.Errorf("%w: %v", ErrMachine, h.file.Machine)
	}
	if header.Phnum > maxProgramHeaders {
		return table{}, fmt.Errorf("%w: %d program headers, at most %d", ErrLimit, header.Phnum, maxProgramHeaders)
	}
	return h.pages.headers(header.Phoff, header.Phnum, header.Phentsize, programHeaderBytes)
}

func (h *headers) readProgramHeaders(programs table) error {
	notes := notesReader{pages: h.pages, left: maxNotes}
	var program elf.Prog64
	for pos := uint64(0); pos < programs.size; pos += programHeaderBytes {
		if err := programs.decode(pos, &program); err != nil {
			return err
		}
		switch elf.ProgType(program.Type) {
		case elf.PT_LOAD:
			if err := h.addSegment(program); err != nil {
				return err
			}
		case elf.PT_DYNAMIC: // the last one counts, as for the loaders
			h.dynamic = program
		case elf.PT_TLS:
			h.tls = program
		case elf.PT_NOTE:
			if err := notes.search(program.Off, program.Filesz, program.Align); err != nil {
				return err
			}
		}
	}
	h.file.BuildID, h.file.GoBuildID = notes.id, notes.goID
	return nil
}

func (h *headers) addSegment(p elf.Prog64) error {
	if p.Filesz > p.Memsz || p.Off > math.MaxUint64-p.Filesz || p.Vaddr > math.MaxUint64-p.Memsz {
		return fmt.Errorf("%w: PT_LOAD at %#x, %#x bytes from offset %#x, %#x in memory",
			errMalformed, p.Vaddr, p.Filesz, p.Off, p.Memsz)
	}
	if len(h.file.Segments) == maxSegments {
		return fmt.Errorf("%w: more than %d PT_LOAD headers", ErrLimit, maxSegments)
	}
	h.file.Segments = append(h.file.Segments, Segment{
		Vaddr: p.Vaddr, Off: p.Off, Filesz: p.Filesz, Memsz: p.Memsz, Flags: elf.ProgFlag(p.Flags),
	})
	return nil
}

// Bias returns load address minus ELF address (modulo 2^64) of a mapping of this file that starts
// at mapStart and at file offset mapOff. The mapping can be an inner part of a segment. It should
// be executable: a page of the file that two segments share is attributed to the executable one. It
// reports false when no segment of the file can be mapped so.
func (f *File) Bias(mapStart, mapOff uint64) (uint64, bool) {
	return f.bias(mapStart, mapOff, uint64(os.Getpagesize()))
}

func (f *File) bias(mapStart, mapOff, pageSize uint64) (uint64, bool) {
	var bias uint64
	best := 0
	for _, s := range f.Segments {
		// Loaders map whole pages: from the one that holds the segment's first byte.
		first := s.Off &^ (pageSize - 1)
		if mapOff < first || mapOff >= s.Off+s.Filesz || s.Filesz == 0 {
			continue
		}
		b := (mapStart - mapOff) - (s.Vaddr - s.Off)
		if b%pageSize != 0 {
			continue // a loader cannot have mapped it there
		}
		rank := 1
		if s.Flags&elf.PF_X != 0 {
			rank += 2
		}
		if mapOff == first {
			rank++
		}
		if rank > best {
			best, bias = rank, b
		}
	}
	return bias, best > 0
}
