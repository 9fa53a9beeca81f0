package unwind

import (
	"os"
	"strings"
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"

	"correlator/memread"
)

// The frames of a place are kept while what was read for them is the same, those without a name not at all,
// and no more than there is room for.
func TestPlaces(t *testing.T) {
	p := newPlaces()
	same, checks := true, 0
	areUnchanged := func([]reading) bool {
		checks++
		return same
	}
	at := func(n uint64) place { return place{target: 1, word: [3]uint64{n}} }
	want := func(when string, n uint64, function string) {
		t.Helper()
		got := ""
		if frames, _ := p.get(at(n), areUnchanged); frames != nil {
			got = frames[0].Function
		}
		assert.Check(t, got == function, "%s: place %d has %q, want %q", when, n, got, function)
	}
	p.begin()
	p.add(at(1), []Frame{{Function: "compiled"}}, Span{}, nil)
	p.add(at(2), []Frame{{Function: "interpreted"}}, Span{}, []reading{{size: 1}})
	p.add(at(3), []Frame{{Function: "known"}, {}}, Span{}, nil)
	want("at once", 1, "compiled")
	want("at once", 2, "interpreted")
	want("without a name", 3, "")
	assert.Check(t, checks == 0, "%d checks in the request that has read it", checks)
	p.begin()
	want("unchanged", 2, "interpreted")
	want("unchanged", 2, "interpreted")
	assert.Check(t, checks == 1, "%d checks in one request", checks)
	p.begin()
	same = false
	want("changed", 2, "")
	want("changed", 1, "compiled")
	p.add(at(2), []Frame{{Function: "another"}}, Span{}, []reading{{size: 1}})
	want("read again", 2, "another")

	before := p.bytes
	for range 1000 {
		p.add(at(2), []Frame{{Function: "another"}}, Span{}, []reading{{size: 1}})
	}
	assert.Check(t, p.bytes == before, "%d bytes for what took %d", p.bytes, before)
	p.begin()
	long, added := strings.Repeat("x", maxNameBytes), uint64(0)
	for n := uint64(10); p.older == nil || p.older[at(1)] != nil; n++ { // until all of the first was forgotten
		want("while it is wanted", 1, "compiled")
		assert.Assert(t, n != 100_000, "there is no bound")
		p.add(at(n), []Frame{{Function: long}}, Span{}, nil)
		assert.Assert(t, p.bytes <= maxKeptBytes, "%d bytes are kept", p.bytes)
		if added++; added > 3*maxKeptBytes/maxNameBytes {
			break
		}
	}
	want("after others", 1, "compiled")
	want("after others", 10, "")
}

// Readings are compared with what is there, all of it.
func TestAreUnchanged(t *testing.T) {
	memory := memread.Open("/proc", os.Getpid())
	defer memory.Close()
	there := make([]byte, 1<<20)[:100] // on the heap, which does not move
	at := int64(uintptr(unsafe.Pointer(unsafe.SliceData(there))))
	p := newPages()
	read := []reading{p.newReading(there[:10], at), p.newReading(there[50:], at+50)}
	assert.Check(t, p.areUnchanged(read, 60, memory), "the same is taken for something else")
	there[99]++
	assert.Check(t, !p.areUnchanged(read, 60, memory), "the last byte is not compared")
	assert.Check(t, !p.areUnchanged([]reading{p.newReading(there[:1], 1)}, 1, memory),
		"what is not there is taken for the same")
}
