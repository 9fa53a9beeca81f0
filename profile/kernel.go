package profile

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"correlator/elfsym"
	"correlator/internal/host/kallsyms"
	"correlator/internal/host/sorting"
)

// errNoBuildID means that the kernel was linked without a GNU build id.
var errNoBuildID = errors.New("kernel has no build id")

// kernelPath stands for the path of the kernel's own file, which is unknown: it is the name of the
// file with symbols.
const kernelPath = "vmlinux"

const (
	// maxNotesBytes bounds a file of notes: a kernel has a few hundred bytes, most of it for Xen.
	maxNotesBytes = 64 << 10
	// maxModulesBytes bounds /proc/modules: a machine with 300 modules has 20 KiB.
	maxModulesBytes = 4 << 20
)

// Kernel is the code of the running kernel and its modules. It is safe for concurrent use.
//
// Where the kernel hides its addresses there is no Kernel (kallsyms.ErrHidden), and no kernel
// stacks should be taken at all. Their frames could only be anonymous ones with addresses that
// differ from boot to boot and from machine to machine, and so would the ids; and they would
// publish addresses that the machine is configured to hide. Without them the id is that of the
// user's half, as from a sampler of user stacks only. The same goes for a kernel without a build id
// (errNoBuildID). A nil *Kernel implements that: it appends no frames.
//
// Code in neither kernel nor module (eBPF programs, trampolines of ftrace) has unknown addresses.
type Kernel struct {
	Frames frameCounters

	procRoot, sysRoot string
	pace              Pace
	text              region
	layout            atomic.Pointer[layout]
	update            sync.Mutex // held by Update
}

// NewKernel reads where the kernel and its modules are, below procRoot (/proc) and sysRoot (/sys).
// The error is kallsyms.ErrHidden where the kernel hides its addresses. It takes some 50 ms: the
// end of the text can be one of the last symbols of /proc/kallsyms.
func NewKernel(procRoot, sysRoot string, pace Pace, now time.Time) (*Kernel, error) {
	k := &Kernel{procRoot: procRoot, sysRoot: sysRoot, pace: pace}
	k.layout.Store(&layout{space: kernelSpace()})
	var err error
	if k.text, err = readKernelText(path.Join(procRoot, "kallsyms")); err != nil {
		return nil, fmt.Errorf("reading kernel symbols: %w", err)
	}
	k.text.file, err = readNotes(path.Join(sysRoot, "kernel", "notes"), kernelPath)
	if err != nil {
		return nil, fmt.Errorf("reading kernel notes: %w", err)
	}
	if err := k.Update(now); err != nil {
		return nil, err
	}
	return k, nil
}

// AppendFrames appends the frames of the kernel half of a stack, leaf first. dst should be empty:
// its first frame is the leaf. It allocates only when the capacity of dst is too small.
func (k *Kernel) AppendFrames(dst []Frame, stack []uint64) []Frame {
	if k == nil {
		return dst
	}
	return k.layout.Load().appendFrames(dst, stack, &k.Frames)
}

// Stale reports whether Update should be called, as AddressSpace.Stale does. It is false for nil.
func (k *Kernel) Stale(now time.Time) bool {
	return k != nil && k.layout.Load().stale(now, k.pace)
}

// Version changes whenever AppendFrames may return other frames, as AddressSpace.Version does. It
// is 0 for nil only.
func (k *Kernel) Version() uint64 {
	if k == nil {
		return 0
	}
	return k.layout.Load().version
}

// Update reads which modules are loaded. On an error, what was known is kept, and another update is
// due after a wait.
func (k *Kernel) Update(now time.Time) error {
	k.update.Lock()
	defer k.update.Unlock()
	old, started := k.layout.Load(), time.Now()
	loaded, err := k.readModules()
	if err != nil {
		k.layout.Store(old.postponed(now, time.Since(started), k.pace))
		return fmt.Errorf("reading kernel modules: %w", err)
	}
	regions := append(loaded, k.text)
	sorting.Sort(regions, func(a, b region) int { return cmp.Compare(a.start, b.start) })
	for i := range regions { // a module that was known keeps its File
		if same := old.find(regions[i].start); same != nil && same.file.equal(regions[i].file) {
			regions[i].file = same.file
		}
	}
	next := old.next(withoutOverlaps(regions), now, time.Since(started), k.pace)
	if !next.sameFrames(old) {
		next.version++
	}
	k.layout.Store(next)
	return nil
}

// equal compares files of the kernel and its modules.
func (f *File) equal(other *File) bool {
	return f != nil && other != nil && f.ID == other.ID && f.Kind == other.Kind && f.BuildID == other.BuildID &&
		f.Path == other.Path
}

// readKernelText returns the region of the kernel's own text, which is its bias too.
func readKernelText(path string) (region, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) { // built without CONFIG_KALLSYMS
		return region{}, fmt.Errorf("%w: %w", kallsyms.ErrHidden, err)
	}
	if err != nil {
		return region{}, err
	}
	defer file.Close()
	start, end, err := kallsyms.Text(file)
	return region{start: start, end: end, bias: start}, err
}

// readModules returns the regions of the loaded modules. A kernel built without modules has no list
// of them. A module whose text address is not shown is skipped.
func (k *Kernel) readModules() ([]region, error) {
	list, err := readFile(path.Join(k.procRoot, "modules"), maxModulesBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var regions []region
	for m := range parseModules(list) {
		if r, ok := k.readModule(m); ok {
			regions = append(regions, r)
		}
	}
	return regions, nil
}

// readModule returns the region of a module's text. It starts at the address of the .text section;
// the list has the start of the module's memory, which on some machines begins with something else.
// A module without a build id has an anonymous file id, and its frames have their current addresses
// in memory.
func (k *Kernel) readModule(m module) (region, bool) {
	start, err := kallsyms.ModuleText(k.sysRoot, m.name)
	if err != nil || start < m.start || start >= m.end {
		return region{}, false
	}
	r := region{start: start, end: m.end}
	if file, err := readNotes(path.Join(k.sysRoot, "module", m.name, "notes", ".note.gnu.build-id"),
		m.name); err == nil {
		r.file, r.bias = file, start
	}
	return r, true
}

// readNotes returns the file whose notes are at a path. Its id is a hash of its build id in
// hexadecimal digits.
func readNotes(path, name string) (*File, error) {
	notes, err := readFile(path, maxNotesBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errNoBuildID, err)
	}
	if err != nil {
		return nil, err
	}
	id := elfsym.GNUBuildID(notes)
	if id == nil {
		return nil, errNoBuildID
	}
	text := hex.EncodeToString(id)
	return &File{ID: newFNV().add([]byte(text)).sum(), Kind: KernelFrame, BuildID: text, Path: name}, nil
}

// readFile reads at most limit bytes of a file of procfs or sysfs.
func readFile(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}
