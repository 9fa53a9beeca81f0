package memread

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func TestReadSlots(t *testing.T) {
	eachWay(t, func(t *testing.T, open func(*puppet) *Process) {
		child := newPuppet(t)
		base := child.mapPages(3)
		const slotOff, updatingOff, versionOff, acrossOff = 0x200, 0x300, 0x400, smallestPage - 9
		end := base + 3*smallestPage
		child.write(0, slotOff, demoSlot)
		child.write(0, acrossOff, demoSlot)
		child.write(0, 3*smallestPage-slotBytes, demoSlot)
		child.write(0, updatingOff, unhex("0100 00 01 01 0af76519"))
		child.write(0, versionOff, unhex("0000 01 01 01 0af76519"))

		kinds := []struct {
			name    string
			pointer uint64 // what the variable holds
			want    SlotResult
		}{
			{"a trace", base + slotOff, SlotResult{base + slotOff, demoSlotDecoded, nil}},
			{"no slot", 0, SlotResult{}},
			{"another's slot", base + slotOff, SlotResult{base + slotOff, demoSlotDecoded, nil}},
			{"slot across two pages", base + acrossOff, SlotResult{base + acrossOff, demoSlotDecoded, nil}},
			{"slot at the end of the map", end - slotBytes, SlotResult{end - slotBytes, demoSlotDecoded, nil}},
			{"slot runs out of the map", end - slotBytes + 1, SlotResult{Addr: end - slotBytes + 1, Err: ErrUnmapped}},
			{"slot nowhere", end, SlotResult{Addr: end, Err: ErrUnmapped}},
			{"slot near 2^64", math.MaxUint64, SlotResult{Addr: math.MaxUint64, Err: ErrUnmapped}},
			{"slot in the kernel", 0xffffffff81000000, SlotResult{Addr: 0xffffffff81000000, Err: ErrUnmapped}},
			{"being updated", base + updatingOff, SlotResult{Addr: base + updatingOff, Err: ErrUpdating}},
			{"version 0", base + versionOff, SlotResult{Addr: base + versionOff, Err: ErrVersion}},
			{"a trace, at last", base + slotOff, SlotResult{base + slotOff, demoSlotDecoded, nil}},
		}
		var pointers []byte
		for _, kind := range kinds {
			pointers = append(pointers, pointer(kind.pointer)...)
		}
		child.write(0, 0, pointers)

		for _, count := range []int{0, 1, len(kinds), slotChunk - 1, slotChunk, slotChunk + 1, 4*slotChunk + 7} {
			varAddrs := make([]uint64, count)
			want := make([]SlotResult, count)
			out := make([]SlotResult, count+1)
			for i := range count {
				kind := i % (len(kinds) + 2)
				switch kind {
				case len(kinds): // a thread without variable
				case len(kinds) + 1:
					varAddrs[i], want[i].Err = end-7, ErrUnmapped
				default:
					varAddrs[i], want[i] = base+uint64(kind*pointerBytes), kinds[kind].want
				}
				out[i] = SlotResult{Addr: 1, Slot: Slot{Valid: true}, Err: ErrTorn} // must be overwritten
			}
			untouched := SlotResult{Addr: 99}
			out[count] = untouched
			assert.NilError(t, open(child).ReadSlots(varAddrs, out), "%d threads", count)
			for i := range want {
				assert.Check(t, out[i] == want[i], "%d threads: thread %d: %+v, want %+v", count, i, out[i], want[i])
			}
			assert.Check(t, out[count] == untouched, "%d threads: one more result was written", count)
		}
	})
}

