package profile

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxRegions bounds what the layout of one process takes: 512 KiB. The largest real processes have
// about a thousand executable mappings; only one that means harm has many more. The addresses of
// those that are left out are unknown.
const maxRegions = 8192

// maxOpens is how many files one look opens: as many as the largest real processes have executable
// mappings. A process that maps others all the time costs 50 ms of CPU for each look. The mappings
// that are left out have their turn at later looks, which open only files that are new.
const maxOpens = 1024

// Mapping is an executable mapping of a process, a line of /proc/PID/maps.
type Mapping struct {
	Start, End uint64 // addresses in the process; End is the first one behind the mapping
	Offset     uint64 // of Start in the file, in bytes
	Dev, Ino   uint64 // of the file, as maps shows them; no file has inode 0
	Path       string // of the file without " (deleted)", or a name in brackets, or empty
}

// Process is where an address space comes from. Its methods are called by Update alone, and may
// block.
type Process interface {
	// ExecutableMappings returns the executable mappings, which become the caller's. Those of
	// anonymous memory should be among them: code that a process compiled there is then known
	// for what it is, and no reason to look again.
	ExecutableMappings() ([]Mapping, error)
	// Open opens the file of a mapping for reading. That it is this file, and a regular one, is for
	// Open to make sure: the process may have mapped another one there since.
	Open(m Mapping) (*os.File, error)
}

// AddressSpace is the executable memory of one process. After an exec it is that of another
// program: start with a new one.
//
// It is safe for concurrent use. Only Update touches the process, and blocks as long as the process
// makes the kernel wait; a goroutine that serves the process alone should call it. All else answers
// at once from the last look. It takes 64 bytes for a mapping of a file.
type AddressSpace struct {
	files   *Files
	pace    Pace
	invalid atomic.Bool
	layout  atomic.Pointer[layout]
	update  sync.Mutex // held by Update
}

// NewAddressSpace returns the address space of a process that was not looked at yet: it is stale.
func NewAddressSpace(files *Files, pace Pace) *AddressSpace {
	a := &AddressSpace{files: files, pace: pace}
	a.layout.Store(&layout{version: files.versions.Add(1)})
	a.invalid.Store(true)
	return a
}

// AppendFrames appends the frames of the user half of a stack, leaf first. dst holds the frames of
// the kernel half; when it is empty, the first address is the leaf of the whole stack. Every address
// becomes a frame, up to the first zero. It allocates only when dst has no room.
func (a *AddressSpace) AppendFrames(dst []Frame, stack []uint64) []Frame {
	return a.layout.Load().appendFrames(dst, stack, &a.files.Frames)
}

// Stale says whether Update should be called: there was none yet, Invalidate was called since, an
// address was unknown, or the last look is old, the latter two as the Pace allows.
func (a *AddressSpace) Stale(now time.Time) bool {
	return a.invalid.Load() || a.layout.Load().stale(now, a.pace)
}

// Version is another one whenever AppendFrames may answer otherwise for some address: when a look
// found a file's mapping that is new, gone or other. It only grows, and no two address spaces of one
// Files ever have the same. So what was made of a stack holds for the same stack and version. Ask
// for the version before AppendFrames: it may change in between. And make a stack anew that had an
// unknown address: it is AppendFrames that tells the address space to look for it.
func (a *AddressSpace) Version() uint64 { return a.layout.Load().version }

// Invalidate makes the address space stale whatever its Pace, for callers that know of a change.
func (a *AddressSpace) Invalidate() { a.invalid.Store(true) }

// Update looks at the process again. An error is that of reading its mappings: then what was known
// stays, and looking is due again after a wait. A mapping whose file cannot be used is no error (see
// resolve), and is tried again at the next look.
func (a *AddressSpace) Update(now time.Time, p Process) error {
	a.update.Lock()
	defer a.update.Unlock()
	a.invalid.Store(false) // what changes from now on may come too late for this look
	old := a.layout.Load()
	mappings, err := p.ExecutableMappings()
	if err != nil {
		a.layout.Store(old.postponed(now, a.pace))
		return fmt.Errorf("reading executable mappings: %w", err)
	}
	next := old.next(a.resolveAll(p, mappings, old), now, a.pace)
	if !next.sameFrames(old) {
		next.version = a.files.versions.Add(1)
	}
	a.layout.Store(next)
	return nil
}

