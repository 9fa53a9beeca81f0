package report

import (
	"bytes"
	"context"
	"io"
	"math"
	"os"
	"path/filepath"

	"correlator/elfsym"
	"correlator/internal/kallsyms"
	"correlator/internal/symbols"
	"correlator/profile"
)

const (
	// kernelSpace is the lowest address of the kernel. One in no file of the kernel is of code that
	// it compiled: an eBPF program, a trampoline.
	kernelSpace = 1 << 63

	// vmlinuxPath and vdsoPath are the paths that package profile gives the kernel's own file and
	// the vDSO.
	vmlinuxPath = "vmlinux"
	vdsoPath    = "[vdso]"
)

// kernelNames are the names of addresses in the kernel's memory.
type kernelNames struct {
	names *symbols.Query
	text  map[string]uint64 // start of the text of the kernel, and of modules
}

func (k kernelNames) name(f profile.Frame) string {
	addr, ok := k.addr(f)
	if !ok {
		return ""
	}
	return k.names.Name(addr)
}

func (k kernelNames) addr(f profile.Frame) (uint64, bool) {
	if f.File == nil {
		return f.Address, true
	}
	text, ok := k.text[f.File.Path]
	return text + f.Address, ok
}

// readKernel reads the names of kernel frames, none when the kernel hides its symbols.
func readKernel(ctx context.Context, procRoot, sysFS string, frames []profile.Frame) kernelNames {
	k := kernelNames{text: make(map[string]uint64)}
	if len(frames) == 0 {
		return k
	}
	asked := make(map[string]struct{}) // what is hidden is read only once, too
	for _, f := range frames {
		if f.File == nil {
			continue
		}
		if _, again := asked[f.File.Path]; again {
			continue
		}
		asked[f.File.Path] = struct{}{}
		var text uint64
		var err error
		if f.File.Path == vmlinuxPath {
			err = readKallsyms(ctx, procRoot, func(r io.Reader) (err error) {
				text, _, err = kallsyms.Text(r)
				return err
			})
		} else {
			text, err = kallsyms.ModuleText(sysFS, f.File.Path)
		}
		if err == nil {
			k.text[f.File.Path] = text
		}
	}
	var addrs []uint64
	for _, f := range frames {
		if addr, ok := k.addr(f); ok {
			addrs = append(addrs, addr)
		}
	}
	k.names = symbols.NewQuery(addrs)
	if len(addrs) > 0 {
		_ = readKallsyms(ctx, procRoot, k.names.ReadKallsyms) // names read before an error are kept
	}
	return k
}

func readKallsyms(ctx context.Context, procRoot string, read func(io.Reader) error) error {
	file, err := os.Open(filepath.Join(procRoot, "kallsyms"))
	if err != nil {
		return err
	}
	defer file.Close()
	return read(io.NewSectionReader(symbols.Until(ctx, file), 0, math.MaxInt64))
}

// readVDSO reads the names of addresses of the vDSO from that in our own memory, if it is the same
// one.
func readVDSO(procRoot string, id profile.FileID, addrs []uint64) *symbols.Query {
	if len(addrs) == 0 {
		return nil
	}
	image, err := profile.ReadVDSO(procRoot)
	if err != nil {
		return nil
	}
	contents, size := bytes.NewReader(image), int64(len(image))
	if file, err := elfsym.ParseFile(contents, size); err != nil || profile.FileID(file.HTLHash) != id {
		return nil
	}
	names := symbols.NewQuery(addrs)
	if tables, err := elfsym.ReadSymbolTables(contents, size); err == nil {
		_ = names.ReadTable(tables.Dynamic) // names read before an error are kept
	}
	return names
}
