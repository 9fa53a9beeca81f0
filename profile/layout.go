package profile

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Pace is how often an update may be due because of unknown addresses in stacks.
//
// An unknown address is a reason for an update: a library may have been loaded. But stacks have
// addresses that never become known (see the package), so the wait grows while updates find nothing
// new.
type Pace struct {
	// Shortest is the initial wait between two updates.
	Shortest time.Duration
	// Longest is the limit up to which the wait doubles while updates find nothing new. It is also
	// the age at which an update is due in any case: other code may have been mapped at old
	// addresses.
	Longest time.Duration
	// Told is set while Invalidate is called whenever code is mapped: then that age is ToldAge. nil: never.
	Told *atomic.Bool
}

// ToldAge is for what nobody tells of, a mapping that was moved.
const ToldAge = 5 * time.Minute

// updateShare bounds the time spent on a process that changes its mappings all the time or makes us
// wait: the wait is this many times as long as the update took, up to Longest. A JVM takes 0.2 ms.
const updateShare = 50

func (p Pace) wait(wait, took time.Duration) time.Duration {
	return min(max(wait, p.Shortest, updateShare*took), p.Longest)
}

// region is a range of executable memory that is of one file, whose addresses are those in memory
// less bias, or of none. The last three fields identify the mapping it was made from; they are
// zero without a file.
type region struct {
	start, end uint64
	bias       uint64
	file       *File
	offset     uint64
	key        mappedFile
	view       View
}

// layout is the executable memory as of the last update, the zero time when there was none. Once it
// is published, only missed changes.
type layout struct {
	regions []region // sorted, none overlaps
	version uint64   // changes when an address may have another frame
	space   bounds   // where code can be at all
	read    time.Time
	whole   time.Time     // since when the regions are all that there are, or were before; zero: some are missing
	wait    time.Duration // how long the next update should wait
	missed  atomic.Bool   // an address within space was unknown
	partial bool          // the next update may find what this one could not

	cLibrary bool // there is code of one

	views map[FileID]View // see viewsOf
}

// bounds limit the addresses at which code can become known. An address beyond them is no reason
// for an update: it is text, or a small number.
type bounds struct{ start, end uint64 }

func userSpace() bounds { // the usual vm.mmap_min_addr; five levels of page tables
	return bounds{64 << 10, 1 << 56}
}

// vsyscallPage is the one page of user code among the kernel's addresses, on x86-64.
const vsyscallPage = 0xffffffffff600000

// userHalf returns a user stack up to the first address outside user space.
func userHalf(stack []uint64) []uint64 {
	end := userSpace().end
	for i, addr := range stack {
		if addr >= end && addr&^0xfff != vsyscallPage {
			return stack[:i]
		}
	}
	return stack
}

func kernelSpace() bounds { return bounds{1 << 63, math.MaxUint64} }

// next returns the layout after an update. Its version is that of l.
func (l *layout) next(regions []region, now time.Time, took time.Duration, pace Pace) *layout {
	var wait time.Duration
	// An occasional update without a result must not delay the next one, for a library that is
	// loaded.
	if slices.Equal(l.regions, regions) && now.Sub(l.read) < 2*l.wait {
		wait = 2 * l.wait
	}
	next := &layout{regions: regions, version: l.version, space: l.space, read: now, wait: pace.wait(wait, took)}
	next.cLibrary = slices.ContainsFunc(regions, func(r region) bool { return r.file.IsCLibrary() })
	next.views = viewsOf(regions)
	return next
}

// postponed returns the layout after an update that failed, and is to be repeated.
func (l *layout) postponed(now time.Time, took time.Duration, pace Pace) *layout {
	next := &layout{regions: l.regions, version: l.version, space: l.space, read: now, whole: l.whole, partial: true,
		wait: pace.wait(2*l.wait, took), cLibrary: l.cLibrary, views: l.views}
	next.missed.Store(true)
	return next
}

// sameFrames reports whether every address has the same frame in both. Addresses in memory without
// a file and unknown ones do.
func (l *layout) sameFrames(other *layout) bool {
	rest := other.regions
	for _, r := range l.regions {
		if r.file == nil {
			continue
		}
		rest = fromFile(rest)
		if len(rest) == 0 || rest[0] != r {
			return false
		}
		rest = rest[1:]
	}
	return len(fromFile(rest)) == 0
}

// fromFile returns regions from the first one with a file on.
func fromFile(regions []region) []region {
	for len(regions) > 0 && regions[0].file == nil {
		regions = regions[1:]
	}
	return regions
}

// stale reports whether an update is due.
func (l *layout) stale(now time.Time, pace Pace) bool {
	age := pace.Longest
	if pace.Told != nil && pace.Told.Load() && !l.partial {
		age = max(age, ToldAge)
	}
	return now.Sub(l.read) >= age || l.lacking(now)
}

// lacking reports whether an update is due because of an unknown address.
func (l *layout) lacking(now time.Time) bool { return l.missed.Load() && now.Sub(l.read) >= l.wait }

// frameCounters counts frames by kind. The fields only grow, may be read at any time, and add up to
// all frames.
type frameCounters struct {
	File      atomic.Uint64 // in a file, in the kernel or in a module
	Anonymous atomic.Uint64 // in known executable memory without a file
	Unknown   atomic.Uint64 // in no known executable memory
}

// appendFrames appends the frames of a stack, or of the half that is in this memory. The first
// frame in dst is the leaf.
func (l *layout) appendFrames(dst []Frame, stack []uint64, counters *frameCounters) []Frame {
	var inFile, anonymous, unknown uint64
	var missed bool
	var near *region
	for _, addr := range stack {
		if addr <= 1 { // 1 as a return address is a call at 0
			break
		}
		if len(dst) > 0 {
			addr-- // a return address
		}
		if near == nil || addr < near.start || addr >= near.end {
			near = l.find(addr)
		}
		frame := Frame{Address: addr}
		switch {
		case near == nil:
			unknown++
			missed = missed || l.space.start <= addr && addr < l.space.end
		case near.file == nil || addr == near.bias: // exporters can write no address 0
			anonymous++
		default:
			inFile++
			frame = Frame{File: near.file, Address: addr - near.bias}
		}
		dst = append(dst, frame)
	}
	if missed && !l.missed.Load() {
		l.missed.Store(true)
	}
	counters.File.Add(inFile)
	counters.Anonymous.Add(anonymous)
	counters.Unknown.Add(unknown)
	return dst
}

// find returns the region that holds an address, nil when there is none.
func (l *layout) find(addr uint64) *region {
	i, found := slices.BinarySearchFunc(l.regions, addr, func(r region, addr uint64) int {
		return cmp.Compare(r.start, addr)
	})
	if !found {
		i--
	}
	if i < 0 || addr >= l.regions[i].end {
		return nil
	}
	return &l.regions[i]
}

// covers reports whether there is memory wherever there was some: compilers unmap code, or make it writable instead.
func (l *layout) covers(regions []region) bool {
	for _, r := range regions {
		for at := r.start; at < r.end; {
			of := l.find(at)
			if of == nil {
				return false
			}
			at = of.end
		}
	}
	return true
}

// withoutOverlaps truncates regions, which are sorted, at the start of the next one, and removes
// those that are empty.
func withoutOverlaps(regions []region) []region {
	for i := 1; i < len(regions); i++ {
		regions[i-1].end = min(regions[i-1].end, regions[i].start)
	}
	return slices.DeleteFunc(regions, func(r region) bool { return r.start >= r.end })
}
