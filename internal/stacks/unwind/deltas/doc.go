// Package deltas says how a frame of native code is unwound at each of its addresses.
//
// What the engine reads of a file (.eh_frame, .debug_frame, Go's tables) is corrected where it is wrong,
// and completed where the file's code says more:
//
//   - Go: the engine walks all compiled functions by frame pointers, which a function without a frame does
//     not set and others set in their second instruction. Until then, and after they have restored it, the
//     frame pointer is their caller's, which would be left out. The table of the sizes of frames (pcsp, in
//     .gopclntab) says where that is so.
//   - musl's C library has no .eh_frame, nor have the tables of calls (PLT) of static programs. On x86-64 their
//     code is followed from the entries of functions on: see follower.
//   - On arm64 no PLT has an .eh_frame: its calls return by the link register.
//   - V8 and JVMs have functions in assembly without an .eh_frame, which are followed likewise.
//   - glibc's coroutines (makecontext) return to a place that is described by nothing: their stacks end there.
//   - CPython's trampolines are in no file: see Trampolines.
package deltas
