package unwind

const (
	// maxKept bounds what places keeps, in each of its halves: frames, and readings of memory. Together
	// they take 8 MB, without the names.
	maxKept = 1 << 16

	// describedHeader is in the place of a word's header for an offset at which the JVM describes the code.
	// Headers are not 0.
	describedHeader = 0
)

// place is where a word of a JVM is in its code.
type place struct {
	target uint64 // its number
	word   [3]uint64
}

// placeFrames are the frames of a place, as long as what was read for them is the same. For a compiled method
// that is nothing: its number, in the word, is never given again by that JVM.
type placeFrames struct {
	frames []Frame
	read   []reading
	// checked is the last request in which what was read was the same.
	checked uint64
}

// places keeps frames, of the places at least that were wanted since half of the room was filled.
type places struct {
	recent, older map[place]*placeFrames
	size          int    // of recent
	request       uint64 // number of the one that is served
}

func newPlaces() places { return places{recent: make(map[place]*placeFrames)} }

// begin begins a request: readings are made again.
func (p *places) begin() { p.request++ }

// get returns the frames of a place, nil when they are not known. They must not be changed.
func (p *places) get(at place, areUnchanged func([]reading) bool) []Frame {
	found := p.recent[at]
	if found == nil {
		if found = p.older[at]; found == nil {
			return nil
		}
		p.keep(at, found)
	}
	if len(found.read) > 0 && found.checked != p.request {
		if !areUnchanged(found.read) {
			return nil
		}
		found.checked = p.request
	}
	return found.frames
}

// add keeps the frames of a place, which must not be changed any more.
func (p *places) add(at place, frames []Frame, read []reading) {
	p.keep(at, &placeFrames{frames, read, p.request})
}

func (p *places) keep(at place, found *placeFrames) {
	size := len(found.frames) + len(found.read)
	if p.size += size; p.size > maxKept {
		p.recent, p.older, p.size = make(map[place]*placeFrames), p.recent, size
	}
	p.recent[at] = found
}
