package process

import (
	"encoding/binary"
	"hash/maphash"

	"correlator/memread"
)

// maxPolledBytes is how much of what is published is polled: more than a real one has.
const maxPolledBytes = 1024

// Words are places in the memory of a process, and what they held when it was probed. As long as
// they hold the same, it publishes what it did, or nothing as before: there is no need to probe
// again. To check that is one system call.
type Words struct {
	ranges []wordRange
	seed   maphash.Seed
	sum    uint64 // of all bytes, in the order of ranges
}

type wordRange struct {
	addr  uint64
	bytes int
}

// Words returns what to poll after the last Probe, which must have found a storage, or that there
// is none (memread.ErrNotPublished).
func (t *Target) Words() *Words {
	w := &Words{seed: maphash.MakeSeed()}
	var want []byte
	if t.publishing == nil {
		for _, img := range t.images {
			w.ranges = append(w.ranges, wordRange{img.pointerAddr(), 8})
		}
		want = make([]byte, 8*len(t.images)) // no pointer
	} else {
		want = binary.NativeEndian.AppendUint64(nil, t.storageAddr)
		w.ranges = append(w.ranges, wordRange{t.publishing.pointerAddr(), 8})
		if !t.tried.IsZero() { // the rule is made from them, or will be when they are others
			want = append(want, t.pair[:]...)
			w.ranges = append(w.ranges, wordRange{t.publishing.pairAddr(), len(t.pair)})
		}
		before := len(want)
		want = t.storage.AppendTo(want)
		want = want[:min(len(want), before+maxPolledBytes)]
		w.ranges = append(w.ranges, wordRange{t.storageAddr, len(want) - before})
	}
	w.sum = maphash.Bytes(w.seed, want)
	return w
}

// WordReader is room for reading words, of any processes one after the other.
type WordReader struct {
	requests []memread.Request
	buf      []byte
}

// Hold reports whether the words hold what they did. It blocks for as long as the process makes it.
func (w *Words) Hold(r *WordReader, memory *memread.Process) bool {
	r.requests, r.buf = r.requests[:0], r.buf[:0]
	for _, words := range w.ranges {
		r.requests = append(r.requests, memread.Request{Addr: words.addr})
		r.buf = append(r.buf, make([]byte, words.bytes)...)
	}
	off := 0
	for i, words := range w.ranges {
		r.requests[i].Buf = r.buf[off : off+words.bytes]
		off += words.bytes
	}
	if memory.ReadBatch(r.requests) != nil {
		return false
	}
	for i := range r.requests {
		if r.requests[i].Err != nil {
			return false
		}
	}
	return maphash.Bytes(w.seed, r.buf) == w.sum
}
