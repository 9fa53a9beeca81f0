package symbols

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"correlator/procscan"
)

// maxMountBytes bounds the size of one mountinfo: the kernel allows 100,000 mounts (fs.mount-max),
// of some 200 bytes each.
const maxMountBytes = 32 << 20

// mountsTime is how long Mounts are kept, or a hundred times as long as it takes to read them. A device's number may be
// given to another file system then, at which a worker hangs, as at one that is mounted between Check and the access.
const mountsTime = time.Second

// Mounts keeps the types of the file systems of the host, and of our own process, that were read just now: a device has
// the same for all processes. Those that a process alone has mounted are not kept: users can unmount these, and
// another gets the number at once. It is for one goroutine.
type Mounts struct {
	types map[uint64]string
	until time.Time
}

// recent returns what was read of tables just now.
func (m *Mounts) recent(tables []string) map[uint64]string {
	if began := time.Now(); began.After(m.until) {
		f := FileSystems{types: make(map[uint64]string), tables: tables}
		for len(f.tables) > 0 {
			f.readNext()
		}
		m.types, m.until = f.types, time.Now().Add(max(mountsTime, 100*time.Since(began)))
	}
	return m.types
}

// FileSystems knows the types of mounted file systems.
type FileSystems struct {
	types map[uint64]string // by device numbers, as in /proc/PID/maps
	kept  map[uint64]string // those of Mounts
	// tables are those of mounts that were not read: the process's own nearly always has all that it maps.
	tables []string
}

// ErrNotMounted: what a process has mapped is on a file system in no table of mounts. Of what kind
// it is cannot be known without asking it, and a process can unmount what it serves itself.
var ErrNotMounted = fmt.Errorf("%w (not mounted)", procscan.ErrFileSystem)

// memoryDevice is the device of memory that is mapped as a file: that of a memfd, and of shared
// memory. It is mounted where nobody sees it. 0: not known. It takes some µs, before a worker's
// filter of system calls is in force.
var memoryDevice = func() uint64 {
	fd, err := unix.MemfdCreate("", unix.MFD_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil {
		return 0
	}
	return stat.Dev
}()

// deviceOf parses a device number, major:minor.
func deviceOf(text string) (uint64, bool) {
	major, minor, _ := strings.Cut(text, ":")
	x, errMajor := strconv.ParseUint(major, 10, 32)
	y, errMinor := strconv.ParseUint(minor, 10, 32)
	return unix.Mkdev(uint32(x), uint32(y)), errMajor == nil && errMinor == nil
}

// FileSystems returns the mounts of a process, of the host and of our own process, which Check reads as it needs them.
// It accesses no file system.
func (o Opener) FileSystems(pid int) *FileSystems {
	f := &FileSystems{types: make(map[uint64]string)}
	if memoryDevice != 0 {
		f.types[memoryDevice] = "tmpfs"
	}
	for _, whose := range []string{strconv.Itoa(pid), "1", "self"} {
		f.tables = append(f.tables, path.Join(o.ProcRoot, whose, "mountinfo"))
	}
	if o.Mounts != nil {
		f.kept, f.tables = o.Mounts.recent(f.tables[1:]), f.tables[:1]
	}
	return f
}

// typeOf returns the type of a device's file system, "" if it is in no table.
func (f *FileSystems) typeOf(dev uint64) string {
	if kept := f.kept[dev]; kept != "" {
		return kept
	}
	for f.types[dev] == "" && len(f.tables) > 0 {
		f.readNext()
	}
	return f.types[dev]
}

// readNext reads the first of the tables. What cannot be read stays unknown.
func (f *FileSystems) readNext() {
	if file, err := os.Open(f.tables[0]); err == nil {
		f.read(file)
		file.Close()
	}
	f.tables = f.tables[1:]
}

// read reads /proc/PID/mountinfo (show_mountinfo in fs/proc_namespace.c), by fields between spaces:
//
//	field  text         example
//	    1  mount id     36
//	    2  parent       35
//	    3  device       0:42
//	  4-6  root, mount point, options
//	  7-n  optional     shared:1
//	  n+1  separator    -
//	  n+2  type         fuse.sshfs
func (f *FileSystems) read(mountInfo io.Reader) {
	lines := bufio.NewReaderSize(io.LimitReader(mountInfo, maxMountBytes), bufferBytes)
	for {
		line, err := readLine(lines)
		if err != nil {
			return
		}
		mount, super, _ := bytes.Cut(line, []byte(" - "))
		fields := bytes.Fields(mount)
		kind, _, _ := bytes.Cut(super, []byte{' '})
		if len(fields) < 3 || len(kind) == 0 {
			continue
		}
		if dev, ok := deviceOf(string(fields[2])); ok {
			f.types[dev] = string(kind)
		}
	}
}

// Check returns procscan.ErrFileSystem for a device of such a file system. An anonymous device (major 0)
// that is not mounted counts as one, ErrNotMounted: a process can unmount what it has mapped.
func (f *FileSystems) Check(dev uint64) error {
	kind := f.typeOf(dev)
	if kind == "" && unix.Major(dev) == 0 {
		return ErrNotMounted
	}
	if isForeign(kind) {
		return fmt.Errorf("%w (%s)", procscan.ErrFileSystem, kind)
	}
	return nil
}

// isForeign compares the type without its subtype (fuse.sshfs). The virtiofs of a virtual machine
// is not included: its host serves it.
func isForeign(kind string) bool {
	kind, _, _ = strings.Cut(kind, ".")
	switch kind {
	case "fuse", "fuseblk", "9p", "nfs", "nfs4", "cifs", "smb3", "ceph", "afs", "coda", "lustre", "orangefs":
		return true
	}
	return false
}
