package unwind

import (
	"encoding/binary"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"go.opentelemetry.io/ebpf-profiler/support"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// armSaid are letters for what is found at a place in code.
var armSaid = map[uint64]byte{
	armUnknown: '-', armIndexOf: 'i', armJumpsOn: 'j', armLink: 'l', armPushed: 'p', armFrame: 'f',
	armLink | 4<<support.HSTSIDStackDeltaBit: 'q',
}

// At each instruction of code, what the code does from there on says where the return address is, or nothing does.
func TestFollowedCode(t *testing.T) {
	testenv.NeedRoot(t)
	program := followProgram(t)
	for _, c := range []struct {
		name string
		code string // instructions, each with what is found before it, as in armSaid
	}{
		{"a stub without a frame", "l:f8408429 l:f100214a l:54ffffcc l:8b0a0020 l:d65f03c0"},
		{"one with a frame", "l:a9bf7bfd p:910003fd f:f8408429 f:94000400 f:910003bf f:a8c17bfd l:d65f03c0"},
		{"with more on the stack", "l:a9bf7bfd p:910003fd f:a9bf07e0 f:d63f0120 f:910003bf f:a8c17bfd l:d65f03c0"},
		{"what is jumped over does not count", "l:14000002 -:94000400 l:d65f03c0"},
		{
			"nor what is if a condition is true",
			"l:54000041 -:94000400 l:b400005d -:94000400 l:3700005e -:94000400 l:d65f03c0",
		},
		{"but if that leads back", "-:94000400 l:54ffffe1 l:b5ffffde l:36ffffbd l:d65f03c0"},
		{"a loop without an end", "-:f8408429 -:17ffffff"},
		{"after a call", "-:94000400 l:d65f03c0"},
		{"one by a register", "-:d63f0120 l:d65f03c0"},
		{"x30 from another register", "-:aa0903fe l:d65f03c0"},
		{"x30 from memory", "-:f9400bfe l:d65f03c0"},
		{"x30 with another", "-:a9407be9 l:d65f03c0"},
		{"first of two", "-:a94027fe l:d65f03c0"},
		{"by adr", "-:1000001e l:d65f03c0"},
		{"vectors of the same number", "l:3dc0001e l:ad40781d l:4c40781e l:4c9f781e l:d65f03c0"},
		{"a vector with sp", "-:4cdf7bfe l:d65f03c0"},
		{"a number for a vector, and back", "l:9e67001e l:9e66001b l:4e183fda l:d65f03c0"},
		{"back to x30", "-:9e66001e l:d65f03c0"},
		{"rounded", "-:9e78001e l:d65f03c0"},
		{"an element", "-:4e183c1e l:d65f03c0"},
		{"with its sign", "-:4e082c1e l:d65f03c0"},
		{"what is on the stack", "l:f94007e1 l:a94107e0 l:39400be2 l:38626be3 l:ad400be1 l:d65f03c0"},
		{"a load that moves sp", "-:f84107e1 l:d65f03c0"},
		{"a store that does", "-:f81f0fe1 l:d65f03c0"},
		{"of two", "-:a9bf3bec p:f100109f p:5400004b p:aa0c03e8 p:a8c13bec l:14000002 -:94000400 l:d65f03c0"},
		{"of four", "-:a9be57f4 q:a9015ff6 q:cb020084 q:a9415ff6 q:a8c257f4 l:d65f03c0"},
		{"of vectors", "-:6dbe27e8 q:6d012fea q:6d412fea q:6cc227e8 l:d65f03c0"},
		{"of four words", "-:29bf07e0 -:28c107e0 l:d65f03c0"},
		{"of sp and x30", "-:a8c17be9 l:d65f03c0"},
		{"more than is on the stack", "-:a8df87e0 q:a8c207e0 l:d65f03c0"},
		{"with a frame above", "-:a8c107e0 l:a9bf7bfd"},
		{"of two, before sp moves", "-:a9c107e0 l:d65f03c0"},
		{"of two, back", "-:a8ff07e0 l:d65f03c0"},
		{"sp by a number", "-:910083ff l:d65f03c0"},
		{"less", "-:d10083ff l:d65f03c0"},
		{"by a register", "-:8b2163ff l:d65f03c0"},
		{"aligned", "-:927cec3f l:d65f03c0"},
		{"comparisons with it", "l:eb2163ff l:f10083ff l:f27c001f l:d65f03c0"},
		{"x29 from another register, in a frame", "-:aa0903fd f:910003bf f:a8c17bfd l:d65f03c0"},
		{"x29 with another", "-:a94077e9 f:910003bf f:a8c17bfd l:d65f03c0"},
		{"x29 set without a frame", "-:910003fd f:910003bf -:d503201f -:a8c17bfd l:d65f03c0"},
		{"a branch with such numbers", "l:1400001d" + strings.Repeat(" -:00000000", 28) + " l:d65f03c0"},
		{"one that is not taken", "l:b400003d l:54ffffec l:3600003e l:d65f03c0"},
		{"by a register", "j:f8408429 j:d61f0120 l:d65f03c0"},
		{"with a frame removed before", "f:910003bf f:a8c17bfd j:b0000008 j:9102c108 j:d61f0100"},
		{"no return of this", "-:f8408429 -:d65f0120 -:d65f0bff"},
		{"a trap", "-:f8408429 -:d4200000 l:d65f03c0"},
		{"no code", "-:f8408429 -:00000000 l:d65f03c0"},
		{
			"indexOf of Latin-1 in JDK 17", `-:d10403ff i:b27d03ed i:910003e8 i:ac810100 i:f10005ad i:54ffffcc
			i:d100044a i:aa0103ed i:8b0e0024 i:d1000449 i:aa0303eb i:38401568 i:38286be9 i:f1000529 i:54ffffac
			i:8b020070 i:f85f8210 i:386a782c i:d1001d4a i:d378fe0b i:eb0c017f i:54000141 i:f86a6829 i:aa1003e8
			i:14000003 i:386a7868 i:386a7829 i:f100054a i:5400014b i:eb09011f i:54ffff60 i:386c6bee i:d100044a
			i:8b0e0021 i:eb04003f i:54fffdcd i:910403ff -:14000060 i:eb09011f i:54ffff01 i:cb0d0020 i:910403ff
			-:1400005e -:f100405f -:540000cb`,
		},
		{"a method's frame of that size", "-:f94007e1 -:a94f7bfd -:910403ff l:d65f03c0"},
		{"indexOf, after a call", "-:94000400 i:aa0103e0 i:910403ff"},
		{"with registers below", "-:a8c107e0 i:910403ff"},
		{"another size", "-:aa0103e0 -:910203ff"},
	} {
		code := make([]byte, 1<<11)
		var said []byte
		at := 512
		for i, instruction := range strings.Fields(c.code) {
			number, err := strconv.ParseUint(instruction[2:], 16, 32)
			assert.NilError(t, err)
			binary.LittleEndian.PutUint32(code[at+4*i:], uint32(number))
			said = append(said, instruction[0])
		}
		for i, want := range said {
			found := program(code, at+4*i)
			assert.Check(t, armSaid[found] == want, "%s: %x, not %c, at %x", c.name, found, want, code[at+4*i:][:4])
		}
	}
}

// followProgram returns what is found at a place in code.
func followProgram(t *testing.T) func(code []byte, at int) uint64 {
	space := newTable(t, ebpf.Array, movedSpace)
	run := newProgram(t, map[string]*ebpf.Map{recordsMap: space}, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
	}, lookUpRecord(-4, "end"), asm.Instructions{
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.LoadMem(asm.R8, asm.R6, 0, asm.DWord),
	}, armFollow(), asm.Instructions{
		asm.Mov.Imm(asm.R0, 0).WithSymbol(armDone),
		asm.Return().WithSymbol("end"),
	})
	return func(code []byte, at int) uint64 {
		run(addressOf(&code[at]))
		words := make([]byte, movedSpace)
		assert.NilError(t, space.Lookup(uint32(0), &words))
		return binary.LittleEndian.Uint64(words[armFound:])
	}
}

