package symbols

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrFileSystem: a file is on a file system that can keep whoever opens, reads or closes it waiting
// for ever, even in its exit: a process or another machine answers for it.
var ErrFileSystem = errors.New("file system that may never answer")

// maxMountBytes bounds what is read of one mountinfo: the kernel allows 100,000 mounts
// (fs.mount-max), of some 200 bytes each.
const maxMountBytes = 32 << 20

// FileSystems is which file system a device number, as maps shows it, stands for.
type FileSystems map[uint64]string

// FileSystems reads the mounts of a process, of the host and of ourselves. It asks no file system
// anything.
func (o Opener) FileSystems(pid int) FileSystems {
	known := make(FileSystems)
	for _, whose := range []string{"self", "1", strconv.Itoa(pid)} {
		// What cannot be read is not known.
		if file, err := os.Open(filepath.Join(o.ProcRoot, whose, "mountinfo")); err == nil {
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

// Check answers ErrFileSystem for a device of such a file system. One without a device of its own
// that is mounted nowhere is taken for one: a process can unmount what it has mapped.
func (f FileSystems) Check(dev uint64) error {
	kind, known := f[dev]
	if !known && unix.Major(dev) == 0 {
		return fmt.Errorf("%w (not mounted)", ErrFileSystem)
	}
	if isForeign(kind) {
		return fmt.Errorf("%w (%s)", ErrFileSystem, kind)
	}
	return nil
}

// isForeign goes by the type without its subtype (fuse.sshfs). The virtiofs of a virtual machine is
// not among them: it has what its host gives it.
func isForeign(kind string) bool {
	kind, _, _ = strings.Cut(kind, ".")
	switch kind {
	case "fuse", "fuseblk", "9p", "nfs", "nfs4", "cifs", "smb3", "ceph", "afs", "coda", "lustre", "orangefs":
		return true
	}
	return false
}

// foreignMagic goes by the type that statfs answers (linux/magic.h). That of FUSE is virtiofs, too.
func foreignMagic(magic uint32) bool {
	switch magic {
	case unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC, unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC, unix.CODA_SUPER_MAGIC:
		return true
	}
	return false
}
