package unwind

import (
	"encoding/binary"
	"slices"
	"strings"

	"go.opentelemetry.io/ebpf-profiler/libpf"
)

const (
	// maxDebugBytes bounds the tables of what is known about places in one compiled method, as the engine does.
	maxDebugBytes = 1 << 20

	// maxEntries bounds the entries of these tables that are read for a request.
	maxEntries = 1 << 20

	// maxInstructions bounds the instructions of a compiled method that are decoded, maxWork how often one is looked at
	// for a request, or a frame at one: for each place, all of its method. Steps along known instructions are
	// stepsAtOnce times as fast.
	maxInstructions = 1 << 15
	maxWork         = 1 << 18
	stepsAtOnce     = 8
	workOfName      = 4 // of code that is called

	// maxInlined bounds how many calls are inlined in each other at a place, maxByteCodes the bytes of byte code that
	// are read for a request.
	maxInlined   = 256
	maxByteCodes = 1 << 20
)

// pcDesc is what the JVM knows of a place in compiled code.
type pcDesc struct {
	offset    int32
	scope     uint32 // where its frames are described, from scopesData on
	safepoint bool
}

// compiledMethod is a compiled method (class nmethod), with its PcDescs in the order of their offsets.
type compiledMethod struct {
	at, code  libpf.Address
	pcDescs   []pcDesc
	immutable libpf.Address // where its tables are
	first     uint32        // from there on, its PcDescs
}

// methodAt reads the PcDescs of a compiled method. Those of safepoints have a map each of pointers to objects. Of the
// others (-XX:+DebugNonSafepoints), the frames may be those of other code. Each method is read once in a request; it
// returns nil if there were too many.
func (c *jvmCode) methodAt(at libpf.Address) (*compiledMethod, error) {
	if known := c.methods[at]; known != nil {
		return known, nil
	}
	if c.entries >= maxEntries {
		return nil, nil
	}
	l := &c.debug
	m := &compiledMethod{at: at, immutable: at, code: c.memory.Ptr(at + libpf.Address(l.codeBegin))}
	end := l.dependencies
	if l.immutable != 0 {
		m.immutable, end = c.memory.Ptr(at+libpf.Address(l.immutable)), l.scopesData
	}
	if l.codeBegin == 0 {
		m.code = at + libpf.Address(c.memory.Uint32(at+libpf.Address(l.codeOffset)))
	}
	m.first = c.memory.Uint32(at + libpf.Address(l.scopesPCs))
	table, err := c.table(m.immutable, m.first, c.memory.Uint32(at+libpf.Address(end)))
	if err != nil {
		return nil, err
	}
	c.entries += len(table) / int(l.pcDescBytes)
	safepoints, err := c.safepoints(at)
	if err != nil {
		return nil, err
	}
	for ; uint64(len(table)) >= l.pcDescBytes; table = table[l.pcDescBytes:] {
		offset := int32(binary.LittleEndian.Uint32(table[l.pcOffset:]))
		scope := binary.LittleEndian.Uint32(table[l.scopeOffset:])
		if offset >= 0 { // -1 before the first, and much after the last
			m.pcDescs = append(m.pcDescs, pcDesc{offset, scope, safepoints[offset]})
		}
	}
	slices.SortStableFunc(m.pcDescs, func(x, y pcDesc) int { return int(x.offset) - int(y.offset) }) // they are
	c.methods[at] = m
	return m, nil
}

// table reads a table of a compiled method.
func (c *jvmCode) table(base libpf.Address, begin, end uint32) ([]byte, error) {
	if begin > end || end-begin > maxDebugBytes {
		return nil, errCodeGone
	}
	table := make([]byte, end-begin)
	return table, c.memory.Read(base+libpf.Address(begin), table)
}

// pcDesc returns that of an offset.
func (m *compiledMethod) pcDesc(offset int32) (pcDesc, bool) {
	i, found := slices.BinarySearchFunc(m.pcDescs, offset, func(p pcDesc, at int32) int {
		return int(p.offset) - int(at)
	})
	if !found {
		return pcDesc{}, false
	}
	return m.pcDescs[i], true
}

// flowOf follows the code of a compiled method, also from further entries on; nil if there is too much of it. It may
// be kept unless the JVM changes the code while it runs.
func (c *jvmCode) flowOf(m *compiledMethod, further ...int32) (g *flow, keep bool, err error) {
	t := &methodTables{safepoints: make(map[int32]bool)}
	if err := c.readTables(m, t); err != nil {
		return nil, false, err
	}
	t.entries = append(t.entries, further...)
	size := int64(c.memory.Uint32(m.at+libpf.Address(c.debug.stub))) - int64(m.code-m.at)
	if size <= 0 || size > maxMethodBytes {
		return nil, false, nil
	}
	code := make([]byte, size+maxInstructionBytes)
	if err := c.memory.Read(m.code, code[:size]); err != nil {
		return nil, false, err
	}
	keep = len(further) == 0
	names := make(map[libpf.Address]string)
	t.isTrap = func(i instruction, end int32) bool {
		if i.jump == 0 {
			return false
		}
		to := m.code + libpf.Address(int64(end)+int64(i.jump))
		name, known := names[to]
		if !known {
			name = c.blobName(to)
			names[to] = name
		}
		keep = keep && !strings.Contains(name, "patching")
		return isTrap(name)
	}
	g = newFlow(t, int32(size), func(at int32) instruction {
		if at < 0 || int64(at) >= size {
			return instruction{}
		}
		return decode(code[at : at+maxInstructionBytes])
	}, maxInstructions)
	if g == nil {
		c.work += maxInstructions
		return nil, false, nil
	}
	c.work += len(g.nodes) + workOfName*len(names)
	return g, keep, nil
}

