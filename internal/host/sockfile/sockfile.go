// Package sockfile binds Unix sockets at paths of the file system, for one server at a time, where
// nobody else can put others in their place.
package sockfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/safedir"
)

var (
	// ErrInUse: another server has the path.
	ErrInUse = errors.New("socket is in use")
	// ErrNotSocket: the file at the path is not ours to replace.
	ErrNotSocket = errors.New("a file that is no socket is in the way")
)

const (
	// lockMode keeps others from locking the file.
	lockMode = 0o600

	// Two servers that start at the same moment bind one after the other. That takes microseconds,
	// so a lock that stays is held by something else.
	lockTimeout  = time.Second
	lockInterval = 10 * time.Millisecond
)

// maxPathBytes is what fits into sun_path of unix(7), with a final NUL.
const maxPathBytes = len(unix.RawSockaddrUnix{}.Path) - 1

// CheckPath returns an error for a path that is too long for a socket, without looking at the file
// system. Its text continues a sentence that begins with the name of the path.
func CheckPath(path string) error {
	if absolute, err := filepath.Abs(path); err == nil && len(absolute) > maxPathBytes {
		return fmt.Errorf("is a path of %d bytes; a socket's has at most %d", len(absolute), maxPathBytes)
	}
	return nil
}

// UnixPath returns the path of an address that is a Unix socket: unix:PATH or unix://PATH.
func UnixPath(address string) (path string, ok bool) {
	path, ok = strings.CutPrefix(address, "unix:")
	return strings.TrimPrefix(path, "//"), ok
}

// DefaultMode makes a socket accessible to the user that serves it: root.
const DefaultMode fs.FileMode = 0o600

// OwnGroup leaves a socket to the group of this process.
const OwnGroup = -1

// File is the file of a bound socket. Until Remove it keeps its directory open.
type File struct {
	dir      *safedir.Dir
	name     string
	dev, ino uint64
}

// Listener listens at a Unix socket of type stream. Close removes its file first.
type Listener struct {
	*net.UnixListener
	*File
}

// Listen listens at path, as BindGroup binds.
func Listen(path string, mode fs.FileMode, gid int) (*Listener, error) {
	l := new(Listener)
	file, err := BindGroup("unix", path, mode, gid, func(config net.ListenConfig, path string) error {
		listener, err := config.Listen(context.Background(), "unix", path)
		if err != nil {
			return err
		}
		l.UnixListener = listener.(*net.UnixListener)
		l.SetUnlinkOnClose(false) // by then the path may belong to another socket
		return nil
	})
	if err != nil {
		if l.UnixListener != nil {
			l.UnixListener.Close()
		}
		return nil, err
	}
	l.File = file
	return l, nil
}

// Close removes the file and closes the socket. It may be called again, and then returns net.ErrClosed.
func (l *Listener) Close() error {
	l.Remove() // before the socket is closed: until then the path belongs to it
	return l.UnixListener.Close()
}

// Bind binds a socket of a network ("unix" or "unixgram") at path by calling bind with the
// configuration and the absolute path to use. From the beginning the socket has no more rights than
// those of mode. A stale socket, which a killed server leaves behind, is replaced. When another
// server has the path, or is just starting, the error is ErrInUse; any other file is left alone,
// and the error is ErrNotSocket. Where another user could exchange the socket or a directory on the
// way, the error is a safedir.UnsafeError.
//
// An empty file PATH.lock stays beside the socket. An error does not say whether bind was called: the
// caller closes what that has opened.
func Bind(network, path string, mode fs.FileMode, bind func(config net.ListenConfig, path string) error) (*File,
	error) {
	return BindGroup(network, path, mode, OwnGroup, bind)
}

