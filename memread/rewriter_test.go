package memread

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// Layout of a region that is rewritten without pause. The slot lies at off within the first two
// pages; mode swap has a second one rewriteOther bytes further.
const (
	rewritePages    = 5
	rewriteVariable = 2 * smallestPage // pointer to the slot, or to the process storage
	rewriteCounter  = rewriteVariable + 1024
	rewriteOther    = 3 * smallestPage
)

// contextBytes are the ids of a slot: trace-id, span-id and transaction-id.
const contextBytes = slotBytes - slotTraceIDOff

// golden is odd, so multiplying by it can be undone.
const golden = 0x9e3779b97f4a7c15

// rewriteContext makes self-checking ids: any word of them determines the others.
func rewriteContext(n uint64) (ids [contextBytes]byte) {
	for i := range uint64(contextBytes / 8) {
		binary.NativeEndian.PutUint64(ids[8*i:], (4*n+i+1)*golden)
	}
	return ids
}

// proves reports whether the ids of s are of one context.
func proves(s Slot) bool {
	inverse := uint64(1)
	for range 6 { // Newton: every round doubles the number of right bits, of which 1 has 3
		inverse *= 2 - golden*inverse
	}
	got := encodeSlot(s)[slotTraceIDOff:]
	n := (binary.NativeEndian.Uint64(got)*inverse - 1) / 4
	want := rewriteContext(n)
	return string(got) == string(want[:])
}

// rewriteStorage is one of two process storages, as long as each other.
func rewriteStorage(turn int) ProcessStorage {
	return [2]ProcessStorage{
		{MinorVersion: 1, ServiceName: "orders", ServiceEnvironment: "prod", SocketPath: "/tmp/first"},
		{MinorVersion: 1, ServiceName: "bills", ServiceEnvironment: "tests", SocketPath: "/tmp/other"},
	}[turn]
}

// The stores of the writer. Being calls that the compiler cannot look into, they stay in their
// order, and they are plain stores, the fastest there are. (On a CPU that does not keep the order
// of stores this is an agent that does not care for readers on other CPUs.)
//
//go:noinline
//go:norace
func storeByte(to *byte, value byte) { *to = value }

//go:noinline
//go:norace
func storeContext(to, ids *[contextBytes]byte) { *to = *ids }

//go:noinline
//go:norace
func storePointer(to *uint64, value uint64) { *to = value }

func storeSlot(slot *[slotBytes]byte, ids *[contextBytes]byte) {
	storeByte(&slot[slotValidOff], 0)
	storeContext((*[contextBytes]byte)(slot[slotTraceIDOff:]), ids)
	storeByte(&slot[slotValidOff], 1)
}

// rewrite rewrites without pause and never returns. How long a context stays varies from nothing to
// some 10 µs, each for about a millisecond at a time.
//
//	new        contexts that never come back
//	alternate  two contexts in turn
//	swap       new contexts in two slots in turn, each filled before the variable points to it
//	storage    two process storages in turn, null in between, the unpublished one without version
func rewrite(memory []byte, off int, mode string) {
	const millisecond = 1_000_000 // stores, at most one each nanosecond
	var idle byte
	variable := (*uint64)(unsafe.Pointer(&memory[rewriteVariable]))
	counter := (*uint64)(unsafe.Pointer(&memory[rewriteCounter]))
	addr := uint64(uintptr(unsafe.Pointer(&memory[off])))
	var slots [2]*[slotBytes]byte
	for i := range slots {
		slots[i] = (*[slotBytes]byte)(memory[off+i*rewriteOther:])
		if mode == "storage" {
			copy(memory[off+i*rewriteOther:], encodeStorage(rewriteStorage(i)))
			continue
		}
		copy(slots[i][:], encodeSlot(Slot{MinorVersion: 1, TracePresent: true}))
	}
	if mode != "storage" {
		storePointer(variable, addr)
	}
	two := [2][contextBytes]byte{rewriteContext(1), rewriteContext(2)}
	for n := uint64(2); ; {
		for _, dwell := range [...]int{0, 3, 10, 30, 100, 300, 1000, 10_000} {
			for range millisecond / (dwell + 10) {
				n++
				turn := n % 2
				other := addr + turn*rewriteOther
				switch mode {
				case "new":
					ids := rewriteContext(n)
					storeSlot(slots[0], &ids)
				case "alternate":
					storeSlot(slots[0], &two[turn])
				case "swap":
					ids := rewriteContext(n)
					storeSlot(slots[turn], &ids)
					storePointer(variable, other)
				case "storage":
					storeByte(&slots[turn][0], 1)
					storePointer(variable, other)
				}
				for range dwell {
					storeByte(&idle, 0)
				}
				if mode == "storage" {
					storePointer(variable, 0)
					storeByte(&slots[turn][0], 0)
				}
			}
			atomic.StoreUint64(counter, n)
		}
	}
}
