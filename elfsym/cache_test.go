package elfsym

import (
	"bytes"
	"correlator/internal/lab/testenv"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

func newCache(t testing.TB, entries uint32) *Cache {
	t.Helper()
	c, err := NewCache(entries)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func writeFile(t testing.TB, b []byte) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "*.so")
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func open(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func expectCounts(t *testing.T, c *Cache, hits, misses uint64) {
	t.Helper()
	if h, m := c.counts(); h != hits || m != misses {
		t.Errorf("%d hits, %d misses, want %d, %d", h, m, hits, misses)
	}
}

func TestCacheKey(t *testing.T) {
	c := newCache(t, 8)
	contents := readFixture(t, gnuFixture)
	path := writeFile(t, contents)
	first, err := c.Library(open(t, path))
	if err != nil {
		t.Fatal(err)
	}
	if first.StorageAddr != 0x3020 {
		t.Errorf("%+v", first)
	}
	expectCounts(t, c, 0, 1)

	// The same file by another name.
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	f := open(t, link)
	if again, err := c.Library(f); err != nil || again != first {
		t.Errorf("%p, %v, want %p", again, err, first)
	}
	expectCounts(t, c, 1, 1)

	// The same bytes in another file, and other bytes in the same file.
	if lib, err := c.Library(open(t, writeFile(t, contents))); err != nil || lib == first {
		t.Errorf("a copy: %p, %v", lib, err)
	}
	testenv.WriteFile(t, path, readFixture(t, "x86_64-glibc-dtpmod"))
	if lib, err := c.Library(f); err != nil || lib.Relocation.Kind != DTPMOD64 {
		t.Errorf("rewritten: %+v, %v", lib, err)
	}
	expectCounts(t, c, 1, 3)
}

// Each field of the key counts.
func TestIdentify(t *testing.T) {
	path := writeFile(t, []byte("contents"))
	identify := func(path string) FileKey {
		t.Helper()
		id, err := Identify(open(t, path))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	id := identify(path)
	if id.Size != 8 || id.Ino == 0 || id.MtimeNs == 0 || id.CtimeNs == 0 {
		t.Errorf("%+v", id)
	}
	if again := identify(path); again != id {
		t.Errorf("%+v, then %+v", id, again)
	}
	modified := time.Unix(1700000000, 123456789)
	if err := os.Chtimes(path, modified, modified); err != nil {
		t.Fatal(err)
	}
	if got := identify(path).MtimeNs; got != 1700000000123456789 {
		t.Errorf("time of modification %d", got)
	}
	if proc := identify("/proc/self/maps"); proc.Dev == id.Dev {
		t.Errorf("one device: %+v, %+v", proc, id)
	}

	closed := open(t, path)
	closed.Close()
	if _, err := Identify(closed); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed file: %v", err)
	}
	if _, err := newCache(t, 1).Library(closed); !errors.Is(err, os.ErrClosed) || IsContentError(err) {
		t.Errorf("closed file: %v", err)
	}
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
			if lib, err := c.Library(f); !errors.Is(err, tt.want) || lib != nil {
				t.Errorf("%v, %v, want %v", lib, err, tt.want)
			}
		}
		expectCounts(t, c, uint64(2*(i+1)), uint64(i+1))
	}
}

func TestCacheDropsReadErrors(t *testing.T) {
	c := newCache(t, 8)
	path := writeFile(t, readFixture(t, gnuFixture))
	unreadable, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unreadable.Close()
	if lib, err := c.Library(unreadable); err == nil || IsContentError(err) {
		t.Errorf("%v, %v", lib, err)
	}
	if lib, err := c.Library(open(t, path)); err != nil || lib.StorageAddr != 0x3020 {
		t.Errorf("%v, %v", lib, err)
	}
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
			if err := os.Truncate(path, int64(len(contents))+1); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.library(f, &changing{f, grow}); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if n := c.libraries.Len(); n != 0 {
			t.Errorf("%s: %d results kept", fixture, n)
		}
		for range 2 {
			if _, err := c.Library(f); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
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
		if _, err := c.Library(files[i]); err != nil {
			t.Fatal(err)
		}
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
	if _, err := NewCache(0); err == nil {
		t.Error("a cache of 0 entries")
	}
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
					if !errors.Is(err, ErrNoSymbols) {
						t.Errorf("%s: %v", tt.path, err)
					}
				case err != nil:
					t.Errorf("%s: %v", tt.path, err)
				case lib.StorageAddr != tt.want:
					t.Errorf("%s: storage %#x, want %#x", tt.path, lib.StorageAddr, tt.want)
				}
			}
		})
	}
	wg.Wait()
	if hits, misses := c.counts(); hits+misses != workers*rounds {
		t.Errorf("%d hits, %d misses, want %d together", hits, misses, workers*rounds)
	}
}

// largestLibrary is a library that makes the cache keep as much as any can.
func largestLibrary(t testing.TB) []byte {
	e := newEdit(t, gnuFixture)
	id := note(3, "GNU\x00", string(make([]byte, maxBuildIDBytes)), 4)
	header := e.program(elf.PT_NOTE, 0)
	e.put64(header+pOffset, uint64(len(e.b)))
	e.put64(header+pFilesz, uint64(len(id)))
	e.b = append(e.b, id...)

	headers := bytes.Clone(e.b[e.get64(ePhoff):][:programHeaderBytes*len(e.f.Progs)])
	load := make([]byte, programHeaderBytes)
	binary.LittleEndian.PutUint32(load, uint32(elf.PT_LOAD))
	headers = append(bytes.Repeat(load, maxSegments-4), headers...)
	e.put64(ePhoff, uint64(len(e.b)))
	e.put16(ePhnum, uint16(len(headers)/programHeaderBytes))
	e.b = append(e.b, headers...)
	return e.b
}

// NewCache documents at most 4 KiB for each entry.
func TestCacheMemory(t *testing.T) {
	const entries = 500
	contents := largestLibrary(t)
	lib, err := parseLibrary(contents)
	if err != nil {
		t.Fatal(err)
	}
	if len(lib.Segments) != maxSegments || len(lib.BuildID) != maxBuildIDBytes {
		t.Fatalf("%d segments, build id of %d bytes", len(lib.Segments), len(lib.BuildID))
	}
	path := writeFile(t, contents)
	f := open(t, path)

	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what finalizers and pools held
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	c := newCache(t, entries)
	for i := range entries {
		if err := os.Chtimes(path, time.Unix(int64(i), 0), time.Unix(int64(i), 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Library(f); err != nil {
			t.Fatal(err)
		}
	}
	used := heap() - before
	expectCounts(t, c, 0, entries)
	t.Logf("%d bytes per entry", used/entries)
	if used > entries*4096 {
		t.Errorf("%d bytes per entry", used/entries)
	}
	runtime.KeepAlive(c)
}
