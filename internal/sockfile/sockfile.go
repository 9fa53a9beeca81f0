// Package sockfile binds Unix sockets at paths of the file system, for one server at a time, and
// accessible only to its user.
package sockfile

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrInUse: another server has the path.
	ErrInUse = errors.New("socket is in use")
	// ErrNotSocket: the file at the path is not ours to replace.
	ErrNotSocket = errors.New("a file that is no socket is in the way")
)

const (
	// mode makes a socket accessible to the user that serves it: root.
	mode = 0o600

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

// File is the file of a bound socket.
type File struct {
	path     string
	dev, ino uint64
}

// Bind binds a socket of a network ("unix" or "unixgram") at path by calling bind with the
// configuration and the absolute path to use. The socket has mode 0600 from the beginning. A stale
// socket, which a killed server leaves behind, is replaced. When another server has the path, or is
// just starting, the error is ErrInUse; any other file is left alone, and the error is
// ErrNotSocket.
//
// An empty file PATH.lock stays beside the socket.
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
		return nil, fmt.Errorf("examining %s: %w", path, err)
	}
	return f, nil
}

// restrict sets the mode of the file before the socket is bound: so there is no moment in which
// others may write to it, and no umask to change for all threads.
func restrict(_, _ string, raw syscall.RawConn) error {
	var err error
	controlErr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), mode) })
	return errors.Join(controlErr, err)
}

// Remove removes the file, unless another one has taken its place. The socket must still be open:
// while it is, no other server takes the path. Remove may be called again.
func (f *File) Remove() {
	if dev, ino, err := identify(f.path); err == nil && dev == f.dev && ino == f.ino {
		os.Remove(f.path)
	}
}

// lockPath keeps other servers from binding path until the file is closed. The lock is a file of
// our own beside the socket: a file that others may open could be locked by them.
func lockPath(path string) (*os.File, error) { return openLock(path, unix.O_CREAT) }

// openLock is lockPath with a file that must exist unless create is O_CREAT.
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
		return nil, fmt.Errorf("examining %s: %w", name, err)
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

// removeStale removes the socket at path if it is stale.
func removeStale(network, path string) error {
	stale, err := isStale(network, path)
	if err != nil || !stale {
		return err
	}
	return os.Remove(path)
}

// isStale reports whether the file at path is a socket without a server. Any other file is an
// error.
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
