package unwind

const (
	// maxKeptBytes bounds what places keeps, in each of its halves. A busy JVM takes some 100 kB.
	maxKeptBytes = 4 << 20

	// What a place takes besides what is below, and a frame without its names, and a reading.
	placeBytes, keptFrameBytes, readingBytes = 256, 64, 32

	// describedHeader is in the place of a word's header for an offset at which the JVM describes the code.
	// Headers are not 0.
	describedHeader = 0
)

// place is where a word of a runtime is in its code.
type place struct {
	target uint64 // its number
	word   [3]uint64
}

// placeFrames are the frames of a place, as long as what was read for them is the same. For a compiled method
// that is nothing: its number, in the word, is never given again by that JVM.
type placeFrames struct {
	frames []Frame
	span   Span
	read   []reading
	// checked is the last request in which what was read was the same.
	checked uint64
}

// places keeps frames, of the places at least that were wanted since half of the room was filled.
type places struct {
	recent, older map[place]*placeFrames
	bytes         int    // of recent
	request       uint64 // number of the one that is served
}

func newPlaces() places { return places{recent: make(map[place]*placeFrames)} }

// begin begins a request: readings are made again.
func (p *places) begin() { p.request++ }

// get returns the frames of a place, nil when they are not known, and around which others have the same. They must not
// be changed.
func (p *places) get(at place, areUnchanged func([]reading) bool) ([]Frame, Span) {
	found, recent := p.recent[at]
	if !recent {
		if found = p.older[at]; found == nil {
			return nil, Span{}
		}
	}
	if len(found.read) > 0 && found.checked != p.request {
		if !areUnchanged(found.read) {
			return nil, Span{}
		}
		found.checked = p.request
	}
	if !recent {
		p.keep(at, found)
	}
	return found.frames, found.span
}

// add keeps the frames of a place, which must not be changed any more; unless one has no name: reading that has
// failed, and may not the next time. It reports whether it keeps them.
func (p *places) add(at place, frames []Frame, span Span, read []reading) bool {
	for _, f := range frames {
		if f.Function == "" {
			return false
		}
	}
	p.keep(at, &placeFrames{frames, span, read, p.request})
	return true
}

func (p *places) keep(at place, found *placeFrames) {
	if former := p.recent[at]; former != nil {
		p.bytes -= former.bytes()
	}
	if p.bytes += found.bytes(); p.bytes > maxKeptBytes {
		p.recent, p.older, p.bytes = make(map[place]*placeFrames), p.recent, found.bytes()
	}
	p.recent[at] = found
}

// bytes is what they take at most: frames share names.
func (f *placeFrames) bytes() int {
	bytes := placeBytes + readingBytes*len(f.read)
	for _, frame := range f.frames {
		bytes += keptFrameBytes + len(frame.Function) + len(frame.SourceFile)
	}
	return bytes
}
