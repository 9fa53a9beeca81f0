package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"correlator/internal/host/safedir"
)

// pinDir is the directory in which the table of targets is pinned. Only root and this process's
// user can change its path, which is therefore given to the eBPF library.
type pinDir struct {
	*safedir.Dir
	lock *os.File
}

// openPinDir creates the directory, for this process's user alone, checks that maps can be pinned
// there, and locks it: two samplers would remove each other's targets from the table.
func openPinDir(path string) (*pinDir, error) {
	if err := checkBPFFS(path); err != nil { // before anything is made there
		return nil, err
	}
	if err := makePinDir(path); err != nil {
		return nil, err
	}
	dir, err := safedir.Open(path)
	if err != nil {
		return nil, err
	}
	d := &pinDir{Dir: dir}
	if d.lock, err = lockPinDir(dir); err == nil {
		err = d.checkTable()
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Close ends the lock.
func (d *pinDir) Close() {
	if d.lock != nil {
		d.lock.Close()
	}
	d.Dir.Close()
}

// makePinDir creates the directory and those above it, as far as they are missing.
func makePinDir(path string) error {
	dir, err := safedir.Open(path)
	if err == nil {
		dir.Close()
	}
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := makePinDir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := safedir.Mkdir(path, 0o700); err != nil {
		return missingBPFFS(path, err)
	}
	return nil
}

// openExisting opens a directory or, if it does not exist, the nearest one above it that does.
func openExisting(path string) (*safedir.Dir, error) {
	dir, err := safedir.Open(path)
	for errors.Is(err, unix.ENOENT) && path != filepath.Dir(path) {
		path = filepath.Dir(path)
		dir, err = safedir.Open(path)
	}
	return dir, err
}

// checkBPFFS checks that a path is in a bpf file system, as far as the path exists.
func checkBPFFS(path string) error {
	dir, err := openExisting(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	status, err := dir.Statfs()
	if err != nil {
		return err
	}
	if status.Type != unix.BPF_FS_MAGIC {
		return missingBPFFS(path, unix.EINVAL)
	}
	return nil
}

// lockPinDir locks a directory until the file is closed. Whoever may open it could do so, too, and
// keep samplers out: others must have no access.
func lockPinDir(dir *safedir.Dir) (*os.File, error) {
	lock, err := dir.Open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if err = checkPrivate(lock, dir.Path("")); err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	switch unsafe := (*safedir.UnsafeError)(nil); {
	case err == nil:
		return lock, nil
	case errors.As(err, &unsafe):
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fmt.Errorf("%s is in use by another sampler: %w", dir.Path(""), err)
	default:
		err = &fs.PathError{Op: "flock", Path: dir.Path(""), Err: err}
	}
	lock.Close()
	return nil, err
}

// checkPrivate returns an UnsafeError if others have access to an open directory.
func checkPrivate(dir *os.File, path string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &stat); err != nil {
		return err
	}
	if stat.Mode&0o077 == 0 {
		return nil
	}
	return &safedir.UnsafeError{
		Problem: fmt.Sprintf("directory %s (mode %04o) is open to other users, who can lock it", path, stat.Mode&0o7777),
		Remedy:  fmt.Sprintf("chmod 0700 %s, or name a directory that does not exist yet", path)}
}

// checkTable returns an error if a table is pinned that another user has put there while the
// directory was open to others: whoever has the table decides what is read of processes.
func (d *pinDir) checkTable() error {
	stat, err := d.Lstat(samplerMapTargets)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return &safedir.UnsafeError{
			Problem: fmt.Sprintf("%s belongs to user %d, who can change it", d.Path(samplerMapTargets), stat.Uid),
			Remedy:  "remove it"}
	}
	return nil
}

// unpinTable removes a table that is incompatible. Programs that hold it find it empty.
func (d *pinDir) unpinTable() error {
	table, err := ebpf.LoadPinnedMap(d.Path(samplerMapTargets), nil)
	if err != nil {
		return err
	}
	defer table.Close()
	if table.Type() == ebpf.Hash && table.KeySize() == 4 {
		if err := EmptyTable(table); err != nil {
			return err
		}
	}
	return d.Remove(samplerMapTargets)
}
