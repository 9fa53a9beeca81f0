package unwind

import (
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
)

const (
	// maxVMEntries bounds the tables in which a JVM describes itself: JDK 25 has 1,500 fields.
	maxVMEntries = 1 << 14

	// maxFieldOffset is more than any of the types has.
	maxFieldOffset = 1 << 12
)

// debugLayout is where compiled methods (class nmethod) of a JVM have their table of PcDescs: what the
// JVM knows about some places in the code, in the order of these.
//
//	JDK 8 to 22: from _scopes_pcs_offset to _dependencies_offset in the nmethod
//	JDK 23 on:   from _scopes_pcs_offset to _scopes_data_offset at _immutable_data
//
// The code is at _code_begin (JDK 9 to 22) or at _code_offset in the nmethod. All are of 4 bytes, but for the
// pointers _immutable_data, _code_begin and _oop_maps. To that, safepoints have an entry each: there, the JVM may
// look for pointers to objects.
//
//	JDK 8:    class OopMapSet, of which _om_data points to pointers to OopMaps
//	JDK 9 on: class ImmutableOopMapSet, and after it as many ImmutableOopMapPairs
type debugLayout struct {
	compileID, scopesPCs, scopesData, dependencies, immutable uint64 // in class nmethod; 0: it has none
	codeBegin, codeOffset, oopMaps                            uint64 // in CodeBlob, its base: likewise
	pcDescBytes, pcOffset                                     uint64 // of PcDesc; in it
	mapSetBytes, mapCount, pairBytes, pairOffset              uint64 // of ImmutableOopMapSet, and of a pair
	oldMapCount, oldMapData, oldMapOffset                     uint64 // in OopMapSet, OopMap
}

// vmFields are the fields of a JVM's types, and the sizes of types, by their names.
func (l *debugLayout) vmFields() map[string]*uint64 {
	return map[string]*uint64{
		"nmethod._compile_id":            &l.compileID,
		"nmethod._scopes_pcs_offset":     &l.scopesPCs,
		"nmethod._scopes_data_offset":    &l.scopesData,
		"nmethod._dependencies_offset":   &l.dependencies,
		"nmethod._immutable_data":        &l.immutable,
		"CodeBlob._code_begin":           &l.codeBegin,
		"CodeBlob._code_offset":          &l.codeOffset,
		"CodeBlob._oop_maps":             &l.oopMaps,
		"PcDesc":                         &l.pcDescBytes,
		"PcDesc._pc_offset":              &l.pcOffset,
		"ImmutableOopMapSet":             &l.mapSetBytes,
		"ImmutableOopMapSet._count":      &l.mapCount,
		"ImmutableOopMapPair":            &l.pairBytes,
		"ImmutableOopMapPair._pc_offset": &l.pairOffset,
		"OopMapSet._om_count":            &l.oldMapCount,
		"OopMapSet._om_data":             &l.oldMapData,
		"OopMap._pc_offset":              &l.oldMapOffset,
	}
}

// readDebugLayout reads the tables in which a JVM describes its types and their fields.
func (c *jvmCode) readDebugLayout(elf *pfelf.File) error {
	l := &c.debug
	fields := l.vmFields()
	set := func(typeName, fieldName string, value uint64) {
		if fieldName != "" {
			typeName += "." + fieldName
		}
		if field := fields[typeName]; field != nil {
			*field = value
		}
	}
	if err := c.eachVMEntry(elf, "gHotSpotVMStructs", "gHotSpotVMStructEntry", "OffsetOffset", set); err != nil {
		return err
	}
	if err := c.eachVMEntry(elf, "gHotSpotVMTypes", "gHotSpotVMTypeEntry", "SizeOffset", set); err != nil {
		return err
	}
	for _, field := range fields {
		if *field > maxFieldOffset {
			return fmt.Errorf("the JVM's debug information has an unknown layout: %+v", *l)
		}
	}
	immutableMaps := l.mapSetBytes != 0 && l.pairBytes >= l.pairOffset+4
	if l.compileID == 0 || l.scopesPCs == 0 || l.immutable == 0 && l.dependencies == 0 ||
		l.immutable != 0 && l.scopesData == 0 || l.codeBegin == 0 && l.codeOffset == 0 ||
		l.pcDescBytes < l.pcOffset+4 || !immutableMaps && l.oldMapData == 0 {
		return fmt.Errorf("the JVM's debug information has an unknown layout: %+v", *l)
	}
	return nil
}

// described are the types of which a field or the size is wanted.
var described = []string{
	"nmethod", "CodeBlob", "PcDesc", "ImmutableOopMapSet", "ImmutableOopMapPair", "OopMapSet", "OopMap",
}

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
