package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/interpreter"
	"go.opentelemetry.io/ebpf-profiler/interpreter/hotspot"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
	"go.opentelemetry.io/ebpf-profiler/util"

	"correlator/memread"
)

// maxDebugBytes bounds the table of what is known about places in one compiled method, as the
// engine does.
const maxDebugBytes = 1 << 20

// jvmCode reads the code of a JVM. What the engine keeps of a JVM by addresses, it would use for ever:
// also when another class has come to the place of one that was unloaded. So it begins anew with each
// request.
type jvmCode struct {
	data   interpreter.Data
	pid    libpf.PID
	bias   libpf.Address
	from   io.ReaderAt      // memory of the process
	batch  *memread.Process // the same, many places at once
	budget *budget
	pages  *pages                    // of it, each read once in a request
	memory remotememory.RemoteMemory // through pages
	debug  debugLayout

	request interpreter.Instance // of the request that is served; nil: none yet
	alone   int                  // words of it that were symbolized alone
}

var errNoJVM = errors.New("no JVM is mapped")

// openJVMCode returns the code of the JVM that a target has mapped, which must be ready.
func openJVMCode(t *target, pages *pages) (*jvmCode, error) {
	m := t.jvm
	if m == nil {
		return nil, errNoJVM
	}
	file := pfelf.NewReferenceWithOpenFunc(m.Path, t, func() (*pfelf.File, error) {
		return process.OpenELFMapping(t, m)
	})
	defer file.Close()
	elf, err := file.GetELF()
	if err != nil {
		return nil, err
	}
	mapper := elf.GetAddressMapper()
	inFile, ok := mapper.FileOffsetToVirtualAddress(m.FileOffset)
	if !ok {
		return nil, fmt.Errorf("offset %d of %s is not mapped", m.FileOffset, m.Path)
	}
	c := &jvmCode{pid: t.PID(), bias: libpf.Address(m.Vaddr - inFile), from: t.GetRemoteMemory().ReaderAt, pages: pages,
		batch: t.batch, budget: t.budget}
	c.begin()
	defer c.end()
	c.memory = remotememory.RemoteMemory{ReaderAt: pages}
	c.data, err = hotspot.GetLoader(hotspot.Config{})(noTables{}, interpreter.NewLoaderInfo(0, file, nil))
	if err != nil {
		return nil, err
	}
	if c.data == nil {
		return nil, errNoJVM
	}
	first, err := c.data.Attach(noTables{}, c.pid, c.bias, c.memory)
	if err != nil {
		return nil, err
	}
	if err := first.SynchronizeMappings(noTables{}, nil, t, nil); err != nil { // it reads the JVM's layout
		return nil, err
	}
	return c, c.readDebugLayout(elf)
}

// begin prepares a request.
func (c *jvmCode) begin() { c.pages.begin(c.from) }

// end forgets what was read.
func (c *jvmCode) end() {
	c.request, c.alone = nil, 0
	c.pages.forget()
}

// symbolize returns the frames of a word, with what was read in this request.
func (c *jvmCode) symbolize(word libpf.EbpfFrame) (frames libpf.Frames, err error) {
	if c.request == nil {
		if c.request, err = c.data.Attach(noTables{}, c.pid, c.bias, c.memory); err != nil {
			return nil, err
		}
	}
	err = c.request.Symbolize(word, &frames, libpf.FrameMapping{})
	return frames, err
}

// maxAlone bounds how many words of a request are symbolized alone: each takes 0.05 ms and 200 kB more than with
// others.
const maxAlone = 16

// symbolizeAlone returns the frames of a word, and all that was read for them; nothing when it is not certain
// that this was all.
func (c *jvmCode) symbolizeAlone(word libpf.EbpfFrame) (frames libpf.Frames, read []reading, err error) {
	if c.alone++; c.alone > maxAlone {
		frames, err = c.symbolize(word)
		return frames, nil, err
	}
	r := &recorder{from: c.pages}
	instance, err := c.data.Attach(noTables{}, c.pid, c.bias, remotememory.RemoteMemory{ReaderAt: r})
	if err != nil {
		return nil, nil, err
	}
	if err := instance.Symbolize(word, &frames, libpf.FrameMapping{}); err != nil {
		return nil, nil, err
	}
	if r.lost {
		return frames, nil, nil
	}
	return frames, r.read, nil
}

// areUnchanged reports whether readings would be the same now.
func (c *jvmCode) areUnchanged(read []reading) bool {
	size := 0
	for _, r := range read {
		size += r.size
	}
	return c.budget.spend(size) == nil && c.pages.areUnchanged(read, size, c.batch)
}

// checkCompileID returns an error unless the compiled method of a word is still there: what was read is of
// that one, also what was read before in this request.
func (c *jvmCode) checkCompileID(word libpf.EbpfFrame) error {
	var id [4]byte
	at := int64(word.Variable(0)) + int64(c.debug.compileID)
	if _, err := c.from.ReadAt(id[:], at); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(id[:]) != uint32(word.Variable(1)) {
		return errCodeGone
	}
	return nil
}

var errCodeGone = errors.New("the code is gone")

// nextKnown returns the places in compiled code of which the JVM knows the frames, and one of which the code
// comes to next from an offset, perhaps to which a call returns. There are none when that is not certain.
func (c *jvmCode) nextKnown(nmethod libpf.Address, offset int32, returns bool) (places []int32, err error) {
	l := &c.debug
	base, end := nmethod, l.dependencies
	if l.immutable != 0 {
		base, end = c.memory.Ptr(nmethod+libpf.Address(l.immutable)), l.scopesData
	}
	first, last := c.memory.Uint32(nmethod+libpf.Address(l.scopesPCs)), c.memory.Uint32(nmethod+libpf.Address(end))
	if first > last || last-first > maxDebugBytes {
		return nil, errCodeGone
	}
	table := make([]byte, last-first)
	if err := c.memory.Read(base+libpf.Address(first), table); err != nil {
		return nil, err
	}
	begin := c.memory.Ptr(nmethod + libpf.Address(l.codeBegin))
	if l.codeBegin == 0 {
		begin = nmethod + libpf.Address(c.memory.Uint32(nmethod+libpf.Address(l.codeOffset)))
	}
	known := func(at int32) bool { return l.describes(table, at) }
	if returns && known(offset) {
		return []int32{offset}, nil
	}
	isReturn := func(at int32) bool { // then code may also jump there, from elsewhere
		var before [maxCallBytes]byte
		return c.memory.Read(begin+libpf.Address(at)-maxCallBytes, before[:]) != nil || mayEndInCall(before[:])
	}
	places = reachable(offset, known, isReturn, func(at int32) instruction {
		var code [maxInstructionBytes]byte
		if c.memory.Read(begin+libpf.Address(at), code[:]) != nil {
			return instruction{}
		}
		return decode(code[:])
	})
	return places, nil
}

// noTables is for naming, which needs no tables.
type noTables struct{}

var _ interpreter.EbpfHandler = noTables{}

func (noTables) UpdateInterpreterOffsets(uint16, host.FileID, []util.Range) error { return nil }

func (noTables) UpdateProcData(libpf.InterpreterType, libpf.PID, unsafe.Pointer) error { return nil }

func (noTables) DeleteProcData(libpf.InterpreterType, libpf.PID) error { return nil }

func (noTables) UpdatePidInterpreterMapping(libpf.PID, lpm.Prefix, uint8, host.FileID, uint64) error {
	return nil
}

func (noTables) DeletePidInterpreterMapping(libpf.PID, lpm.Prefix) error { return nil }
