package unwind

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// At each instruction of String.indexOf as C2 compiles it, it is known by how many words rsp was moved, or, between
// where rcx is the stack pointer and where it is pushed, that this is not known if rcx is not. Before it, after it, and
// in code that only has some of its instructions, rsp was not moved, whatever is on the stack and in rcx.
func TestMovedCode(t *testing.T) {
	testenv.NeedRoot(t)
	program := movedProgram(t)
	for _, c := range []struct {
		// instructions, each with what is so before it: - other code, k: rcx is what rsp was, p: so is the word at rsp;
		// and by how many words rsp was moved
		name, code string
	}{
		{
			"of a text that is not known, JDK 17", `-0:4b8d7ccc10 -0:488bcc k0:83f808 k0:7356 k0:8bde
			k0:81e3ff0f0000 k0:7617 k0:4883ec10 k2:50 k3:0fb65c06ff k3:885c0407 k3:48ffc8 k3:75f2 k3:58 k2:488bf4
			k2:83fa08 k2:4883ec10 k4:50 k5:8bc2 k5:668c5c4406 k5:58 k4:488bfc k4:c4e2793006 k4:50 k5:56 k6:57 k7:51
			p8:488bdf p8:eb23 p8:488b742410 p8:c4e3796103 p8:488d5c53f0 p8:bbffffffff p8:03c8 p8:488b7c2408 p8:482bdf
			p8:d1eb p8:5c -0:8bc3 -0:4883c420`,
		},
		{
			"without copies, Latin-1", `-0:488bcc k0:83f810 k0:50 k1:56 k2:57 k3:51 p4:488bdf p4:488b7c2408 p4:482bdf
			p4:5c -0:8bc3 -0:eb00 -0:488bcc k0:50 k1:56 k2:57 k3:51 p4:482bdf p4:5c -0:c3`,
		},
		{
			"of a text that is known, JDK 11", `-0:488bcc k0:83fa08 k0:4883ec10 k2:8bc2 k2:488bfc k2:b803000000 k2:51
			p3:488bdf p3:482bdf p3:c1eb01 p3:5c -0:8bc3`,
		},
		{"other code", "-0:50 -0:56 -0:57 -0:90 -0:5c -0:b900000051 -0:488bec -0:51 -0:83c000 -0:00000051 -0:90"},
	} {
		code, at := make([]byte, 1024), 512
		type place struct {
			at, words int
			state     byte
		}
		var places []place
		for instruction := range strings.FieldsSeq(c.code) {
			before, digits, _ := strings.Cut(instruction, ":")
			bytes, err := hex.DecodeString(digits)
			assert.NilError(t, err)
			places = append(places, place{at, int(before[1] - '0'), before[0]})
			at += copy(code[at:], bytes)
		}
		for _, p := range places {
			of := code[p.at : p.at+8]
			switch p.state {
			case '-':
				for above := range int64(movedBytes) {
					got := program(code, p.at, 2, above)
					assert.Check(t, got == 0, "%s: %d words at %x, rcx is %d above rsp", c.name, got, of, above)
				}
				assert.Check(t, program(code, p.at, 2, movedUnknown) == 0, "%s: at %x, rcx is not known", c.name, of)
			case 'k':
				got := program(code, p.at, 0, int64(8*p.words))
				assert.Check(t, got == p.words, "%s: %d words at %x, rcx is %d above", c.name, got, of, p.words)
				got = program(code, p.at, 3, movedUnknown)
				assert.Check(t, got == movedUnknown, "%s: %d words at %x, rcx is not known", c.name, got, of)
			case 'p':
				for _, rcx := range []int64{movedUnknown, 8, 1 << 40} {
					got := program(code, p.at, p.words, rcx)
					assert.Check(t, got == p.words, "%s: %d words at %x, rcx is %d above", c.name, got, of, rcx)
				}
			}
		}
	}
}

// What looks like the kept stack pointer but is none, since it is too far or between words, ends the stack.
func TestMovedCodeOfNoStack(t *testing.T) {
	testenv.NeedRoot(t)
	program := movedProgram(t)
	kept, pushed := make([]byte, 1024), make([]byte, 1024)
	copy(kept[512-6:], "\x48\x8b\xcc\x48\xff\xc8")
	copy(pushed[512-6:], "\x50\x56\x57\x51\x8b\xdf")
	assert.Check(t, program(kept, 512, 0, 8) == 1)
	assert.Check(t, program(kept, 512, 0, 12) == movedUnknown)
	assert.Check(t, program(kept, 512, 2, 1<<40) == movedUnknown)
	assert.Check(t, program(pushed, 512, 8, 8) == 8)
	assert.Check(t, program(pushed, 512, 9, 8) == movedUnknown)
	assert.Check(t, program(pushed, 512, 0, 8) == movedUnknown)
}

// movedProgram returns by how many words rsp was moved at a place in code, if the word at rsp is an address so many
// words above it, and rcx is so many bytes above it.
func movedProgram(t *testing.T) func(code []byte, at, words int, rcx int64) int {
	space := newTable(t, ebpf.Array, movedSpace)
	run := newProgram(t, map[string]*ebpf.Map{recordsMap: space}, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
	}, lookUpRecord(-4, "end"), asm.Instructions{
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.StoreImm(asm.R7, movedWords, 0, asm.Word),
		asm.LoadMem(asm.R9, asm.R6, 0, asm.DWord),
		asm.LoadMem(asm.R8, asm.R6, 8, asm.DWord),
		asm.LoadMem(asm.R0, asm.R6, 16, asm.DWord),
	}, movedCode(), asm.Instructions{
		asm.LoadMem(asm.R0, asm.R7, movedWords, asm.Word).WithSymbol(jvmMovedDone),
		asm.Return().WithSymbol("end"),
	})
	return func(code []byte, at, words int, rcx int64) int {
		top := new(uint64) // of the stack
		*top = addressOf(top) + 8*uint64(words)
		return int(int32(run(addressOf(&code[at]), addressOf(top), uint64(rcx))))
	}
}
