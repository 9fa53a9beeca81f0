package broker

import (
	"slices"
	"time"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// rounds is how often a goroutine that reads for one guest writes what is queued for another one,
// before it leaves that to a goroutine of its own: it has its own guest to read from.
const rounds = 4

// replayRound is how many bytes of a replay are encoded at a time.
const replayRound = 256 << 10

// maxReplays is how many replays may be queued before nothing more is read from their guest. Short
// ones are not queued for long.
const maxReplays = 16

// replay is the replay of a container, at its place among what is queued.
type replay struct {
	header   frame.Header // what all frames have in common
	s        *schema.Struct
	versions []*version        // still to be encoded
	pending  *filter           // that is still to select the versions; nothing is encoded until then
	mask     value.PropertySet // what is sent of them; 0 is everything
	size     int               // memory that it uses
	behind   chunkList         // what was queued later

	g         *guest
	container *container
	epoch     uint32 // of the container, when the versions were the present ones
	pinned    int    // bytes of versions that were replaced since, counted for g; see container.pin
}

// write writes what is queued as far as it is possible at once. The caller has set writing.
func (g *guest) write() {
	for range rounds {
		if done, wait := g.step(false); done {
			return
		} else if wait {
			break
		}
	}
	g.waits.Add(1)
	go g.writeOut(true)
}

// writeOut writes until nothing is queued.
func (g *guest) writeOut(wait bool) {
	for {
		if done, _ := g.step(wait); done {
			return
		}
	}
}

// step writes what is queued once. done says that there is nothing left, and that writing was
// reset; full, that the connection takes no more without waiting.
func (g *guest) step(wait bool) (done, full bool) {
	g.queueMu.Lock()
	if g.inFlight.size == 0 {
		g.inFlight, g.queue, g.replaying = g.queue, chunkList{}, false
	}
	var r *replay
	if g.inFlight.size == 0 && len(g.replays) > 0 {
		r = g.replays[0]
	}
	if g.inFlight.size == 0 && (r == nil || r.pending != nil) {
		g.endWriting()
		g.queueMu.Unlock()
		return true, false
	}
	g.queueMu.Unlock()
	if r != nil {
		if g.encodeReplay(r); g.inFlight.size == 0 {
			return false, false // nothing was selected, or this format can express none of it
		}
	}
	before := g.inFlight.size
	released, full, err := g.tryWrite(&g.inFlight, wait)
	if !g.replaying {
		g.queued.Add(int64(g.inFlight.size - before))
	}
	if released > 0 {
		g.account(-released)
	}
	if err != nil {
		g.abort() // the goroutine that reads cleans up
		g.queueMu.Lock()
		g.broken = true
		g.endWriting()
		g.queueMu.Unlock()
		return true, false
	}
	return false, full
}

// endWriting resets writing. The queue is locked.
func (g *guest) endWriting() {
	g.writing = false
	g.changed.Broadcast()
}

// encodeReplay encodes the next objects of a replay into what is being written.
func (g *guest) encodeReplay(r *replay) {
	h := r.header
	h.ServerSentTime = value.TimepointOf(time.Now())
	g.replaying = true
	var l dynamic.Layout
	var projected []byte
	n, added := 0, 0
	before := g.inFlight.size
	for n < len(r.versions) && g.inFlight.size < replayRound {
		v := r.versions[n]
		r.versions[n] = nil
		n++
		data := v.data
		if r.mask != 0 && v.set&^r.mask != 0 && layoutOf(r.s, v.data, &l) {
			projected = dynamic.AppendSelected(projected[:0], r.s, v.data, &l, r.mask)
			data = projected
		}
		h.Attributes, h.Sender, h.SentTime, h.FromCache = v.set, v.from, v.modified, uint32(len(r.versions)-n)
		if r.mask != 0 {
			h.Attributes &= r.mask
		}
		g.scratch = encode(g.scratch[:0], g.format, &h, r.s, data)
		if len(g.scratch) == 0 {
			g.b.count.unencodable.Add(1)
			continue
		}
		added += g.inFlight.append(g.scratch)
	}
	r.versions = r.versions[n:]
	g.b.count.replayed.Add(uint64(g.inFlight.size - before))
	g.replayed.Add(uint64(g.inFlight.size - before))
	g.account(added)
	if len(r.versions) > 0 {
		return
	}
	g.queueMu.Lock()
	g.replays = slices.Delete(g.replays, 0, 1)
	g.queue = r.behind
	g.changed.Broadcast()
	g.queueMu.Unlock()
	g.account(-r.size)
	r.container.unpin(r)
	if cap(g.scratch) > chunkSize {
		g.scratch = nil
	}
}
