package unwind

import (
	"encoding/binary"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// A stub's frame has the size that its code says, where it makes or has removed it. Elsewhere, rbp is of it only where
// its return address is that of a call to code nearby that makes a frame; it is never of an adapter.
func TestReturnAddressOfStub(t *testing.T) {
	testenv.NeedRoot(t)
	program := barrierProgram(t)
	code := make([]byte, 4*stubDistance)
	base := addressOf(&code[0])
	const stub, frameless, far = 64, 96, 3 * stubDistance
	copy(code[stub:], "\x55\x48\x8b\xec\x90\x90\xc9\xc3")
	copy(code[far:], code[stub:stub+8])
	const begins, pushed, inside, leaves, returns = stub, stub + 1, stub + 4, stub + 6, stub + 7
	end := 128
	call := func(target int) (returned int) {
		code[end] = x86Call
		binary.LittleEndian.PutUint32(code[end+1:], uint32(int32(target-end-5)))
		end += 32
		return end - 32 + 5
	}
	byRegister := func(target int, load, call string) (returned int) {
		at := end + copy(code[end:], load)
		binary.LittleEndian.PutUint64(code[at:], base+uint64(target))
		end += 32
		return at + 8 + copy(code[at+8:], call)
	}
	const load, callR10 = "\x49\xba", "\x41\xff\xd2"
	direct := call(stub)
	innermost := stubFrame{innermost: true}
	for _, c := range []struct {
		name        string
		size        uint32
		pc, returns int
		stub        stubFrame
		isKnown     bool
		wantSize    uint32
	}{
		{"inside", 0, inside, direct, innermost, true, 0},
		{"before it leaves", 0, leaves, direct, innermost, true, 0},
		{"called by a register", 0, inside, byRegister(stub, load, callR10), innermost, true, 0},
		{"by another one", 0, inside, byRegister(stub, "\x49\xbb", callR10), innermost, false, 0},
		{"by a call of another one", 0, inside, byRegister(stub, load, "\x41\xff\xd3"), innermost, false, 0},
		{"the frame of what called another", 0, inside, call(frameless), innermost, false, 0},
		{"of what called one far away", 0, inside, call(far), innermost, false, 0},
		{"behind no call", 0, inside, far, innermost, false, 0},
		{"where it begins", 0, begins, far, innermost, false, 1},
		{"with rbp pushed", 0, pushed, far, innermost, false, 2},
		{"where it returns", 0, returns, far, innermost, false, 1},
		{"of C1, inside", ^uint32(0), inside, far, innermost, true, 0},
		{"of C1, where it begins", ^uint32(0), begins, far, innermost, true, 1},
		{"a method's", 6, begins, far, innermost, true, 6},
		{"by its size", 0, inside, far, stubFrame{innermost: true, elsewhere: true}, true, 0},
		{"an adapter's", 0, inside, direct, stubFrame{name: [8]byte{'I', '2', 'C', '/', 'C'}}, false, testFrameSize},
		{"what called native code", 0, inside, far, stubFrame{name: [8]byte{'S', 't', 'u', 'b'}}, true, testFrameSize},
	} {
		returned := base + uint64(c.returns)
		got, _, size, _ := program(&readFrame{c.size, [3]uint64{0, returned}, 1, base + uint64(c.pc), &c.stub})
		want := returned
		if !c.isKnown {
			want = 0
		}
		assert.Check(t, got == want && size == c.wantSize, "%s: %#x, not %#x; %d words", c.name, got, want, size)
	}
}
