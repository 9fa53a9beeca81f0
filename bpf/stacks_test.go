package bpf

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// An evicted stack is available until the second Drain afterwards that yielded counts, and has the
// same key when it is sampled again.
func TestEviction(t *testing.T) {
	for _, kernel := range []bool{false, true} {
		begun := Now()
		s := openSampler(t, SamplerOptions{KernelStacks: kernel, MaxStacks: 1024})
		p := demo.Start(t, demo.Options{Busy: 1, Gap: -1, Transaction: time.Millisecond})
		addDemo(t, s, p)
		waitForOutcome(t, s, Correlated)
		known := make(map[StackKey]Stack)
		drain := func() {
			for _, c := range drainAll(t, s) {
				known[c.Stack] = stack(t, s, c.Stack)
			}
		}
		drain()
		// a fixed age may exceed the uptime
		assert.NilError(t, s.stacks.evictUnused(begun))
		assert.Check(t, s.stacks.deleted == 0, "%d stacks evicted that are in use", s.stacks.deleted)
		testenv.Poll(t, waiting, "a stack to be sampled again", func() bool {
			before := maps.Clone(known)
			assert.NilError(t, s.stacks.evictUnused(1<<63))
			for key, want := range before {
				got, err := s.Stack(key)
				if err != nil && !errors.Is(err, errNoStack) || err == nil && !slices.Equal(got.User, want.User) {
					t.Errorf("stack %+v is %+v, %v, and was %+v", key, got, err, want)
				}
			}
			waitForOutcome(t, s, Correlated)
			again := false
			for _, c := range drainAll(t, s) {
				got := stack(t, s, c.Stack)
				if want, ok := before[c.Stack]; ok {
					again = true
					assert.Check(t, slices.Equal(got.User, want.User) && slices.Equal(got.Kernel, want.Kernel),
						"stack %+v, and before %+v", got, want)
				}
				known[c.Stack] = got
			}
			return again
		})
		waitForOutcome(t, s, Correlated)
		stop(t, s)
		assert.NilError(t, s.stacks.evictUnused(1<<63))
		var last Count
		for _, c := range drainAll(t, s) { // counted before the eviction
			stack(t, s, c.Stack)
			last = c
		}
		drainAll(t, s)
		stack(t, s, last.Stack)
		s.drain.kept = 0 // as if something had been counted since
		drainAll(t, s)
		_, err := s.Stack(last.Stack)
		assert.Check(t, errors.Is(err, errNoStack), "after two drains: %v", err)
		total, err := s.readCounters()
		assert.NilError(t, err)
		assert.Check(t, total.StacksStored != 0 && total.StacksStored == s.stacks.deleted,
			"%d stacks stored, %d evicted", total.StacksStored, s.stacks.deleted)
	}
}

// The program may count a stack that it found just before the eviction, and an error may delay
// counts to the next Drain. The stack of every count that Drain yields is available until the next
// call.
func TestStackOfLateCount(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	addDemo(t, s, p)
	waitForOutcome(t, s, Correlated)
	stop(t, s)
	counted := drainAll(t, s)
	assert.Assert(t, len(counted) != 0, "nothing was counted")
	key := counted[0].Stack
	assert.NilError(t, s.stacks.evictUnused(1<<63))
	count := func(table *ebpf.Map) {
		t.Helper()
		key := samplerCountKey{Stack: samplerStackKey{Hash: key.hash, Target: uint32(key.Target)}}
		assert.NilError(t, table.Put(&key, &samplerCount{Samples: 1}))
	}
	verify := func(want int) {
		t.Helper()
		counts := drainAll(t, s)
		assert.Check(t, len(counts) == want, "%d counts, not %d", len(counts), want)
		for _, c := range counts {
			stack(t, s, c.Stack)
		}
	}
	count(s.drain.tables[s.drain.active]) // which the counters do not include yet
	verify(0)
	s.drain.kept-- // now they include it
	verify(1)

	count(s.drain.tables[s.drain.active^1]) // left over from a Drain that ended with an error
	s.drain.unfinished = true
	s.drain.kept--
	verify(1)
	s.drain.kept--
	verify(0)
	_, err := s.Stack(key)
	assert.Check(t, errors.Is(err, errNoStack), "kept forever: %v", err)
}

