package broker

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxVectors is how many pieces are written at a time.
const maxVectors = 32

// readSize is how much is read at a time: enough for some thousand small transmissions.
const readSize = 256 << 10

var buffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// stream is a TCP connection or a Unix socket.
type stream struct {
	conn  net.Conn
	raw   syscall.RawConn
	iov   [maxVectors][]byte
	write func(fd uintptr) bool // tryFD, which is not to be allocated for each call

	// Arguments and results of write.
	list    *chunkList
	wait    bool
	full    bool
	written int
	err     error
}

// newStream prepares a connection.
func newStream(conn net.Conn) (*stream, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.New("connection without a descriptor")
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// Without these a message waits for the acknowledgment of the one before, and a dead peer
		// is never noticed.
		_ = tcp.SetNoDelay(true)
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 6,
		})
	}
	s := &stream{conn: conn, raw: raw}
	s.write = s.tryFD
	return s, nil
}

// read reads within one RawConn.Read for as long as the connection lives. Its function is called
// when the descriptor may be readable; it takes a buffer only then, and returns it before it waits.
func (s *stream) read(g *guest) (err error) {
	rawErr := s.raw.Read(func(fd uintptr) bool {
		var wait bool
		wait, err = s.readAll(int(fd), g)
		return !wait
	})
	if err == nil {
		err = rawErr
	}
	return err
}

// readAll reads and handles until nothing is left to be read.
func (s *stream) readAll(fd int, g *guest) (wait bool, err error) {
	buf := buffers.Get().(*[readSize]byte)
	defer buffers.Put(buf)
	for {
		data, err := s.readOnce(fd, g, buf)
		if errors.Is(err, unix.EAGAIN) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		rest, err := g.data(data)
		if err == nil {
			err = g.keep(rest)
		}
		if err != nil {
			return false, err
		}
		g.pause()
	}
}

// readOnce reads behind what is there of an incomplete frame: into the buffer, or if the frame is
// longer than that, into memory of its own, which grows with what arrives.
func (s *stream) readOnce(fd int, g *guest, buf *[readSize]byte) (data []byte, err error) {
	space := buf[:]
	have := copy(space, g.rest)
	if have > readSize/2 || g.frameSize(g.rest) > readSize {
		have = len(g.rest)
		if cap(g.rest)-have < readSize/2 {
			larger := make([]byte, have, max(2*have, readSize))
			copy(larger, g.rest)
			if err := g.grow(cap(larger) - cap(g.rest)); err != nil {
				return nil, err
			}
			g.rest = larger
		}
		space = g.rest[:cap(g.rest)]
	}
	for {
		n, err := rawRead(fd, space[have:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n == 0:
			return nil, io.EOF
		default:
			return space[:have+n], nil
		}
	}
}

// rawRead reads from a descriptor that does not block, so that the Go runtime need not be told: its
// monitor thread, which looks after system calls that do, would be woken.
func rawRead(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// tryWrite writes the list.
func (s *stream) tryWrite(list *chunkList, wait bool) (released int, full bool, err error) {
	s.list, s.wait, s.full, s.written, s.err = list, wait, false, 0, nil
	if err = s.raw.Write(s.write); err == nil {
		err = s.err
	}
	released = list.consume(s.written)
	s.list = nil
	return released, s.full, err
}

// tryFD calls writev once, and again if the descriptor is full and it may wait.
func (s *stream) tryFD(fd uintptr) bool {
	iov := s.iov[:0]
	for c := s.list.first; c != nil && len(iov) < len(s.iov); c = c.next {
		iov = append(iov, c.data[c.start:c.end])
	}
	for {
		n, err := rawWritev(fd, iov)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			s.full = true
			return !s.wait
		case err != nil:
			s.err = err
		default:
			s.written = n
		}
		return true
	}
}

func rawWritev(fd uintptr, b [][]byte) (int, error) {
	var vectors [maxVectors]unix.Iovec
	for i := range b {
		vectors[i].Base = unsafe.SliceData(b[i])
		vectors[i].SetLen(len(b[i]))
	}
	n, _, errno := unix.RawSyscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&vectors[0])), uintptr(len(b)))
	runtime.KeepAlive(b)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func (s *stream) begin(d time.Duration) { _ = s.conn.SetReadDeadline(time.Now().Add(d)) }

func (s *stream) accepted(*guest) { _ = s.conn.SetReadDeadline(time.Time{}) }

func (s *stream) stopReading(*guest) { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) }

// linger says that nothing follows, and discards what arrives until the peer closes: a socket that
// is closed with unread data resets the connection, and the peer loses what it has not yet read.
func (s *stream) linger() {
	if c, ok := s.conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, s.conn)
}

// abort shuts the socket down. Close would wait for those that use the descriptor.
func (s *stream) abort() {
	_ = s.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
}

func (s *stream) close() { _ = s.conn.Close() }