// blobProgram runs armBlobCode.
type blobProgram struct {
	jvmPlaces
	full               *ebpf.CollectionSpec
	blob               int16
	records, processes *ebpf.Map
	program            func(...uint64) uint32
	code               []byte // class CodeBlob, its name, and instructions
}

// Where code has what is known of it, and a process.
const (
	blobStart, blobSize, blobComplete, blobName, blobBytes = 0, 8, 12, 16, 24
	blobInstructions                                       = 128
	blobProcess                                            = 7
)

func newBlobProgram(t *testing.T) *blobProgram {
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	p := &blobProgram{full: full, code: make([]byte, 4*blobInstructions)}
	p.jvmPlaces, err = newJVMPlaces(full.Types, 0, armFields)
	assert.NilError(t, err)
	p.blob = p.offsets["hotspotUnwindScratch.codeblob"]
	p.records = newTable(t, ebpf.Array, full.Maps[recordsMap].ValueSize)
	p.processes = newTable(t, ebpf.Hash, full.Maps[hotspotMap].ValueSize)
	p.program = newProgram(t, map[string]*ebpf.Map{recordsMap: p.records, hotspotMap: p.processes}, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
	}, lookUpRecord(p.stack.key, "end"), asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Add.Imm(asm.R1, int32(p.blob)),
		asm.Mov.Imm(asm.R2, blobBytes),
		asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord),
		asm.Ja.Label(armBlob),
		asm.Return().WithSymbol(armBack),
		asm.Return().WithSymbol("end"),
	}, armBlobCode(readUser, p.jvmPlaces))
	return p
}

