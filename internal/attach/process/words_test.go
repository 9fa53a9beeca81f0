package process

import (
	"encoding/binary"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/worker/access"
	"correlator/internal/worker/access/accesstest"
	"correlator/memread"
	"correlator/procscan"
)

// Any change of what was published, and of the words that the rule is made from, is noticed, and
// nothing else is. The process is this one.
func TestWords(t *testing.T) {
	const pointerAt, pairAt, storageAt = 0, 64, 128
	memory, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	assert.NilError(t, err)
	defer unix.Munmap(memory)
	base := uint64(uintptr(unsafe.Pointer(&memory[0])))
	storage := memread.ProcessStorage{MinorVersion: 1, ServiceName: "shop", ServiceEnvironment: "test",
		SocketPath: "/run/agent.socket"}
	text := storage.AppendTo(nil)
	fill := func(pointer uint64) {
		clear(memory)
		binary.NativeEndian.PutUint64(memory[pointerAt:], pointer)
		copy(memory[pairAt:], "0123456789abcdef")
		copy(memory[storageAt:], text)
	}
	library := &elfsym.Library{StorageAddr: pointerAt}
	library.Relocation = elfsym.TLSRelocation{Kind: elfsym.TLSDESC, Addr: pairAt}
	first := &image{bias: base, library: library}
	second := &image{bias: base + 512, library: library}
	target := &Target{images: []*image{first, second}}
	client := accesstest.Open(t)
	var reads []access.MemoryRead // whose buffers are used again
	holds := func(words *Words) bool {
		reads = words.AppendReads(reads[:0], os.Getpid())
		assert.NilError(t, client.Read("0", time.Minute, reads))
		return words.Hold(reads)
	}
	check := func(what string, words *Words, at int, want bool) {
		t.Helper()
		memory[at] ^= 1
		assert.Check(t, holds(words) == want, "%s, byte %d: want %v", what, at, want)
		memory[at] ^= 1
		assert.Check(t, holds(words), "%s: changed, though it is as it was", what)
	}

	fill(0)
	candidate := target.Words()
	check("the pointer of the first library", candidate, pointerAt, false)
	check("the pointer of the second", candidate, 512+pointerAt, false)
	check("beside them", candidate, 8, true)

	fill(base + storageAt)
	target.publishing, target.storageAddr, target.storage = first, base+storageAt, storage
	target.elastic.set(&library.Variable, base)
	target.elastic.words = []byte("0123456789abcdef")
	published := target.Words()
	check("the pointer", published, pointerAt, false)
	check("the pointer of another library", published, 512+pointerAt, true)
	check("a pair that was not asked for", published, pairAt, true)
	for i := range text {
		check("the storage", published, storageAt+i, false)
	}
	check("behind the storage", published, storageAt+len(text), true)
	target.elastic.tried = time.Now()
	resolved := target.Words()
	check("the pair", resolved, pairAt, false)
	check("the end of the pair", resolved, pairAt+15, false)

	assert.NilError(t, unix.Mprotect(memory, unix.PROT_NONE))
	assert.Check(t, !holds(published), "they hold in memory that cannot be read")
}

// A slot that is not in memory counts when it is read for the first time: by then it is in memory,
// and may be written.
func TestReadPagedOut(t *testing.T) {
	testenv.NeedRoot(t)
	for _, flavor := range []demo.Flavor{demo.Glibc, demo.GlibcDynamic, demo.Musl} {
		p := demo.Start(t, demo.Options{Flavor: flavor, Manual: true, Idle: 1, PageOut: true})
		target := openDemo(t, p.PID)
		var outcomes []SampleOutcome
		for range 100 { // it takes longer than it may at times
			context := p.Begin(1)
			outcomes = outcomes[:0]
			for range 2 {
				read, err := ReadPagedOut(target, context.Thread.ThreadPointer)
				assert.NilError(t, err)
				assert.Check(t, read.Outcome != OutcomeCorrelated || read.Slot.TraceID == context.TraceID,
					"%v: trace %x, want %x", flavor, read.Slot.TraceID, context.TraceID)
				outcomes = append(outcomes, read.Outcome)
			}
			assert.Check(t, outcomes[1] == OutcomeStale, "%v: a slot in memory is %v", flavor, outcomes[1])
			if outcomes[0] == OutcomeCorrelated {
				break
			}
		}
		assert.Check(t, outcomes[0] == OutcomeCorrelated, "%v: a slot that was paged out is %v", flavor, outcomes[0])
		target.Close()
	}
}

// The child of a fork shows the original of its parent, and nobody else does.
func TestOriginal(t *testing.T) {
	testenv.NeedRoot(t)
	original := func(pid int) Original {
		t.Helper()
		target := openDemo(t, pid)
		defer target.Close()
		original, err := target.original()
		assert.NilError(t, err)
		return original
	}
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Placement: demo.Placement{FixedLayout: true}})
	mine := original(p.PID)
	assert.Check(t, mine.Storage.SocketPath == p.Socket && mine.Place != procscan.Place{}, "original %+v", mine)
	assert.Check(t, original(p.Fork(false)) == mine, "the child of a fork shows another")
	other := demo.Start(t, demo.Options{Manual: true, Idle: 1, Placement: demo.Placement{FixedLayout: true}})
	assert.Check(t, original(other.PID) != mine, "two that were executed show the same")
}
