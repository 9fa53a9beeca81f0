package unwind

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
)

// libjvm is what the path of a file contains that the engine takes for a JVM's.
const libjvm = "/libjvm.so"

const (
	// maxVMEntryBytes bounds an entry of the tables in which a JVM describes itself: they have 24 to 48 bytes.
	maxVMEntryBytes = 1 << 10

	// maxVMTypeBytes bounds the size of a type in them, which the engine allocates to read one: most have some hundred.
	maxVMTypeBytes = 1 << 20

	// maxVMPlace bounds the offsets of fields, and those of variables in the file.
	maxVMPlace = 1 << 32
)

var errVMTables = errors.New("the JVM describes itself by numbers that none has")

// hideJVM has the engine take a file for another one than a JVM's if what is in the memory of the process cannot be a
// JVM's description of itself: the engine allocates what it says. What is checked is what the engine reads then: see
// pages.isWhole. A JVM is read once.
func (t *target) hideJVM(raw *process.RawMapping) {
	isKnown := t.code != nil && t.code.mapped == *raw
	if t.files == nil || isKnown || !raw.IsFileBacked() || !strings.Contains(raw.Path, libjvm) {
		return
	}
	file := t.reference(raw)
	defer file.Close()
	elf, err := file.GetELF()
	if err == nil {
		mapper := elf.GetAddressMapper()
		inFile, ok := mapper.FileOffsetToVirtualAddress(raw.FileOffset)
		if !ok {
			return // as the engine sees, too
		}
		err = checkJVM(elf, t.remoteMemory(), libpf.Address(raw.Vaddr-inFile))
	}
	if err == nil {
		return
	}
	if errors.Is(err, errVMTables) {
		_ = t.skip(raw, err)
	}
	raw.Path = strings.ReplaceAll(raw.Path, libjvm, "/libjvm")
}

// vmTable is a table in which a JVM describes itself, at a variable or where that points to.
type vmTable struct {
	at                                 libpf.Address
	stride, nameAt, valueAt, addressAt uint64
	mostValue                          uint64
	memory                             remotememory.RemoteMemory
	bias                               libpf.Address
}

// checkJVM returns an error unless the tables in which a JVM describes itself have an end and numbers that the engine
// can allocate and add; or if they cannot be read, as long as it starts. It is errVMTables if no JVM has such ones.
func checkJVM(elf *pfelf.File, memory remotememory.RemoteMemory, bias libpf.Address) error {
	var failure error
	number := func(at libpf.Address) uint64 {
		var b [8]byte
		failure = errors.Join(failure, memory.Read(at+bias, b[:]))
		return binary.LittleEndian.Uint64(b[:])
	}
	variable := func(name string) uint64 {
		at, err := elf.LookupSymbolAddress(libpf.SymbolName("gHotSpotVM" + name))
		failure = errors.Join(failure, err)
		return number(libpf.Address(at))
	}
	types := vmTable{
		memory: memory, bias: bias, mostValue: maxVMTypeBytes,
		at: libpf.Address(variable("Types")), stride: variable("TypeEntryArrayStride"),
		nameAt: variable("TypeEntryTypeNameOffset"), valueAt: variable("TypeEntrySizeOffset"),
		addressAt: number(0), // where the engine reads it, as there is no variable: they have none
	}
	fields := vmTable{
		memory: memory, bias: bias, mostValue: maxVMPlace,
		at: libpf.Address(variable("Structs")), stride: variable("StructEntryArrayStride"),
		nameAt: variable("StructEntryTypeNameOffset"), valueAt: variable("StructEntryOffsetOffset"),
		addressAt: variable("StructEntryAddressOffset"),
	}
	fieldAt := variable("StructEntryFieldNameOffset")
	if failure != nil {
		return failure
	}
	const elfMagic = 0x464c457f // how that begins in a file of a JVM
	if fieldAt >= maxVMEntryBytes || uint32(types.addressAt) != elfMagic || types.addressAt+8 < types.addressAt {
		return errVMTables
	}
	types.addressAt = maxVMEntryBytes
	for _, table := range []vmTable{types, fields} {
		if err := table.check(); err != nil {
			return err
		}
	}
	if fields.at = compilerTable(elf); fields.at == 0 {
		return nil
	}
	fields.at += bias
	return fields.check()
}

// check walks a table as the engine does.
func (v *vmTable) check() error {
	if v.at == 0 || v.stride == 0 {
		return errNotAttached // it starts
	}
	if v.stride > maxVMEntryBytes || max(v.nameAt, v.valueAt) >= maxVMEntryBytes || v.addressAt > maxVMEntryBytes {
		return errVMTables
	}
	entry := make([]byte, v.stride)
	number := func(at uint64) uint64 {
		if at+8 > v.stride {
			return 0
		}
		return binary.LittleEndian.Uint64(entry[at:])
	}
	at := v.at
	for range maxVMEntries {
		if err := v.memory.Read(at, entry); err != nil {
			return err
		}
		if number(v.nameAt) == 0 {
			return nil
		}
		value := number(v.addressAt)
		if value == 0 {
			value = number(v.valueAt)
		} else {
			value -= uint64(v.bias)
		}
		if value > v.mostValue && !isUnset(value) {
			return errVMTables
		}
		at += libpf.Address(v.stride)
	}
	return errVMTables
}

// isUnset reports whether a value is the one that the engine takes for none.
func isUnset(value uint64) bool { return value == ^uint64(0) }

// compilerTable returns where a file has the table of what a JVM tells its compiler, 0 if it has none: the engine
// searches for a pointer to the name of its first field.
func compilerTable(elf *pfelf.File) libpf.Address {
	const first, nameAt = "Klass_vtable_start_offset", 8
	constants, data := elf.Section(".rodata"), elf.Section(".data")
	if constants == nil || data == nil {
		return 0
	}
	name, ok := search(constants, []byte(first))
	if !ok {
		return 0
	}
	pointer, ok := search(data, binary.LittleEndian.AppendUint64(nil, constants.Addr+name))
	if !ok {
		return 0
	}
	return libpf.Address(data.Addr + pointer - nameAt)
}

// search returns where a section has some bytes first.
func search(section *pfelf.Section, wanted []byte) (at uint64, found bool) {
	const step = 64 << 10
	b := make([]byte, step+len(wanted)-1)
	for at := int64(0); ; at += step {
		n, err := section.ReadAt(b, at)
		if i := bytes.Index(b[:n], wanted); i >= 0 {
			return uint64(at) + uint64(i), true
		}
		if err != nil || n < len(b) {
			return 0, false
		}
	}
}
