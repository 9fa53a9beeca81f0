package receiver

import (
	"errors"
	"io"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/connlimit"
	"correlator/opencensus/wire"
)

// protocolVersion is the version of the protocol that clients announce. There is no other one.
const protocolVersion = 1

// touchInterval is how exact it is known when a connection was last used, which decides which one
// is closed when there are too many. The table is locked and searched for that.
const touchInterval = time.Minute

// stream is a connection that has sent something.
type stream struct {
	*Receiver
	conn *connlimit.Conn
	raw  syscall.RawConn

	splitter  *wire.Splitter
	losses    wire.Counts // of the splitter, since the last read
	onMessage func(wire.Message)
	onRead    func(fd uintptr) bool
	taken     int // bytes of the budget

	senders senders
	reader  *reader // during a read
	err     error   // of the last read

	lost    losses
	touched time.Time
}

// serve serves a connection until it ends. It runs on a goroutine of its own, which is as small as
// possible until there is something to read.
func (r *Receiver) serve(c *connlimit.Conn) {
	defer c.Close()
	raw, err := rawConn(c)
	if err != nil {
		return // closed
	}
	accepted := time.Now()
	if !awaitData(raw) {
		return // some processes connect and send nothing, such as helpers of the extension's
	}
	r.serveStream(c, raw, accepted)
}

// awaitData waits until there is something to read, and reports whether there is.
func awaitData(raw syscall.RawConn) (arrived bool) {
	err := raw.Read(func(fd uintptr) bool {
		n, err := peek(int(fd))
		arrived = n > 0
		return !errors.Is(err, unix.EAGAIN)
	})
	if errors.Is(err, os.ErrDeadlineExceeded) { // a shutdown, which reads what has arrived before
		_ = raw.Control(func(fd uintptr) {
			n, _ := peek(int(fd))
			arrived = n > 0
		})
	}
	return arrived
}

// peek returns how many bytes can be read, at most 1; 0 without an error is the end of the stream.
func peek(fd int) (int, error) {
	var b [1]byte
	for {
		n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// serveStream serves a connection on which something has arrived. After a panic, which is a defect,
// the connection is closed, since what is known of its state may be wrong; the others go on.
func (r *Receiver) serveStream(c *connlimit.Conn, raw syscall.RawConn, accepted time.Time) {
	s := &stream{Receiver: r, conn: c, raw: raw, touched: accepted}
	_ = raw.Control(func(fd uintptr) { s.senders.peer = identify(r.procRoot, int(fd), accepted) })
	s.senders.account = r.budget.account(s.senders.peer.uid)
	defer func() {
		if s.taken > 0 { // after a panic
			s.Give(s.taken)
		}
	}()
	defer func() {
		if v := recover(); v != nil {
			s.reader = nil
			r.panicIn("reader", v, debug.Stack())
		}
	}()
	s.splitter = wire.NewSplitter(s, r.config.MaxTraceBytes, &s.losses)
	s.splitter.OnLoss(s.lose)
	s.onMessage, s.onRead = s.deliver, s.readable
	s.readAll()
}

// readAll reads until the end of the stream or a shutdown.
func (s *stream) readAll() {
	for s.err == nil {
		if err := s.raw.Read(s.onRead); err != nil && s.err == nil {
			s.err = err
		}
		s.afterRead(time.Now())
	}
	if errors.Is(s.err, os.ErrDeadlineExceeded) {
		s.drain()
	}
	notProtocol := errors.Is(s.err, wire.ErrNotProtocol)
	if notProtocol {
		s.counters.notProtocol.Add(1)
	}
	r := <-s.readers
	s.end(r)
	s.readers <- r
	s.events.report(s, time.Now(), notProtocol)
}

// afterRead does what need not be done while there is a reader.
func (s *stream) afterRead(now time.Time) {
	if now.Sub(s.touched) >= touchInterval {
		s.touched = now
		s.conn.Begin()
		s.conn.End()
	}
	if len(s.senders.processes) > 0 { // otherwise it is not known yet whether it is the protocol
		s.events.report(s, now, false)
	}
}

// drain reads what can be read now, but not what is sent meanwhile: without a limit, a client could
// keep a shutdown from ending.
func (s *stream) drain() {
	s.err = nil
	_ = s.raw.Control(func(fd uintptr) {
		left, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		r := <-s.readers
		defer func() { s.readers <- r }()
		for err == nil && left > 0 && s.err == nil && s.drained.Err() == nil {
			var n int
			if n, err = read(int(fd), r.buffer[:min(left, len(r.buffer))]); n == 0 {
				return
			} else if n > 0 {
				left -= n
				s.err = s.feed(r, r.buffer[:n])
			}
		}
	})
	if s.err == nil {
		s.err = io.EOF
	}
}

// Take takes memory for an unfinished message.
func (s *stream) Take(bytes int) bool {
	if !s.senders.account.Take(bytes) {
		return false
	}
	s.taken += bytes
	return true
}

// Give gives it back.
func (s *stream) Give(bytes int) {
	s.taken -= bytes
	s.senders.account.Give(bytes)
}
