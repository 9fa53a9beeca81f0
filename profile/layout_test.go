package profile

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestAppendFrames(t *testing.T) {
	low, high := &File{ID: FileID{1}}, &File{ID: FileID{2}}
	l := &layout{space: bounds{0x800, 0x8000}, regions: []region{
		{start: 0x1000, end: 0x2000, bias: 0x800, file: low},
		{start: 0x2000, end: 0x3000, bias: 0x2000, file: high},
		{start: 0x5000, end: 0x6000}, // anonymous
	}}
	leaf := Frame{File: high, Address: 7}
	for _, tt := range []struct {
		name                     string
		dst                      []Frame
		stack                    []uint64
		want                     []Frame
		inFile, anonymous, other uint64
		missed                   bool
	}{
		{"nothing", nil, nil, nil, 0, 0, 0, false},
		{"leaf", nil, []uint64{0x1000}, []Frame{at(low, 0x800)}, 1, 0, 0, false},
		{"return addresses", nil, []uint64{0x1010, 0x1010, 0x2010},
			[]Frame{at(low, 0x810), at(low, 0x80f), at(high, 0xf)}, 3, 0, 0, false},
		{"below a kernel half", []Frame{leaf}, []uint64{0x1010}, []Frame{leaf, at(low, 0x80f)}, 1, 0, 0, false},
		{"call at the end of a file", []Frame{leaf}, []uint64{0x2000}, []Frame{leaf, at(low, 0x17ff)}, 1, 0, 0, false},
		{"call at the end of everything", []Frame{leaf}, []uint64{0x3000}, []Frame{leaf, at(high, 0xfff)}, 1, 0, 0,
			false},
		{"leaf at address 0 of a file", nil, []uint64{0x2000, 0x2001, 0x2002},
			[]Frame{at(nil, 0x2000), at(nil, 0x2000), at(high, 1)}, 1, 2, 0, false},
		{"anonymous", nil, []uint64{0x5000, 0x6000}, []Frame{at(nil, 0x5000), at(nil, 0x5fff)}, 0, 2, 0, false},
		{"unknown", nil, []uint64{0xfff, 0x3001, math.MaxUint64},
			[]Frame{at(nil, 0xfff), at(nil, 0x3000), at(nil, math.MaxUint64-1)}, 0, 0, 3, true},
		{"unknown, and can be no code", nil, []uint64{0x7ff, 0x8001, math.MaxUint64},
			[]Frame{at(nil, 0x7ff), at(nil, 0x8000), at(nil, math.MaxUint64-1)}, 0, 0, 3, false},
		{"unknown at the first address", nil, []uint64{0x800}, []Frame{at(nil, 0x800)}, 0, 0, 1, true},
		{"unknown at the last address", nil, []uint64{0x7fff}, []Frame{at(nil, 0x7fff)}, 0, 0, 1, true},
		{"unknown among others", nil, []uint64{0x4000, math.MaxUint64},
			[]Frame{at(nil, 0x4000), at(nil, math.MaxUint64-1)}, 0, 0, 2, true},
		{"padded", nil, []uint64{0x1000, 0x1001, 0, 0x1002}, []Frame{at(low, 0x800), at(low, 0x800)}, 2, 0, 0, false},
		{"empty and padded", []Frame{leaf}, []uint64{0, 0}, []Frame{leaf}, 0, 0, 0, false},
		{"ended by 1", nil, []uint64{0x1000, 1, 0x1001}, []Frame{at(low, 0x800)}, 1, 0, 0, false},
		{"2", nil, []uint64{0x1000, 2}, []Frame{at(low, 0x800), at(nil, 1)}, 1, 0, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l.missed.Store(false)
			var counters frameCounters
			got := l.appendFrames(tt.dst, tt.stack, &counters)
			assert.Check(t, slices.Equal(got, tt.want), "%+v, want %+v", got, tt.want)
			if counters.File.Load() != tt.inFile || counters.Anonymous.Load() != tt.anonymous ||
				counters.Unknown.Load() != tt.other {
				t.Errorf("counted %d in files, %d anonymous, %d unknown", counters.File.Load(),
					counters.Anonymous.Load(), counters.Unknown.Load())
			}
			assert.Check(t, l.missed.Load() == tt.missed, "missed %v", l.missed.Load())
		})
	}
}