// begin begins with code of a name, and a frame of so many words.
func (p *blobProgram) begin(name string, size uint32) {
	clear(p.code)
	copy(p.code[blobBytes:], name)
	binary.LittleEndian.PutUint32(p.code[blobSize:], size)
	binary.LittleEndian.PutUint64(p.code[blobName:], addressOf(&p.code[blobBytes]))
}

// run returns the record after the code was read, with a record before in which some is set.
func (p *blobProgram) run(t *testing.T, usesOffsets byte, set func(record []byte)) []byte {
	process := make([]byte, p.full.Maps[hotspotMap].ValueSize)
	process[p.offsets["codeblob_codestart"]], process[p.offsets["codeblob_framesize"]] = blobStart, blobSize
	process[p.offsets["codeblob_framecomplete"]], process[p.offsets["codeblob_name"]] = blobComplete, blobName
	process[p.offsets["nmethod_uses_offsets"]] = usesOffsets
	assert.NilError(t, p.processes.Put(uint32(blobProcess), process))
	record := make([]byte, p.full.Maps[recordsMap].ValueSize)
	binary.LittleEndian.PutUint32(record[p.offsets["trace.pid"]:], blobProcess)
	set(record)
	assert.NilError(t, p.records.Put(uint32(0), record))
	assert.Equal(t, p.program(addressOf(&p.code[0])), uint32(0))
	assert.NilError(t, p.records.Lookup(uint32(0), &record))
	return record
}

// What is found is what the program is told of an innermost stub whose frame's size is not known, and indexOf's table
// is of a method's frame. Where nothing is found, and the engine knows nothing, there is no return address.
func TestLinkRegisterOfStub(t *testing.T) {
	testenv.NeedRoot(t)
	p := newBlobProgram(t)
	const table, link, none, stub = 0x5432_1000, 0xcafe, ^uint32(0), "StubRoutines (2)"
	const known = armFrame | table
	for _, c := range []struct {
		what, name string
		size       uint32
		isCaller   bool
		area       uint64 // what the engine has of it
		found      uint64

		wantSize uint32
		wantArea uint64
		wantLink uint64
	}{
		{"a stub", stub, 0, false, table, armLink, 0, armLink | table, link},
		{"one that has pushed its frame", stub, 0, false, table, armPushed, 0, armPushed | table, link},
		{"with its frame", stub, 0, false, table, armFrame, 0, armFrame | table, link},
		{"one that the engine takes for another", stub, 0, false, known, armLink, 0, armLink | table, link},
		{"one that only the engine knows", stub, 0, false, known, armUnknown, 0, known, link},
		{"one that nobody knows", stub, 0, false, table, armUnknown, 0, armLink | table, 0},
		{"what frees 256 bytes", stub, 0, false, table, armIndexOf, 0, armLink | table, 0},
		{"an adapter", "I2C/C2I adapters", 0, false, table, armUnknown, 0, armLink | table, 0},
		{"of C1", "slow_subtype_check Runtime1 stub", none, false, table, armLink, none, armLink | table, 0},
		{"that the engine knows", "slow_subtype_check Runtime1 stub", none, false, known, 0, none, armLink | table, 0},
		{"another of C1", "unwind_exception Runtime1 stub", none, false, table, 0, none, armLink | table, 0},
		{"of a known size", "SafepointBlob", 8, false, table, armLink, 8, table, link},
		{"a caller", stub, 0, true, table, armUnknown, 0, table, link},
		{"a table of methods", "vtable chunks", 0, false, table, armUnknown, 0, table, link},
		{"the interpreter", "Interpreter", 0, false, table, armUnknown, 0, table, link},
		{"a method", "nmethod", 8, false, table, armLink, 8, table, link},
		{"indexOf", "nmethod", 8, false, table, armIndexOf, 8 + 32, table, link},
		{"its caller", "nmethod", 8, true, table, armIndexOf, 8, table, link},
		{"a native method", "native nmethod", 8, false, table, armIndexOf, 8, table, link},
	} {
		p.begin(c.name, c.size)
		record := p.run(t, 0, func(record []byte) {
			binary.LittleEndian.PutUint64(record[p.offsets["state.text_section_id"]:], c.area)
			binary.LittleEndian.PutUint64(record[p.offsets["state.lr"]:], link)
			binary.LittleEndian.PutUint64(record[p.scratch+armFound:], c.found)
			if c.isCaller {
				record[p.offsets["state.return_address"]] = 1
			}
		})
		size := binary.LittleEndian.Uint32(record[p.blob+blobSize:])
		area := binary.LittleEndian.Uint64(record[p.offsets["state.text_section_id"]:])
		lr := binary.LittleEndian.Uint64(record[p.offsets["state.lr"]:])
		assert.Check(t, size == c.wantSize && area == c.wantArea && lr == c.wantLink,
			"%s: %d words, %#x, %#x", c.what, size, area, lr)
	}
}

