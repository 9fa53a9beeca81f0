package elfsym

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/elastic/go-freelru"

	"correlator/internal/host/share"
)

// FileKey identifies one version of one file: a change of contents changes it, except a change in
// place that keeps the size and comes within one tick of the kernel's file clock (10 ms at most) of
// the previous change.
type FileKey struct {
	Dev, Ino         uint64
	Size             int64
	MtimeNs, CtimeNs int64
}

// Identify returns the key of an open file.
func Identify(f *os.File) (FileKey, error) {
	info, err := f.Stat()
	if err != nil {
		return FileKey{}, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return FileKey{}, fmt.Errorf("identifying %s: %w", f.Name(), errors.ErrUnsupported)
	}
	return FileKey{
		Dev: s.Dev, Ino: s.Ino, Size: s.Size, MtimeNs: s.Mtim.Nano(), CtimeNs: s.Ctim.Nano(),
	}, nil
}

// Cache keeps the results of ParseLibrary, ParseThreadContext and ParseGoProgram, so that any number of processes
// that map one file cost one parse of each. It is safe for concurrent use.
type Cache struct {
	libraries *results[*Library]
	contexts  func() (*results[*Variable], error) // made when it is called first
	programs  func() (*results[*GoProgram], error)
}

// contextsPerLibrary is how many more files are searched for a thread context: every file that a
// process maps, and not one. Nearly all have none.
const contextsPerLibrary = 32

// programsPerLibrary is how many more programs are looked at for labels of Go: those of all processes
// that take part for other reasons.
const programsPerLibrary = 8

// NewCache returns a cache of the given number of libraries, which must not be 0,
// contextsPerLibrary times as many other files and programsPerLibrary times as many programs; the
// least recently used ones are evicted. Its tables take about 100 bytes for each from the start, those
// of files and programs from the first of them, and no more for a file without symbols. The rest add at
// most 64 segments of 40 bytes, a build id of 64 bytes and the text of an error: with the table 4 KiB
// for each entry at worst, and 400 bytes for an ordinary library.
func NewCache(entries uint32) (*Cache, error) {
	libraries, err := newResults[*Library](entries)
	if err != nil {
		return nil, fmt.Errorf("creating a cache of %d libraries: %w", entries, err)
	}
	return &Cache{libraries, sync.OnceValues(func() (*results[*Variable], error) {
		return newResults[*Variable](contextsPerLibrary * entries)
	}), sync.OnceValues(func() (*results[*GoProgram], error) {
		return newResults[*GoProgram](programsPerLibrary * entries)
	})}, nil
}

// Library returns the result of ParseLibrary for the file. Callers share it and must not change it.
// Errors about the contents are cached as well, so that a broken library costs one parse too;
// errors of reading are not.
//
// It blocks as long as the file's reads do, without holding a lock. Concurrent callers with the
// same new file each parse it.
func (c *Cache) Library(f *os.File) (*Library, error) {
	return c.library(f, f)
}

// library is Library with the file's contents apart, for tests.
func (c *Cache) library(f *os.File, contents io.ReaderAt) (*Library, error) {
	return c.libraries.get(f, contents, ParseLibrary)
}

// ThreadContext is Library for the result of ParseThreadContext.
func (c *Cache) ThreadContext(f *os.File) (*Variable, error) {
	contexts, err := c.contexts()
	if err != nil {
		return nil, fmt.Errorf("creating a cache of thread contexts: %w", err)
	}
	return contexts.get(f, f, ParseThreadContext)
}

// GoProgram is Library for the result of ParseGoProgram.
func (c *Cache) GoProgram(f *os.File) (*GoProgram, error) {
	programs, err := c.programs()
	if err != nil {
		return nil, fmt.Errorf("creating a cache of programs: %w", err)
	}
	return programs.get(f, f, ParseGoProgram)
}

// results are those of one parser.
type results[T any] struct {
	// One lock for all entries: there is one lookup per process found, or file of it, so it is not
	// contended, and unlike a sharded table this one evicts the entry that was really used least
	// recently, and only when it is full.
	*freelru.SyncedLRU[FileKey, result[T]]
}

type result[T any] struct {
	value T
	err   error
}

func newResults[T any](entries uint32) (*results[T], error) {
	lru, err := freelru.NewSynced[FileKey, result[T]](entries, share.NewHash[FileKey]())
	return &results[T]{lru}, err
}

func (c *results[T]) get(f *os.File, contents io.ReaderAt, parse func(io.ReaderAt, int64) (T, error)) (T, error) {
	var none T
	id, err := Identify(f)
	if err != nil {
		return none, fmt.Errorf("identifying library: %w", err)
	}
	if r, ok := c.Get(id); ok {
		return r.value, r.err
	}
	value, err := parse(contents, id.Size)
	if err != nil && !IsContentError(err) {
		return none, err
	}
	// A file that was changed while it was read may have been read in part before and in part
	// after: that result has no key.
	if after, statErr := Identify(f); statErr == nil && after == id {
		c.Add(id, result[T]{value, err})
	}
	return value, err
}
