package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// v8Layout is where V8's objects have what names a place in the code of a function. V8 says it in symbols of its
// file, for debuggers.
type v8Layout struct {
	// Offsets in objects.
	sfiName, sfiScript, wrappedSFI                          uint32 // of SharedFunctionInfo, and what wraps one
	codeWrapper, codeStream, codeStart, codeSize, codeFlags uint32
	streamStart                                             uint32 // of the instructions
	byteCodeLength, byteCodeWrapper, byteCodeData           uint32
	arrayLength, arrayData                                  uint32
	stringLength, oneByteChars, twoByteChars                uint32
	consFirst, consSecond, thinActual                       uint32
	scriptSource, scriptName, scriptLineEnds                uint32
	deoptLiterals, deoptFunction, deoptInlined              uint32 // indexes
	scopeVariables, scopeLocals                             uint32 // indexes

	kindMask, kindShift, kindBaseline                 uint32
	notString, encodingMask, formMask                 uint32 // of types of strings
	oneByte, consString, thinString                   uint32
	typeByteCode, typeCode, typeStream                uint32
	typeSFI, typeWrappedSFI, typeScope, typeScript    uint32
	typeArray, typeBytes, typeTrustedBytes, typeDeopt uint32
	typeLiterals, typeInterpreterData                 uint32
	typeOldDeopt, typeOldLiterals                     uint32 // V8 12.4

	seen    [v8TablesDifferent + 1]uint64 // tables of byte code, by how they are written
	opcodes []byte                        // sizes of byte codes, for operands of one, two and four times the size
}

const (
	v8SymbolPrefix = "v8dbg_"

	// maxV8Offset bounds offsets and indexes in objects, maxV8Type types and other numbers.
	maxV8Offset, maxV8Type = 4096, 1 << 16

	// v8SFIData is the offset of the byte code, or the code, in a SharedFunctionInfo, which no symbol tells.
	v8SFIData = 8

	// maxOpcodes bounds the byte codes; an instruction has less than maxOpcodeBytes.
	maxOpcodes, maxOpcodeBytes = 256, 32
)

// errOldV8: the engine reads it. What is known of the layout is returned with it.
var errOldV8 = errors.New("V8 before 12.4")

// v8Value is a value of v8Layout, by its symbol without v8SymbolPrefix.
type v8Value struct {
	symbol string
	value  *uint32
	limit  uint32
}

