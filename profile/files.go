package profile

import (
	"debug/elf"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"sync/atomic"

	"github.com/elastic/go-freelru"

	"correlator/elfsym"
	"correlator/internal/host/share"
)

// mappingCounters counts the executable mappings of files by result, each as often as it was tried:
// once when it is resolved, at every update when it is not. The fields only grow and may be read at
// any time.
type mappingCounters struct {
	Resolved  atomic.Uint64
	NotOpened atomic.Uint64 // the file could not be opened
	NotRead   atomic.Uint64 // the file could not be read, or the vDSO is not ours
	NotELF    atomic.Uint64 // it is no ELF file that this machine runs
	NotLoaded atomic.Uint64 // no segment of the file can be mapped so
	TooMany   atomic.Uint64 // skipped: see maxRegions and maxOpens
}

// Files caches the ELF files that processes map, so that all processes that map one file share what
// is known of it. It is safe for concurrent use.
type Files struct {
	Mappings mappingCounters
	Frames   frameCounters // of all address spaces

	images *freelru.SyncedLRU[elfsym.FileKey, *image] // nil: not an ELF file
	vdso   *vdso                                      // nil when there is none
	seed   maphash.Seed

	versions atomic.Uint64 // the last version assigned to an address space
}

// image is what frames need of an ELF file.
type image struct {
	file *File
	elf  *elfsym.File
}

// NewFiles returns a Files that caches the given number of files, which must not be
// 0. It takes about 100 bytes for each from the start, and 500 more for an ordinary file, 22 KiB at
// worst (64 segments, a path of 4096 newlines). An address space and a store keep the files they
// refer to, cached or not. procRoot is a procfs of our own pid namespace.
func NewFiles(procRoot string, entries uint32) (*Files, error) {
	images, err := freelru.NewSynced[elfsym.FileKey, *image](entries, share.NewHash[elfsym.FileKey]())
	if err != nil {
		return nil, fmt.Errorf("creating a cache of %d files: %w", entries, err)
	}
	return &Files{images: images, vdso: readVDSO(procRoot), seed: maphash.MakeSeed()}, nil
}

// image returns the image of a parsed file, nil when it is not an ELF file that this machine runs.
// All processes that map the file share it.
func (f *Files) image(key elfsym.FileKey, parsed *elfsym.File, path string) *image {
	found, ok := f.images.Get(key)
	if ok {
		return found
	}
	if parsed != nil {
		found = newImage(parsed, path)
	}
	f.images.Add(key, found)
	return found
}

func newImage(parsed *elfsym.File, path string) *image {
	return &image{
		file: &File{
			ID:        parsed.HTLHash,
			Kind:      NativeFrame,
			BuildID:   hex.EncodeToString(parsed.BuildID),
			GoBuildID: parsed.GoBuildID,
			Path:      path,
			Code:      codeOf(parsed),
		},
		elf: parsed,
	}
}

// codeOf returns the executable segments of a file, as loaders map them: in whole pages.
func codeOf(parsed *elfsym.File) (code []CodeRange) {
	page := uint64(os.Getpagesize())
	for _, s := range parsed.Segments {
		r := CodeRange{
			Start: s.Vaddr &^ (page - 1), Limit: (s.Vaddr + s.Filesz + page - 1) &^ (page - 1),
			Offset: s.Off &^ (page - 1),
		}
		if s.Flags&elf.PF_X != 0 && s.Filesz > 0 && r.Start < r.Limit { // not one that ends beyond all memory
			code = append(code, r)
		}
	}
	return slices.Clip(code)
}
