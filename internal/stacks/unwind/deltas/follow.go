package deltas

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/arch/x86/x86asm"
)

// frameState is what is known of the frame of a function of x86-64 at one of its instructions. Distances are
// from its CFA, the address above its return address, downwards.
type frameState struct {
	stack int32 // of the stack pointer; 0: not known
	saved int32 // of the caller's frame pointer, if it was saved; else 0
	frame int32 // of the frame pointer, if it is one; else 0
}

// atEntry is the state where a function begins.
var atEntry = frameState{stack: 8}

// maxFrameBytes is more than a function of musl has on the stack.
const maxFrameBytes = 1 << 20

// info returns how the frame is unwound.
func (s frameState) info() stackdeltatypes.UnwindInfo {
	info := stackdeltatypes.UnwindInfo{BaseReg: support.UnwindRegSp, Param: s.stack}
	if s.stack == 0 {
		if s.frame == 0 {
			return stackdeltatypes.UnwindInfoInvalid
		}
		info.BaseReg, info.Param = support.UnwindRegFp, s.frame
	}
	if s.saved != 0 {
		info.AuxBaseReg, info.AuxParam = support.UnwindRegCfa, -s.saved
	}
	return info
}

// known returns the state without what can be none.
func (s frameState) known() frameState {
	if s.stack < 8 || s.stack > maxFrameBytes {
		s.stack = 0
	}
	return s
}

// after returns the state after an instruction that is no jump.
func (s frameState) after(i *x86asm.Inst) frameState {
	to, toRegister := i.Args[0].(x86asm.Reg)
	switch i.Op {
	case x86asm.PUSH, x86asm.PUSHF, x86asm.PUSHFQ:
		if s.stack != 0 {
			s.stack += 8
			if i.Op == x86asm.PUSH && to == x86asm.RBP && s.saved == 0 {
				s.saved = s.stack
			}
		}
		return s.known()
	case x86asm.POP, x86asm.POPF, x86asm.POPFQ:
		if i.Op == x86asm.POP && to == x86asm.RBP {
			s.frame = 0
			if s.saved == s.stack {
				s.saved = 0
			}
		}
		if s.stack != 0 {
			s.stack -= 8
		}
		return s.known()
	case x86asm.LEAVE:
		if s.stack = 0; s.frame != 0 {
			s.stack = s.frame - 8
		}
		s.frame, s.saved = 0, 0
		return s.known()
	case x86asm.CMP, x86asm.TEST, x86asm.CALL: // they leave both as they are
		return s
	}
	if !toRegister {
		return s
	}
	switch to {
	case x86asm.RSP, x86asm.ESP, x86asm.SP, x86asm.SPB:
		s.stack = s.moved(i)
	case x86asm.RBP, x86asm.EBP, x86asm.BP, x86asm.BPB:
		if s.frame = 0; i.Op == x86asm.MOV && i.Args[1] == x86asm.RSP {
			s.frame = s.stack
		}
	default:
		if i.Op == x86asm.XCHG && (i.Args[1] == x86asm.RSP || i.Args[1] == x86asm.RBP) {
			return frameState{}
		}
	}
	return s.known()
}

// moved returns where the stack pointer is after an instruction that sets it, 0 if that is not known.
func (s frameState) moved(i *x86asm.Inst) int32 {
	immediate, constant := i.Args[1].(x86asm.Imm)
	address, inMemory := i.Args[1].(x86asm.Mem)
	switch {
	case i.Args[0] != x86asm.RSP:
	case i.Op == x86asm.SUB && constant && s.stack != 0 && -maxFrameBytes < immediate && immediate < maxFrameBytes:
		return s.stack + int32(immediate)
	case i.Op == x86asm.ADD && constant && s.stack != 0 && -maxFrameBytes < immediate && immediate < maxFrameBytes:
		return s.stack - int32(immediate)
	case i.Op == x86asm.MOV && i.Args[1] == x86asm.RBP:
		return s.frame
	case i.Op == x86asm.LEA && inMemory && address.Index == 0 && -maxFrameBytes < address.Disp &&
		address.Disp < maxFrameBytes:
		if address.Base == x86asm.RSP && s.stack != 0 {
			return s.stack - int32(address.Disp)
		}
		if address.Base == x86asm.RBP && s.frame != 0 {
			return s.frame - int32(address.Disp)
		}
	}
	return 0
}

// follower follows code from the entries of functions on, each instruction once.
type follower struct {
	start   uint64
	code    []byte
	read    func(b []byte, addr int64) (int, error) // reads what the file has at an address
	at      []uint32                                // by address: the index of what was followed, or one below
	done    []followed
	todo    []place
	taken   []uint64 // addresses that the code uses, perhaps as pointers to functions
	entries map[uint64]*function
	known   []uint64 // the entries when this pass began, in order
	left    int      // entries of tables that may be read
	kept    int      // bytes of what functions have, and of blocks
	limit   int      // of bytes that are kept
	full    bool     // there was no room for all
}

