package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.opentelemetry.io/ebpf-profiler/asm/amd"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
	"go.opentelemetry.io/ebpf-profiler/util"
	"golang.org/x/arch/x86/x86asm"
)

// phpName is how the engine's names of versions of PHP begin.
const phpName = "PHP "

// phpLayout is where a zend_function has its file, and the number of its instructions. 0: that is not known, and no
// function has a name, or the innermost no line.
type phpLayout struct{ file, oplines uint8 }

// phpLayouts are those of versions (Zend/zend_compile.h). The second number is of those that were run.
var phpLayouts = map[string]phpLayout{
	"7.4": {136, 0}, "8.0": {144, 0}, "8.1": {144, 0}, "8.2": {152, 152 - 72}, "8.3": {144, 0},
	"8.4": {168, 168 - 72}, "8.5": {168, 0},
}

// openPHP has the program check functions, and lines.
func (s *server) openPHP(t *target, code *runtimeCode) error {
	return changeData(s.handler, libpf.PHP, t.PID(), func(info *support.PHPProcInfo) {
		info.Pad_cgo_0 = [2]byte{code.php.file, code.php.oplines} // from phpFileInProcInfo on
	})
}

// newPHPLayout returns the layout of a version ("PHP 8.2.29"). Of one that the engine reads, and that is not known, no
// function has a name.
func newPHPLayout(version string) *phpLayout {
	number := strings.TrimPrefix(version, phpName)
	l := phpLayouts[number[:max(strings.LastIndexByte(number, '.'), 0)]]
	return &l
}

// zend_function.type, zend_class_entry.type, and those of zend_function.fn_flags that functions have which PHP makes
// while it runs: closures (ZEND_ACC_CLOSURE), what stands for __call, and those of enums, and of classes that extend
// one of PHP's own (ZEND_ACC_ARENA_ALLOCATED). Since PHP 7.4.
const (
	zendInternalFunction = 1
	zendUserFunction     = 2
	zendEvalCode         = 4

	zendInternalClass = 1

	zendMadeFunction = 1<<22 | 1<<18 | 1<<25
)

// maxPHPText bounds the length of a name.
const maxPHPText = 4096

var errPHPFunction = errors.New("there is another function at the address")

// phpReader reads PHP's functions.
type phpReader struct {
	memory io.ReaderAt
	file   uint8 // where a zend_function has its file
}

// phpFrames returns the frame of a word of PHP, none of a call of PHP's own that has no function. What was read once of
// a function is kept, whatever comes to its address.
func (s *server) phpFrames(t *target, code *runtimeCode, word libpf.EbpfFrame) []Frame {
	if word.Variable(0) == 0 {
		return nil
	}
	line, typeInfo := uint32(word.Variable(1)), uint32(word.Variable(1)>>32)
	at := place{t.number, [3]uint64{word[0], word[1], uint64(phpHashOf(typeInfo))}}
	frames, lines := s.places.get(at, code.areUnchanged)
	if frames == nil {
		r := phpReader{code.pages, code.php.file}
		f, of, err := r.function(word.Variable(0), typeInfo)
		if err != nil {
			s.keep = false
			return []Frame{{Kind: PHPFrame}}
		}
		frames, lines = []Frame{f}, of
		s.places.add(at, frames, lines, nil)
	}
	f := frames[0]
	if lines.Down <= line && line <= lines.Up {
		f.Line = line
	}
	if trusted := code.trusted; !code.isTrusted([]Frame{f}) {
		s.keep = false
		return []Frame{{Kind: PHPFrame}}
	} else if !trusted {
		s.trusted++
	}
	return []Frame{f}
}

