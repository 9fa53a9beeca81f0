package unwind

import (
	"path/filepath"
	"slices"
	"strings"

	"go.opentelemetry.io/ebpf-profiler/libpf"
)

// runtimeFrames returns the frames of a word of a runtime other than a JVM: those of calls that are inlined, and
// of the function. They must not be changed.
func (s *server) runtimeFrames(pid libpf.PID, word libpf.EbpfFrame) []Frame {
	t, kind := s.targets[pid], runtimeOfWord(word)
	if t == nil || kind == nil || len(word) != runtimeWords || t.codes[kind] == nil {
		s.keep = false
		return []Frame{{Kind: CutFrame}}
	}
	code, at := t.codes[kind], place{t.number, [3]uint64(word)}
	if code.php != nil {
		return s.phpFrames(t, code, word)
	}
	if known, _ := s.places.get(at, code.areUnchanged); known != nil {
		return known
	}
	var (
		frames []Frame
		read   []reading
		err    error
	)
	if code.v8 != nil && isV8Function(word) {
		frames, read, err = code.v8Frames(word)
	} else {
		frames, read, err = code.engineFrames(kind, word)
	}
	if err != nil || len(frames) == 0 {
		s.keep = false
		return []Frame{{Kind: kind.frames}} // its code is gone
	}
	frames = s.ifTrusted(code, frames)
	if len(read) > 0 && s.places.add(at, frames, Span{}, read) {
		return frames
	}
	s.keep = false
	return frames
}

// ifTrusted returns frames of a runtime that have the right names, instead of others one without a name.
func (s *server) ifTrusted(code *runtimeCode, frames []Frame) []Frame {
	before := code.trusted
	if !code.isTrusted(frames) {
		s.keep = false
		return []Frame{{Kind: frames[0].Kind}}
	}
	if !before {
		s.trusted++
	}
	return frames
}

// isTrusted reports whether frames have the right names: always in a version that was tried, and in another one from
// when a function of the runtime itself was named in the process. The outermost functions of most stacks are such.
func (c *runtimeCode) isTrusted(frames []Frame) bool {
	c.trusted = c.trusted || slices.ContainsFunc(frames, ofRuntimeItself)
	return c.trusted
}

// ofRuntimeItself reports whether a frame is of a function that CPython or Node.js brings along; of PHP, which has none
// with a file, whether it is in a file with a path.
func ofRuntimeItself(f Frame) bool {
	switch f.Kind {
	case V8Frame:
		return strings.HasPrefix(f.SourceFile, "node:") && f.Function != ""
	case PHPFrame:
		return f.Line != 0 && (strings.HasPrefix(f.SourceFile, "/") || strings.HasPrefix(f.SourceFile, "phar:///"))
	case PythonFrame:
		return f.Function == "<module>" || strings.HasPrefix(f.SourceFile, "<frozen ") ||
			filepath.Base(f.SourceFile) == "threading.py"
	}
	return false
}

// engineFrames returns the frames that the engine has of a word, and what was read for them.
func (c *runtimeCode) engineFrames(kind *runtimeKind, word libpf.EbpfFrame) ([]Frame, []reading, error) {
	named, read, err := c.symbolizeAlone(word)
	if err != nil {
		return nil, nil, err
	}
	frames := make([]Frame, len(named))
	for i, handle := range named {
		f := handle.Value()
		frames[i] = Frame{
			Kind: kind.frames, Function: boundName(functionName(f.FunctionName.String())),
			SourceFile: sourceFile(f.SourceFile.String()), Line: uint32(f.SourceLine),
		}
		if c.noLines || isPlaceless(word) {
			frames[i].Line = 0
		}
	}
	return frames, read, nil
}

// functionName returns the name of a function. The module for V8 has a name of its own for what it cannot read,
// with an address, which differs from process to process.
func functionName(name string) string {
	if strings.HasPrefix(name, "<") && strings.Contains(name, "0x") {
		return ""
	}
	return name
}

// runtimeWords is the size of a word of each runtimeKind.
const runtimeWords = 3
