package feed

import (
	"context"
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
	// ErrInUse says that somebody receives on the path already.
	ErrInUse = errors.New("feed socket is in use")
	// ErrNotSocket says that there is a file at the path which is not ours to replace.
	ErrNotSocket = errors.New("a file that is no socket is in the way")
)

const (
	// socketMode leaves feeding to root: who feeds decides what is told to every process.
	socketMode = 0o600

	// Two agents that start at the same moment bind one after the other. This takes microseconds,
	// so what stays locked is locked by something else.
	lockTimeout  = time.Second
	lockInterval = 10 * time.Millisecond
)

// Server receives datagrams on a feed socket.
type Server struct {
	conn     *net.UnixConn
	counters *Counters
	path     string
	dev, ino uint64 // of the socket's file
}

// Listen binds the feed socket at path, with mode 0600 from the beginning. A socket on which
// nobody receives any more, as an agent leaves it that was killed, is replaced. When somebody
// does, or another agent is just starting, the error is ErrInUse; any other file is left alone
// with ErrNotSocket. The caller must Close, which removes the socket.
func Listen(path string, counters *Counters) (*Server, error) {
	path, err := filepath.Abs(path) // a name with "@" in front would be an abstract socket's
	if err != nil {
		return nil, fmt.Errorf("opening feed socket: %w", err)
	}
	lock, err := lockPath(path)
	if err != nil {
		return nil, fmt.Errorf("opening feed socket %s: %w", path, err)
	}
	defer lock.Close()
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("opening feed socket %s: %w", path, err)
	}
	conn, err := bind(path)
	if err != nil {
		return nil, fmt.Errorf("opening feed socket: %w", err)
	}
	s := &Server{conn: conn, counters: counters, path: path}
	if s.dev, s.ino, err = identify(path); err != nil {
		conn.Close()
		return nil, fmt.Errorf("looking at feed socket %s: %w", path, err)
	}
	return s, nil
}

// lockPath keeps other agents from binding path until the file is closed. The lock is a file of our
// own beside the socket: one that others may open, they may lock. It is left there, empty.
func lockPath(path string) (*os.File, error) {
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	name := path + ".lock"
	fd, err := unix.Open(name, flags, socketMode)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		f.Close()
		return nil, fmt.Errorf("looking at %s: %w", name, err)
	}
	if stat.Mode != unix.S_IFREG|socketMode || stat.Uid != uint32(os.Geteuid()) {
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

// removeStale removes the socket at path if nobody receives on it.
func removeStale(path string) error {
	var stat unix.Stat_t
	err := unix.Lstat(path, &stat)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return ErrNotSocket
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		conn.Close()
		return ErrInUse
	}
	if !errors.Is(err, unix.ECONNREFUSED) { // EPROTOTYPE: alive, and of another kind
		return fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return os.Remove(path)
}

// bind makes the socket. Its file gets the mode that the socket has before it is bound, so there
// is no moment in which others may write to it, and no umask to change for all threads.
func bind(path string) (*net.UnixConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		controlErr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), socketMode) })
		return errors.Join(controlErr, err)
	}}
	conn, err := config.ListenPacket(context.Background(), "unixgram", path)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

func identify(path string) (dev, ino uint64, err error) {
	var stat unix.Stat_t
	err = unix.Lstat(path, &stat)
	return stat.Dev, stat.Ino, err
}

// Serve hands the records of one datagram after the other to handle, in slices that are valid
// during the call; meanwhile samplers wait. When ctx ends it takes no more datagrams, handles
// those that it took, and returns nil. It is called once.
func (s *Server) Serve(ctx context.Context, handle func([]Record)) error {
	stop := context.AfterFunc(ctx, func() {
		s.conn.CloseRead()                      // samplers get EPIPE from here on
		s.conn.SetReadDeadline(time.Unix(1, 0)) // shutting a datagram socket down wakes nobody
	})
	defer stop()
	buf := make([]byte, maxDatagramBytes+1) // one more byte tells a datagram that is too long
	var records []Record
	for {
		n, err := s.conn.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n, err = s.readQueued(buf)
		}
		switch {
		case errors.Is(err, unix.EAGAIN), err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("receiving from feed socket: %w", err)
		}
		records, err = Decode(buf[:n], records[:0])
		if err != nil {
			s.counters.Refused[reasonOf(err)].Add(1)
			continue
		}
		s.counters.Datagrams.Add(1)
		s.counters.Records.Add(uint64(len(records)))
		handle(records)
	}
}

// readQueued reads a datagram that has come already; EAGAIN when there is none.
func (s *Server) readQueued(buf []byte) (n int, err error) {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), buf) })
	return n, errors.Join(controlErr, err)
}

// Close ends Serve and removes the socket's file, unless there is another one by now. It may be
// called again.
func (s *Server) Close() error {
	// Before the socket is closed: as long as it is alive no other agent takes the path.
	if dev, ino, err := identify(s.path); err == nil && dev == s.dev && ino == s.ino {
		os.Remove(s.path)
	}
	if err := s.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("closing feed socket: %w", err)
	}
	return nil
}
