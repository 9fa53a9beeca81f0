// Package profiles makes OTLP profiles of samples: the bytes of ExportProfilesServiceRequest messages, from
// which a receiver computes the same stack-trace-ids as package profile does, and finds the span that was at
// work. It knows nothing of how they are sent.
//
// A request is written field by field and not by way of generated messages: most of it are entries of tables,
// which nobody touches again, so each is written when it comes up. Then the size of the request is known at any
// time, which says when it is full, and nothing but bytes and indices is kept. (Generated messages take longer
// to copy and encode than all of it takes, and nine times the memory: see BenchmarkMessages. Tests read with
// them what is written here.)
//
// # What a sample becomes
//
// A sample of the request: stack, link and attributes (thread, transaction), and a pair of value and timestamp
// for each interval that it was seen in. The link is the span that was at work, or the transaction where there
// was none, so that one index joins it to a trace; where the span has the link, the attribute transaction.id
// tells the transaction. Without a trace there is neither.
//
// # What a frame becomes
//
//	frame          mapping                                       location
//	of a file      filename, htlhash, GNU build id if known      ELF address, "native"
//	of the kernel  "vmlinux" or the module, htlhash: its file    offset from the text, "kernel"
//	               id, which is made from the build id
//	anonymous      0: none                                       address in memory; "native", or "kernel"
//	                                                             in the upper half
//
// The file id that goes into a stack-trace-id is the attribute process.executable.build_id.htlhash of the
// mapping. A location of mapping 0 has none, and no lines: a receiver takes the hash of nothing, as
// profile.Frame.FileID does. A mapping has no range of memory: addresses are those of the file, and the same
// mapping serves all processes.
package profiles
