package procscan

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

var (
	// ErrFileSystem: the file is on a file system that is served by a process or another machine.
	// Opening, reading or closing it can block forever, even at our exit.
	ErrFileSystem = errors.New("file system that may never answer")
	// ErrPseudoFile: the path leads to a file of a file system that shows objects of the kernel. Opening
	// or reading one can have effects, and its contents are not the process's.
	ErrPseudoFile = errors.New("is no file on a disk or in memory")
)

// OpenBelow opens a regular file for reading, whose path is resolved as by LookupBelow. The file
// system of what it leads to is checked before.
func OpenBelow(procRoot string, root *os.File, path string, flags uint64) (*os.File, unix.Stat_t, error) {
	located, err := LookupBelow(root, path, flags)
	if err != nil {
		return nil, unix.Stat_t{}, err
	}
	defer unix.Close(located)
	var system unix.Statfs_t // this may access the same file system that the lookup has accessed already
	if err := unix.Fstatfs(located, &system); err != nil {
		return nil, unix.Stat_t{}, err
	}
	if err := checkMagic(uint32(system.Type)); err != nil {
		return nil, unix.Stat_t{}, err
	}
	fd, stat, err := Reopen(procRoot, located)
	if err != nil {
		return nil, stat, err
	}
	return os.NewFile(uintptr(fd), path), stat, nil
}

// checkMagic compares the type that statfs returns (linux/magic.h). Virtiofs has that of FUSE.
func checkMagic(magic uint32) error {
	switch magic {
	case unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC, unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC, unix.CODA_SUPER_MAGIC,
		unix.AUTOFS_SUPER_MAGIC:
		return ErrFileSystem
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC,
		unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.BPF_FS_MAGIC, unix.PSTOREFS_MAGIC,
		unix.EFIVARFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.AAFS_MAGIC, unix.BINFMTFS_MAGIC,
		unix.RDTGROUP_SUPER_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.NSFS_MAGIC, unix.XENFS_SUPER_MAGIC,
		unix.OPENPROM_SUPER_MAGIC, configFSMagic, mqueueMagic:
		return ErrPseudoFile
	}
	return nil
}

// Magic numbers that package unix lacks: CONFIGFS_MAGIC of fs/configfs, MQUEUE_MAGIC of ipc/mqueue.c.
const (
	configFSMagic = 0x62656570
	mqueueMagic   = 0x19800202
)
