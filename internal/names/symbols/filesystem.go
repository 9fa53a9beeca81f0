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

	"golang.org/x/sys/unix"

	"correlator/procscan"
)

// maxMountBytes bounds the size of one mountinfo: the kernel allows 100,000 mounts (fs.mount-max),
// of some 200 bytes each.
const maxMountBytes = 32 << 20

// FileSystems maps device numbers, as in /proc/PID/maps, to types of file systems.
type FileSystems map[uint64]string

// FileSystems reads the mounts of a process, of the host and of our own process. It accesses no
// file system.
func (o Opener) FileSystems(pid int) FileSystems {
	known := make(FileSystems)
	for _, whose := range []string{"self", "1", strconv.Itoa(pid)} {
		// What cannot be read stays unknown.
		if file, err := os.Open(path.Join(o.ProcRoot, whose, "mountinfo")); err == nil {
			known.read(file)
			file.Close()
		}
	}
	return known
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
func (f FileSystems) read(mountInfo io.Reader) {
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
		major, minor, _ := strings.Cut(string(fields[2]), ":")
		x, errMajor := strconv.ParseUint(major, 10, 32)
		y, errMinor := strconv.ParseUint(minor, 10, 32)
		if errMajor == nil && errMinor == nil {
			f[unix.Mkdev(uint32(x), uint32(y))] = string(kind)
		}
	}
}

// Check returns procscan.ErrFileSystem for a device of such a file system. An anonymous device (major 0)
// that is not mounted counts as one: a process can unmount what it has mapped.
func (f FileSystems) Check(dev uint64) error {
	kind, known := f[dev]
	if !known && unix.Major(dev) == 0 {
		return fmt.Errorf("%w (not mounted)", procscan.ErrFileSystem)
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
