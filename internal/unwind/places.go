package unwind

import (
	"time"

	"go.opentelemetry.io/ebpf-profiler/libpf"
)

const (
	// maxPlaceFrames bounds the frames that places keeps, in each of its halves: 4 MB, without their
	// names.
	maxPlaceFrames = 1 << 16

	// addressTime is how long an address in interpreted code, or in a stub, is taken for the same.
	addressTime = time.Second
)

// place is where a JVM's word is in its code.
type place struct {
	target uint64 // number of the target
	word   [3]uint64
}

// placeFrames are the frames of a place until a time, for ever when it is zero: a compiled method has a number,
// in the word, which the JVM never gives again.
type placeFrames struct {
	frames []Frame
	until  time.Time
}

// places keeps frames of JVMs, of the places at least that were wanted since half of the room was filled.
type places struct {
	recent, older map[place]placeFrames
	frames        int // in recent
}

func newPlaces() places { return places{recent: make(map[place]placeFrames)} }

// get returns the frames of a word of a target, nil when they are not known. They must not be changed.
func (p *places) get(target uint64, word libpf.EbpfFrame, now time.Time) []Frame {
	at := place{target, [3]uint64(word)}
	found, ok := p.recent[at]
	if !ok {
		if found, ok = p.older[at]; ok {
			p.add(at, found)
		}
	}
	if !ok || !found.until.IsZero() && !now.Before(found.until) {
		return nil
	}
	return found.frames
}

// put keeps the frames of a word, which were read after a time. They must not be changed any more.
func (p *places) put(target uint64, word libpf.EbpfFrame, frames []Frame, after time.Time) {
	found := placeFrames{frames: frames}
	if !hasCompileID(word) {
		found.until = after.Add(addressTime)
	}
	p.add(place{target, [3]uint64(word)}, found)
}

func (p *places) add(at place, found placeFrames) {
	if p.frames += len(found.frames); p.frames > maxPlaceFrames {
		p.recent, p.older, p.frames = make(map[place]placeFrames), p.recent, len(found.frames)
	}
	p.recent[at] = found
}
