package profile

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"correlator/elfsym"
)

// vdsoName is what maps shows as the path of the vDSO. A process cannot give this name to another
// mapping: paths of files begin with a slash, and names that it sets are shown as [anon:name].
const vdsoName = "[vdso]"

// vdso is the ELF image that the kernel maps into every process, here that of our own. It is not a
// file, but has all that frames of a file need, and its htlhash is computed over the mapping:
// otherwise each process would have an id of its own for every stack that ends in clock_gettime.
//
// There is one image for all processes of our own architecture. Those of another (32-bit) are not
// targets.
type vdso struct {
	image image
	size  uint64 // of the mapping
}

// readVDSO returns nil if this process has no vDSO, or one that cannot be read or has no build
// id: then its frames are anonymous.
func readVDSO(procRoot string) *vdso {
	contents, err := ReadVDSO(procRoot)
	if err != nil {
		return nil
	}
	return newVDSO(io.NewSectionReader(bytes.NewReader(contents), 0, int64(len(contents))))
}

// ReadVDSO returns the vDSO of our own process, the ELF image of frames with the path [vdso]. The
// error is fs.ErrNotExist when there is none. procRoot is a procfs of our own pid namespace.
func ReadVDSO(procRoot string) ([]byte, error) {
	contents, err := readOwnVDSO(procRoot)
	if err != nil {
		return nil, fmt.Errorf("reading our own vDSO: %w", err)
	}
	return contents, nil
}

func readOwnVDSO(procRoot string) ([]byte, error) {
	maps, err := os.ReadFile(path.Join(procRoot, "self", "maps"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(line, " "+vdsoName+"\n") {
			continue
		}
		var start, end int64
		if _, err := fmt.Sscanf(line, "%x-%x ", &start, &end); err != nil {
			return nil, err
		}
		mem, err := os.Open(path.Join(procRoot, "self", "mem"))
		if err != nil {
			return nil, err
		}
		defer mem.Close()
		contents := make([]byte, end-start)
		if _, err := mem.ReadAt(contents, start); err != nil {
			return nil, err
		}
		return contents, nil
	}
	return nil, os.ErrNotExist
}

func newVDSO(memory *io.SectionReader) *vdso {
	parsed, err := elfsym.ParseFile(memory, memory.Size())
	if err != nil || parsed.BuildID == nil {
		return nil
	}
	return &vdso{image: *newImage(parsed, vdsoName), size: uint64(memory.Size())}
}