// Stubs that begin with making a frame have x29 for it: those of C1, at the top and where they have called, and others
// that were called from where x29 says.
func TestFrameOfStub(t *testing.T) {
	testenv.NeedRoot(t)
	p := newBlobProgram(t)
	const table, link, ofC1, others = 0x5432_1000, 0xcafe, "g1_post_barrier_slow", "StubRoutines"
	const makes, saves, calls = "a9bf7bfd 910003fd", "a9bf13e3 a9bf13e3", "94000010 " // a call of what is 64 bytes on
	for _, c := range []struct {
		what, name string
		calls      string
		begins     string
		isCaller   bool
		found      uint64
		frame      int // where x29 is, in words from sp on

		want     uint64
		wantLink uint64
	}{
		{"of C1", ofC1, "", makes, false, armUnknown, 4, armFrame, link},
		{"of C1, at its end", ofC1, "", makes, false, armLink, 4, armLink, link},
		{"of C1, with its frame removed", ofC1, "", makes, false, armJumpsOn, 4, armLink, 0},
		{"of C1, with a frame below the stack", ofC1, "", makes, false, armUnknown, -1, armLink, 0},
		{"of C1, with one further up", ofC1, "", makes, false, armUnknown, armStubFrame/8 + 1, armLink, 0},
		{"of C1, which has called", ofC1, "", makes, true, armLink, 4, armFrame, link},
		{"of C1, without a frame", ofC1, "", saves, false, armLink, 4, armLink, 0},
		{"of C1, without, which has called", ofC1, "", saves, true, armUnknown, 4, armLink, 0},
		{"another", others, calls, makes, false, armUnknown, 4, armFrame, link},
		{"another, at its end", others, calls, makes, false, armLink, 4, armLink, link},
		{"another, without a frame", others, calls, saves, false, armUnknown, 4, armLink, 0},
		{"another, which nothing called", others, "14000010 ", makes, false, armUnknown, 4, armLink, 0},
		{"another than what was called", others, "94008010 ", makes, false, armUnknown, 4, armLink, 0},
		{"no frame of it", others, calls, makes, false, armUnknown, 2, armLink, 0},
		{"a frame below the stack", others, calls, makes, false, armUnknown, -1, armLink, 0},
		{"a frame further up", others, calls, makes, false, armUnknown, armStubFrame/8 + 1, armLink, 0},
		{"nothing there", others, calls, makes, false, armUnknown, armStubFrame / 8, armLink, 0},
	} {
		size := uint32(0)
		if c.name == ofC1 {
			size = ^size
		}
		p.begin(c.name, size)
		at := addressOf(&p.code[blobInstructions])
		for offset, code := range map[int]string{0: c.calls, 64: c.begins} {
			for i, instruction := range strings.Fields(code) {
				number, err := strconv.ParseUint(instruction, 16, 32)
				assert.NilError(t, err)
				binary.LittleEndian.PutUint32(p.code[blobInstructions+offset+4*i:], uint32(number))
			}
		}
		binary.LittleEndian.PutUint64(p.code[blobStart:], at+64)
		stack := make([]byte, 2*armStubFrame)
		for _, frame := range []int{4, armStubFrame/8 + 1} {
			binary.LittleEndian.PutUint64(stack[8+8*frame+8:], at+4)
		}
		record := p.run(t, 0, func(record []byte) {
			binary.LittleEndian.PutUint64(record[p.offsets["state.pc"]:], at+64+8)
			binary.LittleEndian.PutUint64(record[p.offsets["state.sp"]:], addressOf(&stack[8]))
			binary.LittleEndian.PutUint64(record[p.offsets["state.fp"]:], addressOf(&stack[8+8*c.frame]))
			binary.LittleEndian.PutUint64(record[p.offsets["state.text_section_id"]:], table)
			binary.LittleEndian.PutUint64(record[p.offsets["state.lr"]:], link)
			binary.LittleEndian.PutUint64(record[p.scratch+armFound:], c.found)
			if c.isCaller {
				record[p.offsets["state.return_address"]] = 1
			}
		})
		area := binary.LittleEndian.Uint64(record[p.offsets["state.text_section_id"]:])
		lr := binary.LittleEndian.Uint64(record[p.offsets["state.lr"]:])
		assert.Check(t, area == c.want|table && lr == c.wantLink, "%s: %#x, %#x", c.what, area, lr)
	}
}

