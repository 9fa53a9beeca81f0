package sampling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"correlator/bpf"
	"correlator/internal/stacks/unwind"
	"correlator/profile"
)

// namingPause is the time between two tries to name a stack, while the engine is being restarted.
const namingPause = 20 * time.Millisecond

var (
	// errNoEngine: a stack was unwound, and there is no engine any more.
	errNoEngine = errors.New("no unwinding engine")
	// errLater: the engine could not be asked yet.
	errLater = errors.New("the unwinding engine is busy")
)

// frames names the words of stacks of a program that were unwound, as many of the first as the error
// lets it. It blocks until the deadline, or as long as the engine takes for one stack; then the error is
// errLater.
func (u *unwinding) frames(p *program, raw []*bpf.Stack, deadline time.Time) (named [][]unwind.Frame, err error) {
	engine := u.engine.Load()
	if engine == nil {
		return nil, errNoEngine
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	words := make([][]uint64, len(raw))
	for i := range raw {
		words[i] = raw[i].Words
	}
	for len(named) < len(raw) {
		if ctx.Err() != nil {
			return named, errLater
		}
		if u.isHeldBack(p) {
			<-ctx.Done()
			return named, errLater
		}
		frames, err := engine.Frames(ctx, p.unwound.target, words[len(named):])
		switch {
		case err == nil:
			named = append(named, frames...)
		case !isTemporary(err) || errors.Is(err, unwind.ErrNotSynchronized) && !u.knows(p):
			return named, fmt.Errorf("naming stacks: %w", err)
		default:
			time.Sleep(min(namingPause, max(0, time.Until(deadline))))
		}
	}
	return named, nil
}

// isHeldBack reports whether the user of a program has had the engine serve nobody else for too long.
func (u *unwinding) isHeldBack(p *program) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	return u.time.free(p.unwound.target.User, now).After(now)
}

// namedStacks are the stacks of samples that were named together.
type namedStacks map[namedKey]namedStack

// namedKey is a stack, whole or with the words that last: see nameable.
type namedKey struct {
	key   bpf.StackKey
	whole bool
}

// namedStack is what the engine says of a stack: its frames, or why it has none.
type namedStack struct {
	frames []unwind.Frame
	err    error
}

// nameable returns what of a sample's stack can be named: all, or, once there may be another method at the
// addresses of interpreted code, what is nearer to the leaf than these.
func nameable(p *pendingSample, now time.Time) (raw *bpf.Stack, whole bool) {
	if now.Sub(p.sample.At) <= placeTime || unwind.Lasting(p.raw.Words) {
		return &p.raw, true
	}
	return &bpf.Stack{Kernel: p.raw.Kernel, Words: unwind.Compiled(p.raw.Words), Error: bpf.TooManyWords}, false
}

// nameUnwound has the engine name the unwound stacks of samples, those that are not known yet, with as
// few requests as possible: each takes two processes. It blocks like frames.
func (s *Sampling) nameUnwound(pending []*pendingSample, deadline time.Time) namedStacks {
	var (
		named = make(namedStacks)
		keys  = make(map[*program][]namedKey)
		words = make(map[*program][]*bpf.Stack)
		now   = time.Now()
	)
	for _, p := range pending {
		if !p.key.Unwound() {
			continue
		}
		raw, whole := nameable(p, now)
		key := namedKey{p.key, whole}
		if _, asked := named[key]; asked || whole && s.stacks.known(p.program, p.key, now) != nil {
			continue
		}
		named[key] = namedStack{err: errLater}
		keys[p.program], words[p.program] = append(keys[p.program], key), append(words[p.program], raw)
	}
	for program, raw := range words {
		frames, err := s.unwinding.frames(program, raw, deadline)
		for i, key := range keys[program] {
			if i < len(frames) {
				s.unwinding.countCut(frames[i], raw[i].Error)
				named[key] = namedStack{frames: frames[i]}
			} else {
				named[key] = namedStack{err: err}
			}
		}
	}
	return named
}

// countCut counts a stack that was cut while it was walked, unless the engine has counted it by its frames.
func (u *unwinding) countCut(frames []unwind.Frame, failure uint32) {
	isCut := func(f unwind.Frame) bool { return f.Kind == unwind.CutFrame }
	if failure != 0 && !slices.ContainsFunc(frames, isCut) {
		u.counters.StacksCut.Add(1)
	}
}

// knows reports whether a program is sampled.
func (u *unwinding) knows(p *program) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, sampled := u.programs[p]
	return sampled
}

// appendFrames turns what the engine has named into frames of ours.
func (u *unwinding) appendFrames(dst []profile.Frame, p *program, named []unwind.Frame,
	failure uint32) []profile.Frame {
	dst, whole := appendNamed(dst, p.space, named)
	if failure != bpf.TooManyWords && (!whole || failure != 0) {
		u.endedEarly(p)
	}
	if whole && failure != 0 {
		dst = append(dst, profile.NewCutFrame())
	}
	return dst
}

// runtimeFrames are the kinds of our frames by those of the engine.
var runtimeFrames = map[unwind.FrameKind]profile.Kind{
	unwind.JVMFrame: profile.JVMFrame, unwind.PythonFrame: profile.PythonFrame, unwind.V8Frame: profile.V8Frame,
}

// appendNamed turns frames of the engine into ours. It reports whether there was no cut, at which it
// ends.
func appendNamed(dst []profile.Frame, space *profile.AddressSpace, frames []unwind.Frame) (_ []profile.Frame,
	whole bool) {
	for i := range frames {
		f := &frames[i]
		switch {
		case f.Kind == unwind.InlinedFrame:
			dst = append(dst, profile.NewInlinedFrame())
		case f.Kind.OfRuntime():
			function := profile.NewFunction(f.Function, f.SourceFile)
			dst = append(dst, profile.NewRuntimeFrame(runtimeFrames[f.Kind], function, f.Line))
		case f.Kind == unwind.NativeFrame && f.Address != 0:
			addr := f.Address
			if len(dst) > 0 { // also after frames of the kernel
				addr++ // 1 is subtracted already, and is again
			}
			dst = space.AppendFrames(dst, []uint64{addr})
		default:
			return append(dst, profile.NewCutFrame()), false
		}
	}
	return dst, true
}

// isTemporary reports whether a request may succeed when it is made again, at the latest when the
// programs have been synchronized anew.
func isTemporary(err error) bool {
	return errors.Is(err, unwind.ErrKilled) || errors.Is(err, unwind.ErrNotSynchronized) ||
		errors.Is(err, unwind.ErrUnavailable) || errors.Is(err, unwind.ErrBusy) ||
		errors.Is(err, context.DeadlineExceeded)
}
