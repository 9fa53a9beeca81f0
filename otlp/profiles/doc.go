// Package profiles encodes samples as OTLP profiles: the bytes of ExportProfilesServiceRequest
// messages, from which a receiver computes the same stack-trace-ids as package profile does, and
// finds the active span. It does not send them.
//
// A request is written field by field, without generated messages: most of it is entries of tables,
// which do not change, so each is encoded when it is added. Then the size of the request is known
// at any time, and nothing but bytes and indices is kept. (Copying to generated messages and
// encoding them takes longer than all of this, and nine times the memory. Tests decode requests with
// them.)
//
// # Samples
//
// A sample of the request has stack, link and attributes (thread, transaction), and a timestamp for
// each time that it was seen: the middle of the interval in which that was. One that was seen more
// than 4096 times has one value, that number, and one timestamp, the latest. Both shapes may be in a
// profile, which the specification advises against (SHOULD): the alternatives are refused or dropped
// by receivers. (Pyroscope 1.21.0 refuses several values of a sample, "sample values length
// mismatch". The exporter to Elasticsearch drops samples without timestamps.)
//
// The link is the span that was active, or the transaction if there was none, so that one index joins
// the sample to a trace; if it is the span, the attribute transaction.id has the transaction. Without a
// trace there is neither. What the thread published of its work beside the ids are attributes, too,
// with the keys that it published and values that are text. Those with a key of our attributes are
// left out.
//
// Waits of a process are a profile of their own, with its resource: of type off_cpu, in nanoseconds. A sample has one
// value, their time, and the latest of their timestamps; attributes say what was waited for, and who ended it.
//
// # Frames
//
//	frame          mapping                                       location
//	of a file      filename, htlhash, build ids if known,        ELF address, "native"
//	               the executable segment if known
//	of the kernel  "vmlinux" or the module, htlhash: its file    offset from the text, "kernel"
//	               id, which is made from the build id
//	of a runtime   0: none                                       line; "jvm", "cpython", "v8js" or "php"
//	anonymous      0: none                                       address in memory; "native", or "kernel"
//	                                                             in the upper half
//	  with a name  "[jit]", htlhash: that of no bytes            the same
//	cut            0: none                                       1; "abort-marker"
//
// A frame whose function is known has one line with it, a cut one with profile.CutName. Names that
// Options.Name has for frames are for display: they change no file id. Processes may have different
// names for frames with the same file id.
//
// The file id in a stack-trace-id is the attribute process.executable.build_id.htlhash of the
// mapping. For a location of mapping 0, which has none, a receiver uses the hash of its lines, of no
// bytes if there are none, as profile.Frame.FileID does.
//
// The range of a mapping is that of an executable segment: memory_start and memory_limit are ELF
// addresses, as those of locations, and file_offset is where memory_start is in the file. Addresses
// in memory differ from process to process, and one mapping serves all. Without a range all three
// are 0, which is all that is known of the kernel.
package profiles