// What the reads of one thread can have seen, and what they are worth.
func TestJudge(t *testing.T) {
	same := func() *slotReads {
		r := &slotReads{first: [pointerBytes]byte{1}, again: [pointerBytes]byte{1}}
		for i := range r.copies {
			copy(r.copies[i][:], demoSlot)
		}
		return r
	}
	const none = -1
	for _, c := range []struct {
		name   string
		change func(*slotReads)
		unread int // element that could not be read
		err    error
	}{
		{"nothing happened", func(*slotReads) {}, none, nil},
		{"another slot", func(r *slotReads) { r.again[0] = 2 }, none, ErrTorn},
		{"no slot any more", func(r *slotReads) { r.again = [pointerBytes]byte{} }, none, ErrTorn},
		{"slot given back to the system", func(*slotReads) {}, 4, ErrUnmapped},
		{"slot given back, another taken", func(r *slotReads) { r.again[0] = 2 }, 0, ErrTorn},
		{"variable given back to the system", func(*slotReads) {}, 2, ErrUnmapped},
		{"updating at last", func(r *slotReads) { r.copies[slotCopies-1][slotValidOff] = 0 }, none, ErrUpdating},
		{"updating at first", func(r *slotReads) { r.copies[0][slotValidOff] = 0 }, none, ErrUpdating},
		{"torn and then updating", func(r *slotReads) { r.copies[1][36]++; r.copies[2][slotValidOff] = 0 }, none,
			ErrUpdating},
		{"last byte of the first copy", func(r *slotReads) { r.copies[0][36]++ }, none, ErrTorn},
		{"last byte of a middle copy", func(r *slotReads) { r.copies[2][36]++ }, none, ErrTorn},
		{"first byte of the last copy", func(r *slotReads) { r.copies[slotCopies-1][0]++ }, none, ErrTorn},
		{"two and two", func(r *slotReads) { r.copies[2][7]++; r.copies[3][7]++ }, none, ErrTorn},
		{"all of version 0", func(r *slotReads) {
			for i := range r.copies {
				r.copies[i][slotVersionOff] = 0
			}
		}, none, ErrVersion},
	} {
		r := same()
		c.change(r)
		var process Process
		v := process.vector(slotElements)
		if c.unread != none {
			v.remote[c.unread].Len = 1
		}
		got, err := r.judge(v)
		want := demoSlotDecoded
		if c.err != nil {
			want = Slot{}
		}
		assert.Check(t, got == want && err == c.err, "%s: %+v, %v; want %v", c.name, got, err, c.err)
	}
}

func TestAcrossPages(t *testing.T) {
	for off, want := range map[uint64]bool{
		0: false, smallestPage - slotBytes: false, smallestPage - slotBytes + 1: true,
		smallestPage - 1: true, smallestPage: false, 7*smallestPage - 1: true,
	} {
		assert.Check(t, acrossPages(0x7f0000000000+off) == want, "at %d: not %v", off, want)
	}
}

// confirm accepts exactly the slot that is there, wherever the page ends in it.
func TestConfirm(t *testing.T) {
	eachWay(t, func(t *testing.T, open func(*puppet) *Process) {
		child := newPuppet(t)
		base := child.mapPages(2)
		process := open(child)
		expect := func(off int, want [slotBytes]byte, held bool) {
			t.Helper()
			got, err := process.confirm(base+uint64(off), &want)
			assert.Check(t, err == nil && got == held, "at %d: %v, %v, want %v", off, got, err, held)
		}
		for head := 1; head < slotBytes; head++ {
			off := smallestPage - head
			child.write(0, off, demoSlot)
			want := [slotBytes]byte(demoSlot)
			expect(off, want, true)
			for i := range want {
				other := want
				other[i]++
				expect(off, other, false)
			}
		}
		expect(2*smallestPage-20, [slotBytes]byte{}, false) // the tail is not mapped
		child.kill()
		_, err := process.confirm(base+smallestPage-1, new([slotBytes]byte))
		assert.Check(t, errors.Is(err, ErrGone), err)
	})
}

// No even alternation between two contexts shows one to all heads and the other to all tails.
func TestSplitOrder(t *testing.T) {
	const periods, phases, shares, wantMisses = 720, 60, 30, 6
	least := len(splitOrder)
	for period := range periods {
		for phase := range phases {
			for share := range shares + 1 {
				misses := 0
				at := float64(phase) / phases
				for i := range len(splitOrder) {
					first := at < float64(share)/shares
					if first != (splitOrder[i] == 'H') {
						misses++
					}
					if at += float64(period) / periods; at >= 1 {
						at--
					}
				}
				least = min(least, misses)
			}
		}
	}
	assert.Check(t, least >= wantMisses, "an alternation shows the wrong context to %d reads only", least)
}

func TestProves(t *testing.T) {
	decoded := func(ids [contextBytes]byte) Slot {
		var b [slotBytes]byte
		copy(b[:], encodeSlot(Slot{MinorVersion: 1, Valid: true, TracePresent: true}))
		copy(b[slotTraceIDOff:], ids[:])
		s, err := decodeSlot(&b)
		assert.NilError(t, err)
		return s
	}
	for n := range uint64(1000) {
		whole, next := rewriteContext(n), rewriteContext(n+1)
		assert.Assert(t, proves(decoded(whole)), "context %d does not prove itself", n)
		for cut := 1; cut < contextBytes; cut++ {
			mix := whole
			copy(mix[cut:], next[cut:])
			assert.Assert(t, !proves(decoded(mix)), "contexts %d and %d, cut at %d, pass for one", n, n+1, cut)
		}
	}
}

