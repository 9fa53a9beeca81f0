package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
)

const (
	// maxVMEntries bounds the tables in which a JVM describes itself: JDK 25 has 1,500 fields.
	maxVMEntries = 1 << 14

	// maxEntryBytes is more than an entry of the table of PcDescs has.
	maxEntryBytes = 1 << 10
)

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

// describes reports whether a table of PcDescs, which are sorted, has one of an offset in the code.
func (l *debugLayout) describes(table []byte, offset int32) bool {
	at := func(i int) int32 { return int32(binary.LittleEndian.Uint32(table[uint64(i)*l.entryBytes+l.offset:])) }
	n := int(uint64(len(table)) / l.entryBytes)
	i := sort.Search(n, func(i int) bool { return at(i) >= offset })
	return i < n && at(i) == offset
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
