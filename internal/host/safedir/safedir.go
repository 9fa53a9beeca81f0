// Package safedir opens directories in which nobody else can exchange what a name stands for, so
// that root can bind, write and remove files there.
//
// A name is safe in a directory that belongs to root or to this process's user, and that neither
// the group nor others may write to. It is also safe in one that others may write to but whose
// sticky bit is set, as /tmp, if the file itself belongs to root or to this process's user: only
// the owners of the file and of the directory may then rename or remove it. (The mode of a
// directory with an ACL shows in its group bits what the ACL allows at most.)
//
// A directory is safe if every name on the way to it is, from the root directory on, symbolic links
// and what they lead to included. Only root and this process's user can change such a path, so it
// may be given to system calls that take no descriptor of a directory, as bind(2).
package safedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// UnsafeError says that another user can exchange what a path leads to.
type UnsafeError struct {
	Problem string // names the directory or the file
	Remedy  string // what to do about it, as an imperative
}

func (e *UnsafeError) Error() string { return e.Problem + ": " + e.Remedy }

// Dir is an open directory that only root and this process's user can change, but for files of
// others if it is sticky. Names given to methods have no slash.
type Dir struct {
	path string
	file *os.File // O_PATH
}

// Open opens a directory for use with Dir's methods. The error is an UnsafeError when another user
// can change the path or what is in the directory, else that of the kernel. The caller must Close.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	end, err := walk(path, true)
	if err != nil {
		return nil, err
	}
	if end.stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = &os.PathError{Op: "opening", Path: path, Err: unix.ENOTDIR}
	} else {
		err = end.isSafe(nil)
	}
	if err != nil {
		end.file.Close()
		return nil, err
	}
	return &Dir{path: path, file: end.file}, nil
}

// Follow opens, with O_PATH, what a path leads to, a relative path beginning in the working
// directory. Directories on the way may belong to anybody; but a symbolic link is followed only
// where its name is safe, so whoever may write to a directory cannot lead us out of those that they
// may change. The error is an UnsafeError for another link, else that of the kernel.
//
// byMagic reports whether the path ends with a magic link of procfs, as /dev/stdout does: the file is
// what a process has open, whatever its name stands for now.
func Follow(path string) (file *os.File, byMagic bool, err error) {
	end, err := walk(path, false)
	if err != nil {
		return nil, false, err
	}
	return end.file, end.byMagic, nil
}

// Mkdir creates a directory in a safe one; it is no error if the name exists.
func Mkdir(path string, mode uint32) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	parent, err := Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	err = unix.Mkdirat(parent.fd(), filepath.Base(path), mode)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

// Close closes the directory. It may be called again; after that, methods return EBADF.
func (d *Dir) Close() { d.file.Close() }

// fd is -1 after Close.
func (d *Dir) fd() int { return int(d.file.Fd()) }

// Path returns the absolute path of a name.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Statfs returns the status of the file system.
func (d *Dir) Statfs() (unix.Statfs_t, error) {
	var status unix.Statfs_t
	if err := unix.Fstatfs(d.fd(), &status); err != nil {
		return status, &os.PathError{Op: "statfs", Path: d.path, Err: err}
	}
	return status, nil
}

// Lstat returns the status of a file, and an UnsafeError if its name is not safe.
func (d *Dir) Lstat(name string) (unix.Stat_t, error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(d.fd(), name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return stat, &os.PathError{Op: "lstat", Path: d.Path(name), Err: err}
	}
	self := element{path: d.path}
	if err := unix.Fstat(d.fd(), &self.stat); err != nil {
		return stat, &os.PathError{Op: "stat", Path: d.path, Err: err}
	}
	return stat, self.isSafe(&element{path: d.Path(name), stat: stat})
}

// Open opens a file that is no symbolic link; "." is the directory. The descriptor is closed on
// exec.
func (d *Dir) Open(name string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(d.fd(), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, &os.PathError{Op: "opening", Path: d.Path(name), Err: err}
	}
	return os.NewFile(uintptr(fd), d.Path(name)), nil
}

// Chmod sets the mode of a file whose name Lstat has found safe, and which is no symbolic link.
func (d *Dir) Chmod(name string, mode uint32) error {
	if err := unix.Fchmodat(d.fd(), name, mode, 0); err != nil {
		return &os.PathError{Op: "chmod", Path: d.Path(name), Err: err}
	}
	return nil
}

// Remove removes a file that is no directory.
func (d *Dir) Remove(name string) error {
	if err := unix.Unlinkat(d.fd(), name, 0); err != nil {
		return &os.PathError{Op: "removing", Path: d.Path(name), Err: err}
	}
	return nil
}

// CheckWritable returns an error if this process may not create files in the directory.
func (d *Dir) CheckWritable() error {
	if err := unix.Faccessat(d.fd(), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return &os.PathError{Op: "writing to", Path: d.path, Err: err}
	}
	return nil
}

// element is a file on a path.
type element struct {
	path string
	file *os.File // O_PATH; nil where only the status is needed
	stat unix.Stat_t

	byMagic bool // a magic link of procfs led to it
}

// isOurs reports whether nobody but root and this process's user may change the file's mode.
func (e *element) isOurs() bool { return e.stat.Uid == 0 || int(e.stat.Uid) == os.Geteuid() }

// isSafe returns an UnsafeError if another user can exchange a name in a directory; with nil, one
// that does not exist yet.
func (e *element) isSafe(name *element) error {
	const shared = unix.S_IWGRP | unix.S_IWOTH
	owner := "root"
	if euid := os.Geteuid(); euid != 0 {
		owner = fmt.Sprintf("root or user %d", euid)
	}
	switch {
	case !e.isOurs():
		return &UnsafeError{
			Problem: fmt.Sprintf("directory %s belongs to user %d, who can put other files there", e.path, e.stat.Uid),
			Remedy:  fmt.Sprintf("chown it to %s, or name a path whose directories all belong to %s", owner, owner)}
	case e.stat.Mode&shared == 0:
		return nil
	case e.stat.Mode&unix.S_ISVTX == 0:
		return &UnsafeError{
			Problem: fmt.Sprintf("directory %s (mode %04o) is writable for other users, who can put other files there",
				e.path, e.stat.Mode&0o7777),
			Remedy: fmt.Sprintf("chmod go-w %s, or name a path whose directories only %s can write to", e.path, owner)}
	case name != nil && !name.isOurs():
		return &UnsafeError{
			Problem: fmt.Sprintf("%s belongs to user %d, who can exchange it", name.path, name.stat.Uid),
			Remedy:  fmt.Sprintf("remove it, or name a path whose directories only %s can write to", owner)}
	}
	return nil
}

// exchangeable is the UnsafeError for a symbolic link in a directory that is not safe for it.
func (e *element) exchangeable(link *element) error {
	who := "other users"
	switch {
	case !e.isOurs():
		who = fmt.Sprintf("user %d", e.stat.Uid)
	case e.stat.Mode&unix.S_ISVTX != 0:
		who = fmt.Sprintf("user %d", link.stat.Uid)
	}
	return &UnsafeError{
		Problem: fmt.Sprintf("%s is a symbolic link that %s can exchange", link.path, who),
		Remedy:  "name what it leads to"}
}
