package unwind

// FrameKind is the kind of a Frame.
type FrameKind uint8

// Kinds of frames.
const (
	NativeFrame FrameKind = iota // code of a mapped file, or the vDSO
	JVMFrame                     // a Java method, or code that the JVM has generated for itself
	CutFrame                     // no frame: the stack could not be walked, or named, further
	frameKinds
)

// Frame is one frame of a stack that was unwound.
type Frame struct {
	Kind FrameKind
	// Address is that in the process's memory, of a NativeFrame; 0 when its file is not mapped any
	// more. From a return address 1 is subtracted already.
	Address uint64
	// Function is class and method of a JVMFrame as NormalizeName returns them, or the name of a
	// stub; "" when it could not be read, for example because the code is gone.
	Function string
	// SourceFile is the name without directories of a JVMFrame's source file, or "".
	SourceFile string
	Line       uint32 // of a JVMFrame in SourceFile; 0 when it is unknown
}
