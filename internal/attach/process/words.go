package process

import (
	"encoding/binary"
	"hash/maphash"

	"correlator/internal/worker/access"
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

// Words returns what to poll after the last Probe, which must have found something, or that there is
// nothing (memread.ErrNotPublished).
func (t *Target) Words() *Words {
	w := &Words{seed: maphash.MakeSeed()}
	want := t.storageWords(w, nil)
	for i, mapping := range t.otel.mappings {
		if i < len(t.otel.headers) && t.otel.headers[i].readable { // else what is mapped changes first
			want = w.add(want, mapping.Start, t.otel.headers[i].bytes[:])
		}
	}
	if t.otel.ofThreads() {
		want = t.otel.variable.appendWords(w, want)
	}
	w.sum = maphash.Bytes(w.seed, want)
	return w
}

// Empty reports whether there is nothing to poll.
func (w *Words) Empty() bool { return len(w.ranges) == 0 }

// storageWords adds the words that belong to a process storage.
func (t *Target) storageWords(w *Words, want []byte) []byte {
	if t.publishing == nil {
		if t.trouble != nil { // the pointers are not those of an image that publishes nothing
			return want
		}
		for _, img := range t.images {
			want = w.add(want, img.pointerAddr(), make([]byte, 8)) // no pointer
		}
		return want
	}
	want = w.add(want, t.publishing.pointerAddr(), binary.NativeEndian.AppendUint64(nil, t.storageAddr))
	want = t.elastic.appendWords(w, want)
	storage := t.storage.AppendTo(nil)
	return w.add(want, t.storageAddr, storage[:min(len(storage), maxPolledBytes)])
}

// appendWords adds the words that the rule is made from, or will be when they are others.
func (v *variable) appendWords(w *Words, want []byte) []byte {
	if v.file == nil || v.tried.IsZero() || len(v.words) == 0 {
		return want
	}
	return w.add(want, v.wordsAddr(), v.words)
}

// add adds words and what they hold.
func (w *Words) add(want []byte, addr uint64, held []byte) []byte {
	w.ranges = append(w.ranges, wordRange{addr, len(held)})
	return append(want, held...)
}

// AppendReads appends the reads of the words in a process, with buffers of their own. They use those of reads behind
// the end of the slice again, if it was cut.
func (w *Words) AppendReads(reads []access.MemoryRead, pid int) []access.MemoryRead {
	for _, words := range w.ranges {
		var buf []byte
		if n := len(reads); n < cap(reads) {
			buf = reads[:n+1][n].Buf
		}
		if cap(buf) < words.bytes {
			buf = make([]byte, words.bytes)
		}
		request := memread.Request{Addr: words.addr, Buf: buf[:words.bytes]}
		reads = append(reads, access.MemoryRead{PID: pid, Request: request})
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
