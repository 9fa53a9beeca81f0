package tlsdesc

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/memread"
)

// The rules under test, as Resolve makes them (TestResolve).
var (
	x86Glibc = Rule{Kind: Dynamic, Libc: Glibc, Offset: tlsOffset, Module: 2, Generation: 7,
		DTVOffset: 8, DTVStride: 16, DTVCapacityOffset: -16}
	x86GlibcDTPMod = Rule{Kind: DTPMod, Libc: Glibc, Offset: tlsOffset, Module: 2,
		DTVOffset: 8, DTVStride: 16, DTVCapacityOffset: -16}
	x86Musl  = Rule{Kind: Dynamic, Libc: Musl, Offset: tlsOffset, Module: 2, DTVOffset: 8, DTVStride: 8}
	armGlibc = Rule{Kind: Dynamic, Libc: Glibc, Offset: tlsOffset, Module: 2, Generation: 7,
		DTVOffset: 0, DTVStride: 16, DTVCapacityOffset: -16}
	armMusl = Rule{Kind: Dynamic, Libc: Musl, Offset: tlsOffset, Module: 2, DTVOffset: -8, DTVStride: 8}
)

const (
	tp    = 0x7f20_0000_06c0
	dtv   = 0x5600_0000_2010
	block = 0x7f21_0000_0b70
)

// What a thread's memory holds on each platform. 0x77 is what must not matter.
func x86Thread(dtv uint64) *image      { return new(image).words(tp, tp, dtv, 0x77) }
func armGlibcThread(dtv uint64) *image { return new(image).words(tp-16, 0x77, 0x77, dtv, 0x77) }
func armMuslThread(dtv uint64) *image  { return new(image).words(tp-16, 0x77, dtv, 0x77, 0x77) }
func (m *image) glibcDTV(capacity, generation uint64, entries ...uint64) *image {
	words := []uint64{capacity, 0x77, generation, 0x77}
	for _, val := range entries {
		words = append(words, val, 0x77) // {val, to_free}
	}
	return m.words(dtv-16, words...)
}
func (m *image) muslDTV(count uint64, entries ...uint64) *image {
	return m.words(dtv-8, append([]uint64{0x77, count}, entries...)...)
}

func TestVariableAddr(t *testing.T) {
	const none = unallocated
	for _, test := range []struct {
		name string
		rule Rule
		mem  *image
		want uint64
	}{
		{"x86-64 glibc", x86Glibc, x86Thread(dtv).glibcDTV(15, 7, tp-0x10, block, 0), block + tlsOffset},
		{"x86-64 glibc, generation of a later library", x86Glibc, x86Thread(dtv).glibcDTV(15, 8, tp-0x10, block),
			block + tlsOffset},
		{"x86-64 glibc, last entry that the DTV has room for", x86Glibc, x86Thread(dtv).glibcDTV(2, 7, tp-0x10, block),
			block + tlsOffset},
		{"x86-64 glibc, not touched", x86Glibc, x86Thread(dtv).glibcDTV(15, 7, tp-0x10, none), 0},
		{"x86-64 glibc, thread older than the library", x86Glibc, x86Thread(dtv).glibcDTV(15, 1, tp-0x10, 0), 0},
		{"x86-64 glibc, block of an unloaded library with the id", x86Glibc,
			x86Thread(dtv).glibcDTV(15, 6, tp-0x10, block), 0},
		{"x86-64 glibc, short DTV, nothing after it", x86Glibc, x86Thread(dtv).glibcDTV(1, 7, tp-0x10), 0},
		{"x86-64 glibc, short DTV, something after it", x86Glibc, x86Thread(dtv).glibcDTV(1, 7, tp-0x10, block), 0},
		{"x86-64 glibc, no DTV", x86Glibc, x86Thread(0), 0},
		{"x86-64 glibc DTPMOD64", x86GlibcDTPMod, x86Thread(dtv).glibcDTV(15, 2, tp-0x10, block), block + tlsOffset},
		{"x86-64 glibc DTPMOD64, not touched", x86GlibcDTPMod, x86Thread(dtv).glibcDTV(15, 2, tp-0x10, none), 0},
		{"x86-64 glibc DTPMOD64, thread older than the library", x86GlibcDTPMod,
			x86Thread(dtv).glibcDTV(15, 0, tp-0x10, 0), 0},
		{"x86-64 glibc DTPMOD64, short DTV", x86GlibcDTPMod, x86Thread(dtv).glibcDTV(1, 0, tp-0x10), 0},
		{"x86-64 musl", x86Musl, x86Thread(dtv).muslDTV(2, 0x77, block), block + tlsOffset},
		{"x86-64 musl, short DTV, nothing after it", x86Musl, x86Thread(dtv).muslDTV(1, 0x77), 0},
		{"x86-64 musl, short DTV, something after it", x86Musl, x86Thread(dtv).muslDTV(1, 0x77, block), 0},
		{"x86-64 musl, no block", x86Musl, x86Thread(dtv).muslDTV(2, 0x77, 0), 0},
		{"aarch64 glibc", armGlibc, armGlibcThread(dtv).glibcDTV(15, 7, tp+0x10, block), block + tlsOffset},
		{"aarch64 glibc, not touched", armGlibc, armGlibcThread(dtv).glibcDTV(15, 7, tp+0x10, none), 0},
		{"aarch64 glibc, thread older than the library", armGlibc, armGlibcThread(dtv).glibcDTV(15, 1, tp+0x10, 0), 0},
		{"aarch64 glibc, short DTV", armGlibc, armGlibcThread(dtv).glibcDTV(1, 7, tp+0x10), 0},
		{"aarch64 musl", armMusl, armMuslThread(dtv).muslDTV(2, 0x77, block), block + tlsOffset},
		{"aarch64 musl, short DTV", armMusl, armMuslThread(dtv).muslDTV(1, 0x77), 0},
		{"x86-64 static", Rule{Kind: Static, Offset: -0x98}, new(image), tp - 0x98},
		{"aarch64 static", Rule{Kind: Static, Offset: 0xb8}, new(image), tp + 0xb8},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.rule.VariableAddr(test.mem, tp)
			assert.NilError(t, err)
			assert.Check(t, got == test.want, "%#x, not %#x", got, test.want)
		})
	}
}

