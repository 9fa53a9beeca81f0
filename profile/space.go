package profile

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"correlator/procscan"
)

// Process is where an address space comes from. Its methods are called by Update alone, and may
// block.
type Process interface {
	// ExecutableMappings returns the executable mappings, which become the caller's, so many at
	// most as are good to keep for a while. Those of anonymous memory should be among them: code
	// that a process compiled there is then known for what it is, and no reason to look again.
	ExecutableMappings() ([]procscan.Mapping, error)
	// Open opens the file of a mapping for reading. That it is this file, and a regular one, is for
	// Open to make sure: the process may have mapped another one there since.
	Open(m procscan.Mapping) (*os.File, error)
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
	a.layout.Store(&layout{version: files.versions.Add(1), space: userSpace()})
	return a
}

// AppendFrames appends the frames of the user half of a stack, leaf first. dst holds the frames of
// the kernel half; when it is empty, the first address is the leaf of the whole stack. Every
// address becomes a frame, up to the first zero, or the first one where no user code can be (see
// the package). It allocates only when dst has no room.
func (a *AddressSpace) AppendFrames(dst []Frame, stack []uint64) []Frame {
	return a.layout.Load().appendFrames(dst, userHalf(stack), &a.files.Frames)
}

// Stale reports whether Update should be called: there was none yet, Invalidate was called since,
// an address was unknown, or the last look is old, the latter two as the Pace allows.
func (a *AddressSpace) Stale(now time.Time) bool {
	return a.invalid.Load() || a.layout.Load().stale(now, a.pace)
}

// Lacking reports whether Update may tell more of stacks that were asked for: Stale for any reason
// but age. Who would rather have a stack late than wrong looks first, then.
func (a *AddressSpace) Lacking(now time.Time) bool {
	return a.invalid.Load() || a.layout.Load().lacking(now)
}

// Version is another one whenever AppendFrames may answer otherwise for some address: when a look
// found a file's mapping that is new, gone or other. It only grows, and no two address spaces of
// one Files ever have the same. So what was made of a stack holds for the same stack and version,
// if the version was asked for before AppendFrames. A stack whose frames are not made again makes
// the address space stale by its age alone: what it has of unknown addresses was looked for.
func (a *AddressSpace) Version() uint64 { return a.layout.Load().version }

// Invalidate makes the address space stale whatever its Pace, for callers that know of a change.
func (a *AddressSpace) Invalidate() { a.invalid.Store(true) }

// Update looks at the process again. An error is that of reading its mappings: then what was known
// stays, and looking is due again after a wait. So it does when there are none, without an error:
// the process is at its end, and stacks of it may still be on their way. A mapping whose file
// cannot be used is no error (see region), and is tried again at the next look.
func (a *AddressSpace) Update(now time.Time, p Process) error {
	a.update.Lock()
	defer a.update.Unlock()
	a.invalid.Store(false) // what changes from now on may come too late for this look
	old, started := a.layout.Load(), time.Now()
	mappings, err := p.ExecutableMappings()
	if err != nil || len(mappings) == 0 {
		a.layout.Store(old.postponed(now, time.Since(started), a.pace))
		if err != nil {
			err = fmt.Errorf("reading executable mappings: %w", err)
		}
		return err
	}
	regions := newLook(a.files, p, old).regions(mappings)
	next := old.next(regions, now, time.Since(started), a.pace)
	if !next.sameFrames(old) {
		next.version = a.files.versions.Add(1)
	}
	a.layout.Store(next)
	return nil
}
