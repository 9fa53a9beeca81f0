package elfsym

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

const (
	// pageBytes is the unit in which a file is read. The ELF header, the program headers and the
	// notes of nearly every file are in the first such unit, which is also the first piece of the
	// htlhash.
	pageBytes = hashPieceBytes

	// cachedPages is how many of them are kept. A lookup alternates between the hash table, the
	// symbols and the names, and a relocation can need the word that it applies to: four places at
	// most.
	cachedPages = 4

	// maxPageReads bounds the time that one file can cost: 4 MiB in pages. An agent library takes
	// about five; libLLVM, whose 380,000 relocations are the most on a Debian machine, would be
	// refused, but no agent is that large.
	maxPageReads = 1024
)

// source is a file that is read in pieces of any size.
type source struct {
	r    io.ReaderAt
	size uint64
}

// check returns errTruncated when a piece is not within the file.
func (f source) check(off, size uint64) error {
	if off > f.size || size > f.size-off {
		return fmt.Errorf("%w: %d bytes at %#x of %d", errTruncated, size, off, f.size)
	}
	return nil
}

// read fills buf. A file that ends before its stated size has become shorter since, which is
// errTruncated as well.
func (f source) read(off uint64, buf []byte) error {
	if err := f.check(off, uint64(len(buf))); err != nil {
		return err
	}
	if n, err := f.r.ReadAt(buf, int64(off)); n < len(buf) {
		return fmt.Errorf("reading %d bytes at %#x: %w", len(buf), off, truncated(err))
	}
	return nil
}

// streamBytes is the unit in which long tables are read.
const streamBytes = 64 << 10

// stream returns a piece that is read once, from its beginning to its end, past the cache and its
// limit. An error of it may be io.EOF: see truncated.
func (f source) stream(off, size uint64) (*bufio.Reader, error) {
	if err := f.check(off, size); err != nil {
		return nil, err
	}
	return bufio.NewReaderSize(io.NewSectionReader(f.r, int64(off), int64(size)), streamBytes), nil
}

// pages reads a file through a few cached pages: many small reads near each other cost one read of
// the file, and memory stays at cachedPages pages.
type pages struct {
	source
	reads   int
	scratch [headerBytes]byte // of decode
	cache   [cachedPages]struct {
		number uint64 // page number + 1; 0 when empty
		bytes  []byte
	}
}

func newPages(r io.ReaderAt, size int64) (*pages, error) {
	if size < 0 {
		return nil, fmt.Errorf("%w: size %d", errMalformed, size)
	}
	return &pages{source: source{r, uint64(size)}}, nil
}

// read is source.read through the cache.
func (p *pages) read(off uint64, buf []byte) error {
	if err := p.check(off, uint64(len(buf))); err != nil {
		return err
	}
	for len(buf) > 0 {
		page, err := p.page(off / pageBytes)
		if err != nil {
			return err
		}
		n := copy(buf, page[off%pageBytes:])
		off += uint64(n)
		buf = buf[n:]
	}
	return nil
}

// page returns the given page of the file; the last one can be short. The bytes are valid until the
// next call.
func (p *pages) page(number uint64) ([]byte, error) {
	slot := &p.cache[number%cachedPages]
	if slot.number == number+1 {
		return slot.bytes, nil
	}
	if p.reads++; p.reads > maxPageReads {
		return nil, fmt.Errorf("%w: more than %d pages read", ErrLimit, maxPageReads)
	}
	if slot.bytes == nil {
		slot.bytes = make([]byte, pageBytes)
	}
	off := number * pageBytes
	slot.number = 0
	slot.bytes = slot.bytes[:min(pageBytes, p.size-off)]
	if err := p.source.read(off, slot.bytes); err != nil {
		return nil, err
	}
	slot.number = number + 1
	return slot.bytes, nil
}

// truncated replaces the error of a reader that has reached the end of the file.
func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTruncated
	}
	return err
}

// table is a range of the file. Positions within it are relative, so that no sum of untrusted
// numbers can leave it or wrap.
type table struct {
	pages     *pages
	off, size uint64
}

func (p *pages) table(off, size uint64) (table, error) {
	if off > math.MaxUint64-size {
		return table{}, fmt.Errorf("%w: %#x bytes at %#x", errMalformed, size, off)
	}
	return table{pages: p, off: off, size: size}, nil
}

// first returns the first size bytes of the table.
func (t table) first(size uint64) (table, error) {
	if size > t.size {
		return table{}, fmt.Errorf("%w: table of %#x bytes where %#x are left", errMalformed, size, t.size)
	}
	t.size = size
	return t, nil
}

// read fills buf from position pos. Beyond the table's end the error is errMalformed, beyond the
// file's end errTruncated.
func (t table) read(pos uint64, buf []byte) error {
	if pos > t.size || uint64(len(buf)) > t.size-pos {
		return fmt.Errorf("%w: position %#x in a table of %#x bytes", errMalformed, pos, t.size)
	}
	return t.pages.read(t.off+pos, buf)
}

// decode reads one of the structs of debug/elf, which are those of elf.h, little-endian.
func (t table) decode(pos uint64, v any) error {
	b := t.pages.scratch[:binary.Size(v)]
	if err := t.read(pos, b); err != nil {
		return err
	}
	_, err := binary.Decode(b, binary.LittleEndian, v)
	return err
}

func (t table) uint32(pos uint64) (uint32, error) {
	var b [4]byte
	err := t.read(pos, b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

func (t table) uint64(pos uint64) (uint64, error) {
	var b [8]byte
	err := t.read(pos, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}