// readTables reads what the JVM has of a compiled method.
func (c *jvmCode) readTables(m *compiledMethod, t *methodTables) error {
	l := &c.debug
	at := func(field uint64) libpf.Address { return m.at + libpf.Address(field) }
	if l.notes {
		t.notes = make(map[int32]opcode)
	}
	for _, p := range m.pcDescs {
		if p.safepoint {
			t.safepoints[p.offset] = true
		} else if l.notes {
			if code, err := c.opcodeAt(m, p); err == nil {
				t.notes[p.offset] = code
			}
		}
	}
	// The table of implicit exceptions has its number of entries first, each an instruction and where it continues.
	// That of exception handlers has lists of them, with three numbers each as their heads: the first number of a
	// head is that of handlers, the second of a handler is its offset.
	implicit, implicitEnd := c.memory.Uint32(at(l.implicit)), c.memory.Uint32(at(l.end))
	handlers, handlersEnd := c.memory.Uint32(at(l.handlers)), implicit
	verified := int32(c.memory.Ptr(at(l.verifiedAt)) - m.code)
	if l.immutable != 0 {
		implicit, handlers = uint32(c.memory.Uint16(at(l.implicit))), uint32(c.memory.Uint16(at(l.handlers)))
		implicitEnd, handlersEnd = handlers, m.first
		verified = int32(c.memory.Uint16(at(l.verified)))
	}
	t.entries = []int32{0, verified}
	if osr := c.memory.Ptr(at(l.osr)); osr > m.code && osr-m.code < maxMethodBytes {
		t.entries = append(t.entries, int32(osr-m.code))
	}
	numbers, err := c.numbers(m.immutable, handlers, handlersEnd)
	if err != nil {
		return err
	}
	for len(numbers) >= 3 {
		n := numbers[0]
		for numbers = numbers[3:]; n > 0 && len(numbers) >= 3; n-- {
			t.entries = append(t.entries, numbers[1])
			numbers = numbers[3:]
		}
	}
	if numbers, err = c.numbers(m.immutable, implicit, implicitEnd); err != nil || len(numbers) == 0 {
		return err
	}
	t.implicit = make(map[int32]int32)
	for n, pairs := numbers[0], numbers[1:]; n > 0 && len(pairs) >= 2; n-- {
		t.implicit[pairs[0]] = pairs[1]
		pairs = pairs[2:]
	}
	return nil
}

// numbers reads a table of numbers.
func (c *jvmCode) numbers(base libpf.Address, begin, end uint32) ([]int32, error) {
	table, err := c.table(base, begin, end)
	numbers := make([]int32, len(table)/4)
	for i := range numbers {
		numbers[i] = int32(binary.LittleEndian.Uint32(table[4*i:]))
	}
	return numbers, err
}

// traps are in the names of the code that runs when a check has failed: it never returns.
var traps = []string{
	"UncommonTrap", "uncommon_trap", // of C2; the others are of C1
	"throw_range_check_failed", "throw_index_exception", "throw_null_pointer_exception", "throw_div0_exception",
	"throw_class_cast_exception", "throw_incompatible_class_change_error", "throw_array_store_exception",
	"predicate_failed_trap", "deoptimize",
}

func isTrap(blob string) bool {
	return slices.ContainsFunc(traps, func(trap string) bool { return strings.Contains(blob, trap) })
}

// blobName returns the name of the code (class CodeBlob) that an address is in, "" if it is not found. Of each
// segment of a heap of code, a byte says how many segments before it the code begins, or as near to that as a byte
// can; 255 means that the segment is free.
func (c *jvmCode) blobName(code libpf.Address) string {
	l := &c.debug
	heaps, n := l.heap, uint32(1) // JDK 8: a pointer
	if l.heaps != 0 {             // later: a pointer to a GrowableArray
		array := c.memory.Ptr(l.heaps)
		heaps, n = c.memory.Ptr(array+libpf.Address(l.arrayData)), c.memory.Uint32(array)
	}
	for i := range min(n, maxCodeHeaps) {
		heap := c.memory.Ptr(heaps + libpf.Address(8*i))
		memory := heap + libpf.Address(l.heapMemory)
		low := c.memory.Ptr(memory + libpf.Address(l.lowBoundary))
		high := c.memory.Ptr(memory + libpf.Address(l.highBoundary))
		if code < low || code >= high {
			continue
		}
		shift := c.memory.Uint32(heap+libpf.Address(l.heapShift)) & 31
		segments := c.memory.Ptr(heap + libpf.Address(l.heapSegments+l.lowBoundary))
		segment := uint64(code-low) >> shift
		for range maxSegmentSteps {
			back := uint64(c.memory.Uint8(segments + libpf.Address(segment)))
			if back == 0xff || back > segment {
				return ""
			}
			if back == 0 {
				blob := low + libpf.Address(segment<<shift+l.heapBlockBytes)
				return c.memory.StringPtr(blob + libpf.Address(l.blobName))
			}
			segment -= back
		}
		return ""
	}
	return ""
}