func (l *v8Layout) values() []v8Value {
	return []v8Value{
		{"class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_", &l.sfiName, maxV8Offset},
		{"class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_", &l.sfiName, maxV8Offset}, // V8 12.4
		{"class_SharedFunctionInfo__script__Tagged_HeapObject_", &l.sfiScript, maxV8Offset},
		{"class_SharedFunctionInfoWrapper__shared_info__Tagged_SharedFunctionInfo_", &l.wrappedSFI, maxV8Offset},
		{"class_Code__wrapper__Tagged_CodeWrapper_", &l.codeWrapper, maxV8Offset},
		{"class_Code__instruction_stream__Tagged_InstructionStream_", &l.codeStream, maxV8Offset},
		{"class_Code__instruction_start__Address", &l.codeStart, maxV8Offset},
		{"class_Code__instruction_size__int", &l.codeSize, maxV8Offset},
		{"class_Code__flags__uint32_t", &l.codeFlags, maxV8Offset},
		{"class_InstructionStream__instruction_start__uintptr_t", &l.streamStart, maxV8Offset},
		{"class_BytecodeArray__length__SMI", &l.byteCodeLength, maxV8Offset},
		{"class_BytecodeArray__wrapper__Tagged_BytecodeWrapper_", &l.byteCodeWrapper, maxV8Offset},
		{"class_BytecodeArray__data__uintptr_t", &l.byteCodeData, maxV8Offset},
		{"class_FixedArrayBase__length__SMI", &l.arrayLength, maxV8Offset},
		{"class_FixedArray__data__uintptr_t", &l.arrayData, maxV8Offset},
		{"class_String__length__int32_t", &l.stringLength, maxV8Offset},
		{"class_SeqOneByteString__chars__char", &l.oneByteChars, maxV8Offset},
		{"class_SeqTwoByteString__chars__char", &l.twoByteChars, maxV8Offset},
		{"class_ConsString__first__String", &l.consFirst, maxV8Offset},
		{"class_ConsString__second__String", &l.consSecond, maxV8Offset},
		{"class_ThinString__actual__String", &l.thinActual, maxV8Offset},
		{"class_Script__source__Object", &l.scriptSource, maxV8Offset},
		{"class_Script__name__Object", &l.scriptName, maxV8Offset},
		{"class_Script__line_ends__Object", &l.scriptLineEnds, maxV8Offset},
		{"DeoptimizationDataLiteralArrayIndex", &l.deoptLiterals, maxV8Offset},
		{"DeoptimizationDataWrappedSharedFunctionInfoIndex", &l.deoptFunction, maxV8Offset},
		{"DeoptimizationDataSharedFunctionInfoWrapperIndex", &l.deoptFunction, maxV8Offset}, // V8 12.9
		{"DeoptimizationDataSharedFunctionInfoIndex", &l.deoptFunction, maxV8Offset},        // V8 12.4
		{"DeoptimizationDataInliningPositionsIndex", &l.deoptInlined, maxV8Offset},
		{"scopeinfo_idx_first_vars", &l.scopeVariables, maxV8Offset},
		{"scopeinfo_idx_ncontextlocals", &l.scopeLocals, maxV8Offset},
		{"CodeKindFieldMask", &l.kindMask, maxV8Type},
		{"CodeKindFieldShift", &l.kindShift, maxV8Type},
		{"CodeKindBaseline", &l.kindBaseline, maxV8Type},
		{"FirstNonstringType", &l.notString, maxV8Type},
		{"StringEncodingMask", &l.encodingMask, maxV8Type},
		{"StringRepresentationMask", &l.formMask, maxV8Type},
		{"OneByteStringTag", &l.oneByte, maxV8Type},
		{"ConsStringTag", &l.consString, maxV8Type},
		{"ThinStringTag", &l.thinString, maxV8Type},
		{"type_BytecodeArray__BYTECODE_ARRAY_TYPE", &l.typeByteCode, maxV8Type},
		{"type_Code__CODE_TYPE", &l.typeCode, maxV8Type},
		{"type_InstructionStream__INSTRUCTION_STREAM_TYPE", &l.typeStream, maxV8Type},
		{"type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE", &l.typeSFI, maxV8Type},
		{"type_SharedFunctionInfoWrapper__SHARED_FUNCTION_INFO_WRAPPER_TYPE", &l.typeWrappedSFI, maxV8Type},
		{"type_ScopeInfo__SCOPE_INFO_TYPE", &l.typeScope, maxV8Type},
		{"type_Script__SCRIPT_TYPE", &l.typeScript, maxV8Type},
		{"type_FixedArray__FIXED_ARRAY_TYPE", &l.typeArray, maxV8Type},
		{"type_ByteArray__BYTE_ARRAY_TYPE", &l.typeBytes, maxV8Type},
		{"type_TrustedByteArray__TRUSTED_BYTE_ARRAY_TYPE", &l.typeTrustedBytes, maxV8Type},
		{"type_ProtectedFixedArray__PROTECTED_FIXED_ARRAY_TYPE", &l.typeDeopt, maxV8Type},
		{"type_TrustedFixedArray__TRUSTED_FIXED_ARRAY_TYPE", &l.typeOldDeopt, maxV8Type},
		{"type_WeakFixedArray__WEAK_FIXED_ARRAY_TYPE", &l.typeOldLiterals, maxV8Type},
		{"type_TrustedWeakFixedArray__TRUSTED_WEAK_FIXED_ARRAY_TYPE", &l.typeLiterals, maxV8Type},
		{"type_InterpreterData__INTERPRETER_DATA_TYPE", &l.typeInterpreterData, maxV8Type},
	}
}

// readV8Layout reads the layout from V8's file; errOldV8 if it is one that the engine reads.
func readV8Layout(file *pfelf.File) (*v8Layout, error) {
	l, err := newV8Layout(func(name string) (uint32, bool) { return v8Symbol(file, name) })
	if err != nil {
		return l, err
	}
	l.opcodes = readOpcodes(file)
	return l, nil
}

// newV8Layout is readV8Layout by what finds the number of a symbol, without opcodes.
func newV8Layout(find func(name string) (uint32, bool)) (*v8Layout, error) {
	l := new(v8Layout)
	values := l.values()
	found := make(map[*uint32]bool)
	for _, v := range values {
		if value, ok := find(v.symbol); ok {
			*v.value, found[v.value] = value, true
		}
	}
	if !found[&l.byteCodeWrapper] {
		return l, errOldV8
	}
	for value, none := range map[*uint32]uint32{
		&l.wrappedSFI: 0, &l.typeWrappedSFI: maxV8Type - 1, &l.typeLiterals: maxV8Type - 1,
	} {
		if !found[value] { // V8 12.4
			found[value], *value = true, none
		}
	}
	for _, v := range values {
		if !found[v.value] {
			return nil, fmt.Errorf("the layout of this V8 is not known: it has no %s%s", v8SymbolPrefix, v.symbol)
		}
		if *v.value >= v.limit {
			return nil, fmt.Errorf("the layout of this V8 is not known: %s%s is %d", v8SymbolPrefix, v.symbol, *v.value)
		}
	}
	for name, want := range map[string]int32{
		"class_HeapObject__map__Map": v8MapOffset, "class_Map__instance_type__uint16_t": v8TypeOffset,
		"off_fp_bytecode_array": v8ByteCodeAtFrame, "HeapObjectTag": v8Tag, "HeapObjectTagMask": v8TagMask,
		"SmiTag": 0, "SmiTagMask": 1, "SeqStringTag": 0,
	} {
		if value, found := find(name); !found || int32(value) != want {
			return nil, fmt.Errorf("the layout of this V8 is not known: %s%s is %d", v8SymbolPrefix, name, int32(value))
		}
	}
	if l.codeWrapper < 24 {
		return nil, errors.New("the layout of this V8 is not known: there is no room before the wrapper of code")
	}
	return l, nil
}

