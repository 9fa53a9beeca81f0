package procscan

import (
	"bytes"
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// procmapQuery is struct procmap_query of include/uapi/linux/fs.h, the argument of the ioctl
// PROCMAP_QUERY on /proc/PID/maps (Linux 6.11). Numbers are in the byte order of the machine.
//
//	offset size field
//	     0    8 size           in: of this struct
//	     8    8 query_flags    in
//	    16    8 query_addr     in
//	    24    8 vma_start      out
//	    32    8 vma_end        out
//	    40    8 vma_flags      out
//	    48    8 vma_page_size  out
//	    56    8 vma_offset     out, in bytes
//	    64    8 inode          out
//	    72    4 dev_major      out
//	    76    4 dev_minor      out
//	    80    4 vma_name_size  in: room for the name; out: its length with the final NUL, 0: no name
//	    84    4 build_id_size  0: not asked for
//	    88    8 vma_name_addr  in
//	    96    8 build_id_addr  0
//
// The build id would cost reading the file for each mapping, and elfsym reads it with the rest.
type procmapQuery struct {
	size        uint64
	queryFlags  uint64
	queryAddr   uint64
	start       uint64
	end         uint64
	flags       uint64
	pageSize    uint64
	offset      uint64
	inode       uint64
	devMajor    uint32
	devMinor    uint32
	nameSize    uint32
	buildIDSize uint32
	nameAddr    *byte
	buildIDAddr uint64
}

const (
	// ioctlProcmapQuery is _IOWR('f', 17, struct procmap_query).
	ioctlProcmapQuery = 3<<30 | unsafe.Sizeof(procmapQuery{})<<16 | unix.PROCFS_IOCTL_MAGIC<<8 | 17

	// enum procmap_query_flags, of include/uapi/linux/fs.h. Permissions are bits of vma_flags, too.
	queryWritable       = 0x02
	queryExecutable     = 0x04
	queryCoveringOrNext = 0x10
	queryFileBacked     = 0x20

	// maxNameBytes is the longest name that the kernel returns, with " (deleted)" and the final NUL
	// (PATH_MAX). It returns none for a file with a longer path.
	maxNameBytes = unix.PathMax

	// maxQueries bounds reading a process that keeps adding mappings meanwhile: addresses only go
	// up, but there are 2^35 pages of them. A process with sixteen times the usual maximum of
	// mappings (vm.max_map_count) is read to its end, in about a second.
	maxQueries = 1 << 20
)

var (
	errQueryName  = errors.New("PROCMAP_QUERY: name longer than its buffer")
	errQueryOrder = errors.New("PROCMAP_QUERY: mapping below the address asked for")
)

// mapsQuery calls PROCMAP_QUERY. It must be on the heap, and is used by one goroutine at a time.
type mapsQuery struct {
	gone bool // there was no memory, or is no more
	arg  procmapQuery
	name [maxNameBytes]byte
}

// collect collects what mapsReader.collect does, for one list: names are converted to what maps shows,
// and mappings whose name the kernel does not return are skipped. An error means that the ioctl is
// not available (ENOTTY before Linux 6.11, EPERM by seccomp), or has failed.
//
// It takes one system call per mapping that the flags of the selection let through. The kernel skips
// the others under the same lock under which it formats maps.
func (q *mapsQuery) collect(fd int, list *mappingList) error {
	return q.collectFirst(fd, list, maxQueries)
}

func (q *mapsQuery) collectFirst(fd int, list *mappingList, queries int) error {
	flags := list.what.queryFlags()
	addr := uint64(0)
	for range queries {
		name, named, err := q.next(fd, flags, addr)
		switch {
		case errors.Is(err, unix.ENOENT): // no mapping at addr or above
			return nil
		case errors.Is(err, unix.ESRCH): // the memory is gone: the process has exited or called exec
			list.found, q.gone = nil, true
			return nil
		case err != nil:
			return err
		case q.arg.end <= addr:
			return errQueryOrder
		}
		addr = q.arg.end
		permitted := list.what.wantsPermissions(q.arg.flags&queryWritable != 0, q.arg.flags&queryExecutable != 0)
		if !named || !permitted || !list.what.wants(name) {
			continue
		}
		path, deleted := cutDeleted(name)
		list.add(Mapping{
			Start: q.arg.start, End: q.arg.end, Offset: q.arg.offset,
			Dev: unix.Mkdev(q.arg.devMajor, q.arg.devMinor), Ino: q.arg.inode, Deleted: deleted,
		}, path)
		if list.full {
			return nil
		}
	}
	list.full = true
	return nil
}

// next queries the first mapping that ends above addr, which is then in q.arg. The name is as maps
// shows it, and valid until the next call; named is false when the kernel does not return the name
// that the mapping has.
func (q *mapsQuery) next(fd int, flags, addr uint64) (name []byte, named bool, err error) {
	err = q.ask(fd, flags, addr, len(q.name))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return nil, false, err
	}
	if err != nil {
		return nil, false, q.ask(fd, flags, addr, 0)
	}
	n := int(q.arg.nameSize)
	if n > len(q.name) {
		return nil, false, errQueryName
	}
	name = q.name[:max(n-1, 0)]
	if bytes.IndexByte(name, '\n') >= 0 {
		name = bytes.ReplaceAll(name, []byte("\n"), []byte(`\012`))
	}
	return name, true, nil
}

// ask makes the system call, for a name as well if nameRoom is not 0.
func (q *mapsQuery) ask(fd int, flags, addr uint64, nameRoom int) error {
	q.arg = procmapQuery{size: uint64(unsafe.Sizeof(q.arg)), queryFlags: flags, queryAddr: addr}
	if nameRoom > 0 {
		q.arg.nameSize, q.arg.nameAddr = uint32(nameRoom), &q.name[0]
	}
	_, err := ignoringEINTR(func() (struct{}, error) {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlProcmapQuery, uintptr(unsafe.Pointer(&q.arg)))
		if errno != 0 {
			return struct{}{}, errno
		}
		return struct{}{}, nil
	})
	runtime.KeepAlive(q)
	return err
}