// function returns the frame of a function, without the line, and the lines it is from and to.
func (r *phpReader) function(at uint64, typeInfo uint32) (f Frame, lines Span, err error) {
	f.Kind = PHPFrame
	if r.file == 0 {
		return f, lines, errPHPFunction
	}
	var head [24]byte
	if err := r.read(at, head[:]); err != nil {
		return f, lines, err
	}
	kind, flags := head[0], binary.LittleEndian.Uint32(head[4:])
	name, err := r.text(pointerAt(head[:], zendFunctionName))
	if err != nil {
		return f, lines, err
	}
	var class []byte
	isInternal := true // the class
	if scope := pointerAt(head[:], zendFunctionName+8); scope != 0 {
		var entry [zendClassName + 8]byte
		if err := r.read(scope, entry[:]); err != nil {
			return f, lines, err
		}
		isInternal = entry[0] == zendInternalClass
		if class, err = r.text(pointerAt(entry[:], zendClassName)); err != nil {
			return f, lines, err
		}
	}
	f.Function = phpFunctionName(class, name)
	switch kind {
	case zendInternalFunction:
		// PHP registers it when it begins, for ever. Others are made while it runs. The program has no hash of it.
		if phpHashOf(typeInfo) != 0 || flags&zendMadeFunction != 0 || !isInternal || f.Function == "" {
			return f, lines, errPHPFunction
		}
		return f, lines, nil
	case zendUserFunction, zendEvalCode:
	default:
		return f, lines, errPHPFunction
	}
	var of [16]byte
	if err := r.read(at+uint64(r.file), of[:]); err != nil {
		return f, lines, err
	}
	file, err := r.text(pointerAt(of[:], 0))
	if err != nil {
		return f, lines, err
	}
	if phpHash(of[zendFileLines:], file, name, class) != phpHashOf(typeInfo) {
		return f, lines, errPHPFunction
	}
	f.SourceFile = sourceFile(string(file))
	lines = Span{binary.LittleEndian.Uint32(of[zendFileLines:]), binary.LittleEndian.Uint32(of[zendFileLines+4:])}
	if f.Function == "" {
		f.Function = "{main}"
		if kind == zendEvalCode {
			f.Function = "eval"
		}
	}
	return f, lines, nil
}

// read reads memory from an address on.
func (r *phpReader) read(at uint64, b []byte) error {
	_, err := r.memory.ReadAt(b, int64(at))
	return err
}

