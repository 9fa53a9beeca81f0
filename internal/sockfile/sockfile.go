// Package sockfile binds Unix sockets at paths of the file system, for one server at a time and for
// nobody but its own user.
package sockfile

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrInUse says that somebody serves the path already.
	ErrInUse = errors.New("socket is in use")
	// ErrNotSocket says that there is a file at the path which is not ours to replace.
	ErrNotSocket = errors.New("a file that is no socket is in the way")
)

const (
	// mode leaves a socket to the user that serves it: root.
	mode = 0o600

	// Two servers that start at the same moment bind one after the other. This takes microseconds,
	// so what stays locked is locked by something else.
	lockTimeout  = time.Second
	lockInterval = 10 * time.Millisecond
)

// maxPathBytes is what fits into sun_path of unix(7), with a final NUL.
const maxPathBytes = len(unix.RawSockaddrUnix{}.Path) - 1

// CheckPath refuses what can be no path of a socket, without looking. The error is one that a name goes
// before.
func CheckPath(path string) error {
	if absolute, err := filepath.Abs(path); err == nil && len(absolute) > maxPathBytes {
		return fmt.Errorf("is a path of %d bytes; a socket's has at most %d", len(absolute), maxPathBytes)
	}
	return nil
}

// File is the file of a bound socket.
type File struct {
	path     string
	dev, ino uint64
}

// Bind has a socket of a network ("unix" or "unixgram") bound at path, with mode 0600 from the beginning:
// bind does that, by the configuration and the absolute path that it is given. A socket that nobody serves
// any more, as a server leaves it that was killed, is replaced. When somebody does, or another server
// is just starting, the error is ErrInUse; any other file is left alone with ErrNotSocket.
//
// A file PATH.lock is left beside the socket, empty.
func Bind(network, path string, bind func(config net.ListenConfig, path string) error) (*File, error) {
	path, err := filepath.Abs(path) // a name with "@" in front would be an abstract socket's
	if err != nil {
		return nil, err
	}
	lock, err := lockPath(path)
	if err != nil {
		return nil, fmt.Errorf("binding %s: %w", path, err)
	}
	defer lock.Close()
	if err := removeStale(network, path); err != nil {
		return nil, fmt.Errorf("binding %s: %w", path, err)
	}
	if err := bind(net.ListenConfig{Control: restrict}, path); err != nil {
		return nil, err
	}
	f := &File{path: path}
	if f.dev, f.ino, err = identify(path); err != nil {
		return nil, fmt.Errorf("looking at %s: %w", path, err)
	}
	return f, nil
}

// restrict sets the mode that the file gets, before the socket is bound: so there is no moment in which
// others may write to it, and no umask to change for all threads.
func restrict(_, _ string, raw syscall.RawConn) error {
	var err error
	controlErr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), mode) })
	return errors.Join(controlErr, err)
}

// Remove removes the file, unless there is another one by now. The socket must still be open: as long as
// it is alive no other server takes the path. It may be called again.
func (f *File) Remove() {
	if dev, ino, err := identify(f.path); err == nil && dev == f.dev && ino == f.ino {
		os.Remove(f.path)
	}
}

// lockPath keeps other servers from binding path until the file is closed. The lock is a file of our
// own beside the socket: one that others may open, they may lock.
func lockPath(path string) (*os.File, error) { return openLock(path, unix.O_CREAT) }

// openLock does so by a file that must exist unless create is O_CREAT.
func openLock(path string, create int) (*os.File, error) {
	const flags = unix.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	name := path + ".lock"
	fd, err := unix.Open(name, flags|create, mode)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		f.Close()
		return nil, fmt.Errorf("looking at %s: %w", name, err)
	}
	if stat.Mode != unix.S_IFREG|mode || stat.Uid != uint32(os.Geteuid()) {
		f.Close()
		return nil, fmt.Errorf("%w: %s is not a file that is ours alone", ErrNotSocket, name)
	}
	end := time.Now().Add(lockTimeout)
	for {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if locked := errors.Is(err, unix.EWOULDBLOCK); !locked || time.Now().After(end) {
			f.Close()
			if locked {
				err = fmt.Errorf("%w: %s stays locked", ErrInUse, name)
			}
			return nil, err
		}
		time.Sleep(lockInterval)
	}
}

// removeStale removes the socket at path if nobody serves it.
func removeStale(network, path string) error {
	stale, err := isStale(network, path)
	if err != nil || !stale {
		return err
	}
	return os.Remove(path)
}

// isStale says whether there is a socket at path that nobody serves. It is an error if there is anything
// else.
func isStale(network, path string) (bool, error) {
	var stat unix.Stat_t
	err := unix.Lstat(path, &stat)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return false, ErrNotSocket
	}
	conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
	if err == nil {
		conn.Close()
		return false, ErrInUse
	}
	if !errors.Is(err, unix.ECONNREFUSED) { // EPROTOTYPE: alive, and of another kind; EAGAIN: busy
		return false, fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return true, nil
}

func identify(path string) (dev, ino uint64, err error) {
	var stat unix.Stat_t
	err = unix.Lstat(path, &stat)
	return stat.Dev, stat.Ino, err
}