// Slots that are rewritten without pause, with contexts that never come back, with two in turn, and
// with the variable changing between two slots: whatever is accepted is whole. The log has what
// fewer copies would have accepted; see slotCopies.
func TestSlotRewrittenWithoutPause(t *testing.T) { testSlotRewrittenWithoutPause(t, 8_000, 2_000) }

// testSlotRewrittenWithoutPause reads so often a slot across two pages, of which most copies are torn, and
// each one within a page, of which few are.
func testSlotRewrittenWithoutPause(t *testing.T, acrossPages, withinPage int) {
	places := []struct {
		name  string
		off   int
		reads int
		torn  bool // many copies are
	}{
		{"one cache line", 0, withinPage, false},
		{"two cache lines, transaction cut", 29, withinPage, false},
		{"two cache lines, aligned", 32, withinPage, false},
		{"two pages", smallestPage - 24, acrossPages, true},
	}
	test := func(t *testing.T, open func(*puppet) *Process, mode string, off, reads int, torn bool) {
		child := newPuppet(t)
		defer child.kill()
		base := child.mapPages(rewritePages)
		r := rewriteReader{t: t, process: open(child), base: base, outcomes: map[error]int{}}
		child.must("rewrite 0 %d %s", off, mode)
		testenv.Poll(t, time.Minute, "the first rewrites", func() bool { return r.rewrites() > 0 })
		begun := r.rewrites()
		if mode == "swap" || r.process.mem != nil {
			reads /= 5 // the accidents are the same
		}
		for range reads {
			r.read()
		}
		for _, outcome := range []error{nil, ErrTorn} {
			if outcome != nil && !torn {
				break
			}
			testenv.Poll(t, time.Minute, fmt.Sprintf("outcome %v", outcome), func() bool {
				r.read()
				return r.outcomes[outcome] > 0
			})
		}
		t.Logf("%d whole, %d torn, %d updating; rewritten %d times; mixes after 1, 2, ... copies: %v",
			r.outcomes[nil], r.outcomes[ErrTorn], r.outcomes[ErrUpdating], r.rewrites()-begun, r.mixes)
	}
	for _, mode := range []string{"new", "alternate", "swap"} {
		for _, place := range places {
			t.Run(mode+", "+place.name, func(t *testing.T) {
				eachWay(t, func(t *testing.T, open func(*puppet) *Process) {
					test(t, open, mode, place.off, place.reads, place.torn)
				})
			})
		}
	}
}

// rewriteReader reads one slot that is rewritten without pause.
type rewriteReader struct {
	t        *testing.T
	process  *Process
	base     uint64
	outcomes map[error]int
	mixes    [slotCopies]int // how often the first 1, 2, ... copies were the same mix
}

func (r *rewriteReader) rewrites() uint64 {
	var b [8]byte
	_, err := r.process.Read(r.base+rewriteCounter, b[:])
	assert.NilError(r.t, err)
	return binary.NativeEndian.Uint64(b[:])
}

func (r *rewriteReader) read() {
	var out [1]SlotResult
	assert.NilError(r.t, r.process.ReadSlots([]uint64{r.base + rewriteVariable}, out[:]))
	result := out[0]
	switch result.Err {
	case nil:
		assert.Assert(r.t, proves(result.Slot), "mixed: %+v", result)
	case ErrTorn, ErrUpdating:
	default:
		r.t.Fatal(result.Err)
	}
	r.outcomes[result.Err]++

	copies := &r.process.slots[0].copies
	first, err := decodeSlot(&copies[0])
	if err != nil || !first.Valid || proves(first) {
		return
	}
	for i := 0; i < slotCopies && copies[i] == copies[0]; i++ {
		r.mixes[i]++
	}
}

// A whole process that goes while the slots of many threads are read leaves no result without an
// error.
func TestReadSlotsOfManyThreadsGone(t *testing.T) {
	child := newPuppet(t)
	base := child.mapPages(1)
	process := child.open()
	child.kill()
	varAddrs, out := make([]uint64, 3*slotChunk), make([]SlotResult, 3*slotChunk)
	for i := range varAddrs {
		varAddrs[i] = base
	}
	err := process.ReadSlots(varAddrs, out)
	assert.Check(t, errors.Is(err, ErrGone), err)
	for i, result := range out {
		assert.Assert(t, result == SlotResult{Err: ErrGone}, "thread %d: %+v", i, result)
	}
}
