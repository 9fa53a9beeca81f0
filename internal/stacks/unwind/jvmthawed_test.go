package unwind

import (
	"runtime"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// The rbp that a thawed frame has saved is not that of enterSpecial, to which it returns: it is replaced where it is
// near the frame. Others are as they are read.
func TestThawedCode(t *testing.T) {
	testenv.NeedRoot(t)
	program := barrierProgram(t)
	code := new([32]byte)
	const (
		nop     = "\x0f\x1f\x84\x00\x43\x02\x00\x02"
		restore = "\x48\x8b\x5c\x24\x28\x49\x89\x9f\x20\x06\x00\x00" // mov rbx, [rsp+0x28]; mov [r15+0x620], rbx
	)
	for _, c := range []struct {
		name, code string
		above      uint64 // how far rbp is above the frame
		isReplaced bool
	}{
		{"at the end of the frame", nop + restore, 16, true},
		{"above enterSpecial's", nop + restore, 16 + 80 + 40, true},
		{"far above", nop + restore, 1 << 20, false},
		{"below", nop + restore, ^uint64(31), false},
		{"before it was frozen", nop + "\xeb\x0d" + restore, 16 + 64, false}, // jmp
		{"no nop", "\x48\x8b\x84\x00\x43\x02\x00\x02" + restore, 16, false},
		{"another register", nop + "\x48\x8b\x5c\x24\x28\x49\x89\x87\x20\x06\x00\x00", 16, false},
		{"another load", nop + "\x48\x8b\x44\x24\x28\x49\x89\x9f\x20\x06\x00\x00", 16, false},
	} {
		copy(code[:], c.code)
		frame := &readFrame{testFrameSize, [3]uint64{0, addressOf(&code[0])}, 1, 0, nil}
		frame.words[0] = addressOf(&frame.words) + c.above
		returns, rbp, _, _ := program(frame)
		want := frame.words[0]
		if c.isReplaced {
			want |= 0xffffffff << 32
		}
		runtime.KeepAlive(code)
		assert.Check(t, returns == addressOf(&code[0]) && rbp == want, "%s: %#x, not %#x", c.name, rbp, want)
	}
}
