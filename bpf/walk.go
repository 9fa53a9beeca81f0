package bpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Walk is a wait whose stack was walked when it had ended, with what it stands for.
type Walk struct {
	Time          uint64   // CLOCK_MONOTONIC: when its stack was walked, ns
	Stack         StackKey // its Target is the process
	Frames        Stack    // which Sampler.Stack does not know
	TID           int      // in our own pid namespace
	Thread        string   // its name: any bytes
	TraceID       [16]byte
	TransactionID [8]byte
	SpanID        [8]byte // with BySpan; else 0
	OTel          bool    // as in Count
	OfLabels      bool    // the same
	Attributes    []byte  // the same; valid until the next Walk

	// State is what the thread did, and NS the time in it, and in other waits of the thread, that the stack
	// stands for; Longest is how long this wait was. Then it waited for a CPU, which took Queue, and the
	// stack stands for Queued of that. One of NS and Queued may be 0. All in ns.
	State         ThreadState
	NS, Longest   uint64
	Queued, Queue uint64

	Peer  netip.AddrPort // of a socket of IP, zero: none
	Path  string         // the end of the path of a file; empty: none
	Futex uint64         // the address of one, 0: none
	Waker Waker          // of a wait for a CPU: the thread that left the CPU, if it was not idle
}

// A WakerKind is what ended a wait.
type WakerKind uint8

// The kinds of wakers.
const (
	UnknownWaker = WakerKind(walksWakerKindWAKER_UNKNOWN)
	ThreadWaker  = WakerKind(walksWakerKindWAKER_THREAD)
	TimerWaker   = WakerKind(walksWakerKindWAKER_TIMER)
	DeviceWaker  = WakerKind(walksWakerKindWAKER_DEVICE)
	NetworkWaker = WakerKind(walksWakerKindWAKER_NETWORK)
)

// A Waker is who ended a wait. Only a ThreadWaker has more than its kind.
type Waker struct {
	Kind          WakerKind
	PID, TID      int    // in our own pid namespace; 0: it is not there
	Name          string // of the thread: any bytes
	TraceID       [16]byte
	TransactionID [8]byte
	OTel          bool // as in Count
}

// decodeWalk decodes a struct walked, cut off after the attributes, which follow the last address.
func decodeWalk(raw []byte) (Walk, error) {
	var d walksWalked
	stackOff := int(unsafe.Offsetof(d.Stack))
	addrsOff := int(unsafe.Offsetof(d.Stack.Addrs))
	if len(raw) < stackOff+addrsOff {
		return Walk{}, fmt.Errorf("%w: %d bytes", errDeferredShort, len(raw))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&d)), stackOff), raw)
	key := StackKey{Target: Target(d.Target), hash: d.Hash}
	frames, attributes, err := decodeTail(raw, stackOff, addrsOff, key, d.AttributesSize)
	if err != nil {
		return Walk{}, err
	}
	if d.State >= uint32(ThreadStates) {
		return Walk{}, fmt.Errorf("%w: state %d", ErrMalformed, d.State)
	}
	walk := Walk{
		Time: d.Time, Stack: key, Frames: frames, TID: int(d.Tid),
		Thread: unix.ByteSliceToString(asBytes(d.Thread[:])),
		OTel:   isOTel(uint32(d.Context)), OfLabels: d.OfLabels != 0,
		Attributes: attributes, State: ThreadState(d.State),
		NS: d.Ns, Longest: d.Longest, Queued: d.Queued, Queue: d.Queue,
		Peer: newPeer(d.Family, d.Port, &d.Address), Path: newPath(&d.Path), Futex: d.Futex,
		Waker: Waker{
			Kind: WakerKind(d.Waker.Kind), PID: int(d.Waker.Pid), TID: int(d.Waker.Tid),
			Name: unix.ByteSliceToString(asBytes(d.Waker.Name[:])),
			OTel: isOTel(uint32(d.Waker.Context)),
		},
	}
	putTraceID(&walk.TraceID, d.TraceId)
	binary.NativeEndian.PutUint64(walk.TransactionID[:], d.TransactionId)
	binary.NativeEndian.PutUint64(walk.SpanID[:], d.SpanId)
	putTraceID(&walk.Waker.TraceID, d.Waker.TraceId)
	binary.NativeEndian.PutUint64(walk.Waker.TransactionID[:], d.Waker.TransactionId)
	return walk, nil
}

func isOTel(context uint32) bool {
	return waitsCorrelatorContextKind(context) == waitsCorrelatorContextKindCORRELATOR_OTEL
}

// newPeer returns the peer of a socket. One that is not connected has none.
func newPeer(family, port uint16, address *[16]byte) netip.AddrPort {
	var addr netip.Addr
	switch family {
	case unix.AF_INET:
		addr = netip.AddrFrom4([4]byte(address[:4]))
	case unix.AF_INET6:
		addr = netip.AddrFrom16(*address).Unmap()
	}
	number := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, port))
	if !addr.IsValid() || number == 0 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr, number)
}

// newPath joins names, the last of which comes first. What is above is not known.
func newPath(names *[4][64]int8) string {
	path := ""
	for i := range names {
		name := unix.ByteSliceToString(asBytes(names[i][:]))
		if name == "" {
			break
		}
		if len(name) == len(names[i])-1 {
			name += "…" // there may be more of it
		}
		path = "/" + name + path
	}
	if path == "" {
		return ""
	}
	return "…" + path
}
