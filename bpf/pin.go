package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// openPinDir creates the directory, for root alone, checks that maps can be pinned there, and locks
// it: two samplers would remove each other's targets from the table.
func openPinDir(path string) (dir *os.File, err error) {
	if err := checkBPFFS(path); err != nil { // before anything is made there
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, missingBPFFS(path, err)
	}
	if dir, err = os.Open(path); err != nil {
		return nil, err
	}
	if err := lockPinDir(dir); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// checkBPFFS checks that a path is in a bpf file system, as far as the path exists.
func checkBPFFS(path string) error {
	var status unix.Statfs_t
	err := unix.Statfs(path, &status)
	for there := filepath.Clean(path); errors.Is(err, unix.ENOENT) && there != filepath.Dir(there); {
		there = filepath.Dir(there)
		err = unix.Statfs(there, &status)
	}
	if err != nil {
		return &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	if status.Type != unix.BPF_FS_MAGIC {
		return missingBPFFS(path, unix.EINVAL)
	}
	return nil
}

func lockPinDir(dir *os.File) error {
	err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s is in use by another sampler: %w", dir.Name(), err)
	}
	if err != nil {
		return &fs.PathError{Op: "flock", Path: dir.Name(), Err: err}
	}
	return nil
}

// unpinTable removes a table that is incompatible. Programs that hold it find it empty.
func unpinTable(path string) error {
	table, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return err
	}
	defer table.Close()
	if table.Type() == ebpf.Hash && table.KeySize() == 4 {
		if err := emptyTable(table); err != nil {
			return err
		}
	}
	return os.Remove(path)
}
