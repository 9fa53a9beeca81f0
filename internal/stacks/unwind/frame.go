package unwind

// FrameKind is the kind of a Frame.
type FrameKind uint8

// Kinds of frames.
const (
	NativeFrame  FrameKind = iota // code of a mapped file, or the vDSO
	JVMFrame                      // a Java method, or code that the JVM has generated for itself
	PythonFrame                   // a function of CPython
	V8Frame                       // a function of JavaScript, or code that V8 has generated for itself
	PHPFrame                      // a function of PHP
	InlinedFrame                  // code that a JVM has inlined in the next frame's method: it is not known of which
	CutFrame                      // no frame: the stack could not be walked, or named, further
	frameKinds
)

// Frame is one frame of a stack that was unwound.
type Frame struct {
	Kind FrameKind
	// Address is that in the process's memory, of a NativeFrame; 0 when its file is not mapped any
	// more. From a return address 1 is subtracted already. Of an InlinedFrame it is its UnknownLeaf.
	Address uint64
	// Function is, of frames of runtimes, the name of the function, or of a stub; "" when it could not be
	// read, for example because the code is gone. That of a JVMFrame is class and method as NormalizeName
	// returns them.
	Function string
	// SourceFile is, of frames of runtimes, what the runtime has as the name of the source file, or "". A JVM
	// has that without directories.
	SourceFile string
	Line       uint32 // in SourceFile; 0 when it is unknown
}

// Named is what the worker says of a stack, or of a part of it.
type Named struct {
	Frames []Frame
	// Keep: its words have these frames for as long as their LifeOf says. Else asking again may tell more.
	Keep bool
	// Span is, of a word alone that has a Place, at which others its frames are the same, as long as these are.
	Span Span
}

// Span is how far down and up from a place others are.
type Span struct{ Down, Up uint32 }

// OfRuntime reports whether frames are of functions that a language runtime compiles or interprets.
func (k FrameKind) OfRuntime() bool { return k != NativeFrame && k != CutFrame }

// inlinedName is the Function of an InlinedFrame.
const inlinedName = "[inlined code]"
