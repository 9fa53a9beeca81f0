package elfsym

import (
	"correlator/internal/lab/testenv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func newCache(t testing.TB, entries uint32) *Cache {
	t.Helper()
	c, err := NewCache(entries)
	assert.NilError(t, err)
	return c
}

func writeFile(t testing.TB, b []byte) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "*.so")
	assert.NilError(t, err)
	_, err = f.Write(b)
	assert.NilError(t, errors.Join(err, f.Close()))
	return f.Name()
}

func open(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	assert.NilError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func expectCounts(t *testing.T, c *Cache, hits, misses uint64) {
	t.Helper()
	m := c.libraries.Metrics()
	assert.Check(t, m.Hits == hits && m.Misses == misses, "%+v, want %d hits, %d misses", m, hits, misses)
}

func TestCacheKey(t *testing.T) {
	c := newCache(t, 8)
	contents := readFixture(t, gnuFixture)
	path := writeFile(t, contents)
	first, err := c.Library(open(t, path))
	assert.NilError(t, err)
	assert.Check(t, first.StorageAddr == 0x3020, "%+v", first)
	expectCounts(t, c, 0, 1)

	// The same file by another name.
	link := path + ".link"
	assert.NilError(t, os.Symlink(path, link))
	f := open(t, link)
	again, err := c.Library(f)
	assert.Check(t, err == nil && again == first, "%p, %v, want %p", again, err, first)
	expectCounts(t, c, 1, 1)

	// The same bytes in another file, and other bytes in the same file.
	lib, err := c.Library(open(t, writeFile(t, contents)))
	assert.Check(t, err == nil && lib != first, "a copy: %p, %v", lib, err)
	testenv.WriteFile(t, path, readFixture(t, "x86_64-glibc-dtpmod"))
	lib, err = c.Library(f)
	assert.Check(t, err == nil && lib.Relocation.Kind == DTPMOD64, "rewritten: %+v, %v", lib, err)
	expectCounts(t, c, 1, 3)
}

// Each field of the key counts.
func TestIdentify(t *testing.T) {
	path := writeFile(t, []byte("contents"))
	identify := func(path string) FileKey {
		t.Helper()
		id, err := Identify(open(t, path))
		assert.NilError(t, err)
		return id
	}
	id := identify(path)
	assert.Check(t, id.Size == 8 && id.Ino != 0 && id.MtimeNs != 0 && id.CtimeNs != 0, "%+v", id)
	again := identify(path)
	assert.Check(t, again == id, "%+v, then %+v", id, again)
	modified := time.Unix(1700000000, 123456789)
	assert.NilError(t, os.Chtimes(path, modified, modified))
	got := identify(path).MtimeNs
	assert.Check(t, got == 1700000000123456789, "time of modification %d", got)
	proc := identify("/proc/self/maps")
	assert.Check(t, proc.Dev != id.Dev, "one device: %+v, %+v", proc, id)

	closed := open(t, path)
	closed.Close()
	_, err := Identify(closed)
	assert.Check(t, errors.Is(err, os.ErrClosed), "closed file: %v", err)
	_, err = newCache(t, 1).Library(closed)
	assert.Check(t, errors.Is(err, os.ErrClosed) && !IsContentError(err), "closed file: %v", err)
}

func TestCacheKeepsContentErrors(t *testing.T) {
	c := newCache(t, 8)
	for i, tt := range []struct {
		contents []byte
		want     error
	}{
		{readFixture(t, "x86_64-glibc-older"), ErrNoSymbols},
		{readFixture(t, gnuFixture)[:1000], errTruncated},
		{nil, errNotELF},
	} {
		f := open(t, writeFile(t, tt.contents))
		for range 3 {
			lib, err := c.Library(f)
			assert.Check(t, errors.Is(err, tt.want) && lib == nil, "%v, %v, want %v", lib, err, tt.want)
		}
		expectCounts(t, c, uint64(2*(i+1)), uint64(i+1))
	}
}

func TestCacheDropsReadErrors(t *testing.T) {
	c := newCache(t, 8)
	path := writeFile(t, readFixture(t, gnuFixture))
	unreadable, err := os.OpenFile(path, os.O_WRONLY, 0)
	assert.NilError(t, err)
	defer unreadable.Close()
	lib, err := c.Library(unreadable)
	assert.Check(t, err != nil && !IsContentError(err), "%v, %v", lib, err)
	lib, err = c.Library(open(t, path))
	assert.Check(t, err == nil && lib.StorageAddr == 0x3020, "%v, %v", lib, err)
	expectCounts(t, c, 0, 2)
}

// changing lets a file grow when it is read first.
type changing struct {
	io.ReaderAt
	change func()
}

func (c *changing) ReadAt(b []byte, off int64) (int, error) {
	if c.change != nil {
		c.change()
		c.change = nil
	}
	return c.ReaderAt.ReadAt(b, off)
}

// What was read of a file while it changed is cached for neither state.
func TestCacheDropsChangedFiles(t *testing.T) {
	for fixture, want := range map[string]error{gnuFixture: nil, "x86_64-glibc-older": ErrNoSymbols} {
		c := newCache(t, 8)
		contents := readFixture(t, fixture)
		path := writeFile(t, contents)
		f := open(t, path)
		grow := func() {
			assert.Check(t, os.Truncate(path, int64(len(contents))+1))
		}
		_, err := c.library(f, &changing{f, grow})
		assert.Check(t, errors.Is(err, want), "%v, want %v", err, want)
		n := c.libraries.Len()
		assert.Check(t, n == 0, "%s: %d results kept", fixture, n)
		for range 2 {
			_, err := c.Library(f)
			assert.Check(t, errors.Is(err, want), "%v, want %v", err, want)
		}
		expectCounts(t, c, 1, 2)
	}
}

func TestCacheEvictsLeastRecentlyUsed(t *testing.T) {
	c := newCache(t, 3)
	contents := readFixture(t, gnuFixture)
	var files []*os.File
	for range 4 {
		files = append(files, open(t, writeFile(t, contents)))
	}
	lookUp := func(i int) {
		t.Helper()
		_, err := c.Library(files[i])
		assert.NilError(t, err)
	}
	for _, i := range []int{0, 1, 2, 0, 3} { // 1 was used least recently
		lookUp(i)
	}
	expectCounts(t, c, 1, 4)
	for _, i := range []int{0, 2, 3} {
		lookUp(i)
	}
	expectCounts(t, c, 4, 4)
	lookUp(1)
	expectCounts(t, c, 4, 5)
	_, err := NewCache(0)
	assert.Check(t, err != nil, "a cache of 0 entries")
}

func TestCacheConcurrentUse(t *testing.T) {
	c := newCache(t, 2) // fewer than files: entries come and go
	type file struct {
		path string
		want uint64
	}
	var files []file
	for name, addr := range map[string]uint64{
		gnuFixture: 0x3020, "x86_64-glibc-dtpmod": 0x3008, "aarch64-glibc-tlsdesc-lld": 0x3710, "x86_64-glibc-older": 0,
	} {
		files = append(files, file{filepath.Join(prebuilt, name+".so"), addr})
	}
	const workers, rounds = 8, 100
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				tt := files[(w+i)%len(files)]
				f, err := os.Open(tt.path)
				if err != nil {
					t.Error(err)
					return
				}
				lib, err := c.Library(f)
				f.Close()
				switch {
				case tt.want == 0:
					assert.Check(t, errors.Is(err, ErrNoSymbols), "%s: %v", tt.path, err)
				case err != nil:
					t.Errorf("%s: %v", tt.path, err)
				case lib.StorageAddr != tt.want:
					t.Errorf("%s: storage %#x, want %#x", tt.path, lib.StorageAddr, tt.want)
				}
			}
		})
	}
	wg.Wait()
	m := c.libraries.Metrics()
	assert.Check(t, m.Hits+m.Misses == workers*rounds, "%+v, want %d together", m, workers*rounds)
}