// The generation is read before the entry, as a thread writes them the other way round: one that
// brings its DTV up to date in between must not make the entry of an unloaded library look like a
// current one.
func TestGenerationIsReadFirst(t *testing.T) {
	m := x86Thread(dtv).glibcDTV(15, 6, tp-0x10, block).
		changing(3, func(m *image) { m.glibcDTV(15, 7, tp-0x10, unallocated) })
	got, err := x86Glibc.VariableAddr(m, tp)
	assert.Check(t, got == 0 && err == nil, "%#x, %v", got, err)
}

// In each image something of the thread is wrong.
func TestVariableAddrRefuses(t *testing.T) {
	const end = ^uint64(0)
	far := x86Glibc // an entry far from the DTV
	far.Module = maxModule

	for _, test := range []struct {
		name string
		rule Rule
		tp   uint64
		mem  *image
		want error
		text string
	}{
		{"thread pointer not mapped", x86Glibc, tp, new(image), memread.ErrUnmapped, "pointer to DTV"},
		{"DTV not mapped", x86Glibc, tp, x86Thread(dtv), memread.ErrUnmapped, "DTV header"},
		{"generation not mapped", x86Glibc, tp, x86Thread(dtv).words(dtv-16, 15, 0), memread.ErrUnmapped, "DTV header"},
		{"capacity lies", far, tp, x86Thread(dtv).glibcDTV(end, 7, tp-0x10, block), memread.ErrUnmapped, "DTV entry"},
		{"count lies", x86Musl, tp, x86Thread(dtv).muslDTV(end, 0x77), memread.ErrUnmapped, "DTV entry"},
		{"DTV begins before the address space", x86Glibc, tp, x86Thread(15), ErrMalformed, "DTV header"},
		{"entry after the address space", far, tp, x86Thread(end-63).words(end-79, maxModule, 0, 7), ErrMalformed,
			"DTV entry"},
		{"block ends after the address space", x86Glibc, tp, x86Thread(dtv).glibcDTV(15, 7, tp, end-1), ErrMalformed,
			""},
		{"thread pointer at the end", x86Glibc, end - 7, new(image), ErrMalformed, "pointer to DTV"},
		{"thread pointer at the beginning", armMusl, 7, new(image), ErrMalformed, "pointer to DTV"},
		{"static before the address space", Rule{Kind: Static, Offset: -0x98}, 0x97, new(image), ErrMalformed, ""},
		{"static after the address space", Rule{Kind: Static, Offset: 0x98}, end - 0x97, new(image), ErrMalformed, ""},
		{"DTV replaced", x86Glibc, tp, x86Thread(dtv).glibcDTV(15, 7, tp-0x10, block).
			changing(4, func(m *image) { m.words(tp+8, 0x5600_0000_9010) }), ErrChanged, ""},
		{"DTV replaced, with the old one's memory reused", x86Glibc, tp, x86Thread(dtv).glibcDTV(15, 7, tp-0x10, block).
			changing(3, func(m *image) { m.words(tp+8, 0x5600_0000_9010).words(dtv+2*16, unallocated) }),
			ErrChanged, ""},
		{"short DTV replaced", x86Glibc, tp, x86Thread(dtv).glibcDTV(1, 7, tp-0x10).
			changing(3, func(m *image) { m.words(tp+8, 0x5600_0000_9010) }), ErrChanged, ""},
		{"nothing mapped at address 0", armMusl, 8, new(image), memread.ErrUnmapped, "pointer to DTV at 0x0"},
		{"thread ended meanwhile", x86Glibc, tp, x86Thread(dtv).glibcDTV(15, 7, tp-0x10, block).
			changing(4, func(m *image) { m.areas = nil }), memread.ErrUnmapped, "pointer to DTV"},
		{"process gone", x86Glibc, tp, &image{gone: true}, memread.ErrGone, ""},
		{"no rule", Rule{}, tp, new(image), ErrUnresolved, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.rule.VariableAddr(test.mem, test.tp)
			assert.Check(t, got == 0 && errors.Is(err, test.want) && strings.Contains(err.Error(), test.text),
				"%#x, error %v, not %v (%q)", got, err, test.want, test.text)
		})
	}
}

