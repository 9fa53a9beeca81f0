package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
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

// Unwound reports whether the [Unwinder] has walked the stack.
func (k StackKey) Unwound() bool { return k.hash[0]&1 == 1 }

// A Stack consists of addresses, each half leaf first. All are return addresses except the first
// one, and the first of User if there are frames of the kernel.
//
// Of an unwound stack, the user half is in Words instead.
type Stack struct {
	Kernel []uint64 // only with KernelStacks, and when the thread was in the kernel
	User   []uint64 // at most 127, those nearest to the leaf; the second may be UnknownCaller
	Words  []uint64 // what the Unwinder's record has; with Kernel at most 768, those nearest to the leaf
	Error  uint32   // why Words lack frames: a number of the Unwinder's, or TooManyWords; 0: they do not
}

// addrs returns how many addresses and words the stack has.
func (s *Stack) addrs() int { return len(s.Kernel) + len(s.User) + len(s.Words) }

// UnknownCaller is not an address: there, in User, a caller of the innermost function may be missing. By
// frame pointers that cannot always be told.
const UnknownCaller uint64 = math.MaxUint64

// TooManyWords is the Error of a stack with more than 768 words, whose last frame may be incomplete.
const TooManyWords uint32 = math.MaxUint32

// Stack returns the stack of a count. It is available until the next Drain; after that it may be
// evicted, which is an error.
func (s *Sampler) Stack(key StackKey) (Stack, error) {
	table := s.stacks
	if key.Unwound() {
		if table = s.unwound.Load(); table == nil {
			return Stack{}, errNoStack
		}
	}
	return table.stack(key)
}

var errStackFrames = errors.New("more frames than addresses")

// stackHeadBytes is how long a struct stack is before its addresses.
const stackHeadBytes = int(unsafe.Offsetof(samplerStack{}.Addrs))

// lastUsed returns when a struct stack was last counted, CLOCK_MONOTONIC, ns.
func lastUsed(value []byte) uint64 {
	return binary.NativeEndian.Uint64(value[unsafe.Offsetof(samplerStack{}.LastUsed):])
}

// decodeStack decodes a struct stack, whole or cut off after its last address.
func decodeStack(value []byte, unwound bool) (stack Stack, err error) {
	if len(value) < stackHeadBytes {
		return Stack{}, fmt.Errorf("%w: %d bytes", errStackFrames, len(value))
	}
	kernel := int(binary.NativeEndian.Uint16(value[unsafe.Offsetof(samplerStack{}.KernelFrames):]))
	user := int(binary.NativeEndian.Uint16(value[unsafe.Offsetof(samplerStack{}.UserFrames):]))
	if room := (len(value) - stackHeadBytes) / 8; kernel+user > min(room, len(samplerStack{}.Addrs)) {
		return Stack{}, fmt.Errorf("%w: %d + %d, %d", errStackFrames, kernel, user, room)
	}
	addrs := make([]uint64, kernel+user)
	if len(addrs) > 0 {
		copy(asBytes(addrs), value[stackHeadBytes:])
	}
	stack.Kernel = addrs[:kernel:kernel]
	if unwound {
		stack.Words = addrs[kernel:]
		stack.Error = binary.NativeEndian.Uint32(value[unsafe.Offsetof(samplerStack{}.Error):])
	} else {
		stack.User = addrs[kernel:]
	}
	return stack, nil
}

const (
	// stackIdle is how long an unused stack is kept at first. While the table stays more than half
	// full, that time is halved every evictionPause.
	stackIdle = 30 * time.Second

	// evictionPause is the time between two evictions: scanning the table takes some milliseconds.
	evictionPause = time.Second

	// stackBatch is how many stacks one system call reads: 64 to 256 KiB.
	stackBatch = 64
)

// A stackTable is a table of stacks in the kernel, from which those are evicted that were not used
// for the longest time.
type stackTable struct {
	stacks   *ebpf.Map
	retained *retained
	value    []byte // scratch, under retained.mu

	// The state of evict.
	deleted uint64        // stacks, since the table was made
	last    uint64        // when the table was last scanned, CLOCK_MONOTONIC, ns
	idle    time.Duration // how long a stack must be unused to be evicted next
	keys    []samplerStackKey
	values  any    // a slice of values of the table's size
	raw     []byte // the same memory
}

