// Package profile converts the instruction pointers of a stack to frames, with a file id and an
// address that do not depend on where the code was loaded, computes the stack-trace-id over them,
// and stores the frames of every id.
//
//	Files         the ELF files that processes map, shared by all processes
//	AddressSpace  the executable memory of one process: address to frame
//	Kernel        the same for the kernel and its modules
//	TraceID       frames to stack-trace-id
//	Store         stack-trace-id to stack, bounded
//	Sample        a stack, with the thread, the trace and the time that belong to it
//
// A stack is leaf first, as bpf_get_stack returns it, the kernel's half separate from the user's:
//
//	frames = kernel.AppendFrames(frames[:0], kernelStack)
//	frames = space.AppendFrames(frames, userStack)
//	id := profile.TraceID(frames)
//	stack := store.Put(id, frames)
//
// A collector computes the id again from the frames of the profile that it receives. So an exporter
// must send a frame exactly as it is made here.
//
// # What an address becomes
//
// The first address of the whole stack is where the CPU was. Every other one is taken for a return
// address, and 1 is subtracted, so that it is within the call. That holds at the boundary of kernel
// and user too: below a system call the user's first address is the one after the system call
// instruction. (Below a page fault or an interrupt it is the interrupted instruction itself, and
// the frame has the byte before. The two cannot be distinguished, and the definition of the id has
// no exception.) Without a kernel half, the user's first address is the leaf.
//
// An address in no known executable memory becomes a frame too, like one in anonymous memory, with
// the address unchanged: a stack walked by frame pointers has such addresses where code uses the
// register for something else, and dropping them would give the stack of other code. (A file's code
// that the process moved into anonymous memory, for huge pages, is anonymous as well. So is the
// address 0 of a file: an exporter cannot write it.)
//
// A frame is as accurate as the last update. An address that is unknown because its library is new
// has an anonymous frame until the next one, which no other process has: update before such a stack
// is passed on, when an update is due. Where a library was unmapped and another one mapped in its
// place, frames are of the old one until the next update, unless a caller that knows of the change
// calls Invalidate.
//
// A zero ends its half of the stack: the kernel fills the rest of the buffer with zeros, and reads
// one as the return address of the outermost function.
//
// An address beyond user space (2⁵⁶ and above) ends the user's half likewise: there is no user
// code, so the walk has left the frames, by chance or because the process arranged it, and what
// follows is not a call chain. A reader would take such a frame for one of the kernel, and its
// address, a different pointer or number each time, would give one code path many ids. The vsyscall
// page of x86-64 is user code, and its addresses are kept. A process that jumped to such an address
// has no user frames at all while the kernel handles the fault: without a kernel half, it has no
// stack.
//
// A truncated stack (the kernel walks 127 frames by default) has the id of the frames that are
// left, because those are what the collector receives. It starts at the leaf, so two samples of one
// deep stack still agree.
//
// # Frames of an unwinder
//
// An unwinder knows more than addresses: where the callers are missing, and which function a frame
// is of. The callers are replaced by a CutFrame, so that the id is not that of a whole stack. A
// Function does not change the id of a frame that has a file. A frame without a file, one of a
// language runtime, has the address 1 or the line, and as file id a hash of the function's name, the source
// file and the line: nothing of one process. Names should not be of one process either: without the
// numbers of generated classes, for instance.
package profile
