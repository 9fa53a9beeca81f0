package unwind

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"go.opentelemetry.io/ebpf-profiler/support"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// A method that a barrier has interrupted is found above what the barrier's stub has pushed, and its frame is complete
// and has one word more. Other frames are as they are read, also of that method where another call has interrupted it,
// and of a later stack, maybe of another process.
func TestBarrierCode(t *testing.T) {
	testenv.NeedRoot(t)
	program := barrierProgram(t)
	const caller, rbp = 0x7f0000001040, 0x7ffc00001000
	for _, c := range []struct {
		name string
		readFrame
		want        uint64 // return address
		isCompleted bool
	}{
		{"of a barrier", readFrame{0, [3]uint64{rbp, ^uint64(0), caller}, 1, caller, nil}, caller, true},
		{
			"of another stub", readFrame{0, [3]uint64{rbp, caller + 64, ^uint64(0)}, 2, caller + 64, nil}, caller + 64,
			false,
		},
		{"of a method", readFrame{2, [3]uint64{rbp, ^uint64(0), caller}, 3, caller, nil}, ^uint64(0), false},
		{"another method above", readFrame{0, [3]uint64{rbp, ^uint64(0), caller}, 4, caller + 64, nil}, caller, false},
		{"the method behind it", readFrame{2, [3]uint64{rbp, caller, rbp}, 4, caller, nil}, caller, true},
		{"there, in the next stack", readFrame{2, [3]uint64{rbp, caller, rbp}, 5, caller, nil}, caller, false},
	} {
		returns, _, size, complete := program(&c.readFrame)
		assert.Check(t, returns == c.want, "%s: %#x", c.name, returns)
		wantSize, wantComplete := uint32(testFrameSize), uint16(testComplete)
		if c.isCompleted {
			wantSize, wantComplete = testFrameSize+1, 0
		}
		assert.Check(t, size == wantSize && complete == wantComplete, "%s: %d words, complete at %d", c.name, size,
			complete)
	}
}

// What the method of barrierProgram says of its frame.
const (
	testFrameSize = 6
	testComplete  = 32
)

// readFrame is a frame that is read, and the program counter of the next one.
type readFrame struct {
	size      uint32    // what the frame's method says, in words
	words     [3]uint64 // rbp, return address, and the word above
	stack, pc uint64    // the stack's time
	stub      *stubFrame
}

// stubFrame is what is of interest of a frame of a stub.
type stubFrame struct {
	innermost bool // and the next one as well, which has the same size
	elsewhere bool // the frame is not where rbp points
	name      [8]byte
}

// barrierProgram returns a program that says the return address it reads of a frame, and rbp, and then what it reads of
// a method, as that of the next frame: its size in words and where it is complete. Its record stays from call to call.
func barrierProgram(t *testing.T) func(*readFrame) (returns, rbp uint64, size uint32, complete uint16) {
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	read, err := readOffsets(full.Types,
		map[string][]string{"PerCPURecord": {"trace.value", "state.text_section_bias"}})
	assert.NilError(t, err)
	result, resultRBP := read["trace.value"], read["state.text_section_bias"]
	const buffer = -16
	p, err := newJVMPlaces(full.Types, buffer, methodFields)
	assert.NilError(t, err)
	offsets := p.offsets
	records := newTable(t, ebpf.Array, full.Maps[recordsMap].ValueSize)
	processes := newTable(t, ebpf.Hash, full.Maps[hotspotMap].ValueSize)
	const pid, codeStart, frameComplete, frameSize, codeName = 7, 8, 16, 24, 32
	process := make([]byte, full.Maps[hotspotMap].ValueSize)
	process[offsets["codeblob_codestart"]] = codeStart
	process[offsets["codeblob_framecomplete"]] = frameComplete
	process[offsets["codeblob_framesize"]] = frameSize
	process[offsets["codeblob_name"]] = codeName
	assert.NilError(t, processes.Put(uint32(pid), process))
	method := make([]byte, 32)
	binary.LittleEndian.PutUint16(method[frameComplete:], testComplete)

	codeblob := offsets["hotspotUnwindScratch.codeblob"]
	run := newProgram(t, map[string]*ebpf.Map{recordsMap: records, hotspotMap: processes}, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, buffer),
		asm.Mov.Imm(asm.R2, 16),
		asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord),
		asm.Ja.Label(jvmFrameRead),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(jvmFrameReadBack),
	}, lookUpRecord(p.stack.key, "end"), asm.Instructions{
		asm.LoadMem(asm.R1, asm.RFP, buffer+8, asm.DWord),
		asm.StoreMem(asm.R0, result, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, buffer, asm.DWord),
		asm.StoreMem(asm.R0, resultRBP, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Add.Imm(asm.R1, int32(codeblob)),
		asm.Mov.Imm(asm.R2, int32(len(method))),
		asm.LoadMem(asm.R3, asm.R6, 8, asm.DWord),
		asm.Ja.Label(jvmMethod),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(jvmMethodBack),
		asm.Return().WithSymbol("end"),
	}, barrierCode(readUser, p), methodCode(readUser, p))
	return func(frame *readFrame) (returns, rbp uint64, size uint32, complete uint16) {
		record := make([]byte, full.Maps[recordsMap].ValueSize)
		assert.NilError(t, records.Lookup(uint32(0), &record))
		binary.LittleEndian.PutUint64(record[offsets["trace.ktime"]:], frame.stack)
		binary.LittleEndian.PutUint64(record[offsets["state.pc"]:], frame.pc)
		binary.LittleEndian.PutUint32(record[int(codeblob)+frameSize:], frame.size)
		binary.LittleEndian.PutUint32(record[offsets["trace.pid"]:], pid)
		record[offsets["state.return_address"]] = 1
		binary.LittleEndian.PutUint32(method[frameSize:], testFrameSize)
		if stub := frame.stub; stub != nil {
			binary.LittleEndian.PutUint64(record[int(codeblob)+codeName:], addressOf(&stub.name))
			rbp := addressOf(&frame.words)
			if stub.elsewhere {
				rbp += 8
			}
			binary.LittleEndian.PutUint64(record[offsets["state.fp"]:], rbp)
			if stub.innermost {
				record[offsets["state.return_address"]] = 0
				binary.LittleEndian.PutUint32(method[frameSize:], frame.size)
			}
		}
		assert.NilError(t, records.Put(uint32(0), record))
		run(addressOf(&frame.words), addressOf(&method[0]))
		assert.NilError(t, records.Lookup(uint32(0), &record))
		blob := record[codeblob:]
		return binary.LittleEndian.Uint64(record[result:]), binary.LittleEndian.Uint64(record[resultRBP:]),
			binary.LittleEndian.Uint32(blob[frameSize:]), binary.LittleEndian.Uint16(blob[frameComplete:])
	}
}