// text returns the characters of a zend_string, nil if its address is 0.
func (r *phpReader) text(at uint64) ([]byte, error) {
	if at == 0 {
		return nil, nil
	}
	var length [8]byte
	if err := r.read(at+zendStringLength, length[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxPHPText {
		return nil, fmt.Errorf("a name of %d bytes: %w", n, errors.ErrUnsupported)
	}
	text := make([]byte, n)
	return text, r.read(at+zendStringChars, text)
}

func pointerAt(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// phpFunctionName returns "Class::function", without what PHP has behind a NUL in names of its own.
func phpFunctionName(class, name []byte) string {
	name, _, _ = bytes.Cut(name, []byte{0})
	if class, _, _ = bytes.Cut(class, []byte{0}); len(class) > 0 && len(name) > 0 {
		return boundName(string(class) + "::" + string(name))
	}
	return boundName(string(name))
}

// phpHash is the hash of checkCode: of the lines, which are two words of 32 bits, and of texts, nil for none.
func phpHash(lines []byte, texts ...[]byte) uint32 {
	var hash uint64
	mix := func(words []byte) {
		for ; len(words) > 0; words = words[8:] {
			hash = (hash ^ binary.LittleEndian.Uint64(words)) * phpHashMultiplier
			hash ^= hash >> 32
		}
	}
	mix(lines)
	for i, text := range texts {
		if text == nil {
			continue
		}
		hash += uint64(i) + 1
		mix(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
		var end [phpTextBytes]byte
		copy(end[:], text[max(0, len(text)-phpTextBytes+1):])
		mix(end[:])
	}
	return max(uint32(hash^hash>>phpHashBits)&(1<<phpHashBits-1), 1)
}

// phpHashOf returns the hash that is in type_info.
func phpHashOf(typeInfo uint32) uint32 { return typeInfo&0xffff | typeInfo>>18<<16 }

const (
	// maxInterpreter bounds what is read of PHP's interpreter. In 8.2 it has 37 KB.
	maxInterpreter = 256 << 10
	// maxFunctionTable bounds what is read of the table of functions. In 8.2 it has 77 KB.
	maxFunctionTable = 1 << 20
)

// coldCode returns where the rest of PHP's interpreter is in a file on x86-64, if there is one: gcc puts code that is
// executed rarely into a function without a name (execute_ex.cold), of which the engine does not know.
func coldCode(file *pfelf.Reference, data *stackdeltatypes.IntervalData) util.Range {
	program, err := file.GetELF()
	if err != nil || program.Machine != elf.EM_X86_64 {
		return util.Range{}
	}
	code, symbol, err := interpreterCode(program)
	if err != nil {
		return util.Range{}
	}
	cold := coldRange(code, uint64(symbol.Address), symbol.Size, data)
	section := program.Section(".eh_frame_hdr")
	if cold == (util.Range{}) || section == nil {
		return util.Range{}
	}
	table, err := section.Data(maxFunctionTable)
	if err != nil || beginsWithin(table, section.Addr, cold) {
		return util.Range{} // the module makes one block of functions that are unwound alike
	}
	return cold
}

// interpreterCode returns the code of PHP's interpreter, of all that it says to be no more than maxInterpreter.
func interpreterCode(program *pfelf.File) (code []byte, symbol *libpf.Symbol, err error) {
	symbol, err = program.LookupSymbol("execute_ex")
	if err != nil {
		return nil, nil, err
	}
	code = make([]byte, min(symbol.Size, maxInterpreter))
	_, err = program.ReadAt(code, int64(symbol.Address))
	return code, symbol, err
}

// beginsWithin reports whether a function begins within a range, behind its start, by an .eh_frame_hdr section that is
// at an address (Linux Standard Base, 10.6.2). It does if the section is not one as linkers write them.
func beginsWithin(header []byte, address uint64, in util.Range) bool {
	const entries, entryBytes = 12, 8
	// Version 1: a pointer relative to itself, a count of 4 bytes, and a table of numbers relative to the section.
	if len(header) < entries || string(header[:4]) != "\x01\x1b\x03\x3b" {
		return true
	}
	count := uint64(binary.LittleEndian.Uint32(header[8:]))
	if count > uint64(len(header)-entries)/entryBytes {
		return true
	}
	for i := range count {
		start := address + uint64(int32(binary.LittleEndian.Uint32(header[entries+i*entryBytes:])))
		if start > in.Start && start <= in.End {
			return true
		}
	}
	return false
}

// coldRange returns the block to which a function of size bytes at start jumps if conditions hold. It is no other
// function: jumps lead into it, not just to its beginning, and at its beginning there is a frame. All of them lead
// there, up to the first instruction that is not known.
func coldRange(code []byte, start, size uint64, data *stackdeltatypes.IntervalData) util.Range {
	var cold *stackdeltatypes.BasicBlock
	hasInner := false
	for at := 0; at < len(code); {
		n, to, isJump := conditionalJump(code[at:])
		if n == 0 {
			break
		}
		at += n
		target := start + uint64(at) + uint64(to)
		if !isJump || target-start < size {
			continue
		}
		block := data.Find(target)
		if block == nil || cold != nil && cold != block {
			return util.Range{}
		}
		cold = block
		hasInner = hasInner || target != block.Start
	}
	if !hasInner || isEntry(cold) {
		return util.Range{}
	}
	return util.Range{Start: cold.Start, End: cold.End - 1} // the engine has the end in it
}

// isEntry reports whether a block begins as functions do, with nothing but the return address on the stack.
func isEntry(block *stackdeltatypes.BasicBlock) bool {
	if len(block.Deltas) == 0 {
		return true
	}
	first := block.Deltas[0].Info
	return first.Flags&support.UnwindFlagCommand != 0 || first.BaseReg == support.UnwindRegSp && first.Param <= 8
}

// conditionalJump returns the length of the first instruction, 0 if it is not known, and how far from its end it jumps,
// if it does so on a condition.
func conditionalJump(code []byte) (n int, to int64, isJump bool) {
	if ok, n := amd.DecodeSkippable(code); ok {
		return n, 0, false
	}
	instruction, err := x86asm.Decode(code, 64)
	if err != nil {
		return 0, 0, false
	}
	rel, ok := instruction.Args[0].(x86asm.Rel)
	isJump = ok && instruction.Op != x86asm.JMP && instruction.Op != x86asm.CALL
	return instruction.Len, int64(rel), isJump
}
