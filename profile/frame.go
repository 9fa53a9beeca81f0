package profile

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"correlator/internal/host/label"
	"correlator/internal/host/textcut"
)

// FileID identifies the file of a frame.
type FileID [16]byte

// String returns the id in 32 hexadecimal digits. For a mapped file that is the attribute
// process.executable.build_id.htlhash of OTLP.
func (id FileID) String() string { return hex.EncodeToString(id[:]) }

// anonymousID returns the file id of frames with neither file nor function: xxh64 of the empty
// input, twice.
func anonymousID() FileID {
	return FileID{
		0xef, 0x46, 0xdb, 0x37, 0x51, 0xd8, 0xe9, 0x99,
		0xef, 0x46, 0xdb, 0x37, 0x51, 0xd8, 0xe9, 0x99,
	}
}

// Kind is the kind of code that a frame is in.
type Kind uint8

const (
	AnonymousFrame Kind = iota // no file: JIT code, or no known memory
	NativeFrame                // a file that the process maps, or the vDSO
	KernelFrame                // the kernel or a module
	JVMFrame                   // a method that a Java virtual machine runs, compiled or interpreted
	PythonFrame                // likewise a function that CPython runs
	V8Frame                    // of JavaScript, in Node.js for example
	CutFrame                   // no code: callers are missing from here on
	PHPFrame                   // a function that PHP runs, also one that is written in C
)

// OfRuntime reports whether frames are of functions that a language runtime compiles or interprets. They have a
// function and no file, and String returns what OpenTelemetry calls their type (profile.frame.type).
func (k Kind) OfRuntime() bool {
	switch k {
	case JVMFrame, PythonFrame, V8Frame, PHPFrame:
		return true
	}
	return false
}

var kinds = []string{
	AnonymousFrame: "anonymous", NativeFrame: "native", KernelFrame: "kernel", JVMFrame: "jvm", PythonFrame: "cpython",
	V8Frame: "v8js", CutFrame: "cut", PHPFrame: "php",
}

// String returns the name.
func (k Kind) String() string { return label.Of(kinds, k) }

// File describes the file of a frame for exporters. It is shared by all its frames and immutable.
type File struct {
	ID   FileID
	Kind Kind // of its frames
	// BuildID is the GNU build id in hexadecimal digits, "" when the file has none.
	BuildID string
	// GoBuildID is that of Go's linker, "" when the file has none.
	GoBuildID string
	// Path is the file's path as seen by the first process that mapped it, "[vdso]", "vmlinux", or
	// the name of a kernel module. It is for display and identifies nothing: files with the same id
	// have one path here.
	Path string
	// Code has the executable segments of an ELF file, nil for the kernel and its modules.
	Code []CodeRange
}