// maxFollowerBytes bounds what is kept of code, beside 4 bytes for each of its bytes. 4 MB of what compilers make take
// 30 MB; code can be written to take much more.
const maxFollowerBytes = 32 << 20

// What each of these takes at least.
const (
	followedBytes = 24
	placeBytes    = 32
	pointerBytes  = 8
	functionBytes = 128 // with its entry of the map
	blockBytes    = 128 // and its copy
)

var errTooMuchCode = fmt.Errorf("what is to be kept of code has more than %d bytes", maxFollowerBytes)

// hasRoom reports whether more may be kept.
func (f *follower) hasRoom() bool {
	size := followedBytes*len(f.done) + placeBytes*len(f.todo) + pointerBytes*len(f.taken) +
		functionBytes*len(f.entries) + f.kept
	f.full = f.full || size > f.limit
	return !f.full
}

// followed is an instruction that was followed.
type followed struct {
	size  uint8
	state frameState
	of    *function // the first that has it
}

// Instead of the index of an instruction.
const (
	notFollowed = iota
	elsewhere   // it is known already how it is unwound
	numReasons
)

// place is code that is to be followed.
type place struct {
	addr  uint64
	state frameState
	of    *function
}

// function is what is known of a function: whether it returns. Until then, what comes after calls of it is not
// followed, as that may belong to something else.
type function struct {
	returns bool
	after   []place     // calls of it
	tails   []*function // that end with a jump to it
}

func newFollower(start uint64, code []byte, read func(b []byte, addr int64) (int, error)) *follower {
	return &follower{
		start: start, code: code, read: read, at: make([]uint32, len(code)), done: make([]followed, numReasons),
		entries: make(map[uint64]*function), limit: maxFollowerBytes,
	}
}

// exclude has code not be followed.
func (f *follower) exclude(start, end uint64) {
	for addr := max(start, f.start); addr < min(end, f.start+uint64(len(f.code))); addr++ {
		f.at[addr-f.start] = elsewhere
	}
}

// addCalled adds functions that other code calls.
func (f *follower) addCalled(start, end uint64) {
	for addr := start; addr < end && f.contains(addr) && f.hasRoom(); {
		i, err := x86asm.Decode(f.code[addr-f.start:], 64)
		if err != nil {
			return // the rest may be data
		}
		addr += uint64(i.Len)
		if to, direct := i.Args[0].(x86asm.Rel); direct && i.Op == x86asm.CALL {
			if to := addr + uint64(int64(to)); f.contains(to) && f.at[to-f.start] == notFollowed {
				f.addEntry(to)
			}
		}
	}
}

func (f *follower) contains(addr uint64) bool { return addr-f.start < uint64(len(f.code)) }

// addEntry adds the entry of a function. Of one that is not followed it is assumed that it returns.
func (f *follower) addEntry(addr uint64) *function {
	if fn := f.entries[addr]; fn != nil {
		return fn
	}
	fn := &function{returns: !f.contains(addr) || f.at[addr-f.start] == elsewhere}
	if f.hasRoom() {
		f.entries[addr] = fn
		f.todo = append(f.todo, place{addr, atEntry, fn})
	}
	return fn
}

// passes is how often everything is followed: each time, more functions are known that end the one before.
const passes = 3

// follow follows all functions, also those that they call and those whose addresses they use.
func (f *follower) follow() {
	pointers := len(f.taken)
	for range passes {
		f.done, f.taken, f.kept = f.done[:numReasons], f.taken[:pointers], 0
		for off, n := range f.at {
			if n != elsewhere {
				f.at[off] = notFollowed
			}
		}
		f.left = maxTablesEntries
		f.known = slices.Sorted(maps.Keys(f.entries))
		clear(f.entries)
		for _, addr := range f.known {
			f.addEntry(addr)
		}
		f.followAll()
	}
}

// followAll follows what is to be followed, and then functions whose addresses it uses.
func (f *follower) followAll() {
	for n := 0; ; n++ {
		for len(f.todo) > 0 && f.hasRoom() {
			next := f.todo[len(f.todo)-1]
			f.todo = f.todo[:len(f.todo)-1]
			f.followFrom(next)
		}
		if n == len(f.taken) || f.full {
			return
		}
		if f.at[f.taken[n]-f.start] == notFollowed {
			f.addEntry(f.taken[n])
		}
	}
}

// doesReturn notes that a function returns.
func (f *follower) doesReturn(fn *function) {
	for all := []*function{fn}; len(all) > 0; all = all[1:] {
		if fn := all[0]; !fn.returns {
			fn.returns = true
			f.todo = append(f.todo, fn.after...)
			all = append(all, fn.tails...)
			fn.after, fn.tails = nil, nil
		}
	}
}