// maxV8Symbols bounds the symbols among which V8's are looked for. Node.js has 100,000.
const maxV8Symbols = 1 << 20

// hasV8 reports whether a file has symbols of V8: a program that is only named like Node.js has none.
func hasV8(file *pfelf.File) (has bool) {
	isNot := atMost(maxV8Symbols, func(s libpf.Symbol) bool {
		name := string(s.Name)
		has = strings.HasPrefix(name, "_ZN2v8") || strings.HasPrefix(name, v8SymbolPrefix)
		return !has
	})
	if _ = file.VisitDynamicSymbols(isNot); !has {
		_ = file.VisitSymbols(isNot)
	}
	return has
}

// atMost returns a function for so many symbols.
func atMost(most int, visit func(libpf.Symbol) bool) func(libpf.Symbol) bool {
	seen := 0
	return func(s libpf.Symbol) bool {
		seen++
		return visit(s) && seen < most
	}
}

// v8Symbol returns the number that a symbol of V8's file names. Those that are 0 may be in no part of the file.
func v8Symbol(file *pfelf.File, name string) (value uint32, found bool) {
	at, err := file.LookupSymbolAddress(libpf.SymbolName(v8SymbolPrefix + name))
	if err != nil {
		return 0, false
	}
	var b [4]byte
	if _, err := file.ReadAt(b[:], int64(at)); err != nil {
		return 0, true
	}
	return binary.LittleEndian.Uint32(b[:]), true
}

// readOpcodes returns the sizes of byte codes, nil when they are not found: functions in the code of V8's first
// compiler (Sparkplug) have no lines then.
func readOpcodes(file *pfelf.File) []byte {
	const name = "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE"
	var table libpf.Symbol
	is := func(s libpf.Symbol) bool {
		if s.Name == name {
			table = s
		}
		return table.Address == 0
	}
	if s, err := file.LookupSymbol(name); err == nil {
		table = *s
	} else if file.VisitSymbols(is) != nil {
		return nil
	}
	if table.Size == 0 || table.Size%3 != 0 || table.Size > 3*maxOpcodes {
		return nil
	}
	sizes := make([]byte, table.Size)
	if _, err := file.ReadAt(sizes, int64(table.Address)); err != nil {
		return nil
	}
	for _, size := range sizes {
		if size == 0 || size >= maxOpcodeBytes {
			return nil
		}
	}
	return sizes
}

// maxV8Functions bounds the types of functions: constructors of V8's own, and of classes, have types of their own.
const maxV8Functions = 64

// lastV8Function returns the last type of functions in a V8 that does not say it: the one before the next that has a
// symbol. The engine takes fewer, without constructors of classes. 0: it is said, or not found.
func lastV8Function(file *pfelf.File) uint16 {
	if _, said := v8Symbol(file, "LastJSFunctionType"); said {
		return 0
	}
	first, found := v8Symbol(file, "type_JSFunction__JS_FUNCTION_TYPE")
	if !found || first >= maxV8Type-maxV8Functions {
		return 0
	}
	next := first + maxV8Functions
	_ = file.VisitDynamicSymbols(atMost(maxV8Symbols, func(s libpf.Symbol) bool {
		if name, is := strings.CutPrefix(string(s.Name), v8SymbolPrefix); is && strings.HasPrefix(name, "type_") {
			if kind, _ := v8Symbol(file, name); kind > first {
				next = min(next, kind)
			}
		}
		return true
	}))
	if next == first+maxV8Functions {
		return 0
	}
	return uint16(next - 1)
}

// openV8 has a process of V8 that the engine cannot read, read here, and corrects what it has found of another one.
func (s *server) openV8(t *target, code *runtimeCode) error {
	if code.v8 == nil && code.v8Last == 0 {
		return nil
	}
	return changeData(s.handler, libpf.V8, t.PID(), func(info *support.V8ProcInfo) {
		info.Type_JSFunction_last = max(info.Type_JSFunction_last, code.v8Last)
		if code.v8 != nil {
			handsOverPC(info, uint16(code.v8.typeByteCode))
		}
	})
}
