package profile

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Pace is how often memory may be looked at again because of what stacks say.
//
// An address that is not known is a reason to look: a library may have been loaded. But stacks have
// addresses that never become known (see the package), so the wait grows while one look follows the
// other and nothing is found.
type Pace struct {
	// Shortest is the wait between two looks at first.
	Shortest time.Duration
	// Longest is what the wait doubles up to while looks in a row find nothing new. What is known
	// is also looked at again when it is that old: other code may have come to lie where old code
	// lay.
	Longest time.Duration
}

// lookShare bounds the time that goes into looking, at a process that changes what it maps all the
// time or makes us wait: the wait is as many times as long as the look took, up to Longest. A JVM
// takes 0.2 ms.
const lookShare = 50

func (p Pace) wait(wait, took time.Duration) time.Duration {
	return min(max(wait, p.Shortest, lookShare*took), p.Longest)
}

// region is a range of executable memory whose addresses are those of one file less bias, or of no
// file. The last two fields say which mapping it was made from; they are zero without a file.
type region struct {
	start, end uint64
	bias       uint64
	file       *File
	offset     uint64
	of         mappedFile
}

// layout is what executable memory was like when it was last looked at, at the zero time when it
// was not. Nothing but missed changes once others can see it.
type layout struct {
	regions []region // sorted, none overlaps
	version uint64   // another one when an address may have another frame
	space   bounds   // where there can be code at all
	read    time.Time
	wait    time.Duration // how long the next look should wait for
	missed  atomic.Bool   // an address within space was not known
}

// bounds are those of addresses where code can become known. What a stack has beyond them is no
// reason to look for it: pieces of text, small numbers.
type bounds struct{ start, end uint64 }

func userSpace() bounds { // vm.mmap_min_addr as everybody has it; five levels of page tables
	return bounds{64 << 10, 1 << 56}
}

// vsyscallPage is the one page of user code among the kernel's addresses, on x86-64.
const vsyscallPage = 0xffffffffff600000

// userHalf is a user stack up to the first address where no user code can be.
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

// next is the layout that follows l after a look. Its version is that of l.
func (l *layout) next(regions []region, now time.Time, took time.Duration, pace Pace) *layout {
	var wait time.Duration
	// A look in vain once in a while is no reason to be slow when a library is loaded.
	if slices.Equal(l.regions, regions) && now.Sub(l.read) < 2*l.wait {
		wait = 2 * l.wait
	}
	return &layout{regions: regions, version: l.version, space: l.space, read: now, wait: pace.wait(wait, took)}
}

// postponed is the layout that follows l when a look failed, which is tried again.
func (l *layout) postponed(now time.Time, took time.Duration, pace Pace) *layout {
	next := &layout{regions: l.regions, version: l.version, space: l.space, read: now, wait: pace.wait(2*l.wait, took)}
	next.missed.Store(true)
	return next
}

// sameFrames reports whether every address has the same frame in both. An address in memory without
// a file and an unknown one have.
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

// fromFile returns regions from the first one of a file on.
func fromFile(regions []region) []region {
	for len(regions) > 0 && regions[0].file == nil {
		regions = regions[1:]
	}
	return regions
}

// stale reports whether it is time to look again.
func (l *layout) stale(now time.Time, pace Pace) bool {
	return now.Sub(l.read) >= pace.Longest || l.lacking(now)
}

// lacking reports whether it is time to look for an address that was not known.
func (l *layout) lacking(now time.Time) bool { return l.missed.Load() && now.Sub(l.read) >= l.wait }

// FrameCounters counts frames by what they became. The fields only grow, may be read at any time,
// and add up to the frames that there were.
type FrameCounters struct {
	File      atomic.Uint64 // in a file, in the kernel or in a module
	Anonymous atomic.Uint64 // in executable memory without a file that we know
	Unknown   atomic.Uint64 // in no executable memory that we know
}

// appendFrames appends the frames of a stack, or of the half of one that lies in this memory. What
// comes first in dst is the leaf.
func (l *layout) appendFrames(dst []Frame, stack []uint64, counters *FrameCounters) []Frame {
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

// withoutOverlaps makes regions, which are sorted, end where the next one starts at the latest, and
// leaves out those that are empty.
func withoutOverlaps(regions []region) []region {
	for i := 1; i < len(regions); i++ {
		regions[i-1].end = min(regions[i-1].end, regions[i].start)
	}
	return slices.DeleteFunc(regions, func(r region) bool { return r.start >= r.end })
}
