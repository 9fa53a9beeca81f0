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
	"go.opentelemetry.io/ebpf-profiler/support"
	"go.opentelemetry.io/ebpf-profiler/util"
)

// maxDebugBytes bounds the table of what is known about places in one compiled method, as the
// engine does.
const maxDebugBytes = 1 << 20

// jvmCode names the code of a JVM. What the engine keeps of a JVM by addresses, it would use for ever:
// also when another class has come to the place of one that was unloaded. So it begins anew with each
// request.
type jvmCode struct {
	data   interpreter.Data
	pid    libpf.PID
	bias   libpf.Address
	pages  pages
	memory remotememory.RemoteMemory // through pages
	debug  debugLayout

	request interpreter.Instance // of the request that is served; nil: none yet
}

var errNoJVM = errors.New("no JVM is mapped")

// openJVMCode returns the code of the JVM that a target has mapped, which must be ready.
func openJVMCode(t *target) (*jvmCode, error) {
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
	c := &jvmCode{pid: t.PID(), bias: libpf.Address(m.Vaddr - inFile)}
	c.pages.from = t.GetRemoteMemory().ReaderAt
	c.memory = remotememory.RemoteMemory{ReaderAt: &c.pages}
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

// forget is called after a request.
func (c *jvmCode) forget() {
	c.request, c.pages.read = nil, nil
}

// pages reads memory by pages, each once in a request: what belongs to one class lies side by side.
type pages struct {
	from io.ReaderAt
	read map[int64][]byte
}

const (
	pageBytes = 4096

	// maxPages bounds the memory: a stack takes some 100.
	maxPages = 2048
)

func (p *pages) ReadAt(b []byte, at int64) (n int, err error) {
	if p.read == nil {
		p.read = make(map[int64][]byte)
	}
	for n < len(b) {
		start := (at + int64(n)) &^ (pageBytes - 1)
		page, ok := p.read[start]
		if !ok {
			if len(p.read) == maxPages {
				clear(p.read)
			}
			page = make([]byte, pageBytes)
			if _, err := p.from.ReadAt(page, start); err != nil {
				return n, err
			}
			p.read[start] = page
		}
		n += copy(b[n:], page[at+int64(n)-start:])
	}
	return n, nil
}

// appendFrames appends the frames of a word: those of calls that are inlined, and of the method.
func (c *jvmCode) appendFrames(frames libpf.Frames, word libpf.EbpfFrame) (libpf.Frames, error) {
	if c.request == nil {
		var err error
		if c.request, err = c.data.Attach(noTables{}, c.pid, c.bias, c.memory); err != nil {
			return frames, err
		}
	}
	before := len(frames)
	if err := c.request.Symbolize(word, &frames, libpf.FrameMapping{}); err != nil {
		return frames[:before], err
	}
	if kindOf(word) == support.FrameHotspotNative {
		named, err := c.certain(frames[before:], word)
		if err == nil {
			err = c.checkCompileID(word)
		}
		if err != nil {
			return frames[:before], err
		}
		frames = append(frames[:before], named...)
	}
	if len(frames) == before {
		return frames, errCodeGone
	}
	return frames, nil
}

// checkCompileID returns an error unless the compiled method of a word is still there: what was read is of
// that one, also what was read before in this request.
func (c *jvmCode) checkCompileID(word libpf.EbpfFrame) error {
	var id [4]byte
	at := int64(word.Variable(0)) + int64(c.debug.compileID)
	if _, err := c.pages.from.ReadAt(id[:], at); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(id[:]) != uint32(word.Variable(1)) {
		return errCodeGone
	}
	return nil
}

// certain returns, of the frames of a place in compiled code, those that it is certain to be in. The JVM knows
// them at safepoints and at most calls only. For what lies between, the engine has the frames of the one before in
// memory, which may be in a branch that was not taken. What all have to which the code can go on is certain;
// of code that is not understood, the method that was compiled.
func (c *jvmCode) certain(frames libpf.Frames, word libpf.EbpfFrame) (libpf.Frames, error) {
	places, err := c.nextKnown(libpf.Address(word.Variable(0)), codeOffset(word), word.Flags().ReturnAddress())
	if err != nil || len(frames) == 0 {
		return nil, err
	}
	switch {
	case len(places) == 0:
		return frames[len(frames)-1:], nil
	case len(places) == 1 && places[0] == codeOffset(word):
		return frames, nil
	}
	var all []libpf.Frames
	for _, place := range places {
		var next libpf.Frames
		if err := c.request.Symbolize(withOffset(word, uint32(place)), &next, libpf.FrameMapping{}); err != nil {
			return nil, err
		}
		all = append(all, next)
	}
	common := len(all[0])
	for _, next := range all[1:] {
		common = min(common, commonRoot(all[0], next))
	}
	if common == 0 {
		return frames[len(frames)-1:], nil
	}
	return all[0][len(all[0])-common:], nil
}

// commonRoot returns how many functions two stacks have in common, from the root on, up to the first that
// is at different lines.
func commonRoot(a, b libpf.Frames) (n int) {
	for n < min(len(a), len(b)) {
		x, y := a[len(a)-1-n].Value(), b[len(b)-1-n].Value()
		if x.FunctionName != y.FunctionName || x.SourceFile != y.SourceFile {
			break
		}
		n++
		if x.AddressOrLineno != y.AddressOrLineno {
			break
		}
	}
	return n
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
	known := make(map[int32]bool)
	for ; uint64(len(table)) >= l.entryBytes; table = table[l.entryBytes:] {
		place := int32(binary.LittleEndian.Uint32(table[l.offset:]))
		if returns && place == offset {
			return []int32{place}, nil
		}
		known[place] = true
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