// What is seen of a file is known unless it is seen in two ways.
func TestViewsOf(t *testing.T) {
	one, two, three := &File{ID: FileID{1}}, &File{ID: FileID{2}}, &File{ID: FileID{3}}
	var a AddressSpace
	a.layout.Store(&layout{views: viewsOf([]region{
		{file: one, view: View{1}}, {}, {file: two, view: View{2}}, {file: one, view: View{1}},
		{file: two, view: View{3}}, {file: two, view: View{2}}, {file: three},
	})})
	for i, want := range []View{{}, {1}, {}, {}} {
		got := a.View(FileID{byte(i)})
		assert.Check(t, got == want, "%d: %v", i, got)
	}
}

// Before the first update every address is unknown.
func TestAppendFramesWithoutLayout(t *testing.T) {
	var counters frameCounters
	got := new(layout).appendFrames(nil, []uint64{10, 10}, &counters)
	assert.Check(t, slices.Equal(got,
		[]Frame{at(nil, 10), at(nil, 9)}), "%+v", got)
	assert.Check(t, counters.Unknown.Load() == 2, "%d counted", counters.Unknown.Load())
}

func TestSameFrames(t *testing.T) {
	file := &File{ID: FileID{1}}
	a, b := region{start: 1, end: 2, file: file, bias: 1}, region{start: 5, end: 6, file: file, bias: 1}
	longer, moved, code, more := a, a, region{start: 3, end: 4}, region{start: 7, end: 8}
	longer.end++
	moved.bias++
	other := region{start: 1, end: 2, file: &File{ID: FileID{2}}, bias: 1}
	for _, tt := range []struct {
		x, y []region
		want bool
	}{
		{nil, nil, true},
		{[]region{a, b}, []region{a, b}, true},
		{[]region{a, b}, []region{a, code, b, more}, true},
		{[]region{code}, []region{more, more}, true},
		{[]region{code}, nil, true},
		{[]region{a}, nil, false},
		{[]region{a}, []region{code}, false},
		{[]region{a, b}, []region{a}, false},
		{[]region{a, code}, []region{code, b}, false},
		{[]region{a}, []region{longer}, false},
		{[]region{a}, []region{moved}, false},
		{[]region{a}, []region{other}, false},
	} {
		x, y := &layout{regions: tt.x}, &layout{regions: tt.y}
		got, back := x.sameFrames(y), y.sameFrames(x)
		assert.Check(t, got == tt.want && back == tt.want, "%+v, %+v: %v, %v", tt.x, tt.y, got, back)
	}
}

// Where programs, the vDSO and the kernel lie is within.
func TestBounds(t *testing.T) {
	user, kernel := userSpace(), kernelSpace()
	for _, tt := range []struct {
		addr         uint64
		user, kernel bool
	}{
		{0xffff, false, false},
		{0x10000, true, false},
		{0x400000, true, false},
		{1<<47 - 0x1001, true, false},
		{1<<56 - 0x1001, true, false},
		{0x6f72702f6d2f7075, false, false}, // "up/m/pro"
		{0xff11000000000000, false, true},
		{0xffff800080010000, false, true},
		{0xffffffffc0000000, false, true},
	} {
		in := func(b bounds) bool { return b.start <= tt.addr && tt.addr < b.end }
		assert.Check(t, in(user) == tt.user && in(kernel) == tt.kernel,
			"%#x: user %v, kernel %v", tt.addr, in(user), in(kernel))
	}
}