// IsCLibrary reports whether it is a C library, or the loader that is one (musl), by its name. A nil
// file is not.
func (f *File) IsCLibrary() bool {
	if f == nil {
		return false
	}
	name := path.Base(f.Path)
	return slices.ContainsFunc([]string{"libc.", "libc-", "libpthread", "ld-musl-"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

// CodeRange is an executable segment of a file, in whole pages. Each process maps it at another
// place, so it has the addresses that frames have.
type CodeRange struct {
	Start, Limit uint64 // ELF addresses; Limit is the first one after it
	Offset       uint64 // of Start in the file
}

// CodeAt returns the executable segment that holds an ELF address, the zero value when none does.
func (f *File) CodeAt(addr uint64) CodeRange {
	for _, r := range f.Code {
		if r.Start <= addr && addr < r.Limit {
			return r
		}
	}
	return CodeRange{}
}

// Function is what an unwinder knows of the function of a frame. It is shared by frames and
// immutable. NewFunction makes one whose strings every exporter can send as they are: those of a
// frame without a file go into the stack-trace-id.
type Function struct {
	Name       string // not empty; of a method "package.Class.method"
	SourceFile string // empty: not known
	// SystemName is the name as the symbol table has it where Name is the demangled one, else empty.
	SystemName string
}

const (
	// maxFunctionText limits each string of a Function: a stack of 512 frames then fits into one
	// request. Names of generated classes have some hundred bytes.
	maxFunctionText = 1024

	// unknownName is the name of a function without one.
	unknownName = "[unknown]"

	// CutName is what CutFrames are shown and exported as.
	CutName = "[stack truncated]"

	// InlinedName is the name of frames of methods that a Java virtual machine has inlined in those of the next
	// frame, where it is not known which method that is, if it is another at all.
	InlinedName = "[inlined code]"
)

// NewFunction returns a Function. Strings are made UTF-8, with U+FFFD for invalid bytes, and
// shortened to 1024 bytes; an empty name becomes "[unknown]".
func NewFunction(name, sourceFile string) *Function {
	if name == "" {
		name = unknownName
	}
	return &Function{Name: functionText(name), SourceFile: functionText(sourceFile)}
}

// NewSymbol returns the Function of a symbol, with the strings that NewFunction makes; demangled may be
// empty.
func NewSymbol(name, demangled string) *Function {
	if demangled == "" {
		return NewFunction(name, "")
	}
	f := NewFunction(demangled, "")
	f.SystemName = functionText(name)
	return f
}

// TextBytes is the length of all texts of a function.
func (f *Function) TextBytes() int { return len(f.Name) + len(f.SourceFile) + len(f.SystemName) }

func functionText(s string) string {
	s = shorten(s) // first: it may be much longer, and must not be read in full
	return shorten(strings.ToValidUTF8(s, "\ufffd"))
}

// shorten returns at most maxFunctionText bytes of s, in UTF-8 without a part of a character at the
// end.
func shorten(s string) string {
	if len(s) <= maxFunctionText {
		return s
	}
	return textcut.Marked(s, maxFunctionText) // does not keep the rest
}

// Frame is one frame of a stack.
type Frame struct {
	// File is nil when the frame is in no file.
	File *File
	// Function is nil when only the address is known. That of a frame with a file is for display,
	// that of one without is part of the stack-trace-id.
	Function *Function
	// Address is an ELF address in a mapped file, the offset from the start of the text in the
	// kernel or a module, and the address in memory when there is no file. From a return address 1
	// is subtracted. In a frame of a runtime it is the line, 1 if that is not known.
	Address uint64
	// Line is the line in Function.SourceFile, 0 when it is not known.
	Line uint32

	kind Kind // if there is no file
}

// NewJVMFrame is NewRuntimeFrame for a method of a Java virtual machine.
func NewJVMFrame(function *Function, line uint32) Frame {
	return NewRuntimeFrame(JVMFrame, function, line)
}

// NewRuntimeFrame returns the frame of a function that a language runtime runs, of a kind for which
// OfRuntime is true; line 0: not known. Nothing in it depends on the process, so the same code has the
// same frames in all.
func NewRuntimeFrame(kind Kind, function *Function, line uint32) Frame {
	// Not the index of the byte code: a line has several, and gets more ids. Address 0 cannot be
	// exported.
	return Frame{Function: function, Address: uint64(max(line, 1)), Line: line, kind: kind}
}

// NewInlinedFrame returns the frame of a Java method of which it is not known which it is: see InlinedName.
func NewInlinedFrame() Frame { return NewJVMFrame(inlinedFunction, 0) }

var inlinedFunction = NewFunction(InlinedName, "")

// IsInlined reports whether a frame is one that NewInlinedFrame returns.
func (f Frame) IsInlined() bool { return f.Kind() == JVMFrame && f.Name() == InlinedName }

// NewCutFrame returns the frame that ends a stack whose callers could not be found. It keeps the id
// from being that of a whole stack.
func NewCutFrame() Frame { return Frame{Address: 1, kind: CutFrame} }

// FileID returns the file id that goes into the stack-trace-id. For a frame without a file, a
// collector computes it from the lines that it receives. It allocates nothing.
func (f Frame) FileID() FileID {
	switch {
	case f.File != nil:
		return f.File.ID
	case f.Name() != "":
		return lineID(f.Name(), f.SourceFile(), f.Line)
	}
	return anonymousID()
}

// lineID is the file id of a frame with one line: xxh64 over the function's name, the file, and the
// line and the column as 8 bytes each, most significant first; twice. The column is 0.
func lineID(name, sourceFile string, line uint32) (id FileID) {
	var h xxhash.Digest
	h.Reset()
	_, _ = h.WriteString(name) // neither ever fails
	_, _ = h.WriteString(sourceFile)
	var lineColumn [16]byte
	binary.BigEndian.PutUint64(lineColumn[:8], uint64(line))
	_, _ = h.Write(lineColumn[:])
	sum := h.Sum64()
	binary.BigEndian.PutUint64(id[:8], sum)
	binary.BigEndian.PutUint64(id[8:], sum)
	return id
}

// compiledCode stands for the file of frames in no file that have got a name.
var compiledCode = &File{ID: anonymousID(), Kind: AnonymousFrame, Path: "[jit]"}

// WithName returns the frame with a function that is for display only: its file id and its address,
// and so the ids of its stacks, stay as they are.
func (f Frame) WithName(function *Function) Frame {
	if f.File == nil && f.kind == AnonymousFrame && f.Function == nil {
		f.File = compiledCode
	}
	f.Function = function
	return f
}

// Kind returns the kind of code that the frame is in.
func (f Frame) Kind() Kind {
	if f.File == nil {
		return f.kind
	}
	return f.File.Kind
}

// Name returns the name of the frame's function, empty when it is not known. A CutFrame has CutName.
func (f Frame) Name() string {
	switch {
	case f.Function != nil:
		return f.Function.Name
	case f.Kind() == CutFrame:
		return CutName
	}
	return ""
}

// SourceFile returns the source file of the frame's function, empty when it is not known.
func (f Frame) SourceFile() string {
	if f.Function == nil {
		return ""
	}
	return f.Function.SourceFile
}

// isCut reports whether the callers of a stack are missing.
func isCut(frames []Frame) bool {
	return slices.ContainsFunc(frames, func(f Frame) bool { return f.Kind() == CutFrame })
}

// StackTraceID identifies a stack: the same code path has the same one in every process, on every
// machine, at any time.
type StackTraceID [16]byte

// String returns the id as backends print it: base64 with the URL-safe alphabet, without padding.
func (id StackTraceID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// TraceID returns the id of a stack, leaf first: FNV-1a with 128 bits over the file id and the
// decimal digits of the address of each frame. It allocates nothing. The id of no frames is
// meaningless.
func TraceID(frames []Frame) StackTraceID {
	h := newFNV()
	var digits [20]byte // of the largest number of 64 bits
	for _, f := range frames {
		id := f.FileID()
		h = h.add(id[:])
		h = h.add(strconv.AppendUint(digits[:0], f.Address, 10))
	}
	return h.sum()
}