const (
	maxCodeHeaps    = 8
	maxSegmentSteps = 64 // of 254 segments
)

// scope is a method and a place in its byte code.
type scope struct {
	method libpf.Address
	bci    int32
}

// scopesAt returns the methods that a PcDesc is in, the leaf first. Each is described by three numbers: where its
// caller is described, the index of the method from 1 on, and the place from -1 on, plus 1.
func (c *jvmCode) scopesAt(m *compiledMethod, p pcDesc, most int) (scopes []scope, err error) {
	l := &c.debug
	pointer := func(field uint64) libpf.Address { return c.memory.Ptr(m.at + libpf.Address(field)) }
	offset := func(field uint64) libpf.Address { return libpf.Address(c.memory.Uint32(m.at + libpf.Address(field))) }
	var data, metadata libpf.Address
	switch {
	case l.mutable != 0: // JDK 25
		data, metadata = m.immutable+offset(l.scopesData), pointer(l.mutable)+offset(l.relocationBytes)
	case l.immutable != 0: // 23 and 24 are not known
		return nil, errCodeGone
	case l.scopesBegin != 0:
		data, metadata = pointer(l.scopesBegin), m.at+offset(l.metadata)
	default: // 8
		data, metadata = m.at+offset(l.scopesData), m.at+offset(l.metadata)
	}
	for at, before := p.scope, uint32(maxDebugBytes); at != 0 && len(scopes) < most; {
		if at >= before {
			return nil, errCodeGone
		}
		var b [3 * maxNumberBytes]byte
		if err := c.memory.Read(data+libpf.Address(at), b[:]); err != nil {
			return nil, err
		}
		numbers := unsigned5{b: b[:], excluded: l.excluded}
		caller, method, bci := numbers.next(), numbers.next(), numbers.next()
		if method > 0 && method < maxDebugBytes {
			scopes = append(scopes, scope{c.memory.Ptr(metadata + libpf.Address(8*(method-1))), int32(bci) - 1})
		}
		at, before = caller, at
	}
	return scopes, nil
}

// maxNumberBytes is the length of the longest number in scopes.
const maxNumberBytes = 5

// unsigned5 reads numbers as they are in scopes: class UNSIGNED5.
type unsigned5 struct {
	b        []byte
	excluded byte // bytes that are not used: from JDK 20 on 0
}

func (u *unsigned5) next() (n uint32) {
	for shift := 0; shift < 6*maxNumberBytes && len(u.b) > 0; shift += 6 {
		b := u.b[0]
		u.b = u.b[1:]
		n += uint32(b-u.excluded) << shift
		if b < 192 {
			break
		}
	}
	return n
}

// opcodeAt returns the byte code that a PcDesc is of, in the method that is its leaf.
func (c *jvmCode) opcodeAt(m *compiledMethod, p pcDesc) (opcode, error) {
	scopes, err := c.scopesAt(m, p, 1)
	if err != nil || len(scopes) == 0 || scopes[0].bci < 0 {
		return opcode{}, errCodeGone
	}
	var b [2]byte
	err = c.memory.Read(c.byteCodeAt(scopes[0].method)+libpf.Address(scopes[0].bci), b[:])
	return opcode{number: b[0], forward: b[1] < 0x80}, err
}

// byteCodeAt returns where the byte code of a method begins.
func (c *jvmCode) byteCodeAt(method libpf.Address) libpf.Address {
	return c.memory.Ptr(method+libpf.Address(c.debug.constMethod)) + libpf.Address(c.debug.constMethodBytes)
}

// byteCodeOf returns what is known of a method's byte code.
func (c *jvmCode) byteCodeOf(method libpf.Address) *byteCode {
	if known := c.byteCodes[method]; known != nil {
		return known
	}
	b := new(byteCode)
	constMethod := c.memory.Ptr(method + libpf.Address(c.debug.constMethod))
	size := int(c.memory.Uint16(constMethod + libpf.Address(c.debug.codeBytes)))
	if c.byteCodeBytes += size; c.byteCodeBytes > maxByteCodes {
		return b
	}
	code := make([]byte, size)
	if c.memory.Read(c.byteCodeAt(method), code) == nil {
		*b = readByteCode(code)
	}
	c.byteCodes[method] = b
	return b
}
