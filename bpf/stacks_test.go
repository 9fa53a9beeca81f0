package bpf

import (
	"encoding/hex"
	"errors"
	"maps"
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

// Eviction starts when the table is half full, with the stacks unused for the longest time.
func TestEvictionPolicy(t *testing.T) {
	s := openSampler(t, SamplerOptions{MaxStacks: 100})
	drainAll(t, s)
	assert.Check(t, s.stacks.idle == stackIdle, "Drain did not check whether to evict")
	for _, step := range []struct {
		stored uint64
		later  time.Duration
		idle   time.Duration // afterwards
	}{
		{50, 0, stackIdle},
		{51, 0, stackIdle / 2},
		{51, 0, stackIdle / 2}, // too soon
		{100, evictionPause, stackIdle / 4},
		{100, evictionPause, stackIdle / 8},
		{50, 0, stackIdle},
	} {
		s.stacks.last -= min(s.stacks.last, uint64(step.later))
		assert.NilError(t, s.stacks.evict(step.stored))
		assert.Check(t, s.stacks.idle == step.idle, "%+v: idle for %v", step, s.stacks.idle)
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
