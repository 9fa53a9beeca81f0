package sampling

import (
	"cmp"
	"slices"
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

// knownWord is the frames of a word, or of those of some places.
type knownWord struct {
	frames []namedFrame
	life   unwind.Life
	until  time.Time   // with OfMoment
	code   codeVersion // with OfMappings

	at, first, last uint64 // unwind.Place of the word, and of the first and the last with such frames; 0 for no others
}

// of returns what is known of native code at another place.
func (k *knownWord) of(at uint64) *knownWord {
	other := &knownWord{frames: slices.Clone(k.frames), life: k.life, code: k.code}
	for i := range other.frames {
		if f := &other.frames[i]; f.Kind == unwind.NativeFrame && f.Address != 0 {
			f.Address += at - k.at
		}
	}
	return other
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
	recent, older knownWords
	bytes         int // of recent
}

// knownWords are words by themselves, and those of some places by what they are without these, in the order of their
// places.
type knownWords struct {
	single map[wordKey]*knownWord
	spans  map[wordKey][]*knownWord
}

func newKnownWords() knownWords {
	return knownWords{make(map[wordKey]*knownWord), make(map[wordKey][]*knownWord)}
}

// find returns what is known of a word that may have a place, and is certain still.
func (k *knownWords) find(key, base wordKey, at uint64, code codeVersion, now time.Time) *knownWord {
	if known := k.single[key]; known != nil && known.isValid(code, now) {
		return known
	}
	spans := k.spans[base]
	if i := behind(spans, at); i < len(spans) && spans[i].first <= at && spans[i].isValid(code, now) {
		return spans[i]
	}
	return nil
}

// behind returns which is the first that does not end before a place.
func behind(spans []*knownWord, at uint64) int {
	i, _ := slices.BinarySearchFunc(spans, at, func(k *knownWord, at uint64) int { return cmp.Compare(k.last, at) })
	return i
}

func newWordCache() *wordCache { return &wordCache{recent: newKnownWords()} }

// place returns what a word is without its place, and that.
func (k wordKey) place() (base wordKey, at uint64, is bool) {
	word, _ := unwind.NextWord(k.word[:])
	if word == nil {
		return base, 0, false
	}
	base.target = k.target
	base.word, at, is = unwind.Place(word)
	return base, at, is
}

// get returns what is known of a word, nil if that is nothing, or not certain any more.
func (c *wordCache) get(key wordKey, code codeVersion, now time.Time) *knownWord {
	c.mu.Lock()
	defer c.mu.Unlock()
	base, at, _ := key.place()
	known := c.recent.find(key, base, at, code, now)
	if known == nil {
		if known = c.older.find(key, base, at, code, now); known == nil {
			return nil
		}
		c.put(key, known)
	}
	if known.last != 0 && known.life == unwind.OfMappings {
		known = known.of(at)
		c.put(key, known)
	}
	return known
}

// add keeps the frames of a word, which must not be changed any more. asked is when the engine was, and code what the
// codeVersion was before that. Words of places around, in a span, have the same.
func (c *wordCache) add(key wordKey, frames []namedFrame, span unwind.Span, life unwind.Life, code codeVersion,
	asked time.Time) {
	known := &knownWord{frames: frames, life: life, until: asked.Add(placeTime), code: code}
	if _, at, is := key.place(); is && span != (unwind.Span{}) {
		known.at, known.first, known.last = at, at-min(at, uint64(span.Down)), at+uint64(span.Up)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(key, known)
}

// put is called with mu held.
func (c *wordCache) put(key wordKey, known *knownWord) {
	if c.bytes += known.bytes(); c.bytes > maxWordBytes {
		c.recent, c.older, c.bytes = newKnownWords(), c.recent, known.bytes()
	}
	if known.last == 0 {
		if former := c.recent.single[key]; former != nil {
			c.bytes -= former.bytes()
		}
		c.recent.single[key] = known
		return
	}
	base, _, _ := key.place()
	spans := c.recent.spans[base]
	first := behind(spans, known.first)
	end := first
	for ; end < len(spans) && spans[end].first <= known.last; end++ { // those of other mappings, mostly
		c.bytes -= spans[end].bytes()
	}
	c.recent.spans[base] = slices.Replace(spans, first, end, known)
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
