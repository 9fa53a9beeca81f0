package sampling

import (
	"sync"
	"time"

	"correlator/bpf"
	"correlator/internal/stacks/unwind"
	"correlator/profile"
)

const (
	// maxWordBytes bounds what wordCache keeps, in each of its halves. A busy JVM takes some 200 kB.
	maxWordBytes = 1 << 20

	// What a word takes besides the names of its frames, and a frame.
	wordBytes, wordFrameBytes = 160, 128

	// maxFrames bounds the frames of a stack: a word may stand for several, as calls are inlined.
	maxFrames = 1024
)

// wordKey is a word of a stack that was unwound.
type wordKey struct {
	target bpf.Target
	word   [unwind.MaxWord]uint64
}

func newWordKey(target bpf.Target, word []uint64) wordKey {
	key := wordKey{target: target}
	copy(key.word[:], word)
	return key
}

// codeVersion changes when a word of native code may have another address, or an address another frame.
type codeVersion struct{ space, synced uint64 }

func (p *program) codeVersion() codeVersion {
	return codeVersion{p.space.Version(), p.synced.Load()}
}

// namedFrame is a frame as the engine has it.
type namedFrame struct {
	unwind.Frame
	function *profile.Function // as we have it; nil without one
}

func newNamedFrames(frames []unwind.Frame) []namedFrame {
	named := make([]namedFrame, len(frames))
	for i, f := range frames {
		named[i].Frame = f
		if f.Kind.OfRuntime() {
			named[i].function = profile.NewFunction(f.Function, f.SourceFile)
		}
	}
	return named
}

// scratch is what resolving a stack takes, for the next one.
type scratch struct {
	frames []profile.Frame
	named  []namedFrame
}

// knownWord is the frames of a word.
type knownWord struct {
	frames []namedFrame
	life   unwind.Life
	until  time.Time   // with OfMoment
	code   codeVersion // with OfMappings
}

func (k *knownWord) isValid(code codeVersion, now time.Time) bool {
	switch k.life {
	case unwind.OfProgram:
		return true
	case unwind.OfMappings:
		return k.code == code
	}
	return now.Before(k.until)
}

// isAging reports whether it is known for a moment, and half of that is over. Who asks for another word asks for this
// one, too, so that there are not as many requests as words expire.
func (k *knownWord) isAging(now time.Time) bool {
	return k.life == unwind.OfMoment && k.until.Sub(now) < placeTime/2
}

// bytes is what it takes at most: frames share names.
func (k *knownWord) bytes() int {
	bytes := wordBytes
	for _, f := range k.frames {
		bytes += wordFrameBytes + len(f.Function) + len(f.SourceFile)
	}
	return bytes
}

// wordCache keeps the frames of words, so that the engine is asked only for those that are new: most stacks are new
// combinations of words that are not. It keeps those at least that were used since half of the room was filled, and
// is safe for concurrent use.
type wordCache struct {
	mu            sync.Mutex
	recent, older map[wordKey]*knownWord
	bytes         int // of recent
}

func newWordCache() *wordCache { return &wordCache{recent: make(map[wordKey]*knownWord)} }

// get returns what is known of a word, nil if that is nothing, or not certain any more.
func (c *wordCache) get(key wordKey, code codeVersion, now time.Time) *knownWord {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, recent := c.recent[key]
	if !recent {
		known = c.older[key]
	}
	if known == nil || !known.isValid(code, now) {
		return nil
	}
	if !recent {
		c.put(key, known)
	}
	return known
}

// add keeps the frames of a word, which must not be changed any more. asked is when the engine was, and code what the
// codeVersion was before that.
func (c *wordCache) add(key wordKey, frames []namedFrame, life unwind.Life, code codeVersion, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(key, &knownWord{frames: frames, life: life, until: asked.Add(placeTime), code: code})
}

// put is called with mu held.
func (c *wordCache) put(key wordKey, known *knownWord) {
	if former := c.recent[key]; former != nil {
		c.bytes -= former.bytes()
	}
	if c.bytes += known.bytes(); c.bytes > maxWordBytes {
		c.recent, c.older, c.bytes = make(map[wordKey]*knownWord), c.recent, known.bytes()
	}
	c.recent[key] = known
}

// joinWords appends the frames of a stack's words to dst, which is empty, given those of each, up to the first
// CutFrame. ok is false if those of some word are not known.
func joinWords(dst []namedFrame, words []uint64, of func(word []uint64) ([]namedFrame, bool)) (frames []namedFrame,
	ok bool) {
	cut := namedFrame{Frame: unwind.Frame{Kind: unwind.CutFrame}}
	frames = dst
	for len(words) > 0 {
		word, rest := unwind.NextWord(words)
		if word == nil {
			return append(frames, cut), true
		}
		more, known := of(word)
		if !known {
			return frames, false
		}
		frames, words = append(frames, more...), rest
		if len(frames) > maxFrames {
			frames = append(frames[:maxFrames-1], cut)
		}
		if last := len(frames) - 1; last >= 0 && frames[last].Kind == unwind.CutFrame {
			break
		}
	}
	return frames, true
}

// count counts a stack that was named.
func (u *unwinding) count(named []namedFrame, isCut bool) {
	u.counters.Count(func(yield func(unwind.Frame) bool) {
		for i := range named {
			if !yield(named[i].Frame) {
				return
			}
		}
	}, isCut)
}
