package memread

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	// ErrTorn: the thread changed its slot, or took another one, while it was read.
	ErrTorn = errors.New("slot changed while it was read")
	// ErrUpdating: the thread was writing its slot (valid = 0).
	ErrUpdating = errors.New("slot is being updated")
)

// SlotResult is what ReadSlots found for one thread. Addr is the slot's address, 0 when the thread
// has none. Err is nil, ErrTorn, ErrUpdating, ErrVersion (see decodeSlot) or ErrUnmapped: of the
// variable when Addr is 0, else of the slot.
type SlotResult struct {
	Addr uint64
	Slot Slot
	Err  error
}

// A slot is read while its thread may be writing it on another CPU, and nothing in it counts its
// versions. For each thread the reads are
//
//	pointer | copy copy pointer copy copy
//
// in two system calls. The slot is accepted when both pointers are the same, all copies are the
// same, and valid is not 0.
//
// What that proves. Let no context come back once it was replaced, nor an id of it. Whatever is the
// same in the first and the last copy then was in the slot all the time in between. valid was read
// as not 0 within this time, so the thread was not between its own stores; and the pointer was read
// within it, so this was the thread's slot. None of this depends on the order in which the kernel
// copies the bytes of one slot, which it does not promise (forwards, backwards, with string
// instructions). With two copies it would: valid would have to be the first byte of the second one.
// It does depend on two orders: elements are copied one after the other, with the lock of the
// memory map taken and released around each; and the thread's stores become visible in the order of
// the program. x86-64 keeps that order. On aarch64 the agent must ask for it; if it does not, a mix
// stays possible for as long as a store waits in the CPU's buffer, a small part of the time from
// the first to the last copy.
//
// What no number of reads can prove. Contexts do come back, for example when a child span ends. A
// thread that switches between A and B in step with us shows the same mix of them to every copy.
// Here the odds are made small instead; the numbers are of an x86-64 machine (Zen 5),
// TestSlotRewrittenWithoutPause logs its own.
//
//   - All copies are in one call and next to each other, some 0.4 µs apart. To fool four of them
//     the thread must switch seven times between the first and the last. A thread that keeps
//     every context for 0.5 µs cannot, unless we are interrupted in the middle of the copies.
//   - A copy within a cache line is torn once in a million times, one across two lines in up to
//     4 % of all copies, one across two pages in up to 60 %: between pages the kernel has other
//     work. So the two parts of a slot across pages are read again as splitOrder says.
//   - A thread that switches faster than that, which only a test does, is left to chance. Of 10⁶
//     reads of a slot across two lines that alternated every 2 to 30 ns, two copies accepted up
//     to 320 mixes, three up to 8, four none (in 10⁷). Across two pages two copies accepted up
//     to 77,000 and, through /proc/PID/mem, where they are further apart, four still 27,000;
//     after splitOrder there was none (in 10⁷).
//
// A reader that interrupts the thread on its own CPU has none of these troubles.
const (
	slotCopies   = 4
	slotElements = slotCopies + 1
)

// splitOrder is the order in which the head (H) and the tail (T) of a slot across two pages are
// read when it was accepted. Head and tail in turn would do for a thread without rhythm, but one
// that alternates A and B evenly can fall into step with us: then all heads are of A and all tails
// of B (16 such copies in a row were seen). This order is in step with nothing: of reads at equal
// distances, at least 6 of the 24 meet the wrong context, whatever the period, phase and share of
// A. (Found by search.)
const splitOrder = "THTHTHTTTHHHTHHTTHTHHTTH"

// slotChunk is how many threads are read in one round, that is in one pair of calls: enough that
// the calls cost little beside their elements, few enough that the scratch space stays small.
const slotChunk = 64

// splitReads is where splitOrder is read to.
type splitReads [len(splitOrder)][slotBytes]byte

// slotReads is where one thread is read to.
type slotReads struct {
	first, again [pointerBytes]byte
	copies       [slotCopies][slotBytes]byte
}

