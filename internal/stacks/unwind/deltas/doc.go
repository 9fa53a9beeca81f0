// Package deltas says how a frame of native code is unwound at each of its addresses.
//
// What the engine reads of a file (.eh_frame, .debug_frame, Go's tables) is corrected where it is wrong:
//
//   - Go: the engine walks all compiled functions by frame pointers, which a function without a frame does
//     not set and others set in their second instruction. Until then, and after they have restored it, the
//     frame pointer is their caller's, which would be left out. The table of the sizes of frames (pcsp, in
//     .gopclntab) says where that is so.
package deltas