// At each instruction that makes a method's frame, or comes between that and where the frame counts as made, the
// program is told how much of it there is.
func TestFrameOfMethod(t *testing.T) {
	testenv.NeedRoot(t)
	p := newBlobProgram(t)
	// from JDK 17 with ZGC
	const saved, kept = "l:18000148 ", "c:18000148 "
	const barrier = "c:d50339bf c:b9402789 c:6b09011f c:540000e0 c:d2869808 c:f2b19308 c:f2dfffe8 c:d63f0100 " +
		"c:14000002 c:00005800 -:0b02044a"
	for _, c := range []struct {
		what, name string
		size       uint32 // of the frame, in words
		// Instructions, each with what is said before it: - nothing, c that the frame is complete, l that its size is
		// on the stack, and x29 and x30 are the caller's. p and q are like l and c, of a frame of two words. At the
		// last instruction, the frame counts as made.
		code string
	}{
		{"small", "nmethod", 4, "-:d503201f -:d10083ff l:a9017bfd " + saved + barrier},
		{"the smallest", "nmethod", 2, "-:d10043ff l:a9007bfd " + saved + barrier},
		{"with a frame pointer", "nmethod", 4, "-:f900013f -:d10083ff l:a9017bfd l:910043fd " + kept + barrier},
		{"without a barrier", "nmethod", 4, "-:d503201f -:d10083ff l:a9017bfd -:52800020"},
		{"large", "nmethod", 68, "-:a9bf7bfd p:d10843ff " + kept + barrier},
		{"with a frame pointer, large", "nmethod", 68, "-:a9bf7bfd p:910003fd q:d10843ff " + kept + barrier},
		{"of 4096 bytes and more", "nmethod", 520, "-:a9bf7bfd p:910003fd q:d2820608 q:cb2863ff " + kept + barrier},
		{"native", "native nmethod", 14, "-:a9bf7bfd p:910003fd q:d10183ff " + kept + barrier},
		{"native, without a barrier", "native nmethod", 14, "-:a9bf7bfd p:910003fd q:d10183ff -:52800020"},
		{"of another size", "nmethod", 10, "-:d10083ff -:a9017bfd -:18000168 -:52800020"},
		{"of no method", "vtable chunks", 4, "-:d10083ff -:a9017bfd -:18000168 -:52800020"},
	} {
		p.begin(c.name, c.size)
		instructions := strings.Fields(c.code)
		for i, instruction := range instructions {
			number, err := strconv.ParseUint(instruction[2:], 16, 32)
			assert.NilError(t, err)
			binary.LittleEndian.PutUint32(p.code[blobInstructions+4*i:], uint32(number))
		}
		made := 4 * (len(instructions) - 1)
		binary.LittleEndian.PutUint16(p.code[blobComplete:], uint16(made))
		at := addressOf(&p.code[blobInstructions])
		for usesOffsets, start := range []uint64{at, 1<<32 | blobInstructions} {
			binary.LittleEndian.PutUint64(p.code[blobStart:], start)
			for i, instruction := range instructions {
				size, complete := c.size, made
				switch instruction[0] {
				case 'l':
					complete = 4*i + 4
				case 'c':
					complete = 0
				case 'p':
					size, complete = 2, 4*i+4
				case 'q':
					size, complete = 2, 0
				}
				record := p.run(t, byte(usesOffsets), func(record []byte) {
					binary.LittleEndian.PutUint64(record[p.offsets["state.pc"]:], at+4*uint64(i))
				})
				foundSize := binary.LittleEndian.Uint32(record[p.blob+blobSize:])
				found := binary.LittleEndian.Uint16(record[p.blob+blobComplete:])
				assert.Check(t, foundSize == size && int(found) == complete,
					"%s: %d words, complete at %d, not %d, %d, at %s",
					c.what, foundSize, found, size, complete, instruction)
			}
		}
	}
}

