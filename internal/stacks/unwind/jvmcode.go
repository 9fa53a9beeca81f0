package unwind

import (
	"encoding/binary"
	"errors"

	"go.opentelemetry.io/ebpf-profiler/interpreter/hotspot"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// jvmCode reads the code of a JVM.
type jvmCode struct {
	*runtimeCode
	debug  debugLayout
	mapped process.RawMapping         // where it is
	flows  map[libpf.Address]keptFlow // of compiled methods

	// Of the request that is served.
	work          int // see maxWork
	entries       int // see maxEntries
	methods       map[libpf.Address]*compiledMethod
	byteCodes     map[libpf.Address]*byteCode
	byteCodeBytes int
}

// isExhausted reports whether a bound of the request is reached: more may be known in another one.
func (c *jvmCode) isExhausted() bool {
	return c.work >= maxWork || c.entries >= maxEntries || c.byteCodeBytes > maxByteCodes
}

// end forgets what was read.
func (c *jvmCode) end() {
	c.runtimeCode.end()
	c.work, c.entries, c.byteCodeBytes = 0, 0, 0
	clear(c.methods)
	clear(c.byteCodes)
}

// openJVMCode returns the code of the JVM that a target has mapped, which must be ready.
func openJVMCode(t *target, pages *pages) (*jvmCode, error) {
	if t.jvm == nil {
		return nil, errNotMapped
	}
	file := t.reference(t.jvm)
	defer file.Close()
	code, err := openCode(t, t.jvm, file, hotspot.GetLoader(hotspot.Config{}), pages)
	if err != nil {
		return nil, err
	}
	if code == nil {
		return nil, errNotMapped
	}
	c := &jvmCode{
		runtimeCode: code, byteCodes: make(map[libpf.Address]*byteCode), flows: make(map[libpf.Address]keptFlow),
		methods: make(map[libpf.Address]*compiledMethod),
	}
	c.begin()
	defer c.end()
	first, err := c.data.Attach(noTables{}, c.pid, c.bias, c.memory)
	if err != nil {
		return nil, err
	}
	elf, err := file.GetELF()
	if err != nil {
		return nil, err
	}
	c.pages.isWhole = true
	if err := checkJVM(elf, c.memory, c.bias); err != nil {
		return nil, err
	}
	if err := first.SynchronizeMappings(noTables{}, nil, t, nil); err != nil { // it reads the JVM's layout
		return nil, err
	}
	c.mapped = *t.jvm
	return c, c.readDebugLayout(elf)
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

// isFrozen reports whether callers of a word's are not on the stack but, since a virtual thread has waited, on the
// heap. They come back one after the other: up to then, those that are there return to a stub, which no call has led
// to.
func (c *jvmCode) isFrozen(word libpf.EbpfFrame) bool {
	if kindOf(word) != support.FrameHotspotStub || !word.Flags().ReturnAddress() {
		return false
	}
	blob, l := libpf.Address(word.Variable(0)), &c.debug
	begin := c.memory.Ptr(blob + libpf.Address(l.codeBegin))
	if l.codeBegin == 0 {
		begin = blob + libpf.Address(c.memory.Uint32(blob+libpf.Address(l.codeOffset)))
	}
	var code [2 * maxInstructionBytes]byte
	at := begin + libpf.Address(codeOffset(word))
	if c.memory.Read(at-maxInstructionBytes, code[:]) != nil {
		return false
	}
	for size := int32(1); size < maxInstructionBytes; size++ {
		if i := decode(code[maxInstructionBytes-size:]); i.calls && i.size == size {
			return false
		}
	}
	return true
}

var errCodeGone = errors.New("the code is gone")

// safepoints returns the offsets in the code of a compiled method for which the JVM knows where pointers to objects
// are. Of other places that it describes (-XX:+DebugNonSafepoints), the frames may be those of other code.
func (c *jvmCode) safepoints(nmethod libpf.Address) (map[int32]bool, error) {
	l := &c.debug
	set := c.memory.Ptr(nmethod + libpf.Address(l.oopMaps))
	if set == 0 {
		return nil, nil
	}
	immutable := l.mapSetBytes != 0
	count, table, stride, offset := l.mapCount, set+libpf.Address(l.mapSetBytes), l.pairBytes, l.pairOffset
	if !immutable {
		count, table, stride, offset = l.oldMapCount, c.memory.Ptr(set+libpf.Address(l.oldMapData)), 8, 0
	}
	n := uint64(c.memory.Uint32(set + libpf.Address(count)))
	if n*stride > maxDebugBytes {
		return nil, errCodeGone
	}
	c.entries += int(n)
	maps := make([]byte, n*stride)
	if err := c.memory.Read(table, maps); err != nil {
		return nil, err
	}
	found := make(map[int32]bool, n)
	for at := uint64(0); at < uint64(len(maps)); at += stride {
		if immutable {
			found[int32(binary.LittleEndian.Uint32(maps[at+offset:]))] = true
		} else {
			oopMap := libpf.Address(binary.LittleEndian.Uint64(maps[at:]))
			found[int32(c.memory.Uint32(oopMap+libpf.Address(l.oldMapOffset)))] = true
		}
	}
	return found, nil
}
