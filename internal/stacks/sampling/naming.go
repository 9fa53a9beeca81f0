package sampling

import (
	"context"
	"errors"
	"fmt"
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

// frames names words of a program, as many of the first as the error lets it. It blocks until the deadline, or as
// long as the engine takes for one word; then the error is errLater.
func (u *unwinding) frames(p *program, words [][]uint64, deadline time.Time) (named []unwind.Named, err error) {
	engine := u.engine.Load()
	if engine == nil {
		return nil, errNoEngine
	}
	ctx := &lateContext{at: deadline}
	defer ctx.end()
	for len(named) < len(words) {
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

// lateContext is a context with a deadline that has a timer only once somebody waits for it. It is for one goroutine.
type lateContext struct {
	at     time.Time
	timed  context.Context // nil: nobody waits
	cancel context.CancelFunc
}

var _ context.Context = (*lateContext)(nil)

// Deadline returns the deadline.
func (c *lateContext) Deadline() (time.Time, bool) { return c.at, true }

// Done returns a channel that is closed at the deadline.
func (c *lateContext) Done() <-chan struct{} {
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(context.Background(), c.at)
	}
	return c.timed.Done()
}

// Err returns context.DeadlineExceeded after the deadline.
func (c *lateContext) Err() error {
	switch {
	case c.timed != nil:
		return c.timed.Err()
	case time.Now().Before(c.at):
		return nil
	}
	return context.DeadlineExceeded
}

// Value returns nil.
func (c *lateContext) Value(any) any { return nil }

// end frees the timer, if there is one.
func (c *lateContext) end() {
	if c.cancel != nil {
		c.cancel()
	}
}

// isHeldBack reports whether the user of a program has had the engine serve nobody else for too long.
func (u *unwinding) isHeldBack(p *program) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	return u.time.free(p.unwound.target.User, now).After(now)
}

// namedWords are the frames of words that stacks of samples have, as far as they had to be asked for or may expire,
// and why some are missing.
type namedWords struct {
	frames   map[wordKey][]namedFrame
	failures map[*program]error
}

// nameable returns what of a sample's stack can be named: all, or, once there may be another method at the
// addresses of interpreted code, what is nearer to the leaf than these.
func nameable(p *pendingSample, now time.Time) (raw *bpf.Stack, whole bool) {
	if words := unwind.Placed(p.raw.Words, p.raw.Error == 0); len(words) < len(p.raw.Words) {
		return &bpf.Stack{Kernel: p.raw.Kernel, Words: words, Error: bpf.TooManyWords}, true
	}
	if now.Sub(p.sample.At) <= placeTime || unwind.Lasting(p.raw.Words) {
		return &p.raw, true
	}
	return &bpf.Stack{Kernel: p.raw.Kernel, Words: unwind.Compiled(p.raw.Words), Error: bpf.TooManyWords}, false
}

// nameUnwound has the engine name the words that are not known of the unwound stacks of samples, with one request for
// each program if possible: each takes two processes. It blocks like frames.
func (s *Sampling) nameUnwound(pending []*pendingSample, deadline time.Time) namedWords {
	var (
		named  = namedWords{make(map[wordKey][]namedFrame), make(map[*program]error)}
		wanted = make(map[*program][]wordKey)
		words  = make(map[*program][][]uint64)
		codes  = make(map[*program]codeVersion)
		now    = time.Now()
	)
	for _, p := range pending {
		if !p.key.Unwound() {
			continue
		}
		raw, whole := nameable(p, now)
		if whole && s.stacks.known(p, now) != nil {
			continue
		}
		if _, set := codes[p.program]; !set {
			codes[p.program] = p.program.codeVersion()
		}
		for word, rest := unwind.NextWord(raw.Words); word != nil; word, rest = unwind.NextWord(rest) {
			key := newWordKey(p.key.Target, word)
			if _, found := named.frames[key]; found {
				continue
			}
			known := s.word(p.program, key, word, codes[p.program], now)
			switch {
			case known == nil, known.isAging(now): // there may be a request anyway
				wanted[p.program], words[p.program] = append(wanted[p.program], key), append(words[p.program], word)
				named.frames[key] = nil
			case known.life == unwind.OfMoment: // which may be over before the stack is resolved
				named.frames[key] = known.frames
			}
		}
	}
	for program, keys := range wanted {
		found, err := s.unwinding.frames(program, words[program], deadline)
		named.failures[program] = err
		for i, key := range keys {
			if i >= len(found) {
				delete(named.frames, key)
				continue
			}
			frames := newNamedFrames(found[i].Frames)
			named.frames[key] = frames
			if found[i].Keep {
				s.words.add(key, frames, found[i].Span, unwind.LifeOf(words[program][i]), codes[program], now)
			}
		}
	}
	return named
}

// join appends the frames of a stack's words. The error is why some are missing.
func (s *Sampling) join(dst []namedFrame, p *program, target bpf.Target, words []uint64, named namedWords,
	now time.Time) ([]namedFrame, error) {
	code := p.codeVersion()
	frames, ok := joinWords(dst, words, func(word []uint64) ([]namedFrame, bool) {
		key := newWordKey(target, word)
		if frames, found := named.frames[key]; found {
			return frames, true
		}
		known := s.word(p, key, word, code, now)
		if known == nil {
			return nil, false
		}
		return known.frames, true
	})
	if ok {
		return frames, nil
	}
	if err := named.failures[p]; err != nil {
		return frames, err
	}
	return frames, errLater // it was known, or whole, and is not any more
}

// word returns what is known of a word of a program, nil if the engine has to be asked.
func (s *Sampling) word(p *program, key wordKey, word []uint64, code codeVersion, now time.Time) *knownWord {
	known := s.words.get(key, code, now)
	if known != nil || s.unwinding == nil {
		return known
	}
	engine := s.unwinding.engine.Load()
	if engine == nil {
		return nil
	}
	named, ok := engine.Native(&p.unwound.target, word)
	if !ok {
		return nil
	}
	s.words.add(key, newNamedFrames(named.Frames), named.Span, unwind.OfMappings, code, now)
	return s.words.get(key, code, now)
}

// knows reports whether a program is sampled.
func (u *unwinding) knows(p *program) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, sampled := u.programs[p]
	return sampled
}

// appendFrames turns what the engine has named into frames of ours.
func (u *unwinding) appendFrames(dst []profile.Frame, p *program, named []namedFrame,
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
	unwind.PHPFrame: profile.PHPFrame,
}

// appendNamed turns frames of the engine into ours. It reports whether there was no cut, at which it
// ends.
func appendNamed(dst []profile.Frame, space *profile.AddressSpace, frames []namedFrame) (_ []profile.Frame,
	whole bool) {
	for i := range frames {
		f := &frames[i]
		switch {
		case f.Kind == unwind.InlinedFrame:
			dst = append(dst, profile.NewInlinedFrame())
		case f.Kind.OfRuntime():
			dst = append(dst, profile.NewRuntimeFrame(runtimeFrames[f.Kind], f.function, f.Line))
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