// What a method does after a call says how much it has on the stack beside its frame, which is complete where it has
// called a barrier.
func TestFrameOfCaller(t *testing.T) {
	testenv.NeedRoot(t)
	p := newBlobProgram(t)
	const size, complete, back = 6, 0x40, " 17ffff9c"
	for _, c := range []struct {
		what, name string
		code       string // from one instruction before the call on
		words      uint32 // that are on the stack
		isComplete bool
	}{
		{"none", "nmethod", "d503201f d63f0100 aa0003e1" + back, 0, false},
		{"a check of types of C1", "nmethod", "d503201f 94000064 a8c10be0 34000062", 2, true},
		{"two registers", "nmethod", "d503201f d63f0100 a8c107e0" + back, 2, true},
		{"four, and what was returned", "nmethod", "d503201f d63f0100 aa0003e1 a9410fe2 a8c207e0" + back, 4, true},
		{"vectors", "nmethod", "d503201f d63f0100 ad410fe2 acc207e0 6d410fe2 6cc207e0 2518e3e7 a9427fea " +
			"a8c207e0" + back, 8 + 4 + 4, true},
		{"one vector", "nmethod", "d503201f d63f0100 fd400bf2 fc4107f0 3dc00be5 3cc107e5" + back, 2 + 2, true},
		{"x29 and x30 of vectors", "nmethod", "d503201f d63f0100 6cc17bfd" + back, 2, true},
		{"arguments of a stub of C1", "nmethod", "d503201f 94000064 910043ff" + back, 2, true},
		{"with a register", "nmethod", "d503201f 94000064 aa0003e1 f9400be0 910083ff" + back, 4, true},
		{"all registers", "nmethod", "d503201f d63f0100" + strings.Repeat(" 6d410fe2", armRestores-2) +
			" a8c907e0" + back, 18, true},
		{"more", "nmethod", "d503201f d63f0100" + strings.Repeat(" 6d410fe2", armRestores-1) + " a8c907e0" + back,
			0, false},
		{"where the return address is", "nmethod", "a9bf27ff d63f0100 910043ff" + back, 0, false},
		{"a frame is removed", "nmethod", "d503201f d63f0100 a9417bfd 910083ff" + back, 0, false},
		{"a large one", "nmethod", "d503201f d63f0100 910083ff a8c17bfd" + back, 0, false},
		{"no branch", "nmethod", "d503201f d63f0100 a8c107e0 f941f788", 0, false},
		{"another register is loaded", "nmethod", "d503201f d63f0100 f941f788 a8c107e0" + back, 0, false},
		{"another code", "SafepointBlob", "d503201f d63f0100 a8c107e0" + back, 0, false},
		{"of a native method", "native nmethod", "d503201f d63f0100 a8c107e0" + back, 2, true},
		{"a barrier", "nmethod", "d503201f d63f0100 14000002 00005800 52800020", 0, true},
		{"of a native one", "native nmethod", "d503201f d63f0100 14000002 00005800 52800020", 0, true},
		{"no barrier", "nmethod", "d503201f 94000064 14000002 00005800 52800020", 0, false},
		{"a barrier of other code", "vtable chunks", "d503201f d63f0100 14000002 00005800 52800020", 0, false},
	} {
		p.begin(c.name, size)
		binary.LittleEndian.PutUint16(p.code[blobComplete:], complete)
		for i, instruction := range strings.Fields(c.code) {
			number, err := strconv.ParseUint(instruction, 16, 32)
			assert.NilError(t, err)
			binary.LittleEndian.PutUint32(p.code[blobInstructions+4*i:], uint32(number))
		}
		wantComplete := uint16(complete)
		if c.isComplete {
			wantComplete = 0
		}
		record := p.run(t, 0, func(record []byte) {
			record[p.offsets["state.return_address"]] = 1
			binary.LittleEndian.PutUint64(record[p.offsets["state.pc"]:], addressOf(&p.code[blobInstructions])+8)
		})
		words := binary.LittleEndian.Uint32(record[p.blob+blobSize:]) - size
		found := binary.LittleEndian.Uint16(record[p.blob+blobComplete:])
		assert.Check(t, words == c.words && found == wantComplete, "%s: %d words, complete at %d", c.what, words, found)
	}
}

