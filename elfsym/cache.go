package elfsym

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"syscall"

	"github.com/elastic/go-freelru"
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

// Cache keeps the results of ParseLibrary, so that any number of processes that map one file cost
// one parse. It is safe for concurrent use.
type Cache struct {
	// One lock for all entries: there is one lookup per process found, so it is not contended, and
	// unlike a sharded table this one evicts the entry that was really used least recently, and
	// only when it is full.
	libraries *freelru.SyncedLRU[FileKey, cached]
}

type cached struct {
	library *Library
	err     error
}

// NewCache returns a cache of the given number of results, which must not be 0; the least recently
// used ones are evicted. Its table takes about 100 bytes for each from the start. A file adds at
// most 64 segments of 40 bytes, a build id of 64 bytes and the text of an error: with the table 4
// KiB for each entry at worst, and 400 bytes for an ordinary library.
func NewCache(entries uint32) (*Cache, error) {
	seed := maphash.MakeSeed() // files that share a bucket cannot be chosen
	libraries, err := freelru.NewSynced[FileKey, cached](entries, func(id FileKey) uint32 {
		return uint32(maphash.Comparable(seed, id))
	})
	if err != nil {
		return nil, fmt.Errorf("creating a cache of %d libraries: %w", entries, err)
	}
	return &Cache{libraries: libraries}, nil
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
	id, err := Identify(f)
	if err != nil {
		return nil, fmt.Errorf("identifying library: %w", err)
	}
	if a, ok := c.libraries.Get(id); ok {
		return a.library, a.err
	}
	library, err := ParseLibrary(contents, id.Size)
	if err != nil && !IsContentError(err) {
		return nil, err
	}
	// A file that was changed while it was read may have been read in part before and in part
	// after: that result has no key.
	if after, statErr := Identify(f); statErr == nil && after == id {
		c.libraries.Add(id, cached{library, err})
	}
	return library, err
}

// counts returns the number of cache hits and misses.
func (c *Cache) counts() (hits, misses uint64) {
	m := c.libraries.Metrics()
	return m.Hits, m.Misses
}