func newStackTable(stacks *ebpf.Map, retained *retained) *stackTable {
	return &stackTable{stacks: stacks, retained: retained}
}

// MaxFrames is MAX_FRAMES of stack.h, how many frames are walked of a stack.
const MaxFrames = 127

// Sizes of values: of an unwound stack; of one with and without the kernel's frames.
const (
	stackBytes       = uint32(unsafe.Sizeof(samplerStack{}))
	kernelStackBytes = userStackBytes + MaxFrames*8
	userStackBytes   = uint32(unsafe.Offsetof(samplerStack{}.Addrs)) + MaxFrames*8
)

func (t *stackTable) allocate() {
	t.keys = make([]samplerStackKey, stackBatch)
	switch t.stacks.ValueSize() {
	case userStackBytes:
		t.values, t.raw = makeStacks[[userStackBytes]byte]()
	case kernelStackBytes:
		t.values, t.raw = makeStacks[[kernelStackBytes]byte]()
	case stackBytes:
		t.values, t.raw = makeStacks[[stackBytes]byte]()
	}
}

func makeStacks[T any]() (values any, raw []byte) {
	stacks := make([]T, stackBatch)
	return stacks, asBytes(stacks)
}

func asBytes[T any](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(values[0])))
}

// retained are stacks that were evicted from a table. When a stack is deleted at the end of a
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

func (t *stackTable) stack(key StackKey) (Stack, error) {
	t.retained.mu.Lock()
	defer t.retained.mu.Unlock()
	if t.value == nil {
		t.value = make([]byte, t.stacks.ValueSize())
	}
	value := t.value
	raw := samplerStackKey{Hash: key.hash, Target: uint32(key.Target)}
	err := lookupElem(t.stacks.FD(), unsafe.Pointer(&raw), unsafe.Pointer(unsafe.SliceData(value)))
	if errors.Is(err, unix.ENOENT) {
		return t.retained.stack(key)
	}
	if err != nil {
		return Stack{}, fmt.Errorf("reading stack: %w", err)
	}
	return decodeStack(value, key.Unwound())
}

// evict makes room in the table when it is more than half full. stored is how many stacks were put
// into it since it was made. It is called at the end of a Drain.
func (t *stackTable) evict(stored uint64) error {
	if stored-t.deleted <= uint64(t.stacks.MaxEntries())/2 {
		t.idle = stackIdle
		return nil
	}
	now := Now()
	if now-t.last < uint64(evictionPause) {
		return nil
	}
	t.last = now
	unused := now - uint64(t.idle) // wraps soon after the machine's start
	t.idle /= 2
	if unused > now {
		return nil
	}
	return t.evictUnused(unused)
}

// evictUnused deletes stacks that were last used before a time.
func (t *stackTable) evictUnused(before uint64) error {
	if t.values == nil {
		t.allocate()
	}
	valueBytes := int(t.stacks.ValueSize())
	var cursor ebpf.MapBatchCursor
	for {
		n, err := t.stacks.BatchLookup(&cursor, t.keys, t.values, nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return fmt.Errorf("scanning stacks: %w", err)
		}
		if err := t.evictOf(t.keys[:n], t.raw[:n*valueBytes], before); err != nil {
			return err
		}
		if last {
			return nil
		}
	}
}

// evictOf deletes those of the stacks that were last used before a time. It moves the keys.
func (t *stackTable) evictOf(keys []samplerStackKey, values []byte, before uint64) error {
	t.retained.mu.Lock()
	defer t.retained.mu.Unlock()
	valueBytes, unused := int(t.stacks.ValueSize()), 0
	for i := range keys {
		value := values[i*valueBytes : (i+1)*valueBytes]
		if lastUsed(value) >= before {
			continue
		}
		key := newStackKey(keys[i])
		stack, err := decodeStack(value, key.Unwound())
		if err != nil {
			return err
		}
		t.retained.add(key, stack)
		keys[unused] = keys[i]
		unused++
	}
	if unused == 0 {
		return nil
	}
	// The count that comes with an error may be that of the keys.
	if _, err := t.stacks.BatchDelete(keys[:unused], nil); err != nil {
		return fmt.Errorf("evicting stacks: %w", err)
	}
	t.deleted += uint64(unused)
	return nil
}
