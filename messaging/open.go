package messaging

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors about a process's socket. Every error of Dial and Identify wraps one of these or
// ErrCredentials, or is our own (out of descriptors, no /proc).
var (
	ErrNoSocket   = errors.New("no file at the socket's path")
	ErrNotSocket  = errors.New("the file is not a socket")
	ErrWrongType  = errors.New("the socket takes no datagrams")
	ErrRefused    = errors.New("nobody receives on the socket")
	ErrPermission = errors.New("the process may not write to the socket")
	ErrPath       = errors.New("unusable socket path")
	ErrNoOpenat2  = errors.New("no openat2 (Linux 5.6 or later, and no seccomp filter against it), without which no path of a process is opened safely")
)

const (
	// resolution confines every step of a path to the process's root, symbolic links and ".."
	// included, as after chroot. A magic link (/proc/PID/fd/N, cwd, root) would lead out of it.
	resolution = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS

	// resolveAttempts bounds how often an interrupted resolution is repeated: EAGAIN after a rename
	// somewhere while ".." was walked, EINTR from a network or FUSE file system after a signal. A
	// process can cause either as often as it likes.
	resolveAttempts = 16

	// sendBufferBytes is large enough that only the length of the receiver's queue is a limit: what
	// it holds is charged to our socket, 768 bytes for a message. This is the most that the default
	// net.core.wmem_max allows; the kernel doubles it, which is enough for a queue of 554. (It
	// wakes us when no more than a quarter is charged, so from 139 on not after each message read.)
	// The system's own default may have been lowered.
	sendBufferBytes = 212992
)

// SocketID identifies a socket file, also where a new file got the inode number of the one that was
// removed (ext4 reuses it at once). Only within one tick of the clock (4 ms) are they the same,
// until a message is refused. A change of mode or owner also changes the identity. Compare with ==.
type SocketID struct {
	Dev, Ino uint64
	CtimeNs  int64
}

// Identify returns the identity of the socket file that path leads to now, below root. It has the
// errors of Dial, and may block as Dial does. If it returns the Identity of a connected Socket,
// that need not be replaced. It is cheap: it resolves the path with the agent's own credentials,
// and does not find out whether the socket still has a receiver.
func Identify(root *os.File, path string) (SocketID, error) {
	fd, identity, err := openSocketFile(root, path)
	if err != nil {
		return SocketID{}, err
	}
	unix.Close(fd)
	return identity, nil
}

// Dial connects to the datagram socket at path, which is absolute and means what it means to the
// process whose root directory is root (an O_PATH descriptor of /proc/PID/root serves) and whose
// credentials are creds. The path is walked and the socket connected with these credentials, so
// that the kernel allows what it would allow the process, and no more; a user namespace in which
// the process is root makes no difference. Sending, too, shows its ids rather than ours to a
// receiver that asks for them.
//
// procRoot is the mount point of a procfs of our own pid namespace. Everybody must be able to reach
// it, and it has at most 88 bytes, because it is part of the socket's name that is passed to the
// kernel.
//
// Dial may block as long as the process's file systems do (FUSE, autofs, a dead network mount), and
// occupies a thread meanwhile: call it on a goroutine that serves this process alone. When a thread
// first assumes other ids, the kernel makes the whole agent undumpable: it writes no core file from
// then on.
func Dial(procRoot string, root *os.File, path string, creds Credentials) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("creating socket: %w", err)
	}
	socket := &Socket{fd: fd, control: creds.control(ownPID())}
	err = creds.Do(func() error {
		var err error
		socket.identity, err = connectBelow(fd, procRoot, root, path)
		return err
	})
	if err == nil {
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBufferBytes); err != nil {
			err = fmt.Errorf("setting send buffer: %w", err)
		}
	}
	if err != nil {
		socket.Close()
		return nil, err
	}
	return socket, nil
}

// connectBelow connects fd to the socket at path. A descriptor holds the socket file from its
// identification to the connection, so that it cannot be replaced in between.
func connectBelow(fd int, procRoot string, root *os.File, path string) (SocketID, error) {
	target, identity, err := openSocketFile(root, path)
	if err != nil {
		return SocketID{}, err
	}
	defer unix.Close(target)
	err = retryInterrupted(func() error {
		return unix.Connect(fd, &unix.SockaddrUnix{Name: procRoot + "/self/fd/" + strconv.Itoa(target)})
	})
	switch {
	case err == nil:
		return identity, nil
	case errors.Is(err, unix.ECONNREFUSED):
		return SocketID{}, connectError(ErrRefused, path, err)
	case errors.Is(err, unix.EPROTOTYPE):
		return SocketID{}, connectError(ErrWrongType, path, err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM): // EPERM: it receives from another socket only
		return SocketID{}, connectError(ErrPermission, path, err)
	default:
		return SocketID{}, fmt.Errorf("connecting to %q: %w", path, err)
	}
}

func connectError(decision error, path string, err error) error {
	return fmt.Errorf("connecting to %q: %w (%w)", path, decision, err)
}

// openSocketFile resolves path below root and returns a descriptor (O_PATH) of the socket file that
// it leads to. The caller closes it.
func openSocketFile(root *os.File, path string) (int, SocketID, error) {
	// A relative path would depend on the process's working directory, which can change.
	if !strings.HasPrefix(path, "/") || strings.IndexByte(path, 0) >= 0 {
		return -1, SocketID{}, fmt.Errorf("%w: %q is not absolute or holds a zero byte", ErrPath, path)
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolution}
	var fd int
	err := retryInterrupted(func() (err error) {
		fd, err = unix.Openat2(int(root.Fd()), path, &how)
		return err
	})
	runtime.KeepAlive(root)
	if err != nil {
		return -1, SocketID{}, fmt.Errorf("opening %q: %w", path, resolutionError(err))
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		unix.Close(fd)
		return -1, SocketID{}, fmt.Errorf("reading status of %q: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		unix.Close(fd)
		return -1, SocketID{}, fmt.Errorf("opening %q: %w", path, ErrNotSocket)
	}
	return fd, SocketID{Dev: stat.Dev, Ino: stat.Ino, CtimeNs: unix.TimespecToNsec(stat.Ctim)}, nil
}

func resolutionError(err error) error {
	decision := ErrPath
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		decision = ErrNoSocket
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		decision = ErrPermission
	case errors.Is(err, unix.ENOSYS):
		decision = ErrNoOpenat2
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return err // ours, not the path's
	}
	return fmt.Errorf("%w (%w)", decision, err)
}

// retryInterrupted calls f again while it is interrupted, at most resolveAttempts times.
func retryInterrupted(f func() error) error {
	for attempt := 1; ; attempt++ {
		err := f()
		interrupted := errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN)
		if !interrupted || attempt == resolveAttempts {
			return err
		}
	}
}

// Supported returns ErrNoOpenat2 if this kernel does not resolve paths as Dial needs it. The reason
// can also be a container's seccomp filter that does not know openat2 (EPERM), which Dial would
// mistake for missing rights of the process: call Supported first.
func Supported() error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolution}
	var fd int
	err := retryInterrupted(func() (err error) {
		fd, err = unix.Openat2(unix.AT_FDCWD, "/", &how)
		return err
	})
	switch {
	case err == nil:
		unix.Close(fd)
		return nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w: %w", ErrNoOpenat2, err)
	default:
		return fmt.Errorf("trying openat2: %w", err)
	}
}
