package unwind

import (
	"cmp"
	"errors"
	"io"
	"os"
	"sort"

	"correlator/internal/host/sorting"
	"correlator/internal/names/symbols"
	"correlator/procscan"
)

// openFile is a file of a process, or what of it is in the memory of the process.
type openFile struct {
	io.ReaderAt
	size int64
	file *os.File // nil: memory
}

// Close closes the file, if there is one.
func (f *openFile) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// inMemory is what a process has mapped of a file. What it has not is zero. That suffices for code,
// and for what describes how it is unwound, but not for a table of symbols.
type inMemory struct {
	parts  []procscan.Mapping // by offset; none has what another one has
	memory io.ReaderAt
	size   int64
}

// errNotInMemory: what is mapped of a file does not begin with its start.
var errNotInMemory = errors.New("its start is not mapped")

// readFromMemory reports whether a file that could not be opened is read from the memory of its
// process instead. Not where it is on a file system that may never answer, which would be asked for
// what is not in memory. One that is not mounted any more may be such a file system, too, but hardly
// is; a process that has a worker hang by that is left out, as by any other memory.
func readFromMemory(why error) bool {
	return !errors.Is(why, procscan.ErrGone) &&
		(errors.Is(why, symbols.ErrNotMounted) || !errors.Is(why, procscan.ErrFileSystem))
}

// A fileID says which file is mapped.
type fileID struct{ dev, ino uint64 }

func idOf(m procscan.Mapping) fileID { return fileID{m.Dev, m.Ino} }

// A memoryFile is a file whose contents are read from memory, once that was asked for.
type memoryFile struct {
	parts []procscan.Mapping
	file  *openFile
	err   error
}

// openInMemory returns what is mapped of the file of a mapping. The mappings are read once for all files,
// as the engine asks for each mapping, of which a process may have many.
func (t *target) openInMemory(m procscan.Mapping) (*openFile, error) {
	if t.inMemory == nil {
		t.inMemory = make(map[fileID]*memoryFile)
		all, err := t.handle.FileMemory()
		if !errors.Is(err, procscan.ErrTooMany) {
			t.notInMemory = err
		}
		for _, part := range all {
			f := t.inMemory[idOf(part)]
			if f == nil {
				f = new(memoryFile)
				t.inMemory[idOf(part)] = f
			}
			f.parts = append(f.parts, part)
		}
	}
	f := t.inMemory[idOf(m)]
	if f == nil {
		return nil, cmp.Or(t.notInMemory, errNotInMemory)
	}
	if f.file == nil && f.err == nil {
		f.file, f.err = t.readParts(f.parts)
	}
	return f.file, f.err
}

// readParts returns what is mapped of a file.
func (t *target) readParts(parts []procscan.Mapping) (*openFile, error) {
	parts = disjoint(parts)
	if len(parts) == 0 || parts[0].Offset != 0 {
		return nil, errNotInMemory
	}
	f := &inMemory{parts: parts, memory: rawFile{t.mem}}
	for _, p := range parts {
		if end := endOf(p); end <= maxFileBytes {
			f.size = max(f.size, int64(end))
		}
	}
	if magic := make([]byte, 4); f.size == 0 {
		return nil, errFileSize
	} else if _, err := f.ReadAt(magic, 0); err != nil || string(magic) != "\x7fELF" {
		return nil, cmp.Or(err, errNotInMemory)
	}
	return &openFile{ReaderAt: f, size: f.size}, nil
}

// disjoint returns parts by offset, without what is in another one, too, that begins earlier: of the same bytes of a
// file, a process may have many mappings.
func disjoint(parts []procscan.Mapping) []procscan.Mapping {
	sorting.Stable(parts, func(a, b procscan.Mapping) int { return cmp.Compare(a.Offset, b.Offset) })
	kept, end := parts[:0], uint64(0)
	for _, p := range parts {
		if p.Start >= p.End || p.Offset >= maxFileBytes || endOf(p) <= end {
			continue
		}
		if p.Offset < end {
			p.Start += end - p.Offset
			p.Offset = end
		}
		end = endOf(p)
		kept = append(kept, p)
	}
	return kept
}

// endOf returns the offset of what follows a mapping.
func endOf(p procscan.Mapping) uint64 { return p.Offset + (p.End - p.Start) }

// ReadAt reads what is mapped.
func (f *inMemory) ReadAt(b []byte, at int64) (n int, err error) {
	if at < 0 || at >= f.size {
		return 0, io.EOF
	}
	short := int64(len(b)) > f.size-at
	b = b[:min(int64(len(b)), f.size-at)]
	clear(b)
	first := sort.Search(len(f.parts), func(i int) bool { return int64(endOf(f.parts[i])) > at })
	for _, p := range f.parts[first:] {
		from, to := max(at, int64(p.Offset)), min(at+int64(len(b)), int64(endOf(p)))
		if from >= to {
			break
		}
		if _, err := f.memory.ReadAt(b[from-at:to-at], int64(p.Start)+from-int64(p.Offset)); err != nil {
			return 0, err
		}
	}
	if short {
		return len(b), io.EOF
	}
	return len(b), nil
}
