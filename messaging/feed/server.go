package feed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/sockfile"
)

// Server receives datagrams on a feed socket.
type Server struct {
	conn     *net.UnixConn
	counters *Counters
	file     *sockfile.File
}

// Listen binds the feed socket at path as sockfile.Bind does, and has its errors. It is for root
// alone, since a feed determines what is sent to every process. The caller must Close, which
// removes the socket.
func Listen(path string, counters *Counters) (*Server, error) {
	s := &Server{counters: counters}
	var err error
	s.file, err = sockfile.Bind("unixgram", path, sockfile.DefaultMode, func(config net.ListenConfig,
		path string) error {
		conn, err := config.ListenPacket(context.Background(), "unixgram", path)
		if err == nil {
			s.conn = conn.(*net.UnixConn)
		}
		return err
	})
	if err != nil {
		if s.conn != nil {
			s.conn.Close()
		}
		return nil, fmt.Errorf("opening feed socket: %w", err)
	}
	return s, nil
}

// Serve calls handle with the records of each datagram. The slice is valid during the call;
// meanwhile samplers wait. When ctx ends, Serve accepts no more datagrams, handles those that it
// has accepted, and returns nil. It is called once.
func (s *Server) Serve(ctx context.Context, handle func([]Record)) error {
	stop := context.AfterFunc(ctx, func() {
		_ = s.conn.CloseRead() // samplers get EPIPE from now on
		// Shutting a datagram socket down does not wake a reader.
		_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	buf := make([]byte, maxDatagramBytes+1) // one byte more detects a datagram that is too long
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
		records, err = decode(buf[:n], records[:0])
		if err != nil {
			s.counters.Refused[refusalReason(err)].Add(1)
			continue
		}
		s.counters.Datagrams.Add(1)
		s.counters.Records.Add(uint64(len(records)))
		handle(records)
	}
}

// readQueued reads a datagram that has already arrived; EAGAIN when there is none.
func (s *Server) readQueued(buf []byte) (n int, err error) {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), buf) })
	return n, errors.Join(controlErr, err)
}

// Close ends Serve and removes the socket's file, unless it was replaced. It may be called again.
func (s *Server) Close() error {
	s.file.Remove() // before the socket is closed
	if err := s.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("closing feed socket: %w", err)
	}
	return nil
}
