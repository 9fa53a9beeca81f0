// Package tlsdesc finds a thread's copy of a thread-local variable from outside the process: the
// agent library's, or OpenTelemetry's.
//
// There are two steps. Resolve reads what the loader stored for the file and returns a Rule: how
// to get from a thread pointer to the variable, the same for every thread as long as the library
// stays loaded. Rule.VariableAddrs applies it to any number of threads. "The variable" is the
// thread's pointer to its slot or record, 8 bytes; this package does not follow it.
//
// The process is neither written to nor stopped, so its memory can change while it is read; Resolve
// and VariableAddrs document the consequences. The process is not trusted: whatever its memory
// holds, the result is an error or an address in that process.
package tlsdesc

import (
	"errors"
	"fmt"

	"correlator/internal/host/label"
	"correlator/memread"
)

// Errors for decisions of callers. Those of reading (memread.ErrGone and others) are wrapped.
var (
	// ErrUnresolved means that the loader has not filled in the relocation yet. Try again later.
	ErrUnresolved = errors.New("thread-local variable is not resolved yet")

	// ErrUnsupported means that no known rule fits: another C library, another resolver, or too
	// little evidence to tell which. Trying again does not help.
	ErrUnsupported = errors.New("placement of the thread-local variable is not supported")

	// ErrMalformed means that the words read contradict each other or cannot come from a loader.
	ErrMalformed = errors.New("malformed thread-local storage")

	// ErrChanged means that a thread's DTV was replaced while it was read. Try again for this
	// thread.
	ErrChanged = errors.New("DTV changed while it was read")
)

// Memory is the memory of one process; *memread.Process is one. A request for no bytes succeeds at
// any address.
type Memory interface {
	ReadBatch(requests []memread.Request) error
}

// Libc is the C library that loaded the library and lays out its threads.
type Libc uint8

const (
	LibcUnknown Libc = iota // of a static rule, which is the same for all
	Glibc
	Musl
)

var libcs = []string{LibcUnknown: "unknown", Glibc: "glibc", Musl: "musl"}

// String returns the name.
func (l Libc) String() string { return label.Of(libcs, l) }

// Kind is the form of a rule. The zero Kind is that of the zero Rule, which resolves nothing.
type Kind uint8

const (
	Static  Kind = iota + 1 // at a fixed distance from the thread pointer
	Dynamic                 // through the DTV, found in a TLS descriptor
	DTPMod                  // through the DTV, found in a DTPMOD64 pair
)

var kinds = []string{"unresolved", Static: "static", Dynamic: "dynamic", DTPMod: "dtpmod"}

// String returns the name.
func (k Kind) String() string { return label.Of(kinds, k) }

// Rule says how to get from a thread pointer TP to the variable; Resolve makes it. It consists of
// numbers only, so that it can be compared, and passed to an eBPF program that does the same:
//
//	Static:          variable = TP + Offset
//	Dynamic, DTPMod: dtv      = word at TP + DTVOffset
//	                 none if    dtv is 0
//	                 none if    word at dtv + DTVCapacityOffset < Module
//	                 none if    Generation > 0 and word at dtv < Generation
//	                 block    = word at dtv + Module * DTVStride
//	                 none if    block is 0 or all ones
//	                 variable = block + Offset
//
// Words are 8 bytes, little-endian. "None" is a normal result: the thread has not used the variable
// yet.
//
// One error cannot be detected, with DTPMod on glibc. The pair does not say in which generation of
// the loaded modules its module id was assigned. When a library with TLS was unloaded, ours got its
// id, and a thread that had used the former has neither used the variable nor a library loaded
// since, its DTV still has the block of the former: the result is an address in there. (In the same
// situation Dynamic has the generation to compare, and musl never reuses an id.) Readers of the
// variable must accept any value anyway.
type Rule struct {
	Kind       Kind
	Libc       Libc   // never LibcUnknown when Kind is Dynamic or DTPMod
	Offset     int64  // from the thread pointer, or in the module's block
	Module     uint64 // module id: index into the DTV; 1 to maxModule
	Generation uint64 // that the DTV must have reached; 0 when it is not known

	DTVOffset         int64  // of the pointer to the DTV, from the thread pointer
	DTVStride         uint64 // size of a DTV entry
	DTVCapacityOffset int64  // of the highest module id that the DTV has room for, from dtv
}

const (
	wordBytes = 8

	// maxModule bounds module ids. Every module with TLS is a mapped file, and 1,048,576 is the
	// largest vm.max_map_count that distributions set. It also keeps Module * DTVStride far from
	// overflow.
	maxModule = 1 << 20

	// maxOffset bounds the distance of a variable from the thread pointer or from the start of its
	// block. On x86-64 code reaches both by signed displacements of 32 bits where it knows them, so
	// blocks are not larger; nor are they on aarch64, where usual code has 24 bits.
	maxOffset = 1 << 31
)

// offsetAddr is base + off, unless that leaves the address space.
func offsetAddr(base uint64, off int64) (uint64, error) {
	addr := base + uint64(off)
	if (off < 0) != (addr < base) {
		return 0, fmt.Errorf("%w: %#x%+#x is no address", ErrMalformed, base, off)
	}
	return addr, nil
}
