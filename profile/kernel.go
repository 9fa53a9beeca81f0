package profile

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"correlator/elfsym"
	"correlator/internal/kallsyms"
)

// errNoBuildID means that the kernel was linked without a GNU build id.
var errNoBuildID = errors.New("kernel has no build id")

// kernelPath is the path of the kernel's own file, which has none: where it was booted from is not
// known. It is the name of the file with symbols.
const kernelPath = "vmlinux"

const (
	// maxNotesBytes bounds a file of notes: a kernel has a few hundred bytes, most of it for Xen.
	maxNotesBytes = 64 << 10
	// maxModulesBytes bounds /proc/modules: a machine with 300 modules has 20 KiB.
	maxModulesBytes = 4 << 20
)

// Kernel is the code of the running kernel and its modules. It is safe for concurrent use.
//
// Where the kernel hides its addresses there is no Kernel (kallsyms.ErrHidden), and the right thing
// is to take no kernel stacks at all. Their frames could only be anonymous ones with addresses that
// differ from boot to boot and from machine to machine, and so would the ids; and they would
// publish what the machine was told to hide. Without them the id is that of the user's half, as
// from a sampler that does not look into the kernel. The same goes for a kernel without a build id
// (errNoBuildID). A nil *Kernel does that: it appends no frames.
//
// Code in neither kernel nor module (eBPF programs, trampolines of ftrace) has unknown addresses.
type Kernel struct {
	Frames FrameCounters

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
	if k.text, err = readKernelText(filepath.Join(procRoot, "kallsyms")); err != nil {
		return nil, fmt.Errorf("reading kernel symbols: %w", err)
	}
	k.text.file, err = readNotes(filepath.Join(sysRoot, "kernel", "notes"), kernelPath)
	if err != nil {
		return nil, fmt.Errorf("reading kernel notes: %w", err)
	}
	if err := k.Update(now); err != nil {
		return nil, err
	}
	return k, nil
}

// AppendFrames appends the frames of the kernel half of a stack, leaf first. dst should be empty:
// what comes first in it is the leaf. It allocates only when dst has no room.
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

// Version is another one whenever AppendFrames may answer otherwise, as AddressSpace.Version is. It
// is 0 for nil, and for no other.
func (k *Kernel) Version() uint64 {
	if k == nil {
		return 0
	}
	return k.layout.Load().version
}

// Update looks which modules are loaded now. With an error, what was known stays, and looking is
// due again after a wait.
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
	slices.SortFunc(regions, func(a, b region) int { return cmp.Compare(a.start, b.start) })
	for i := range regions { // a module that was there before keeps its File
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

func (f *File) equal(other *File) bool { return f != nil && other != nil && *f == *other }

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

// readModules returns the regions of the loaded modules. A kernel without modules has no list of
// them. A module that does not tell where its text is is left out.
func (k *Kernel) readModules() ([]region, error) {
	list, err := readFile(filepath.Join(k.procRoot, "modules"), maxModulesBytes)
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

// readModule returns the region of a module's text. Where it starts is the address of its section;
// the list has the start of the memory that the module lies in, which on some machines begins with
// other things. A module without a build id has an anonymous file id, and its frames the addresses
// that they have now.
func (k *Kernel) readModule(m module) (region, bool) {
	start, err := kallsyms.ModuleText(k.sysRoot, m.name)
	if err != nil || start < m.start || start >= m.end {
		return region{}, false
	}
	r := region{start: start, end: m.end}
	if file, err := readNotes(filepath.Join(k.sysRoot, "module", m.name, "notes", ".note.gnu.build-id"), m.name); err == nil {
		r.file, r.bias = file, start
	}
	return r, true
}

// readNotes returns the file whose notes are at a path. Its id is that of its build id in
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

// readFile reads a file of the kernel, limit bytes of it at most.
func readFile(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}
