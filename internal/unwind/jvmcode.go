package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
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

const (
	// maxVMEntries bounds the tables in which a JVM describes itself: JDK 25 has 1,500 fields.
	maxVMEntries = 1 << 14

	// maxEntryBytes is more than an entry of that table has.
	maxEntryBytes = 1 << 10

	// maxDebugBytes bounds the table of what is known about places in one compiled method, as the
	// engine does.
	maxDebugBytes = 1 << 20
)

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

// debugLayout is where compiled methods (class nmethod) of a JVM have their table of PcDescs: what the
// JVM knows about some places in the code, in the order of these.
//
//	JDK 8 to 22: from _scopes_pcs_offset to _dependencies_offset in the nmethod
//	JDK 23 on:   from _scopes_pcs_offset to _scopes_data_offset at _immutable_data
//
// The code is at _code_begin (JDK 9 to 22) or at _code_offset in the nmethod. All are of 4 bytes, but for the
// pointers _immutable_data and _code_begin.
type debugLayout struct {
	compileID, scopesPCs, scopesData, dependencies, immutable uint64 // in class nmethod; 0: it has none
	codeBegin, codeOffset                                     uint64 // in CodeBlob, its base: likewise
	entryBytes, offset                                        uint64 // of PcDesc; offset of its _pc_offset
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

// The second variable of a JVM's word is, from the highest bit on: 4 bits for its kind, 28 for the offset in
// the code or the index in the byte code, 32 to check the pointer in the first.
func kindOf(word libpf.EbpfFrame) uint8 { return uint8(word.Variable(1) >> 60) }

func codeOffset(word libpf.EbpfFrame) int32 { return int32(word.Variable(1) >> 32 & maxCodeOffset) }

const maxCodeOffset = 1<<28 - 1

// Lasting reports whether words mean the same as long as the process runs its program. In compiled code of a
// JVM they have a number that is never given again. Those of interpreted code are only addresses: when a class
// is unloaded, another one may come to them. (So are those of stubs, of which a JVM frees hardly any.)
func Lasting(words []uint64) bool { return interpretedAt(words) < 0 }

// Compiled returns the words before the first of interpreted code: see Lasting.
func Compiled(words []uint64) []uint64 {
	if at := interpretedAt(words); at >= 0 {
		return words[:at]
	}
	return words
}

// interpretedAt returns where the first word of interpreted code is, -1 for nowhere.
func interpretedAt(words []uint64) int {
	for at := 0; at < len(words); {
		word := libpf.EbpfFrame(words[at:])
		size := int(word.Length())
		if size == 0 || size > len(word) {
			return -1 // it cannot be named from here on
		}
		if size >= 3 && word.Type() == libpf.HotSpotFrame && kindOf(word) == support.FrameHotspotInterpreter {
			return at
		}
		at += size
	}
	return -1
}

func withOffset(word libpf.EbpfFrame, offset uint32) libpf.EbpfFrame {
	const mask = uint64(maxCodeOffset) << 32
	return libpf.EbpfFrame{word[0], word[1], word[2]&^mask | uint64(offset)<<32}
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

const (
	// maxInstructions bounds the code that is decoded for one leaf.
	maxInstructions = 256

	// maxPlaces bounds how many places are named for one leaf.
	maxPlaces = 8
)

// reachable returns the first ones of the known places on all ways through code from an offset on, that of the
// way without jumps first; or nothing when there is a way that is not understood, or that leaves the code.
// Those to which a call may return are known only when one does.
func reachable(from int32, known map[int32]bool, isReturn func(int32) bool,
	at func(int32) instruction) (places []int32) {
	seen := make(map[int32]bool)
	for ways := []int32{from}; len(ways) > 0; {
		offset, called := ways[0], false
		ways = ways[1:]
		for !seen[offset] {
			if len(seen) == maxInstructions || offset < 0 || offset > maxCodeOffset {
				return nil
			}
			seen[offset] = true
			if known[offset] && (called || !isReturn(offset)) {
				if places = append(places, offset); len(places) > maxPlaces {
					return nil
				}
				break
			}
			i := at(offset)
			if i.size == 0 {
				return nil
			}
			if i.jumps && i.goesOn {
				ways = append(ways, offset+i.size+i.jump)
			}
			if offset += i.size; !i.goesOn {
				offset += i.jump
			}
			called = i.calls
		}
	}
	return places
}

// readDebugLayout reads the tables in which a JVM describes its types and their fields.
func (c *jvmCode) readDebugLayout(elf *pfelf.File) error {
	l := &c.debug
	err := c.eachVMEntry(elf, "gHotSpotVMStructs", "gHotSpotVMStructEntry", "OffsetOffset",
		func(typeName, fieldName string, value uint64) {
			switch typeName + "." + fieldName {
			case "nmethod._compile_id":
				l.compileID = value
			case "nmethod._scopes_pcs_offset":
				l.scopesPCs = value
			case "nmethod._scopes_data_offset":
				l.scopesData = value
			case "nmethod._dependencies_offset":
				l.dependencies = value
			case "nmethod._immutable_data":
				l.immutable = value
			case "PcDesc._pc_offset":
				l.offset = value
			case "CodeBlob._code_begin":
				l.codeBegin = value
			case "CodeBlob._code_offset":
				l.codeOffset = value
			}
		})
	if err != nil {
		return err
	}
	err = c.eachVMEntry(elf, "gHotSpotVMTypes", "gHotSpotVMTypeEntry", "SizeOffset",
		func(typeName, _ string, value uint64) {
			if typeName == "PcDesc" {
				l.entryBytes = value
			}
		})
	if err != nil {
		return err
	}
	if l.compileID == 0 || l.scopesPCs == 0 || l.immutable == 0 && l.dependencies == 0 ||
		l.immutable != 0 && l.scopesData == 0 || l.codeBegin == 0 && l.codeOffset == 0 ||
		l.entryBytes > maxEntryBytes || l.offset > maxEntryBytes || l.entryBytes < l.offset+4 {
		return fmt.Errorf("the JVM's debug information has an unknown layout: %+v", *l)
	}
	return nil
}

// described are the types of which a field or the size is wanted.
var described = []string{"nmethod", "CodeBlob", "PcDesc"}

// eachVMEntry calls yield with the entries of those types in one of the tables.
func (c *jvmCode) eachVMEntry(elf *pfelf.File, table, prefix, value string,
	yield func(typeName, fieldName string, value uint64)) error {
	var failure error
	variable := func(name string) libpf.Address {
		address, err := elf.LookupSymbolAddress(libpf.SymbolName(name))
		if err != nil {
			failure = errors.Join(failure, err)
			return 0
		}
		return c.memory.Ptr(libpf.Address(address) + c.bias)
	}
	entry, stride := variable(table), variable(prefix+"ArrayStride")
	typeAt, valueAt := variable(prefix+"TypeNameOffset"), variable(prefix+value)
	var fieldAt libpf.Address
	if table == "gHotSpotVMStructs" {
		fieldAt = variable(prefix + "FieldNameOffset")
	}
	if failure != nil {
		return failure
	}
	for range maxVMEntries {
		name := c.memory.Ptr(entry + typeAt)
		if name == 0 {
			return nil
		}
		if typeName := c.memory.String(name); slices.Contains(described, typeName) {
			fieldName := ""
			if fieldAt != 0 {
				fieldName = c.memory.StringPtr(entry + fieldAt)
			}
			yield(typeName, fieldName, c.memory.Uint64(entry+valueAt))
		}
		entry += stride
	}
	return errors.New("the JVM's description of itself has no end")
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
