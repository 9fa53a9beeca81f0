package profile

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
)

// FileID identifies the file of a frame.
type FileID [16]byte

// String returns the id in 32 hexadecimal digits. For a mapped file that is the attribute
// process.executable.build_id.htlhash of OTLP.
func (id FileID) String() string { return hex.EncodeToString(id[:]) }

// anonymousID returns the file id of frames without a file: xxh64 of the empty input, twice.
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
)

func (k Kind) String() string {
	switch k {
	case AnonymousFrame:
		return "anonymous"
	case NativeFrame:
		return "native"
	case KernelFrame:
		return "kernel"
	}
	return "kind " + strconv.Itoa(int(k))
}

// File describes the file of a frame for exporters. It is shared by all its frames and immutable.
type File struct {
	ID   FileID
	Kind Kind // of its frames
	// BuildID is the GNU build id in hexadecimal digits, "" when the file has none.
	BuildID string
	// Path is the file's path as seen by the first process that mapped it, "[vdso]", "vmlinux", or
	// the name of a kernel module. It is for display and identifies nothing: files with the same id
	// have one path here.
	Path string
}

// Frame is one frame of a stack.
type Frame struct {
	// File is nil when the frame is in no file.
	File *File
	// Address is an ELF address in a mapped file, the offset from the start of the text in the
	// kernel or a module, and the address in memory when there is no file. From a return address 1
	// is subtracted.
	Address uint64
}

// FileID returns the file id that goes into the stack-trace-id.
func (f Frame) FileID() FileID {
	if f.File == nil {
		return anonymousID()
	}
	return f.File.ID
}

// Kind returns the kind of code that the frame is in.
func (f Frame) Kind() Kind {
	if f.File == nil {
		return AnonymousFrame
	}
	return f.File.Kind
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
