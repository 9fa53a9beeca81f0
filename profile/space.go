package profile

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"correlator/elfsym"
	"correlator/procscan"
)

// Process provides the memory of an address space. Only Update calls its methods, which may block.
type Process interface {
	// ExecutableMappings returns the executable mappings, which the caller may change, up to a
	// number that is good to keep for a while. Those of anonymous memory should be included: code
	// that a process compiled there is then known, and does not cause another update. With
	// procscan.ErrTooMany, those that it returns are not all.
	ExecutableMappings() ([]procscan.Mapping, error)
	// Files identifies and parses the files of mappings, in their order. It must make sure that each
	// is that file, and a regular one: the process may have mapped another one there since.
	Files(mappings []procscan.Mapping) []FileResult
}

// FileResult is what was found of the file of a mapping.
type FileResult struct {
	Key  elfsym.FileKey
	File *elfsym.File // nil when it is not an ELF file that this machine runs
	View View
	Err  error // then there is nothing else; after the file was opened it is ErrNotRead
}

// ErrNotRead: a file that was opened could not be read, or has changed meanwhile.
var ErrNotRead = errors.New("mapped file cannot be read")

// AddressSpace is the executable memory of one process. After an exec, start with a new one.
//
// It is safe for concurrent use. Only Update accesses the process, and blocks as long as the
// process makes the kernel wait; a goroutine that serves the process alone should call it. All
// other methods return at once, from the last update. It takes 150 bytes for a mapping of a file.
type AddressSpace struct {
	files   *Files
	pace    Pace
	invalid atomic.Bool
	layout  atomic.Pointer[layout]
	update  sync.Mutex // held by Update
}

// NewAddressSpace returns an empty address space: it is stale.
func NewAddressSpace(files *Files, pace Pace) *AddressSpace {
	a := &AddressSpace{files: files, pace: pace}
	a.layout.Store(&layout{version: files.versions.Add(1), space: userSpace()})
	return a
}

// AppendFrames appends the frames of the user half of a stack, leaf first. dst holds the frames of
// the kernel half; when it is empty, the first address is the leaf of the whole stack. Every
// address becomes a frame, up to the first zero, or the first one outside user space (see the
// package). It allocates only when the capacity of dst is too small.
func (a *AddressSpace) AppendFrames(dst []Frame, stack []uint64) []Frame {
	return a.layout.Load().appendFrames(dst, userHalf(stack), &a.files.Frames)
}

// HasCLibrary reports whether there is code of a C library: see [File.IsCLibrary].
func (a *AddressSpace) HasCLibrary() bool { return a.layout.Load().cLibrary }

// MayBeCode reports whether there may have been code at an address when a sample was taken: not if it was looked
// since, and there was no executable memory, unless some has gone since it was looked before.
func (a *AddressSpace) MayBeCode(addr uint64, sampled time.Time) bool {
	l := a.layout.Load()
	return l.whole.IsZero() || !sampled.Before(l.whole) || l.find(addr) != nil
}

// Stale reports whether Update should be called: there was none yet, Invalidate was called since,
// an address was unknown, or the last update is old, the latter two as the Pace allows.
func (a *AddressSpace) Stale(now time.Time) bool {
	return a.invalid.Load() || a.layout.Load().stale(now, a.pace)
}

// Lacking reports whether Update may improve frames that were requested: Stale for any reason but
// age. Callers that prefer a late stack to a wrong one update first, then.
func (a *AddressSpace) Lacking(now time.Time) bool {
	return a.invalid.Load() || a.layout.Load().lacking(now)
}

// Version changes whenever AppendFrames may return another frame for some address: when an update
// found a file's mapping that is new, gone or different. It only grows, and no two address spaces
// of one Files ever have the same. So frames can be reused for the same stack and version, if the
// version was read before AppendFrames. A stack whose frames are reused makes the address space
// stale by age alone: its unknown addresses were searched for already.
func (a *AddressSpace) Version() uint64 { return a.layout.Load().version }

// Invalidate makes the address space stale regardless of its Pace, for callers that know of a
// change.
func (a *AddressSpace) Invalidate() { a.invalid.Store(true) }

// Update reads the process's mappings again. When that fails, the old mappings are kept, and
// another update is due after a wait. The same happens, without an error, when there are none: the
// process is exiting, and stacks of it may still be pending. A mapping whose file cannot be used is
// not an error (see region), and is tried again at the next update.
func (a *AddressSpace) Update(now time.Time, p Process) error {
	a.update.Lock()
	defer a.update.Unlock()
	a.invalid.Store(false) // changes from now on may come too late for this update
	old, started := a.layout.Load(), time.Now()
	mappings, err := p.ExecutableMappings()
	tooMany := errors.Is(err, procscan.ErrTooMany)
	if tooMany {
		a.files.Mappings.TooMany.Add(1)
		err = nil
	}
	if err != nil || len(mappings) == 0 {
		a.layout.Store(old.postponed(now, time.Since(started), a.pace))
		if err != nil {
			err = fmt.Errorf("reading executable mappings: %w", err)
		}
		return err
	}
	builder := newRegionBuilder(a.files, p, old)
	regions := builder.build(mappings)
	next := old.next(regions, now, time.Since(started), a.pace)
	next.partial = tooMany || builder.partial
	if !tooMany && len(regions) < maxRegions && next.covers(old.regions) {
		next.whole = now
	}
	if !next.sameFrames(old) {
		next.version = a.files.versions.Add(1)
	}
	a.layout.Store(next)
	return nil
}
