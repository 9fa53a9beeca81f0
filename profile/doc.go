// Package profile makes of the instruction pointers of a stack what can be told to others: frames
// with a file id and an address that are the same wherever the code was loaded, the
// stack-trace-id over them, and a store of the frames behind every id.
//
//	Files         the ELF files that processes map, once for all processes
//	AddressSpace  the executable memory of one process: address to frame
//	Kernel        the same of the kernel and its modules
//	TraceID       frames to stack-trace-id
//	Store         stack-trace-id to stack, bounded
//	Sample        a stack, with the thread, the trace and the time that belong to it
//
// A stack comes leaf first, as bpf_get_stack gives it, the kernel's half apart from the user's:
//
//	frames = kernel.AppendFrames(frames[:0], kernelStack)
//	frames = space.AppendFrames(frames, userStack)
//	id := profile.TraceID(frames)
//	stack := store.Put(id, frames)
//
// The id is a function of the frames that a collector computes again from the profile it gets. So
// whatever is decided here about a frame is decided for good: an exporter sends the frame as it is.
//
// # What an address becomes
//
// The first address of the whole stack is where the CPU was. Every other one is taken for a return
// address, and 1 is subtracted, so that it lies in the call. That holds at the border of kernel and
// user too: below a system call the user's first address is the one behind the system call
// instruction. (Below a page fault or an interrupt it is the interrupted instruction itself, and
// the frame says the byte before. The two cannot be told apart, and the id's definition knows no
// exception.) Without a kernel half, the user's first address is the leaf.
//
// An address in no executable memory that is known becomes a frame too, like one in anonymous
// memory, with the address as it is: a stack walked by frame pointers has such addresses where code
// uses the register otherwise, and leaving them out would give the stack of other code. (A file's
// code that the process moved into anonymous memory, for huge pages, is anonymous as well. So is
// the address 0 of a file: an exporter cannot write it.)
//
// A frame is as right as the last look. An address that is unknown because its library is new has
// an anonymous frame until then, which no other process has: look again before such a stack is told
// to anybody, when a look is due. Where a library was unmapped and another one has come to lie in
// its place, frames are of the old one until then; only who knows of the change can do better (see
// Invalidate).
//
// A zero is no address: it ends its half of the stack. The kernel fills up with it what the stack
// left of the buffer, and reads it where the outermost function was called by nobody.
//
// An address beyond user space (from 2⁵⁶ on) ends the user's half likewise: there is no user code,
// so the walk has left the frames, by chance or because the process wants it, and what follows was
// called by nobody either. As a frame it would look like one of the kernel to whoever reads it, and
// its digits, another pointer or number each time, would give one code path many ids. The vsyscall
// page of x86-64 is user code, and its addresses stay. A process that jumped to such an address has
// no user frames at all while the kernel deals with that: without a kernel half, it has no stack.
//
// A stack that was cut off (the kernel walks 127 frames unless told otherwise) has the id of the
// frames there are, because those are what the collector gets. It starts at the leaf, so two
// samples of one deep stack still agree.
package profile
