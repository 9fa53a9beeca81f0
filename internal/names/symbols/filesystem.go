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

const (
	// mountsTime is how long Mounts are kept. A device's number may be given to another file system then, at which a
	// worker hangs, as at one that is mounted between Check and the access.
	mountsTime = time.Second
	// maxMounts is when they are kept no longer. A host has some hundred.
	maxMounts = 4096
)

// Mounts keeps the types of file systems that were read just now: a device has the same for all processes. It is for
// one goroutine.
type Mounts struct {
	types map[uint64]string
	since time.Time
}

// recent returns what was read just now; nil Mounts keep nothing.
func (m *Mounts) recent() map[uint64]string {
	if m == nil {
		return make(map[uint64]string)
	}
	if now := time.Now(); now.Sub(m.since) > mountsTime || len(m.types) > maxMounts {
		m.types, m.since = make(map[uint64]string), now
	}
	return m.types
}

// FileSystems knows the types of mounted file systems.
type FileSystems struct {
	types map[uint64]string // by device numbers, as in /proc/PID/maps
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
	f := &FileSystems{types: o.Mounts.recent()}
	if memoryDevice != 0 {
		f.types[memoryDevice] = "tmpfs"
	}
	for _, whose := range []string{strconv.Itoa(pid), "1", "self"} {
		f.tables = append(f.tables, path.Join(o.ProcRoot, whose, "mountinfo"))
	}
	return f
}

// typeOf returns the type of a device's file system, "" if it is in no table.
func (f *FileSystems) typeOf(dev uint64) string {
	for f.types[dev] == "" && len(f.tables) > 0 {
		// What cannot be read stays unknown.
		if file, err := os.Open(f.tables[0]); err == nil {
			f.read(file)
			file.Close()
		}
		f.tables = f.tables[1:]
	}
	return f.types[dev]
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
