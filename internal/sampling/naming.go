package sampling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"correlator/bpf"
	"correlator/internal/unwind"
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

// frames names the words of a stack that was unwound. It blocks until the deadline, or as long as the
// engine takes for one stack; then the error is errLater.
func (u *unwinding) frames(p *program, raw *bpf.Stack, deadline time.Time) ([]unwind.Frame, error) {
	engine := u.engine.Load()
	if engine == nil {
		return nil, errNoEngine
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	target := p.unwound.target
	for ctx.Err() == nil {
		frames, err := engine.Frames(ctx, target, target.KernelPID, raw.Words, nil)
		if err == nil {
			u.countCut(frames, raw.Error)
			return frames, nil
		}
		if !isTemporary(err) || errors.Is(err, unwind.ErrNotSynchronized) && !u.knows(p) {
			return nil, fmt.Errorf("naming a stack: %w", err)
		}
		time.Sleep(min(namingPause, max(0, time.Until(deadline))))
	}
	return nil, errLater
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

// appendNamed turns frames of the engine into ours. It reports whether there was no cut, at which it
// ends.
func appendNamed(dst []profile.Frame, space *profile.AddressSpace, frames []unwind.Frame) (_ []profile.Frame,
	whole bool) {
	for i := range frames {
		f := &frames[i]
		switch {
		case f.Kind == unwind.JVMFrame:
			dst = append(dst, profile.NewJVMFrame(profile.NewFunction(f.Function, f.SourceFile), f.Line))
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
