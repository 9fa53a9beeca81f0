package unwind

import (
	"strings"

	"go.opentelemetry.io/ebpf-profiler/interpreter"
	"go.opentelemetry.io/ebpf-profiler/libpf"
)

// jvmFrames returns the frames of a word: those of calls that are inlined, and of the method. They must not be
// changed.
func (s *server) jvmFrames(pid libpf.PID, word libpf.EbpfFrame) []Frame {
	t := s.targets[pid]
	if t == nil || t.code == nil {
		return []Frame{{Kind: CutFrame}}
	}
	at := place{t.number, [3]uint64(word)}
	if known := s.places.get(at, t.code.areUnchanged); known != nil {
		return known
	}
	var (
		frames []Frame
		read   []reading
		err    error
	)
	if inCompiled(word) {
		frames, err = s.compiledFrames(t, word)
	} else {
		var named libpf.Frames
		named, read, err = t.code.symbolizeAlone(word)
		frames = s.newFrames(named)
	}
	if err != nil || len(frames) == 0 {
		return []Frame{{Kind: JVMFrame}} // its code is gone
	}
	if hasCompileID(word) || len(read) > 0 {
		s.places.add(at, frames, read)
	}
	return frames
}

// compiledFrames returns the frames of a place in compiled code, those of which it is certain that it is in
// them, or enters them next. The JVM knows them at safepoints and at most calls only. For what lies between,
// the engine has the frames of the one before in memory, which may be in a branch that was not taken. What all
// have to which the code can go on is certain; of code that is not understood, the method that was compiled.
func (s *server) compiledFrames(t *target, word libpf.EbpfFrame) ([]Frame, error) {
	next, err := t.code.nextKnown(libpf.Address(word.Variable(0)), codeOffset(word), word.Flags().ReturnAddress())
	if err != nil {
		return nil, err
	}
	if err := t.code.checkCompileID(word); err != nil {
		return nil, err
	}
	if len(next) == 0 {
		frames, err := s.describedFrames(t, word, codeOffset(word))
		return frames[max(0, len(frames)-1):], err
	}
	frames, err := s.describedFrames(t, word, next[0])
	if err != nil {
		return nil, err
	}
	common := len(frames)
	for _, offset := range next[1:] {
		others, err := s.describedFrames(t, word, offset)
		if err != nil {
			return nil, err
		}
		common = min(common, commonRoot(frames, others))
	}
	return frames[len(frames)-max(1, common):], nil
}

// describedFrames returns the frames that the JVM knows at an offset in the compiled method of a word, or at the
// nearest before.
func (s *server) describedFrames(t *target, word libpf.EbpfFrame, offset int32) ([]Frame, error) {
	word = withOffset(word, uint32(offset))
	at := place{t.number, [3]uint64{describedHeader, word[1], word[2]}}
	if known := s.places.get(at, nil); known != nil {
		return known, nil
	}
	named, err := t.code.symbolize(word)
	if err == nil {
		err = t.code.checkCompileID(word)
	}
	if err == nil && len(named) == 0 {
		err = errCodeGone
	}
	if err != nil {
		return nil, err
	}
	frames := s.newFrames(named)
	if hasCompileID(word) {
		s.places.add(at, frames, nil)
	}
	return frames, nil
}

// commonRoot returns how many functions two stacks have in common, from the root on, up to the first that
// is at different lines.
func commonRoot(a, b []Frame) (n int) {
	for n < min(len(a), len(b)) {
		x, y := a[len(a)-1-n], b[len(b)-1-n]
		if x.Function != y.Function || x.SourceFile != y.SourceFile {
			break
		}
		n++
		if x.Line != y.Line {
			break
		}
	}
	return n
}

// newFrames returns frames as the agent has them.
func (s *server) newFrames(named libpf.Frames) []Frame {
	frames := make([]Frame, len(named))
	for i, handle := range named {
		f := handle.Value()
		frames[i] = Frame{
			Kind: JVMFrame, Function: s.normalized(f.FunctionName.String()),
			SourceFile: sourceFile(f.SourceFile.String()), Line: uint32(f.SourceLine),
		}
	}
	return frames
}

// normalized is normalize with a cache.
func (s *server) normalized(name string) string {
	if known, ok := s.names[name]; ok {
		return known
	}
	normalized := s.normalize(name)
	if len(name) > 2*maxNameBytes {
		return strings.Clone(normalized) // without the rest of the name
	}
	if len(s.names) >= maxNames {
		clear(s.names)
	}
	s.names[name] = strings.Clone(normalized) // without the rest of the name
	return normalized
}

// sourceFile returns "" for what the engine has for classes without one.
func sourceFile(name string) string {
	if name == interpreter.UnknownSourceFile.String() {
		return ""
	}
	return boundName(name)
}
