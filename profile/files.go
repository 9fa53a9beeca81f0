package profile

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"sync/atomic"

	"github.com/elastic/go-freelru"

	"correlator/elfsym"
)

// MappingCounters counts what became of the executable mappings of files, each as often as it was
// tried: once when it becomes a file's, at every look when it does not. The fields only grow and
// may be read at any time.
type MappingCounters struct {
	Resolved  atomic.Uint64
	NotOpened atomic.Uint64 // the file could not be opened
	NotRead   atomic.Uint64 // the file could not be read, or the vDSO is not ours
	NotELF    atomic.Uint64 // it is no ELF file that this machine runs
	NotLoaded atomic.Uint64 // no segment of the file can be mapped so
	TooMany   atomic.Uint64 // not looked at: see maxRegions and maxOpens
}

// Files knows the ELF files that processes map, so that any number of processes that map one file
// cost one look into it. It is safe for concurrent use.
type Files struct {
	Mappings MappingCounters
	Frames   FrameCounters // of all address spaces

	images *freelru.SyncedLRU[elfsym.FileKey, *image] // nil: no ELF file
	vdso   *vdso                                      // nil when there is none
	seed   maphash.Seed

	versions atomic.Uint64 // the last one that an address space was given
}

// image is what frames need of an ELF file.
type image struct {
	file *File
	elf  *elfsym.File
}

// NewFiles returns a Files that remembers the given number of files, those used last, and refuses
// 0. It takes about 100 bytes for each from the start, and 500 more for an ordinary file, 20 KiB at
// worst (64 segments, a path of 4096 newlines). An address space and a store keep the files they
// refer to, remembered or not. procRoot is a procfs of our own pid namespace.
func NewFiles(procRoot string, entries uint32) (*Files, error) {
	seed := maphash.MakeSeed() // nobody can choose files that share a bucket
	images, err := freelru.NewSynced[elfsym.FileKey, *image](entries, func(id elfsym.FileKey) uint32 {
		return uint32(maphash.Comparable(seed, id))
	})
	if err != nil {
		return nil, fmt.Errorf("creating a cache of %d files: %w", entries, err)
	}
	return &Files{images: images, vdso: readVDSO(procRoot), seed: seed}, nil
}

var errChanged = errors.New("file changed while it was read")

// image returns what is known of an open file, nil when it is no ELF file that this machine runs.
func (f *Files) image(file *os.File, path string) (*image, error) {
	return f.read(file, file, path)
}

// read is image with the file's contents apart, for tests.
func (f *Files) read(file *os.File, contents io.ReaderAt, path string) (*image, error) {
	id, err := elfsym.Identify(file)
	if err != nil {
		return nil, err
	}
	found, ok := f.images.Get(id)
	if ok {
		return found, nil
	}
	parsed, err := elfsym.ParseFile(contents, id.Size)
	switch {
	case err == nil:
		found = newImage(parsed, path)
	case !elfsym.IsContentError(err):
		return nil, err
	}
	// What was read may be half of one file and half of another, and has the id of neither.
	after, err := elfsym.Identify(file)
	if err == nil && after != id {
		err = errChanged
	}
	if err != nil {
		return nil, err
	}
	f.images.Add(id, found)
	return found, nil
}

func newImage(parsed *elfsym.File, path string) *image {
	return &image{
		file: &File{
			ID:      parsed.HTLHash,
			Kind:    NativeFrame,
			BuildID: hex.EncodeToString(parsed.BuildID),
			Path:    path,
		},
		elf: parsed,
	}
}
