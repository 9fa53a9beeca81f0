package unwind

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
)

const (
	// maxVMEntries bounds the tables in which a JVM describes itself: JDK 25 has 1,500 fields.
	maxVMEntries = 1 << 14

	// maxFieldOffset is more than any of the types has.
	maxFieldOffset = 1 << 12
)

// debugLayout is where a JVM has what describes compiled methods: the offsets of fields in its types, and the sizes
// of types; 0 of those that it has not. A compiled method (class nmethod) has tables, which follow each other:
//
//	JDK 8 to 22: metadata, scopes' data, PcDescs, dependencies, exception handlers, implicit exceptions in the nmethod
//	JDK 23 on:   implicit exceptions, exception handlers, PcDescs, scopes' data at _immutable_data; metadata elsewhere
//
// To each safepoint among the PcDescs there is an entry of another table: where pointers to objects are then.
//
//	JDK 8:    class OopMapSet, of which _om_data points to pointers to OopMaps
//	JDK 9 on: class ImmutableOopMapSet, and after it as many ImmutableOopMapPairs
type debugLayout struct {
	compileID, scopesPCs, scopesData, dependencies, immutable          uint64 // in class nmethod
	stub, implicit, handlers, end, verified, verifiedAt, osr           uint64 // likewise
	metadata                                                           uint64 // likewise
	scopesBegin                                                        uint64 // in class CompiledMethod, a base of it
	codeBegin, codeOffset, oopMaps, blobName, mutable, relocationBytes uint64 // in class CodeBlob, a base of both
	pcDescBytes, pcOffset, scopeOffset                                 uint64 // of class PcDesc, and in it
	mapSetBytes, mapCount, pairBytes, pairOffset                       uint64 // of ImmutableOopMapSet, and of a pair
	oldMapCount, oldMapData, oldMapOffset                              uint64 // in OopMapSet, OopMap
	constMethod, constMethodBytes, codeBytes                           uint64 // in Method; of ConstMethod, and in it
	heapMemory, heapSegments, heapShift, heapBlockBytes                uint64 // in CodeHeap; of HeapBlock
	lowBoundary, highBoundary, arrayData                               uint64 // in VirtualSpace, GrowableArray

	heap, heaps            libpf.Address // variables of class CodeCache
	major, minor, security libpf.Address // variables of class Abstract_VM_Version

	notes    bool // PcDescs that are of no safepoints are mostly right
	excluded byte // see unsigned5
}

// fields are the names of all of these.
func (l *debugLayout) fields() map[string]*uint64 {
	return map[string]*uint64{
		"nmethod._compile_id":               &l.compileID,
		"nmethod._scopes_pcs_offset":        &l.scopesPCs,
		"nmethod._scopes_data_offset":       &l.scopesData,
		"nmethod._dependencies_offset":      &l.dependencies,
		"nmethod._immutable_data":           &l.immutable,
		"nmethod._stub_offset":              &l.stub,
		"nmethod._nul_chk_table_offset":     &l.implicit,
		"nmethod._handler_table_offset":     &l.handlers,
		"nmethod._nmethod_end_offset":       &l.end,
		"nmethod._verified_entry_point":     &l.verifiedAt,
		"nmethod._verified_entry_offset":    &l.verified,
		"nmethod._osr_entry_point":          &l.osr,
		"nmethod._metadata_offset":          &l.metadata,
		"CompiledMethod._scopes_data_begin": &l.scopesBegin,
		"CodeBlob._code_begin":              &l.codeBegin,
		"CodeBlob._code_offset":             &l.codeOffset,
		"CodeBlob._oop_maps":                &l.oopMaps,
		"CodeBlob._name":                    &l.blobName,
		"CodeBlob._mutable_data":            &l.mutable,
		"CodeBlob._relocation_size":         &l.relocationBytes,
		"PcDesc":                            &l.pcDescBytes,
		"PcDesc._pc_offset":                 &l.pcOffset,
		"PcDesc._scope_decode_offset":       &l.scopeOffset,
		"ImmutableOopMapSet":                &l.mapSetBytes,
		"ImmutableOopMapSet._count":         &l.mapCount,
		"ImmutableOopMapPair":               &l.pairBytes,
		"ImmutableOopMapPair._pc_offset":    &l.pairOffset,
		"OopMapSet._om_count":               &l.oldMapCount,
		"OopMapSet._om_data":                &l.oldMapData,
		"OopMap._pc_offset":                 &l.oldMapOffset,
		"Method._constMethod":               &l.constMethod,
		"ConstMethod":                       &l.constMethodBytes,
		"ConstMethod._code_size":            &l.codeBytes,
		"CodeHeap._memory":                  &l.heapMemory,
		"CodeHeap._segmap":                  &l.heapSegments,
		"CodeHeap._log2_segment_size":       &l.heapShift,
		"HeapBlock":                         &l.heapBlockBytes,
		"VirtualSpace._low_boundary":        &l.lowBoundary,
		"VirtualSpace._high_boundary":       &l.highBoundary,
		"GrowableArray<int>._data":          &l.arrayData,
	}
}