// BindGroup is Bind for a socket that a group owns, from the beginning. That takes CAP_SETGID unless
// it is the one of this process.
func BindGroup(
	network, path string, mode fs.FileMode, gid int, bind func(config net.ListenConfig, path string) error,
) (*File, error) {
	path, err := filepath.Abs(path) // a name with "@" in front would be an abstract socket's
	if err != nil {
		return nil, err
	}
	f := &File{name: filepath.Base(path)}
	if f.dir, err = safedir.Open(filepath.Dir(path)); err == nil {
		if err = f.bind(network, path, uint32(mode.Perm()), gid, bind); err != nil {
			f.dir.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("binding %s: %w", path, err)
	}
	return f, nil
}

// bind binds in the open directory. Only we and root can change what the path means, so bind(2),
// which takes no descriptor of a directory, takes the path, and lists of sockets (ss -x) show it.
func (f *File) bind(
	network, path string, mode uint32, gid int, bind func(config net.ListenConfig, path string) error,
) error {
	lock, err := openLock(f.dir, f.name, unix.O_CREAT)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := checkGroup(f.dir, gid); err != nil {
		return err
	}
	stale, err := isStale(network, f.dir, f.name)
	if err == nil && stale {
		err = f.dir.Remove(f.name)
	}
	if err != nil {
		return err
	}
	restrict := func(_, _ string, raw syscall.RawConn) error {
		// The file gets the mode of the socket, less the umask: there is no moment in which others
		// may write to it, and no umask to change for all threads.
		var err error
		controlErr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), mode) })
		return errors.Join(controlErr, err)
	}
	err = inGroup(gid, func() error { return bind(net.ListenConfig{Control: restrict}, path) })
	if err != nil {
		if of := (*net.OpError)(nil); errors.As(err, &of) {
			err = of.Err // the path is known
		}
		return err
	}
	stat, err := f.dir.Lstat(f.name)
	if err != nil {
		return err
	}
	f.dev, f.ino = stat.Dev, stat.Ino
	if stat.Mode == unix.S_IFSOCK|mode {
		return nil
	}
	if err = f.dir.Chmod(f.name, mode); err != nil { // what the umask took away
		f.Remove()
	}
	return err
}

// Remove removes the file, unless another one has taken its place. The socket must still be open:
// while it is, no other server takes the path. Remove may be called again.
func (f *File) Remove() {
	if stat, err := f.dir.Lstat(f.name); err == nil && stat.Dev == f.dev && stat.Ino == f.ino {
		_ = f.dir.Remove(f.name)
	}
	f.dir.Close()
}

// openLock keeps other servers from binding a name until the file is closed. The lock is a file of
// our own beside the socket: a file that others may open could be locked by them. It must exist
// unless create is O_CREAT.
func openLock(dir *safedir.Dir, name string, create int) (*os.File, error) {
	name += ".lock"
	// Another user's file is named as such: with fs.protected_regular, opening it is not permitted.
	if _, err := dir.Lstat(name); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, err
	}
	f, err := dir.Open(name, unix.O_RDWR|unix.O_NONBLOCK|create, lockMode)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		f.Close()
		return nil, fmt.Errorf("examining %s: %w", f.Name(), err)
	}
	if stat.Mode != unix.S_IFREG|lockMode || stat.Uid != uint32(os.Geteuid()) {
		f.Close()
		return nil, fmt.Errorf("%w: %s is not a file that is ours alone", ErrNotSocket, f.Name())
	}
	end := time.Now().Add(lockTimeout)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if locked := errors.Is(err, unix.EWOULDBLOCK); !locked || time.Now().After(end) {
			f.Close()
			if locked {
				err = fmt.Errorf("%w: %s stays locked", ErrInUse, f.Name())
			}
			return nil, err
		}
		time.Sleep(lockInterval)
	}
}

// isStale reports whether a file is a socket without a server. Any other file is an error.
func isStale(network string, dir *safedir.Dir, name string) (bool, error) {
	stat, err := dir.Lstat(name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return false, ErrNotSocket
	}
	conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: dir.Path(name), Net: network})
	if err == nil {
		conn.Close()
		return false, ErrInUse
	}
	if !errors.Is(err, unix.ECONNREFUSED) { // EPROTOTYPE: alive, and of another kind; EAGAIN: busy
		return false, fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return true, nil
}