// endsLike notes that a function may end with the code of another, nil if that is not known.
func (f *follower) endsLike(fn, other *function) {
	switch {
	case other == nil || other.returns:
		f.doesReturn(fn)
	case other != fn && (len(other.tails) == 0 || other.tails[len(other.tails)-1] != fn):
		other.tails = append(other.tails, fn)
		f.kept += pointerBytes
	}
}

// followFrom follows code as far as it goes straight on, not into another function.
func (f *follower) followFrom(at place) {
	var (
		table   uint64 // the last address outside of the code that was used
		highest uint64 // with what was compared last
	)
	for first := true; f.contains(at.addr) && f.hasRoom(); first = false {
		if fn := f.entries[at.addr]; fn != nil && !(first && fn == at.of) { // what was called last does not return
			return
		}
		off := at.addr - f.start
		if n := f.at[off]; n != notFollowed {
			f.endsLike(at.of, f.done[n].of)
			return
		}
		i, err := x86asm.Decode(f.code[off:], 64)
		if err != nil || i.Op == 0 {
			return
		}
		f.at[off] = uint32(len(f.done))
		f.done = append(f.done, followed{uint8(i.Len), at.state, at.of})
		at.addr += uint64(i.Len)
		target, direct := i.Args[0].(x86asm.Rel)
		to := at.addr + uint64(int64(target))
		switch i.Op {
		case x86asm.RET:
			f.doesReturn(at.of)
			return
		case x86asm.HLT, x86asm.UD1, x86asm.UD2:
			return
		case x86asm.CALL:
			if !direct || to == at.addr {
				continue
			}
			if called := f.addEntry(to); !called.returns {
				called.after = append(called.after, at)
				f.kept += placeBytes
				return
			}
			continue
		case x86asm.JMP:
			switch fn := f.entries[to]; {
			case !direct:
				f.followTable(at, &i, table, highest)
			case fn == nil && f.contains(to):
				f.todo = append(f.todo, place{to, at.state, at.of})
			default:
				f.endsLike(at.of, fn)
			}
			return
		case x86asm.CMP:
			if n, ok := i.Args[1].(x86asm.Imm); ok {
				highest = uint64(n)
			}
		case x86asm.LEA:
			if m, ok := i.Args[1].(x86asm.Mem); ok && m.Base == x86asm.RIP {
				if to := at.addr + uint64(int64(int32(m.Disp))); f.contains(to) {
					f.taken = append(f.taken, to)
				} else {
					table = to
				}
			}
		}
		if fn := f.entries[to]; direct && fn != nil {
			f.endsLike(at.of, fn)
		} else if direct && f.contains(to) {
			f.todo = append(f.todo, place{to, at.state, at.of})
		}
		at.state = at.state.after(&i)
	}
}

// maxTableEntries bounds the table of a jump, maxTablesEntries all that are read in a pass.
const (
	maxTableEntries  = 1 << 12
	maxTablesEntries = 1 << 20
)

// followTable follows where a jump goes by a table of distances from itself, or of addresses. Without one it is a
// call at the end of a function.
func (f *follower) followTable(at place, jump *x86asm.Inst, table, highest uint64) {
	bytes := uint64(4)
	if m, ok := jump.Args[0].(x86asm.Mem); ok {
		if m.Base != 0 || m.Index == 0 || m.Scale != 8 {
			f.doesReturn(at.of)
			return
		}
		table, bytes = uint64(m.Disp), 8
	}
	if table == 0 || highest >= maxTableEntries {
		f.doesReturn(at.of)
		return
	}
	if f.left -= int(highest + 1); f.left < 0 {
		return
	}
	b := make([]byte, (highest+1)*bytes)
	if n, _ := f.read(b, int64(table)); n < len(b) {
		return
	}
	inside, _ := slices.BinarySearch(f.known, at.addr)
	for ; len(b) > 0; b = b[bytes:] {
		to := table + uint64(int64(int32(binary.LittleEndian.Uint32(b))))
		if bytes == 8 {
			to = binary.LittleEndian.Uint64(b)
		}
		if n, _ := slices.BinarySearch(f.known, to+1); n != inside || !f.contains(to) || f.entries[to] != nil {
			return // the table has ended, or was none
		}
		f.todo = append(f.todo, place{to, at.state, at.of})
	}
}

// blocks returns how what was followed is unwound, if there is room for all.
func (f *follower) blocks() (blocks []*stackdeltatypes.BasicBlock) {
	var b *block
	for off := 0; off < len(f.code) && !f.full; {
		n, addr := f.at[off], f.start+uint64(off)
		if n < numReasons {
			if b != nil {
				b.End, b = addr, nil
			}
			off++
			continue
		}
		if b == nil {
			b = &block{stackdeltatypes.BasicBlock{Start: addr}}
			blocks = append(blocks, &b.BasicBlock)
			f.kept += blockBytes
			f.hasRoom()
		}
		b.add(addr, f.done[n].state.info())
		off += int(f.done[n].size)
		b.End = f.start + uint64(off)
	}
	return blocks
}
