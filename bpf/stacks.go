package bpf

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
)

// errNoStack reports that a stack was evicted.
var errNoStack = errors.New("no such stack")

// A StackKey identifies a stack of a target while the sampler is open: two different stacks never
// have the same, and a stack that was evicted has the same when it is sampled again.
type StackKey struct {
	Target Target
	hash   [2]uint64
}

func newStackKey(key samplerStackKey) StackKey {
	return StackKey{Target: Target(key.Target), hash: key.Hash}
}

// A Stack consists of addresses, each half leaf first. All are return addresses except the first
// one, and the first of User if there are frames of the kernel.
type Stack struct {
	Kernel []uint64 // only with KernelStacks, and when the thread was in the kernel
	User   []uint64 // at most 127, those nearest to the leaf
}

// Stack returns the stack of a count. It is available until the next Drain; after that it may be
// evicted, which is an error.
func (s *Sampler) Stack(key StackKey) (Stack, error) {
	value := make([]byte, s.stackBytes())
	s.retained.mu.Lock()
	defer s.retained.mu.Unlock()
	err := s.objects.Stacks.Lookup(&samplerStackKey{Hash: key.hash, Target: uint32(key.Target)}, value)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return s.retained.stack(key)
	}
	if err != nil {
		return Stack{}, fmt.Errorf("reading stack: %w", err)
	}
	_, stack, err := decodeStack(value)
	return stack, err
}

var errStackFrames = errors.New("more frames than addresses")

// decodeStack decodes a struct stack, whole or cut off after its last address.
func decodeStack(value []byte) (lastUsed uint64, stack Stack, err error) {
	var whole samplerStack
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&whole)), unsafe.Sizeof(whole)), value)
	kernel, user := int(whole.KernelFrames), int(whole.UserFrames)
	if room := (len(value) - int(unsafe.Offsetof(whole.Addrs))) / 8; kernel+user > min(room, len(whole.Addrs)) {
		return 0, Stack{}, fmt.Errorf("%w: %d + %d, %d", errStackFrames, kernel, user, room)
	}
	addrs := slices.Clone(whole.Addrs[:kernel+user])
	return whole.LastUsed, Stack{Kernel: addrs[:kernel:kernel], User: addrs[kernel:]}, nil
}

const (
	// stackIdle is how long an unused stack is kept at first. While the table stays more than half
	// full, that time is halved every evictionPause.
	stackIdle = 30 * time.Second

	// evictionPause is the time between two evictions: scanning the table takes some milliseconds.
	evictionPause = time.Second

	// stackBatch is how many stacks one system call reads: 64 to 128 KiB.
	stackBatch = 64
)

// evictions is the state of evict.
type evictions struct {
	deleted uint64        // stacks, since OpenSampler
	last    uint64        // when the table was last scanned, CLOCK_MONOTONIC, ns
	idle    time.Duration // how long a stack must be unused to be evicted next

	keys   [stackBatch]samplerStackKey
	values any    // a slice of values, whole or cut off
	raw    []byte // the same memory
}

// userStack is the part of a samplerStack that the table holds without KernelStacks.
type userStack [unsafe.Offsetof(samplerStack{}.Addrs) + maxFrames*8]byte

func (e *evictions) allocate(kernelStacks bool) {
	if kernelStacks {
		values := make([]samplerStack, stackBatch)
		e.values, e.raw = values, asBytes(values)
		return
	}
	values := make([]userStack, stackBatch)
	e.values, e.raw = values, asBytes(values)
}

func asBytes[T any](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(values[0])))
}

// retained are stacks that were evicted from the table. When a stack is deleted at the end of a
// Drain, samples may have been counted with it before, or may be counted just after by a program
// that had still found it. Those counts are in the table that is drained next, and their stacks are
// available until the drain after that. Later counts put the stack into the table again.
type retained struct {
	// mu is held while a stack is deleted or read: the kernel reuses the memory of a deleted one at
	// once, and a reader that had just found it would read another stack.
	mu sync.Mutex

	stacks [2]map[StackKey]Stack // evicted since the last swap, and before that
}

// age is called when no program counts any more in the table that is drained.
func (r *retained) age() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stacks[0], r.stacks[1] = nil, r.stacks[0]
}

// add is called with mu held.
func (r *retained) add(key StackKey, stack Stack) {
	if r.stacks[0] == nil {
		r.stacks[0] = make(map[StackKey]Stack)
	}
	r.stacks[0][key] = stack
}

// stack is called with mu held.
func (r *retained) stack(key StackKey) (Stack, error) {
	for _, stacks := range r.stacks {
		if stack, ok := stacks[key]; ok {
			return stack, nil
		}
	}
	return Stack{}, errNoStack
}

// evict makes room in the table of stacks when it is more than half full. stored is how many stacks
// were put into it since OpenSampler. It is called at the end of a Drain.
func (s *Sampler) evict(stored uint64) error {
	e := &s.evictions
	if stored-e.deleted <= uint64(s.options.MaxStacks)/2 {
		e.idle = stackIdle
		return nil
	}
	now := Now()
	if now-e.last < uint64(evictionPause) {
		return nil
	}
	e.last = now
	unused := now - uint64(e.idle) // wraps soon after the machine's start
	e.idle /= 2
	if unused > now {
		return nil
	}
	return s.evictUnused(unused)
}

// evictUnused deletes stacks that were last used before a time.
func (s *Sampler) evictUnused(before uint64) error {
	e := &s.evictions
	valueBytes := int(s.stackBytes())
	if e.values == nil {
		e.allocate(s.options.KernelStacks)
	}
	var cursor ebpf.MapBatchCursor
	for {
		n, err := s.objects.Stacks.BatchLookup(&cursor, e.keys[:], e.values, nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return fmt.Errorf("scanning stacks: %w", err)
		}
		for i := range n {
			if err := s.evictStack(&e.keys[i], e.raw[i*valueBytes:(i+1)*valueBytes], before); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

func (s *Sampler) evictStack(key *samplerStackKey, value []byte, before uint64) error {
	lastUsed, stack, err := decodeStack(value)
	if err != nil {
		return err
	}
	if lastUsed >= before {
		return nil
	}
	s.retained.mu.Lock()
	defer s.retained.mu.Unlock()
	s.retained.add(newStackKey(*key), stack)
	if err := s.objects.Stacks.Delete(key); err != nil {
		return fmt.Errorf("evicting stack: %w", err)
	}
	s.evictions.deleted++
	return nil
}