// resolveAll makes regions of mappings. The files of mappings that were there before are not opened
// again.
func (a *AddressSpace) resolveAll(p Process, mappings []Mapping, old *layout) []region {
	p = &limitedProcess{Process: p, opens: maxOpens}
	slices.SortFunc(mappings, func(x, y Mapping) int { return cmp.Compare(x.Start, y.Start) })
	var regions []region
	for i, m := range mappings {
		r := region{
			start: m.Start, end: m.End,
			offset: m.Offset, dev: m.Dev, ino: m.Ino, path: maphash.String(a.files.seed, m.Path),
		}
		if same := old.find(m.Start); same != nil && same.madeFrom(r) {
			r.file, r.bias = same.file, same.bias
		} else {
			r.file, r.bias = a.files.resolve(p, m)
		}
		if r.file == nil {
			r = region{start: r.start, end: r.end}
			// Compilers change the protection of their memory in places: thousands of mappings can
			// be one range of code.
			if last := len(regions) - 1; last >= 0 && regions[last].file == nil && regions[last].end == r.start {
				regions[last].end = max(regions[last].end, r.end)
				continue
			}
		}
		if len(regions) == maxRegions {
			a.files.Mappings.TooMany.Add(uint64(len(mappings) - i))
			break
		}
		regions = append(regions, r)
	}
	return slices.Clone(withoutOverlaps(regions)) // without the room for more
}

// limitedProcess opens so many files and no more.
type limitedProcess struct {
	Process
	opens int
}

var errTooMany = errors.New("too many new mappings at once")

func (p *limitedProcess) Open(m Mapping) (*os.File, error) {
	if p.opens == 0 {
		return nil, errTooMany
	}
	p.opens--
	return p.Process.Open(m)
}

// madeFrom says whether r is of a file, and of the same mapping as other. The end may differ: the
// bias does not depend on it.
func (r *region) madeFrom(other region) bool {
	return r.file != nil && r.start == other.start &&
		r.offset == other.offset && r.dev == other.dev && r.ino == other.ino && r.path == other.path
}

// resolve returns the file of a mapping and the bias of its addresses. It returns no file for memory
// without one, and for a file that cannot be opened or is no ELF file. The code of these is as good
// as anonymous: without the file's bytes there is no file id, and without its segments there are no
// ELF addresses. So the frame gets the one form that needs neither, and exporters describe it
// without a mapping, from which a collector computes the same id. Another id (of the path, say)
// would be one that no backend finds. The price is that the id is of this process alone.
func (f *Files) resolve(p Process, m Mapping) (file *File, bias uint64) {
	found, outcome := f.find(p, m)
	if outcome == nil {
		return nil, 0
	}
	if found != nil {
		var ok bool
		if bias, ok = found.elf.Bias(m.Start, m.Offset); ok {
			file = found.file
		} else {
			outcome = &f.Mappings.NotLoaded
		}
	}
	outcome.Add(1)
	return file, bias
}

// find returns the image that a mapping is of, and what to count. Both are nil for memory that
// has none.
func (f *Files) find(p Process, m Mapping) (*image, *atomic.Uint64) {
	if m.Path == vdsoName {
		if f.vdso == nil || f.vdso.size != m.End-m.Start {
			return nil, &f.Mappings.NotRead
		}
		return &f.vdso.image, &f.Mappings.Resolved
	}
	if m.Ino == 0 || !strings.HasPrefix(m.Path, "/") {
		return nil, nil
	}
	file, err := p.Open(m)
	switch {
	case errors.Is(err, errTooMany):
		return nil, &f.Mappings.TooMany
	case err != nil:
		return nil, &f.Mappings.NotOpened
	}
	defer file.Close()
	found, err := f.image(file, m.Path)
	switch {
	case errors.Is(err, errNotELF):
		return nil, &f.Mappings.NotELF
	case err != nil:
		return nil, &f.Mappings.NotRead
	}
	return found, &f.Mappings.Resolved
}
