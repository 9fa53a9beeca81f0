package symbolizer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path"

	"correlator/elfsym"
	"correlator/internal/host/kallsyms"
	"correlator/internal/names/symbols"
	"correlator/profile"
)

// KernelSpace is the lowest address of the kernel. One in no file of the kernel is of code that it
// compiled: an eBPF program, a trampoline.
const KernelSpace = 1 << 63

// vsyscallPage is the one page of user code among the kernel's addresses, on x86-64. Nothing names
// it.
const vsyscallPage = 0xffffffffff600000

// VMLinuxPath is the path that package profile gives the kernel's own file.
const VMLinuxPath = "vmlinux"

// Origin is where the name of a frame is read.
type Origin uint8

const (
	NoOrigin      Origin = iota // it has a name, or is no address of code
	ProcessOrigin               // in files of the process and in its perf map
	KernelOrigin                // in /proc/kallsyms
	VDSOOrigin                  // in the vDSO, which is the kernel's and mapped by all processes
)

// OriginOf returns where the name of a frame is read.
func OriginOf(f profile.Frame) Origin {
	switch kind := f.Kind(); {
	case f.Name() != "", kind.OfRuntime(), kind == profile.CutFrame,
		f.File == nil && f.Address&^0xfff == vsyscallPage:
		return NoOrigin
	case kind == profile.KernelFrame, f.File == nil && f.Address >= KernelSpace:
		return KernelOrigin
	case f.File != nil && f.File.Path == vdsoPath:
		return VDSOOrigin
	}
	return ProcessOrigin
}

// KernelNames are the names of addresses in the kernel's memory.
type KernelNames struct {
	names *symbols.Query
	text  map[string]uint64 // by path, start of the text of the kernel, and of modules
}

// NewKernelNames returns names of addresses in the kernel's memory; text has the start of the text of
// the kernel and of modules, by the path of their frames.
func NewKernelNames(names *symbols.Query, text map[string]uint64) KernelNames {
	return KernelNames{names, text}
}

// Name returns the name of a frame of the kernel, empty when there is none.
func (k KernelNames) Name(f profile.Frame) string {
	addr, ok := k.addr(f)
	if !ok {
		return ""
	}
	return k.names.Name(addr)
}

// Located reports whether it is known where the file of a frame is in memory. Otherwise its
// addresses may have names.
func (k KernelNames) Located(f profile.Frame) bool {
	_, ok := k.addr(f)
	return ok
}

// Range returns the addresses, as frames have them, around that of a frame that have the same name.
func (k KernelNames) Range(f profile.Frame) symbols.Range {
	addr, ok := k.addr(f)
	if !ok {
		return symbols.Range{End: math.MaxUint64}
	}
	base := addr - f.Address
	r := k.names.Range(addr)
	return symbols.Range{Start: max(r.Start, base) - base, End: r.End - base}
}

func (k KernelNames) addr(f profile.Frame) (uint64, bool) {
	if f.File == nil {
		return f.Address, true
	}
	text, ok := k.text[f.File.Path]
	return text + f.Address, ok
}

// Kernel reads names of frames of the kernel. One goroutine at a time may use it.
type Kernel struct {
	procRoot, sysFS string
	text            uint64 // start of the kernel's own text, which does not change; 0: not known
}

// NewKernel returns a Kernel; procRoot is a procfs, sysFS /sys.
func NewKernel(procRoot, sysFS string) *Kernel { return &Kernel{procRoot: procRoot, sysFS: sysFS} }

// Read reads the names of frames of KernelOrigin, none when the kernel hides its symbols. It reads
// all of /proc/kallsyms, which takes some 50 ms, twice the first time. With an error, what has no
// name may have one.
func (r *Kernel) Read(ctx context.Context, frames []profile.Frame) (k KernelNames, err error) {
	k = NewKernelNames(nil, make(map[string]uint64))
	if len(frames) == 0 {
		return k, nil
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
		if text, err := r.textOf(ctx, f.File.Path); err == nil {
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
	k.names.FindRanges()
	if len(addrs) > 0 {
		err = readKallsyms(ctx, r.procRoot, k.names.ReadKallsyms) // names read before an error are kept
	}
	return k, err
}

// textOf returns the start of the text of the kernel or of a module.
func (r *Kernel) textOf(ctx context.Context, path string) (uint64, error) {
	if path != VMLinuxPath {
		return kallsyms.ModuleText(r.sysFS, path)
	}
	if r.text != 0 {
		return r.text, nil
	}
	err := readKallsyms(ctx, r.procRoot, func(symbols io.Reader) (err error) {
		r.text, _, err = kallsyms.Text(symbols)
		return err
	})
	return r.text, err
}

func readKallsyms(ctx context.Context, procRoot string, read func(io.Reader) error) error {
	file, err := os.Open(path.Join(procRoot, "kallsyms"))
	if err != nil {
		return err
	}
	defer file.Close()
	return read(io.NewSectionReader(symbols.Until(ctx, file), 0, math.MaxInt64))
}

// errOtherVDSO: the process has another vDSO than this one, which nothing else names.
var errOtherVDSO = errors.New("the process has another vDSO")

// ReadVDSO reads the names of addresses of the vDSO with an id from that in our own memory, if it
// is the same one. It keeps and changes addrs; nil has no names. With an error, what has no name
// may have one.
func ReadVDSO(procRoot string, id profile.FileID, addrs []uint64) (*symbols.Query, error) {
	if len(addrs) == 0 {
		return nil, nil
	}
	image, err := profile.ReadVDSO(procRoot)
	if err != nil {
		return nil, err
	}
	contents, size := bytes.NewReader(image), int64(len(image))
	file, err := elfsym.ParseFile(contents, size)
	if err != nil {
		return nil, err
	}
	if profile.FileID(file.HTLHash) != id {
		return nil, errOtherVDSO
	}
	tables, err := elfsym.ReadSymbolTables(contents, size)
	if err != nil {
		return nil, err
	}
	names := symbols.NewQuery(addrs)
	names.FindRanges()
	return names, names.ReadTable(tables.Dynamic) // names read before an error are kept
}