// Under load with far more stacks than the table holds, every count has its stack.
func TestEvictionUnderLoad(t *testing.T) {
	s := openSampler(t, SamplerOptions{SamplesPerSecond: 5000, KernelStacks: true, MaxStacks: 64})
	p := demo.Start(t, demo.Options{Busy: 2, Gap: -1, Transaction: time.Millisecond})
	addDemo(t, s, p)
	done := make(chan struct{})
	go func() { // deferred samples do not matter here
		defer close(done)
		for reader := s.Deferred(); ; {
			if _, err := reader.Read(); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { <-done })
	t.Cleanup(func() { s.deferred.Close() })
	testenv.Poll(t, waiting, "stacks to be evicted", func() bool {
		for _, c := range drainAll(t, s) {
			stack(t, s, c.Stack)
		}
		assert.NilError(t, s.stacks.evictUnused(Now()-uint64(time.Millisecond)))
		return s.stacks.deleted > 500
	})
}

// Eviction starts when the table is more than half full, at most once a second, and deletes what was not used for
// some time. That time follows how many stacks it frees.
func TestEvictionPolicy(t *testing.T) {
	s := openSampler(t, SamplerOptions{MaxStacks: 80})
	s.draining.Lock() // what is stored and when to evict is the test's
	defer s.draining.Unlock()
	table, stored := s.stacks, uint64(0)
	store := func(n int, lastUsed uint64) {
		t.Helper()
		value := make([]byte, table.stacks.ValueSize())
		binary.NativeEndian.PutUint64(value, lastUsed)
		for range n {
			stored++
			assert.NilError(t, table.stacks.Put(samplerStackKey{Hash: [2]uint64{2 * stored}}, value))
		}
	}
	const idle = time.Second
	for i, step := range []struct {
		unused, used int           // stacks that are stored before
		idle         time.Duration // of the table, before
		evicted      uint64
		then         time.Duration // the table's
	}{
		{40, 0, idle, 0, idle}, // not more than half
		{1, 0, idle, 41, 2 * idle},
		{41, 0, stackIdle - 1, 41, stackIdle},
		{31, 10, idle, 31, 2 * idle},
		{0, 30, idle, 0, idle}, // half
		{30, 0, idle, 30, idle},
		{10, 0, idle, 10, idle},
		{9, 0, idle, 9, idle / 2},
		{0, 1, minStackIdle + 1, 0, minStackIdle},
	} {
		store(step.unused, 0)
		store(step.used, math.MaxUint64)
		table.idle, table.last = step.idle, 0
		former := table.deleted
		assert.NilError(t, table.evict(stored))
		assert.Check(t, table.deleted-former == step.evicted && table.idle == step.then,
			"step %d: %d evicted, then idle for %v", i, table.deleted-former, table.idle)
	}
	for inTime := false; !inTime; { // unless the machine stood still meanwhile
		table.last = Now()
		last := table.last
		assert.NilError(t, table.evict(stored))
		if inTime = Now()-last < uint64(evictionPause); inTime {
			assert.Check(t, table.last == last, "it was scanned again at once")
		}
	}
}

// By hand from the tables in sampler.bpf.c and stack.h, on a little-endian machine.
const (
	stackHex = "0100000000000000" + "0100" + "0200" + "00000000" +
		"00000000000000ff" + "3412000000000000" + "7856000000000000"
	unwoundHex = "0100000000000000" + "0100" + "0200" + "e9030000" +
		"00000000000000ff" + "3412000000000000" + "7856000000000000"
)

var (
	walkedStack  = Stack{Kernel: []uint64{0xff << 56}, User: []uint64{0x1234, 0x5678}}
	unwoundStack = Stack{Kernel: []uint64{0xff << 56}, Words: []uint64{0x1234, 0x5678}, Error: 1001}
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(text)
	assert.NilError(t, err)
	return raw
}

func TestDecodeStack(t *testing.T) {
	for _, test := range []struct {
		raw     []byte
		unwound bool
		want    Stack
	}{{unhex(t, stackHex), false, walkedStack}, {unhex(t, unwoundHex), true, unwoundStack}} {
		stack, err := decodeStack(test.raw, test.unwound)
		assert.Check(t, err == nil && lastUsed(test.raw) == 1 && reflect.DeepEqual(stack, test.want),
			"%d, %+v, %v", lastUsed(test.raw), stack, err)
		for n := range test.raw {
			stack, err := decodeStack(test.raw[:n], test.unwound)
			assert.Check(t, err != nil, "%d bytes of %d: %+v", n, len(test.raw), stack)
		}
	}
}

func TestDecodeDeferred(t *testing.T) {
	for _, test := range []struct {
		hash, stack string
		kind, size  string // hash and size of attributes
		attributes  string
		want        StackKey
		frames      Stack
	}{
		{"0400000000000000", stackHex, "0000000000000000", "00000000", "",
			StackKey{Target: 7, hash: [2]uint64{4, 6}}, walkedStack},
		{"0500000000000000", unwoundHex, "0000000000000000", "00000000", "",
			StackKey{Target: 7, hash: [2]uint64{5, 6}}, unwoundStack},
		{"0400000000000000", stackHex, "0100000000000000", "00000000", "",
			StackKey{Target: 7, hash: [2]uint64{4, 6}}, walkedStack},
		{"0400000000000000", stackHex, "0600000000000000", "06000000", "0202abcd0100",
			StackKey{Target: 7, hash: [2]uint64{4, 6}}, walkedStack},
		{"0400000000000000", stackHex, "0700000000000000", "06000000", "0202abcd0100", // of labels
			StackKey{Target: 7, hash: [2]uint64{4, 6}}, walkedStack},
	} {
		raw := unhex(t, "0200000000000000"+"0300000000000000"+"04000000"+"0e000000"+
			test.hash+"0600000000000000"+"07000000"+"04000000"+
			"000102030405060708090a0b0c0d0e0f"+"1011121314151617"+"18191a1b1c1d1e1f"+test.kind+
			"01000000"+"09000000"+test.size+"00000000"+hex.EncodeToString([]byte("a name of 16 byt"))+test.stack+
			test.attributes)
		d, err := decodeDeferred(raw)
		want := deferredSample{Outcome: TableFull, PID: 9, TID: 4, ThreadPointer: 3, Time: 2, Count: Count{
			Stack: test.want, TID: 4, Thread: "a name of 16 byt", First: 2, Last: 2, Samples: 1, TraceFlags: 1,
			OTel: test.kind[1] != '0', OfLabels: test.kind[1] == '7',
			Attributes: slices.Concat(unhex(t, test.attributes)),
		}, Frames: test.frames}
		copy(want.Count.TraceID[:], raw[48:])
		copy(want.Count.TransactionID[:], raw[64:])
		copy(want.Count.SpanID[:], raw[72:])
		assert.Check(t, err == nil && reflect.DeepEqual(d, want), "%+v, %v", d, err)
		for n := range len(raw) {
			d, err := decodeDeferred(raw[:n])
			assert.Check(t, err != nil, "%d bytes of %d: %+v", n, len(raw), d)
		}
	}
}
