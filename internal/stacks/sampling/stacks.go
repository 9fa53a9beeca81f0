package sampling

import (
	"slices"
	"time"

	"github.com/elastic/go-freelru"

	"correlator/bpf"
	"correlator/internal/host/share"
	"correlator/profile"
)

// nameEntries is how many raw stacks keep their name: as many as the kernel keeps stacks. It takes
// 700 KB.
const nameEntries = 8192

// stacks turns raw stacks, which the kernel walked by frame pointers, into named ones, and keeps
// these together with the stacks that an engine has unwound and named (unwinding).
type stacks struct {
	kernel *profile.Kernel // nil: stacks have no kernel frames
	store  *profile.Store
	names  *freelru.SyncedLRU[rawStack, profile.StackTraceID]
}

// placeTime is how long an address of interpreted Java code is taken for the same method. To put another one in
// its place, a JVM has to find a class unreachable, unload it, and load one that is as large in all parts.
const placeTime = 2 * time.Second

// rawStack is what determines the name of a stack. Threads share the keys of stacks, also by
// thread.
type rawStack struct {
	key           bpf.StackKey
	space, kernel uint64 // versions
	ends          bool   // see appendWalked
}

func newStacks() (s stacks, err error) {
	s.names, err = freelru.NewSynced[rawStack, profile.StackTraceID](nameEntries, share.NewHash[rawStack]())
	if err != nil {
		return s, err
	}
	s.store, err = profile.NewStore(profile.StoreStacks, profile.StoreBytes)
	return s, err
}

// known returns the stack of a sample, nil if it must be resolved.
func (s *stacks) known(p *pendingSample, now time.Time) *profile.Stack {
	id, ok := s.names.Get(s.rawStack(p))
	if !ok || p.program.space.Lacking(now) {
		return nil
	}
	return s.store.Get(id)
}

// resolve names the stack of a sample by what is known of the process. It returns no stack and true if there is
// none: where it begins can be no code, or nothing is known of a process that was probed. It
// returns no stack and false if a probe of the process may tell more. It reads nothing of the
// process.
func (s *stacks) resolve(p *pendingSample, now time.Time, probed bool, scratch *[]profile.Frame) (_ *profile.Stack,
	final bool) {
	space, name := p.program.space, s.rawStack(p) // before: the frames are of this version or a later one
	if !probed && name.space == p.program.blank {
		return nil, false
	}
	frames := s.kernel.AppendFrames((*scratch)[:0], p.raw.Kernel)
	frames = appendWalked(frames, space, p.raw.User, name.ends)
	*scratch = frames
	switch {
	case !probed && space.Lacking(now):
		return nil, false
	case name.space == p.program.blank || len(frames) == 0:
		return nil, true
	}
	return s.put(name, frames, true), true
}

// appendWalked appends the frames of addresses, with a cut one where a caller may be missing. With
// ends, they were walked though the engine unwinds the program, since it does not know the innermost
// code. Then callers are missing where the chain does not end as one of a process with a C library
// does: that has begun all of its threads. Elsewhere as many as are walked may not be all.
func appendWalked(dst []profile.Frame, space *profile.AddressSpace, addrs []uint64, ends bool) []profile.Frame {
	most := len(addrs) == bpf.MaxFrames
	if i := slices.Index(addrs, bpf.UnknownCaller); i >= 0 {
		dst = append(space.AppendFrames(dst, addrs[:i]), profile.NewCutFrame())
		addrs = addrs[i+1:]
	}
	before := len(dst)
	dst = space.AppendFrames(dst, addrs)
	if (most || ends && space.HasCLibrary()) && len(dst) > before && !isWhole(dst[before:]) {
		dst = append(dst, profile.NewCutFrame())
	}
	return dst
}

// isWhole reports whether a chain of frame pointers ends in a C library, or in what called that first:
// _start, of the executable, where the library keeps frame pointers.
func isWhole(frames []profile.Frame) bool {
	last := len(frames) - 1
	return frames[last].File.IsCLibrary() || last >= 2 && frames[last-1].File.IsCLibrary()
}

// put stores a named stack. If what its raw stack means may change, that is asked again in a while.
func (s *stacks) put(name rawStack, frames []profile.Frame, lasting bool) *profile.Stack {
	stack := s.store.Put(profile.TraceID(frames), frames)
	if lasting {
		s.names.Add(name, stack.ID)
	} else {
		s.names.AddWithLifetime(name, stack.ID, placeTime)
	}
	return stack
}

func (s *stacks) rawStack(p *pendingSample) rawStack {
	return rawStack{key: p.key, space: p.program.space.Version(), kernel: s.kernel.Version(),
		ends: !p.key.Unwound() && p.sample.Served}
}