// At each instruction of a method that calls a barrier, what it does next says how much is on the stack.
func TestStackOfMethod(t *testing.T) {
	testenv.NeedRoot(t)
	p := newBlobProgram(t)
	const size = 6
	for _, c := range []struct {
		what, code string // instructions, each with how many words are on the stack before it
	}{
		{"registers", "0:a9bc07e0 8:a9010fe2 8:aa1403e0 8:d2824688 8:f2a24688 8:d63f0100 8:aa0003e5 8:a9410fe2 " +
			"8:a8c407e0 0:17ffff9c"},
		{"vectors", "0:a9bc07e0 8:6dbf07e0 10:3c9f0fe5 12:fc1f0ff0 14:91006141 14:8b0b0d41 14:8b2bc941 14:90000008 " +
			"14:d63f0100 14:fc4107f0 12:3cc107e5 10:6cc107e0 8:2518e3e7 8:a8c407e0 0:17ffff9c"},
		{"four vectors", "0:adbe07e0 8:ad010fe2 8:d63f0100 8:ad410fe2 8:acc207e0 0:17ffff9c"},
		{"of C1", "0:d10083ff 4:f9000be0 4:a90003ea 4:94000064 4:aa0003e1 4:f9400be0 4:910083ff 0:17ffff9c"},
		{"of C1, without a register", "0:d10043ff 2:f90003e0 2:94000064 2:910043ff 0:17ffff9c"},
		{"sp by a register", "0:8b2863ff 8:a8c407e0 0:17ffff9c"},
		{"by another number", "0:d100c3ff 0:9100c3ff 0:17ffff9c"},
		{"a check of types", "0:a9bf03e2 2:94000064 2:a8c10be0 0:34000062 0:aa0003e5"},
		{"likewise, the other way", "0:a9bf03e2 2:94000064 2:a8c10be0 0:b5000062 0:aa0003e5"},
		{"with a condition", "0:a9bf03e2 2:94000064 2:a8c10be0 0:54000041 0:aa0003e5"},
		{"a branch before", "0:54000040 8:a8c407e0 0:17ffff9c"},
		{"a frame that is removed", "0:a9417bfd 0:910083ff 0:17ffff9c"},
		{"a call that leaves nothing", "0:aa1403e0 0:94000064 0:aa0003e5 0:17ffff9c"},
	} {
		p.begin("nmethod", size)
		at := addressOf(&p.code[blobInstructions])
		binary.LittleEndian.PutUint64(p.code[blobStart:], at)
		instructions := strings.Fields(c.code)
		for i, instruction := range instructions {
			_, digits, _ := strings.Cut(instruction, ":")
			number, err := strconv.ParseUint(digits, 16, 32)
			assert.NilError(t, err)
			binary.LittleEndian.PutUint32(p.code[blobInstructions+4*i:], uint32(number))
		}
		for i, instruction := range instructions {
			want, _, _ := strings.Cut(instruction, ":")
			record := p.run(t, 0, func(record []byte) {
				binary.LittleEndian.PutUint64(record[p.offsets["state.pc"]:], at+4*uint64(i))
			})
			words := binary.LittleEndian.Uint32(record[p.blob+blobSize:]) - size
			assert.Check(t, strconv.Itoa(int(words)) == want, "%s: %d words at %s", c.what, words, instruction)
		}
	}
}

