package unwind

import (
	"strings"

	"go.opentelemetry.io/ebpf-profiler/libpf"
)

// runtimeFrames returns the frames of a word of a runtime other than a JVM: those of calls that are inlined, and
// of the function. They must not be changed.
func (s *server) runtimeFrames(pid libpf.PID, word libpf.EbpfFrame) []Frame {
	t, kind := s.targets[pid], runtimeOfWord(word)
	if t == nil || kind == nil || len(word) != runtimeWords || t.codes[kind] == nil {
		return []Frame{{Kind: CutFrame}}
	}
	code, at := t.codes[kind], place{t.number, [3]uint64(word)}
	if known := s.places.get(at, code.areUnchanged); known != nil {
		return known
	}
	named, read, err := code.symbolizeAlone(word)
	if err != nil || len(named) == 0 {
		return []Frame{{Kind: kind.frames}} // its code is gone
	}
	frames := make([]Frame, len(named))
	for i, handle := range named {
		f := handle.Value()
		frames[i] = Frame{
			Kind: kind.frames, Function: boundName(functionName(f.FunctionName.String())),
			SourceFile: sourceFile(f.SourceFile.String()), Line: uint32(f.SourceLine),
		}
		if code.noLines {
			frames[i].Line = 0
		}
	}
	if len(read) > 0 {
		s.places.add(at, frames, read)
	}
	return frames
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