func TestPace(t *testing.T) {
	start := time.Now()
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	pace := Pace{Shortest: time.Second, Longest: 5 * time.Second}
	some, more := []region{{start: 1, end: 2}}, []region{{start: 1, end: 3}}

	l := new(layout)
	check := func(seconds float64, want bool) {
		t.Helper()
		got := l.stale(at(seconds), pace)
		assert.Check(t, got == want, "stale after %v s: %v", seconds, got)
	}
	l = l.next(some, at(0), 0, pace)
	check(4.9, false)
	check(5, true) // old
	l.missed.Store(true)
	check(0.9, false)
	check(1, true)
	for _, wait := range []float64{2, 4, 5, 5} { // nothing new: the wait grows
		l = l.next(some, at(0), 0, pace)
		check(wait-0.1, false)
		l.missed.Store(true)
		check(wait-0.1, false)
		check(wait, true)
	}
	l = l.next(some, at(10), 0, pace) // nothing new, after twice the wait: it is short again
	l.missed.Store(true)
	check(10.9, false)
	check(11, true)
	l = l.next(some, at(11.9), 0, pace) // before: it grows
	l.missed.Store(true)
	check(13.8, false)
	check(13.9, true)
	l = l.next(more, at(0), 0, pace) // something new: it is short again
	l.missed.Store(true)
	check(0.9, false)
	check(1, true)

	l = l.postponed(at(0), 0, pace) // due without another reason, and what was known stays
	check(1.9, false)
	check(2, true)
	assert.Check(t, slices.Equal(l.regions, more), "regions %+v", l.regions)
	l = new(layout).postponed(at(0), 0, pace)
	check(0.9, false)
	check(1, true)
}

// While changes are told, a layout is old much later, but for one that the next update may complete.
func TestTold(t *testing.T) {
	var told atomic.Bool
	pace := Pace{Shortest: time.Second, Longest: 5 * time.Second, Told: &told}
	now, some := time.Now(), []region{{start: 1, end: 2}}
	for _, tt := range []struct {
		what            string
		told            bool
		partial, missed bool
		want            time.Duration
	}{
		{what: "not told", want: pace.Longest},
		{what: "told", told: true, want: ToldAge},
		{what: "partial", told: true, partial: true, want: pace.Longest},
		{what: "an unknown address", told: true, missed: true, want: pace.Shortest},
	} {
		told.Store(tt.told)
		l := new(layout).next(some, now, 0, pace)
		l.partial = tt.partial
		l.missed.Store(tt.missed)
		assert.Check(t, !l.stale(now.Add(tt.want-1), pace) && l.stale(now.Add(tt.want), pace), "%s", tt.what)
	}
}

// An update that takes long is followed by a long wait, at most the longest one.
func TestCostlyUpdates(t *testing.T) {
	now := time.Now()
	pace := Pace{Shortest: time.Second, Longest: time.Minute}
	some, more := []region{{start: 1, end: 2}}, []region{{start: 1, end: 3}}
	for _, tt := range []struct {
		took, want time.Duration
	}{
		{time.Second / updateShare, time.Second},
		{2 * time.Second / updateShare, 2 * time.Second},
		{time.Hour, time.Minute},
	} {
		l := (&layout{regions: some}).next(more, now, tt.took, pace)
		assert.Check(t, l.wait == tt.want, "%v after an update of %v", l.wait, tt.took)
		l = l.postponed(now, 2*tt.took, pace)
		assert.Check(t, l.wait == min(2*tt.want, pace.Longest), "%v after a failed update of %v", l.wait, 2*tt.took)
	}
}

// FuzzFind compares the binary search over any regions with a linear one.
func FuzzFind(f *testing.F) {
	f.Add([]byte{1, 0, 5, 0, 5, 0, 9, 0, 20, 0, 10, 0}, uint16(5))
	f.Add([]byte{1, 0, 9, 0, 1, 0, 5, 0, 3, 0, 200, 0}, uint16(4))
	f.Fuzz(func(t *testing.T, b []byte, addr uint16) {
		var regions []region
		for i := uint64(0); len(b) >= 4; b = b[4:] {
			regions = append(regions, region{
				start: uint64(binary.LittleEndian.Uint16(b)), end: uint64(binary.LittleEndian.Uint16(b[2:])), offset: i,
			})
			i++
		}
		slices.SortFunc(regions, func(a, b region) int { return cmp.Compare(a.start, b.start) })
		l := &layout{regions: withoutOverlaps(regions)}
		var want *region
		for i := range l.regions {
			r := &l.regions[i]
			if r.start >= r.end || i > 0 && l.regions[i-1].end > r.start {
				t.Fatalf("regions %+v", l.regions)
			}
			if r.start <= uint64(addr) && uint64(addr) < r.end {
				want = r
			}
		}
		got := l.find(uint64(addr))
		assert.Assert(t, got == want, "%+v, want %+v", got, want)
	})
}
