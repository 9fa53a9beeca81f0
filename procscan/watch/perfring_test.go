package watch

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// fakeRing is a ring to which the test writes as the kernel does.
type fakeRing struct {
	*perfRing
	head uint64
	lost uint64
}

func newFakeRing(size int) *fakeRing {
	r := &fakeRing{perfRing: new(perfRing)}
	r.use(make([]byte, os.Getpagesize()+size))
	return r
}

// start makes the ring start at any position: positions only grow.
func (r *fakeRing) start(at uint64) {
	r.head = at
	r.meta.Data_head, r.meta.Data_tail = at, at
}

func (r *fakeRing) put(b []byte) {
	for _, c := range b {
		r.data[r.head%uint64(len(r.data))] = c
		r.head++
	}
}

// write adds a record if there is room, or else counts it as lost.
func (r *fakeRing) write(record []byte) {
	size := uint64(len(record))
	if r.lost > 0 {
		size += lostSize
	}
	if r.head-r.meta.Data_tail+size >= uint64(len(r.data)) {
		r.lost++
		return
	}
	if r.lost > 0 {
		b := binary.NativeEndian.AppendUint32(nil, unix.PERF_RECORD_LOST)
		b = binary.NativeEndian.AppendUint16(b, 0)
		b = binary.NativeEndian.AppendUint16(b, lostSize)
		b = binary.NativeEndian.AppendUint64(b, 1)
		r.put(binary.NativeEndian.AppendUint64(b, r.lost))
		r.lost = 0
	}
	r.put(record)
	r.meta.Data_head = r.head
}

func (r *fakeRing) drained() (events []Event) {
	r.drain(func(e Event) { events = append(events, e) })
	return events
}

// Records of all lengths are read whole and in order, at any position in the ring.
func TestRingWraps(t *testing.T) {
	r := newFakeRing(16 << 10)
	r.start(1<<64 - 1<<20 - 4096) // so that positions wrap, too
	for i := range 5000 {
		var want []Event
		for j := range i % 7 {
			path := strings.Repeat("/d", (i*131+j*17)%500) + "/elastic-jvmti-linux-x64.so"
			r.write(mmap2Record(int32(i+1), path))
			want = append(want, Event{Kind: EventLibrary, PID: i + 1})
		}
		if got := r.drained(); !slices.Equal(got, want) {
			t.Fatalf("round %d at %#x: %v, want %v", i, r.head, got, want)
		}
	}
	assert.Check(t, r.head <= 1<<63, "ended at %#x: the positions did not wrap", r.head)
}

// An overflow is reported at once, the number of lost records later, and later records are read.
func TestRingOverflow(t *testing.T) {
	r := newFakeRing(8 << 10)
	record := mmap2Record(7, "/x/elastic-jvmti-linux-x64-1.so")
	mapping := Event{Kind: EventLibrary, PID: 7}
	fit := (len(r.data) - 1) / len(record)
	for range fit + 30 {
		r.write(record)
	}
	want := append(slices.Repeat([]Event{mapping}, fit), Event{Kind: EventLost})
	got := r.drained()
	assert.Check(t, slices.Equal(got, want), "after the overflow: %v", got)
	r.write(record)
	got = r.drained()
	assert.Check(t, slices.Equal(got, []Event{{Kind: EventLost, Lost: 30}, mapping}), "the next record: %v", got)
	r.write(record)
	got = r.drained()
	assert.Check(t, slices.Equal(got, []Event{mapping}), "the record after that: %v", got)
}

// A nearly full ring may have lost a long record; a half full one has not.
func TestRingNearlyFull(t *testing.T) {
	r := newFakeRing(16 << 10)
	record := mmap2Record(7, "/x/y")
	fill := func(free int) {
		for len(r.data)-int(r.head-r.meta.Data_tail) > free {
			r.write(record)
		}
	}
	fill(len(r.data) / 2)
	assert.Check(t, !slices.ContainsFunc(r.drained(), isLost), "a half full ring reports a loss")
	fill(largestRecord)
	r.write(mmap2Record(8, strings.Repeat("/d", 2040)))
	if got := r.drained(); !slices.ContainsFunc(got, isLost) || r.lost != 1 {
		t.Errorf("a full ring that lost %d records reports no loss", r.lost)
	}
}

// A ring that is written while it is read is read up to its head at the start, so that reading
// ends. A loss meanwhile is reported by the same poll.
func TestRingWrittenMeanwhile(t *testing.T) {
	r := newFakeRing(16 << 10)
	record := mmap2Record(7, "/x/y")
	r.write(record)
	r.write(record)
	reported, lost := 0, false
	r.drain(func(e Event) {
		if lost = isLost(e); !lost {
			reported++
			r.write(record)
		}
	})
	assert.Check(t, reported == 2 && !lost, "read %d records, want 2; loss reported: %v", reported, lost)
	r.drain(func(e Event) {
		lost = isLost(e)
		for r.lost == 0 {
			r.write(record)
		}
	})
	assert.Check(t, lost, "a loss while the ring was read is not reported")
}

// A record longer than any of the kernel's is malformed, also where it would wrap.
func TestRingLongRecord(t *testing.T) {
	r := newFakeRing(16 << 10)
	for size, want := range map[uint64]int{largestRecord: largestRecord, largestRecord + 8: 0} {
		r.start(uint64(len(r.data)) - 16)
		header := binary.NativeEndian.AppendUint32(nil, unix.PERF_RECORD_MMAP2)
		r.put(binary.NativeEndian.AppendUint16(append(header, 0, 0), uint16(size)))
		begin := r.meta.Data_tail
		got := len(r.record(begin, begin+size))
		assert.Check(t, got == want, "a record with a size of %d bytes: %d, want %d", size, got, want)
	}
}

func isLost(e Event) bool { return e.Kind == EventLost }

// For any bytes and positions, reading the ring ends, and then it can be written.
func FuzzRing(f *testing.F) {
	two := append(mmap2Record(7, "/x"), mmap2Record(8, "/x/elastic-jvmti-linux-x64-1.so")...)
	f.Add(two, uint64(0), uint64(len(two)))
	f.Add(two, uint64(4096-40), uint64(len(two)))
	f.Add(two, uint64(3), uint64(7))
	f.Add(two, uint64(8), uint64(1)<<63)
	f.Fuzz(func(t *testing.T, contents []byte, tail, length uint64) {
		r := newFakeRing(4 << 10)
		r.start(tail)
		r.put(contents)
		r.head = tail + length
		r.meta.Data_head = r.head
		got := r.drained()
		assert.Check(t, len(got) <= len(r.data)/headerSize+2, "%d events", len(got))
		assert.Check(t, atomic.LoadUint64(&r.meta.Data_tail) == r.head, "the ring is not empty")
		r.start(r.head &^ 7)
		r.lost = 0
		r.write(mmap2Record(7, "/x"))
		if got := r.drained(); len(got) == 0 || got[0] != (Event{Kind: EventFile, PID: 7}) {
			t.Errorf("afterwards: %v", got)
		}
	})
}
