package unwind

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/names/symbols"
	"correlator/procscan"
)

// What is mapped of a file is read where it is in memory, in parts, also across several mappings;
// what is not mapped in between is zero, and there is nothing after the last.
func TestInMemory(t *testing.T) {
	memory := make([]byte, 64)
	for i := range memory {
		memory[i] = byte(i)
	}
	f := inMemory{memory: bytes.NewReader(memory), size: 28, parts: []procscan.Mapping{
		{Start: 32, End: 40}, {Start: 16, End: 24, Offset: 8}, {Start: 48, End: 56, Offset: 20}}}
	whole := make([]byte, 28)
	copy(whole, memory[32:40])
	copy(whole[8:], memory[16:24])
	copy(whole[20:], memory[48:56])
	for from := range int64(28) {
		for length := range 30 {
			b := bytes.Repeat([]byte{0xff}, length)
			n, err := f.ReadAt(b, from)
			want := whole[from:min(28, int(from)+length)]
			assert.Assert(t, bytes.Equal(b[:n], want) && (n < length) == errors.Is(err, io.EOF), "%d from %d: %v, %v",
				length, from, b[:n], err)
		}
	}
	for _, at := range []int64{-1, 28, 1 << 62} {
		n, err := f.ReadAt(make([]byte, 1), at)
		assert.Check(t, n == 0 && errors.Is(err, io.EOF), "%d at %d: %v", n, at, err)
	}
	f.parts[0].Start, f.parts[0].End = 1<<40, 1<<40+8 // gone meanwhile
	_, err := f.ReadAt(make([]byte, 4), 0)
	assert.Check(t, err != nil, "what cannot be read is no error")
}

// A file that is larger than is read has no size in memory, nor on a disk.
func TestFileSize(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	assert.NilError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	target := newMemoryTarget(t, nil)
	for size, want := range map[int64]error{maxFileBytes: nil, maxFileBytes + 1: errFileSize} {
		assert.NilError(t, file.Truncate(size))
		other, err := os.Open(file.Name())
		assert.NilError(t, err)
		opened, err := sized(other)
		assert.Check(t, errors.Is(err, want) && (err != nil || opened.size == size), "%d: %v", size, err)
		if err == nil {
			opened.Close()
		}
	}
	_, err = target.readParts([]procscan.Mapping{{Start: 1, End: maxFileBytes + 2}})
	assert.Check(t, errors.Is(err, errFileSize), "%v", err)
}

// countedReads counts reads of memory.
type countedReads struct {
	io.ReaderAt
	n int
}

func (r *countedReads) ReadAt(b []byte, at int64) (int, error) {
	r.n++
	return r.ReaderAt.ReadAt(b, at)
}

// However many mappings there are of the same bytes of a file, these are read once, from the mapping that begins first;
// what no mapping may be of is left out. The rest is read as if there were no other.
func TestInMemoryOverlapping(t *testing.T) {
	memory := make([]byte, 256)
	for i := range memory {
		memory[i] = byte(i)
	}
	parts := []procscan.Mapping{{Start: 128, End: 136, Offset: 4}, {Start: 160, End: 164, Offset: 6},
		{Start: 192, End: 208, Offset: 10}, {Start: 240, End: 244, Offset: 40}, {Start: 8, End: 8, Offset: 30},
		{Start: 0, End: 64, Offset: maxFileBytes}, {Start: 0, End: 64, Offset: 1<<64 - 32}}
	for range 100 {
		parts = append(parts, procscan.Mapping{Start: 64, End: 72})
	}
	whole := make([]byte, 44) // from 0, 4, 10 and 40
	copy(whole[10:], memory[192:208])
	copy(whole[4:], memory[128:136])
	copy(whole, memory[64:72])
	copy(whole[40:], memory[240:244])
	reads := &countedReads{bytes.NewReader(memory), 0}
	f := inMemory{memory: reads, size: 44, parts: disjoint(parts)}
	for from := range int64(44) {
		for length := range 44 - from {
			reads.n = 0
			b := bytes.Repeat([]byte{0xff}, int(length))
			_, err := f.ReadAt(b, from)
			assert.Assert(t, err == nil && bytes.Equal(b, whole[from:from+length]) && reads.n <= 4,
				"%d from %d: %v, %v, %d",
				length, from, b, err, reads.n)
		}
	}
	reads.n = 0
	_, err := f.ReadAt(make([]byte, 4), 0)
	assert.Check(t, err == nil && reads.n == 1)
}

// A file is read from memory where it cannot be opened, but not where the memory may have to be asked
// for at a process or another machine, or when the process is gone.
func TestReadFromMemory(t *testing.T) {
	for want, all := range map[bool][]error{
		true:  {fs.ErrNotExist, fs.ErrPermission, symbols.ErrNotMounted, procscan.ErrNotRegular},
		false: {procscan.ErrGone, procscan.ErrFileSystem, fmt.Errorf("%w (fuse)", procscan.ErrFileSystem)},
	} {
		for _, err := range all {
			assert.Check(t, readFromMemory(err) == want, err)
		}
	}
}

// However many mappings a file has that is read from memory, they are read and sorted once: also of others, and of
// what cannot be read.
func TestInMemoryOnce(t *testing.T) {
	mem, err := os.CreateTemp(t.TempDir(), "")
	assert.NilError(t, err)
	_, err = mem.WriteString("\x7fELF" + strings.Repeat("x", 4092))
	assert.NilError(t, err)
	target := newMemoryTarget(t, mem) // its handle is none: the mappings cannot be read again
	mapped := procscan.Mapping{End: 4096, Dev: 1, Ino: 2}
	broken := procscan.Mapping{End: 4096, Offset: 4096, Dev: 1, Ino: 3}
	target.inMemory = map[fileID]*memoryFile{
		idOf(mapped): {parts: []procscan.Mapping{mapped}}, idOf(broken): {parts: []procscan.Mapping{broken}},
	}
	first, err := target.openInMemory(mapped)
	assert.NilError(t, err)
	again, err := target.openInMemory(mapped)
	assert.Check(t, err == nil && again == first)
	for _, m := range []procscan.Mapping{broken, broken, {Dev: 2, Ino: 2}} {
		_, err = target.openInMemory(m)
		assert.ErrorIs(t, err, errNotInMemory)
	}
}