// ReadSlots reads the slots of threads: varAddrs[i] is the address of thread i's variable (the
// pointer to its slot), or 0 when the thread has no variable, and out[i], which must exist, becomes
// its result. In steady state it allocates nothing.
//
// The error is that of the whole process (ErrGone, ErrDenied); then every thread of a round that
// was not finished carries it too.
func (p *Process) ReadSlots(varAddrs []uint64, out []SlotResult) error {
	out = out[:len(varAddrs)]
	for start := 0; start < len(varAddrs); start += slotChunk {
		end := min(start+slotChunk, len(varAddrs))
		if err := p.readSlots(varAddrs[start:end], out[start:end]); err != nil {
			for i := start; i < len(out); i++ {
				out[i] = SlotResult{Err: err}
			}
			return fmt.Errorf("reading slots of %d threads: %w", len(varAddrs), err)
		}
	}
	return nil
}

// readSlots is one round of ReadSlots, for at most slotChunk threads.
func (p *Process) readSlots(varAddrs []uint64, out []SlotResult) error {
	if cap(p.slots) < len(varAddrs) {
		p.slots = make([]slotReads, len(varAddrs))
	}
	slots := p.slots[:len(varAddrs)]
	clear(slots)

	v := p.vector(len(varAddrs))
	for i, varAddr := range varAddrs {
		if varAddr != 0 {
			v.set(i, varAddr, slots[i].first[:])
		}
	}
	if err := p.transfer(v); err != nil {
		return err
	}
	for i := range out {
		out[i] = SlotResult{}
		if v.missing(i) > 0 {
			out[i].Err = ErrUnmapped
		} else {
			out[i].Addr = binary.NativeEndian.Uint64(slots[i].first[:])
		}
	}

	v = p.vector(len(varAddrs) * slotElements)
	for i, varAddr := range varAddrs {
		if out[i].Addr != 0 {
			slots[i].fill(v.from(i*slotElements), varAddr, out[i].Addr)
		}
	}
	if err := p.transfer(v); err != nil {
		return err
	}
	for i := range out {
		addr, r := out[i].Addr, &slots[i]
		if addr == 0 {
			continue
		}
		out[i].Slot, out[i].Err = r.judge(v.from(i * slotElements))
		if out[i].Err == nil && acrossPages(addr) {
			held, err := p.confirm(addr, &r.copies[0])
			if err != nil {
				return err
			}
			if !held {
				out[i] = SlotResult{Addr: addr, Err: ErrTorn}
			}
		}
	}
	return nil
}

// fill sets the elements of one thread's second call.
func (r *slotReads) fill(v vector, varAddr, addr uint64) {
	const before = slotCopies / 2
	v.set(before, varAddr, r.again[:])
	for i := range r.copies {
		element := i
		if i >= before {
			element++
		}
		v.set(element, addr, r.copies[i][:])
	}
}

// judge decides what the reads of one thread are worth; v says which of them are incomplete.
func (r *slotReads) judge(v vector) (Slot, error) {
	if r.again != r.first {
		return Slot{}, ErrTorn
	}
	for i := range slotElements {
		if v.missing(i) > 0 {
			return Slot{}, ErrUnmapped
		}
	}
	same := true
	for i := range r.copies {
		if r.copies[i][slotValidOff] == 0 {
			return Slot{}, ErrUpdating
		}
		same = same && r.copies[i] == r.copies[0]
	}
	if !same {
		return Slot{}, ErrTorn
	}
	return decodeSlot(&r.copies[0])
}

// acrossPages reports whether a slot may lie on two pages. It asks for the smallest page: where
// pages are larger, some slots are confirmed without need.
func acrossPages(addr uint64) bool {
	return addr%smallestPage > smallestPage-slotBytes
}

// confirm reads the parts of an accepted slot as splitOrder says, and reports whether all are those
// of want.
func (p *Process) confirm(addr uint64, want *[slotBytes]byte) (bool, error) {
	if p.split == nil {
		p.split = new(splitReads)
	}
	var local [len(splitOrder)]unix.Iovec
	var remote [len(splitOrder)]unix.RemoteIovec
	v := vector{local[:], remote[:]}
	head := smallestPage - addr%smallestPage
	for i := range p.split {
		if splitOrder[i] == 'H' {
			v.set(i, addr, p.split[i][:head])
		} else {
			v.set(i, addr+head, p.split[i][head:])
		}
	}
	if err := p.transfer(v); err != nil {
		return false, err
	}
	for i := range p.split {
		from, to := head, uint64(slotBytes)
		if splitOrder[i] == 'H' {
			from, to = 0, head
		}
		if v.missing(i) > 0 || !bytes.Equal(p.split[i][from:to], want[from:to]) {
			return false, nil
		}
	}
	return true, nil
}
