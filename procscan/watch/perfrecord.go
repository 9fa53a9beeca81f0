package watch

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"correlator/procscan"
)

// The records that the kernel writes for an EventWatcher (include/uapi/linux/perf_event.h; without
// sample_id_all, no trailer follows). Numbers are in native byte order; offsets and sizes in bytes.
//
//	every record, struct perf_event_header
//	  0   4  type
//	  4   2  misc  bits that depend on the type
//	  6   2  size  of the whole record, a multiple of 8
//
//	PERF_RECORD_LOST            PERF_RECORD_MMAP2
//	  8   8  id of the event      8   4  pid
//	 16   8  lost, records       12   4  tid
//	                             16   8  addr
//	                             24   8  len
//	                             32   8  pgoff
//	                             40   4  maj
//	                             44   4  min
//	                             48   8  ino
//	                             56   8  ino_generation
//	                             64   4  prot
//	                             68   4  flags
//	                             72  ..  filename
//
// filename ends with one to eight zero bytes. A pid is that of the process in the pid namespace in
// which the event was opened: 0 when the process is not visible there, -1 when it has just exited.
const (
	headerSize      = 8
	lostSize        = 24
	mmap2NameOffset = 72
	largestRecord   = mmap2NameOffset + 4096 // PATH_MAX, which includes a final zero
)

// What the kernel writes instead of a path that is longer than PATH_MAX, or for which it had no
// memory. No path begins so, since the kernel joins names by one slash.
const (
	pathTooLong  = "//toolong"
	pathNoMemory = "//enomem"
)

// nameVDSO is the name of the code that the kernel maps into each program that it executes, after
// the program's own and before that runs (load_elf_binary in fs/binfmt_elf.c). Paths begin with a
// slash. A process can have its own reported again, by mprotect, and affects itself alone.
const nameVDSO = "[vdso]"

// decodeEvent decodes the record that the slice holds. It reports false when the record is of no
// interest. A malformed record counts as a lost one. The slice is not kept.
func decodeEvent(record []byte) (Event, bool) {
	if len(record) < headerSize {
		return Event{Kind: EventLost, Lost: 1}, true
	}
	kind, least := binary.NativeEndian.Uint32(record), 0
	switch kind {
	case unix.PERF_RECORD_MMAP2:
		least = mmap2NameOffset
	case unix.PERF_RECORD_LOST:
		least = lostSize
	default:
		return Event{}, false
	}
	if len(record) < least {
		return Event{Kind: EventLost, Lost: 1}, true
	}
	if kind == unix.PERF_RECORD_LOST {
		return Event{Kind: EventLost, Lost: binary.NativeEndian.Uint64(record[16:])}, true
	}
	pid, name := int(int32(binary.NativeEndian.Uint32(record[8:]))), trimZeros(record[mmap2NameOffset:])
	switch {
	case pid <= 0:
		return Event{}, false
	case string(name) == nameVDSO:
		return Event{Kind: EventExec, PID: pid}, true
	case mayBeLibrary(name):
		return Event{Kind: EventLibrary, PID: pid}, true
	}
	return Event{Kind: kindOf(name), PID: pid}, true
}

// kindOf tells files from other memory, which has a name in brackets, "//anon" or none, or that of a
// file that was never linked (memfd_create, shared memory: /dev/zero) with " (deleted)".
func kindOf(name []byte) EventKind {
	if len(name) > 1 && name[0] == '/' && name[1] != '/' && !bytes.HasSuffix(name, []byte(" (deleted)")) {
		return EventFile
	}
	return EventMapping
}

func mayBeLibrary(path []byte) bool {
	return procscan.MatchLibrary(path) || string(path) == pathTooLong || string(path) == pathNoMemory
}

func trimZeros(padded []byte) []byte {
	for len(padded) > 0 && padded[len(padded)-1] == 0 {
		padded = padded[:len(padded)-1]
	}
	return padded
}
