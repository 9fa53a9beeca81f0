package unwind

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/support"
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
			// That stays so without a hash, and in a version of which the layout is not known.
			stays := errors.Is(err, errPHPFunction) && (phpHashOf(typeInfo) == 0 || code.php.file == 0)
			s.keep = s.keep && stays
			return []Frame{{Kind: PHPFrame}}
		}
		frames, lines = []Frame{f}, of
		s.places.add(at, frames, lines, nil)
	}
	f := frames[0]
	if lines.Down <= line && line <= lines.Up {
		f.Line = line
	}
	return s.ifTrusted(code, []Frame{f})
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