// Behind the end of a method's frame, and a branch, the frame is there: the program finds no end.
func TestBehindFrame(t *testing.T) {
	testenv.NeedRoot(t)
	p := newBlobProgram(t)
	const stops = " y:10000008 y:f9024388 y:14000000 "
	for _, c := range []struct{ what, code string }{ // instructions, each with whether an end before it is one
		{"a tail call", "y:a9417bfd y:910083ff y:17ffff9c n:f9400be1 n:b4000041 n:aa1403e0 y:d503201f"},
		{"a far one", "y:a9417bfd y:910083ff y:b0000008 y:9102c108 y:d61f0100 n:f9400be1 y:aa1403e0"},
		{"a return", "y:a9417bfd y:910083ff y:d65f03c0 n:f9400be1 n:b4000041 n:aa1403e0 y:d503201f"},
		{"after an instruction", "y:a9417bfd y:910083ff y:d503201f y:d65f03c0 n:f9400be1 n:b4000041 y:aa1403e0"},
		{"a poll", "y:a9417bfd y:910083ff y:f941f788 y:eb2863ff y:54000048 y:d65f03c0 y:f9400be1"},
		{"a poll by memory", "y:a9417bfd y:910083ff y:b0000008 y:b940011f y:d65f03c0 n:f9400be1 y:aa1403e0"},
		{"a call", "y:a9417bfd y:910083ff y:d63f0100 y:94000064 y:f9400be1"},
		{"another end", "y:a9417bfd y:910083ff y:d65f03c0 n:a9417bfd n:910083ff y:f941f788 y:d65f03c0"},
		{"code that stops on return", "y:a9417bfd y:910083ff y:17ffff9c" + stops + "y:d503201f"},
		{"further on", "y:a9417bfd y:910083ff y:b0000008 y:9102c108 y:d61f0100" + stops},
		{"where that would be saved elsewhere", "y:a9417bfd y:910083ff y:17ffff9c n:10000008 n:f90243e8 n:d503201f"},
		{"no frame", "y:a9410fe2 y:910083ff y:17ffff9c y:f9400be1 y:b4000041"},
	} {
		p.begin("nmethod", 4)
		at := addressOf(&p.code[blobInstructions])
		binary.LittleEndian.PutUint64(p.code[blobStart:], at)
		for i, instruction := range strings.Fields(c.code) {
			number, err := strconv.ParseUint(instruction[2:], 16, 32)
			assert.NilError(t, err)
			binary.LittleEndian.PutUint32(p.code[blobInstructions+4*i:], uint32(number))
		}
		for i, instruction := range strings.Fields(c.code) {
			record := p.run(t, 0, func(record []byte) {
				binary.LittleEndian.PutUint64(record[p.offsets["state.pc"]:], at+4*uint64(i))
			})
			found := binary.LittleEndian.Uint64(record[p.scratch+armFound:])
			assert.Check(t, found == map[byte]uint64{'n': armBehindEnd}[instruction[0]], "%s: %d at %s",
				c.what, found, instruction)
		}
	}
}

// Code in which the program would look for the end of a frame is read, unless that is behind one.
func TestBehindFrameNothingIsRead(t *testing.T) {
	testenv.NeedRoot(t)
	p := newBlobProgram(t)
	program := newProgram(t, map[string]*ebpf.Map{recordsMap: p.records}, asm.Instructions{
		asm.LoadMem(asm.R3, asm.R1, 0, asm.DWord),
		asm.Mov.Imm(asm.R2, 8),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, int32(p.stack.window)),
		asm.Ja.Label(armEnd),
		asm.JEq.Imm(asm.R0, 0, "end").WithSymbol(armEndBack),
		asm.Mov.Imm(asm.R0, 1),
		asm.Return().WithSymbol("end"),
	}, armEndCode(readUser, p.jvmPlaces))
	for found, fails := range map[uint64]uint32{armUnknown: 0, armIndexOf: 0, armBehindEnd: 1, armLink: 0} {
		record := make([]byte, p.full.Maps[recordsMap].ValueSize)
		binary.LittleEndian.PutUint64(record[p.scratch+armFound:], found)
		assert.NilError(t, p.records.Put(uint32(0), record))
		assert.Equal(t, program(addressOf(&p.code[0])), fails, "%#x", found)
		assert.Equal(t, program(0), uint32(1), "%#x", found)
	}
}