// variables are likewise those of variables.
func (l *debugLayout) variables() map[string]*libpf.Address {
	return map[string]*libpf.Address{
		"CodeCache._heap":                          &l.heap,
		"CodeCache._heaps":                         &l.heaps,
		"Abstract_VM_Version._vm_major_version":    &l.major,
		"Abstract_VM_Version._vm_minor_version":    &l.minor,
		"Abstract_VM_Version._vm_security_version": &l.security,
	}
}

// readDebugLayout reads the tables in which a JVM describes its types and their fields.
func (c *jvmCode) readDebugLayout(elf *pfelf.File) error {
	l := &c.debug
	fields, variables := l.fields(), l.variables()
	types := make(map[string]bool) // others are not looked at
	for _, name := range slices.AppendSeq(slices.Collect(maps.Keys(fields)), maps.Keys(variables)) {
		typeName, _, _ := strings.Cut(name, ".")
		types[typeName] = true
	}
	set := func(name string, offset uint64, address libpf.Address) {
		if field := fields[name]; field != nil {
			*field = offset
		}
		if variable := variables[name]; variable != nil {
			*variable = address
		}
	}
	err := c.eachVMEntry(elf, "gHotSpotVMStructs", "gHotSpotVMStructEntry", "OffsetOffset", types, set)
	if err == nil {
		err = c.eachVMEntry(elf, "gHotSpotVMTypes", "gHotSpotVMTypeEntry", "SizeOffset", types, set)
	}
	if err != nil {
		return err
	}
	l.readVersion(c.memory)
	return l.check()
}

// check returns an error unless all is known that is needed to read the tables of compiled methods.
func (l *debugLayout) check() error {
	unknown := l.compileID == 0 || l.scopesPCs == 0 || l.immutable == 0 && l.dependencies == 0 ||
		l.immutable != 0 && l.scopesData == 0 || l.codeBegin == 0 && l.codeOffset == 0 ||
		l.pcDescBytes < max(l.pcOffset, l.scopeOffset)+4 ||
		l.mapSetBytes != 0 && l.pairBytes < l.pairOffset+4 || l.mapSetBytes == 0 && l.oldMapData == 0 ||
		l.oopMaps == 0 && l.immutable == 0 // later, they are first
	for _, field := range l.fields() {
		unknown = unknown || *field > maxFieldOffset
	}
	if unknown {
		return fmt.Errorf("the JVM's debug information has an unknown layout: %+v", *l)
	}
	return nil
}

// readVersion reads the version of a JVM, and what depends on it. Before some versions, notes are of any code
// (JDK-8201516). JDK 8 has none of 25 as its own; it has no ImmutableOopMapSets.
func (l *debugLayout) readVersion(memory remotememory.RemoteMemory) {
	if l.mapSetBytes == 0 || l.major == 0 || l.minor == 0 || l.security == 0 {
		return
	}
	major, minor, security := memory.Uint32(l.major), memory.Uint32(l.minor), memory.Uint32(l.security)
	l.notes = major >= 21 || major == 17 && (minor > 0 || security >= 9) || major == 11 && (minor > 0 || security >= 21)
	if major >= 20 {
		l.excluded = 1
	}
}

// follows reports whether all is known that is needed to follow compiled code.
func (l *debugLayout) follows() bool {
	for _, field := range []uint64{
		l.stub, l.implicit, l.handlers, l.osr, l.constMethod, l.constMethodBytes, l.codeBytes, l.blobName, l.heapShift,
		l.heapBlockBytes, l.highBoundary, l.verified | l.verifiedAt, uint64(l.heap | l.heaps), l.end | l.immutable,
	} {
		if field == 0 {
			return false
		}
	}
	return true
}

// eachVMEntry calls yield with the entries of some types in one of the tables: a type's name, or with a field's, and
// where that is.
func (c *jvmCode) eachVMEntry(elf *pfelf.File, table, prefix, value string, types map[string]bool,
	yield func(name string, offset uint64, address libpf.Address)) error {
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
	var fieldAt, addressAt libpf.Address
	if table == "gHotSpotVMStructs" {
		fieldAt, addressAt = variable(prefix+"FieldNameOffset"), variable(prefix+"AddressOffset")
	}
	if failure != nil {
		return failure
	}
	for range maxVMEntries {
		typeName := c.memory.Ptr(entry + typeAt)
		if typeName == 0 {
			return nil
		}
		if name := c.memory.String(typeName); types[name] {
			if fieldAt != 0 {
				name += "." + c.memory.StringPtr(entry+fieldAt)
			}
			yield(name, c.memory.Uint64(entry+valueAt), c.memory.Ptr(entry+addressAt))
		}
		entry += stride
	}
	return errors.New("the JVM's description of itself has no end")
}
