package process

import (
	"encoding/binary"
	"hash/maphash"

	"correlator/internal/access"
	"correlator/memread"
)

// maxPolledBytes is how much of what is published is polled: more than a real one has.
const maxPolledBytes = 1024

// Words are places in the memory of a process, and what they held when it was probed. As long as
// they hold the same, it publishes what it did, or nothing as before: there is no need to probe
// again.
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

// AppendReads appends the reads of the words in a process, with buffers of their own.
func (w *Words) AppendReads(reads []access.MemoryRead, pid int) []access.MemoryRead {
	for _, words := range w.ranges {
		reads = append(reads, access.MemoryRead{
			PID: pid, Request: memread.Request{Addr: words.addr, Buf: make([]byte, words.bytes)},
		})
	}
	return reads
}

// Hold reports whether the words hold what they did, according to the reads of AppendReads.
func (w *Words) Hold(reads []access.MemoryRead) bool {
	var hash maphash.Hash
	hash.SetSeed(w.seed)
	for i := range reads {
		if reads[i].Err != nil {
			return false
		}
		_, _ = hash.Write(reads[i].Buf)
	}
	return hash.Sum64() == w.sum
}