// manyThreads is a process with threads in every state, and the expected results.
func manyThreads(n int) (m *image, threadPointers, want []uint64, wantErrs []error) {
	m = new(image)
	for i := range uint64(n) {
		tp, dtv, block := tp+i<<20, dtv+i<<12, block+i<<20
		found, err := uint64(0), error(nil)
		header := []uint64{15, 0, 7, 0, 0, 0}
		switch i % 6 {
		case 0:
			m.words(tp, tp, dtv).words(dtv-16, append(header, block)...)
			found = block + tlsOffset
		case 1:
			m.words(tp, tp, dtv).words(dtv-16, append(header, unallocated)...)
		case 2: // stale and short
			m.words(tp, tp, dtv).words(dtv-16, 1, 0, 6, 0)
		case 3:
			m.words(tp, tp, dtv)
			err = memread.ErrUnmapped
		case 4:
			tp = 0
		case 5:
			m.words(tp, tp, dtv).words(dtv-16, append(header, ^uint64(0)-1)...)
			err = ErrMalformed
		}
		threadPointers, want, wantErrs = append(threadPointers, tp), append(want, found), append(wantErrs, err)
	}
	return m, threadPointers, want, wantErrs
}

// The number of reads does not depend on that of threads, and no thread affects another.
func TestVariableAddrs(t *testing.T) {
	for _, n := range []int{0, 1, 6, 1000} {
		m, threadPointers, want, wantErrs := manyThreads(n)
		out, errs := slices.Repeat([]uint64{0xbad}, n), slices.Repeat([]error{ErrUnsupported}, n)
		assert.NilError(t, x86Glibc.VariableAddrs(m, threadPointers, out, errs))
		assert.Check(t, slices.Equal(out, want), "%d threads: %#x, not %#x", n, out, want)
		for i := range errs {
			assert.Check(t, errors.Is(errs[i], wantErrs[i]), "thread %d: %v, not %v", i, errs[i], wantErrs[i])
		}
		assert.Check(t, m.batches <= 4, "%d batches for %d threads", m.batches, n)
	}
}

func TestVariableAddrsStatic(t *testing.T) {
	m := new(image)
	out, errs := []uint64{1, 1, 1}, []error{ErrChanged, ErrChanged, ErrChanged}
	err := Rule{Kind: Static, Offset: -8}.VariableAddrs(m, []uint64{tp, 4, 0}, out, errs)
	assert.Check(t, err == nil && slices.Equal(out, []uint64{tp - 8, 0, 0}), "%#x, %v", out, err)
	assert.Check(t, errs[0] == nil && errors.Is(errs[1], ErrMalformed) && errs[2] == nil, "errors %v", errs)
	assert.Check(t, m.batches == 0, "%d batches", m.batches)
}

// A process that goes away between any two batches is one error.
func TestVariableAddrsGone(t *testing.T) {
	for batch := 1; batch <= 4; batch++ {
		m, threadPointers, _, _ := manyThreads(6)
		m.changing(batch, func(m *image) { m.gone = true })
		err := x86Glibc.VariableAddrs(m, threadPointers, make([]uint64, 6), make([]error, 6))
		assert.Check(t, errors.Is(err, memread.ErrGone), "before batch %d: %v", batch, err)
	}
}

// constantMemory returns at once, so that only the code around the reads is measured. All words of
// it are the same, so that each thread has the variable.
type constantMemory struct{}

func (constantMemory) ReadBatch(requests []memread.Request) error {
	for i := range requests {
		requests[i].N, requests[i].Err = len(requests[i].Buf), nil
		for j := range requests[i].Buf {
			requests[i].Buf[j] = 0x20
		}
	}
	return nil
}

func healthyThreads(n int) (threadPointers []uint64) {
	for i := range uint64(n) {
		threadPointers = append(threadPointers, tp+i<<20)
	}
	return threadPointers
}

func TestVariableAddrsAllocatesTwice(t *testing.T) {
	const n = 1000
	threadPointers := healthyThreads(n)
	out, errs := make([]uint64, n), make([]error, n)
	allocs := testing.AllocsPerRun(10, func() {
		assert.NilError(t, x86Glibc.VariableAddrs(constantMemory{}, threadPointers, out, errs))
	})
	assert.Assert(t, out[n-1] == 0x2020202020202020+tlsOffset, "%#x, %v", out[n-1], errs[n-1])
	assert.Check(t, allocs <= 2, "%v allocations", allocs)
}
