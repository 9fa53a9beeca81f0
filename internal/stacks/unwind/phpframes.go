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

// phpFile is where a zend_function has its file, by version (Zend/zend_compile.h).
var phpFile = map[string]uint8{
	"7.4": 136, "8.0": 144, "8.1": 144, "8.2": 152, "8.3": 144, "8.4": 168, "8.5": 168,
}

// openPHP has the program check functions, and their lines.
func (s *server) openPHP(t *target, code *runtimeCode) error {
	return changeData(s.handler, libpf.PHP, t.PID(), func(info *support.PHPProcInfo) {
		checksFunctions(info, code.phpFile)
	})
}

// phpFileOf returns where functions of a version ("PHP 8.2.29") have their file.
func phpFileOf(version string) (uint8, error) {
	number := strings.TrimPrefix(version, phpName)
	if end := strings.LastIndexByte(number, '.'); end >= 0 {
		if file := phpFile[number[:end]]; file != 0 {
			return file, nil
		}
	}
	return 0, fmt.Errorf("%s: %w", version, errors.ErrUnsupported)
}

// zend_function.type, zend_class_entry.type, and those of zend_function.fn_flags that functions have which PHP makes
// while it runs: closures, and what stands for __call. Since PHP 7.4.
const (
	zendInternalFunction = 1
	zendUserFunction     = 2
	zendEvalCode         = 4

	zendInternalClass = 1

	zendMadeFunction = 1<<22 | 1<<18
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
		r := phpReader{memory: code.pages, file: code.phpFile}
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
		// PHP registers it when it begins, for ever. Others are made while it runs.
		if flags&zendMadeFunction != 0 || !isInternal || f.Function == "" {
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
		text, _, _ = bytes.Cut(text[max(0, len(text)-phpTextBytes+1):], []byte{0})
		var end [phpTextBytes]byte
		copy(end[:], text)
		mix(end[:])
	}
	return max(uint32(hash^hash>>phpHashBits)&(1<<phpHashBits-1), 1)
}

// phpHashOf returns the hash that is in type_info.
func phpHashOf(typeInfo uint32) uint32 { return typeInfo&0xffff | typeInfo>>18<<16 }
