package fusefs

import (
	"bytes"
	"encoding/binary"
)

// Op is the kind of a request: opcodes of linux/fuse.h.
type Op uint32

// Those that can hang.
const (
	Lookup  Op = 1
	Getattr Op = 3
	Open    Op = 14
	Read    Op = 15
	Statfs  Op = 17
	Flush   Op = 25 // of close
)

// Others that are answered with success.
const (
	forget      Op = 2
	release     Op = 18
	initialize  Op = 26
	opendir     Op = 27
	readdir     Op = 28
	releasedir  Op = 29
	interrupt   Op = 36
	batchForget Op = 42
)

const (
	rootNode = 1

	protocolMajor, protocolMinor = 7, 31 // Linux 5.4

	// parallelDirOps (FUSE_PARALLEL_DIROPS): a name that is looked up does not keep others in its
	// directory from being looked up.
	parallelDirOps = 1 << 18

	// entrySeconds is how long the kernel knows a name that exists without asking again. Overlayfs
	// would ask as whoever accesses it, not as its mounter, and fail with ESTALE for users that have
	// no id in the user namespace.
	entrySeconds = 1 << 20

	// maxRequestBytes holds each request: the kernel refuses reads with less than 8192 bytes, and
	// nobody can write to a file, so the longest are names.
	maxRequestBytes = 64 << 10
)

// These mirror linux/fuse.h, in native byte order and without padding other than named.

// inHeader is struct fuse_in_header: offset 0 length, 4 opcode, 8 unique, 16 node, 24 user, 28
// group, 32 thread, 36 extensions, 38 padding; 40 bytes.
type inHeader struct {
	Length               uint32
	Op                   Op
	Unique, Node         uint64
	UID, GID, TID        uint32
	Extensions, Padding_ uint16
}

// outHeader is struct fuse_out_header: offset 0 length, 4 negative errno, 8 unique; 16 bytes.
type outHeader struct {
	Length uint32
	Error  int32
	Unique uint64
}

// initOut is struct fuse_init_out: offset 0 major, 4 minor, 8 read-ahead, 12 flags, 16 background
// requests and 18 their threshold, 20 longest write, 24 time granularity, 28 to 64 reserved here.
type initOut struct {
	Major, Minor, ReadAhead, Flags uint32
	Background, Threshold          uint16
	MaxWrite, TimeGranularity      uint32
	Reserved                       [9]uint32
}

// attr is struct fuse_attr: offset 0 inode, 8 size, 16 blocks, 24 to 48 times in seconds, 48 to 60
// their nanoseconds, 60 mode, 64 links, 68 user, 72 group, 76 device, 80 block size, 84 flags; 88
// bytes.
type attr struct {
	Ino, Size, Blocks                         uint64
	Atime, Mtime, Ctime                       uint64
	AtimeNs, MtimeNs, CtimeNs                 uint32
	Mode, Links, UID, GID, Rdev, Block, Flags uint32
}

// entryOut is struct fuse_entry_out: offset 0 node, 8 generation, 16 and 24 seconds that the entry
// and the attributes are valid, 32 and 36 their nanoseconds, 40 attributes; 128 bytes.
type entryOut struct {
	Node, Generation, EntryValid, AttrValid uint64
	EntryValidNs, AttrValidNs               uint32
	Attr                                    attr
}

// attrOut is struct fuse_attr_out: offset 0 seconds that it is valid, 8 nanoseconds, 12 padding, 16
// attributes; 104 bytes.
type attrOut struct {
	Valid             uint64
	ValidNs, Padding_ uint32
	Attr              attr
}

// openOut is struct fuse_open_out: offset 0 handle, 8 flags, 12 backing id; 16 bytes. Flags 0: no
// contents from earlier stay cached.
type openOut struct {
	Handle         uint64
	Flags, Backing uint32
}

// readIn is struct fuse_read_in: offset 0 handle, 8 offset, 16 size, 20 read flags, 24 lock owner,
// 32 flags, 36 padding; 40 bytes.
type readIn struct {
	Handle, Offset  uint64
	Size, ReadFlags uint32
	LockOwner       uint64
	Flags, Padding_ uint32
}

// statfsOut is struct fuse_statfs_out: offset 0 blocks, 8 and 16 free ones, 24 files, 32 free ones,
// 40 block size, 44 longest name, 48 fragment size, 52 to 80 reserved.
type statfsOut struct {
	Blocks, Free, Available, Files, FreeFiles uint64
	BlockBytes, NameBytes, FragmentBytes      uint32
	Reserved                                  [7]uint32
}

func encode(parts ...any) []byte {
	var out bytes.Buffer
	for _, part := range parts {
		if err := binary.Write(&out, binary.NativeEndian, part); err != nil {
			panic(err) // it has a type without a fixed size
		}
	}
	return out.Bytes()
}

func decode(message []byte, out any) error {
	return binary.Read(bytes.NewReader(message), binary.NativeEndian, out)
}
