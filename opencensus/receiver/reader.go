package receiver

import (
	"errors"
	"io"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/metric"
	"correlator/opencensus/wire"
)

// readBytes is the size of a read. All that clients can have written without waiting
// (net.core.wmem_default is 208 KiB) arrives in four of them.
const readBytes = 64 << 10

// maxLatency is the most that a message can have been on its way. What is older was sent by a clock
// that was set meanwhile, or that is wrong.
const maxLatency = time.Hour

// reader is what a connection needs to read. There are few of them, for as many connections as work
// at the same time: one has a reader from a read that returned data until the messages in that are
// passed on, which waits for nobody.
type reader struct {
	buffer []byte
	now    time.Time // of the last read
	counts readCounts
	added  [numQueues]bool // whether queues have got messages
}

// readCounts are what one read adds to the counters, by wire.Type.Index.
type readCounts struct {
	received, bytes, processed, queueFull, panicked [wire.Types]uint64
	unsupported, gaps                               uint64
	latency                                         metric.Histogram
}

func newReaders() chan *reader {
	n := 2*runtime.GOMAXPROCS(0) + 2 // some wait for a lock, or to be scheduled again
	all := make(chan *reader, n)
	for range n {
		all <- &reader{buffer: make([]byte, readBytes)}
	}
	return all
}

// readable is called when there may be something to read, by the function of the net package that
// waits for that: so connections that are silent have no buffer. It returns whether it has read;
// otherwise it is called again when there is something. The end of the stream makes no event of its
// own when it comes with data, so read(2) has to say that there is no more.
func (s *stream) readable(fd uintptr) bool {
	var r *reader
	select {
	case r = <-s.readers: // waits for connections that work
	case <-s.conn.Done(): // replaced, which should not take until it is the turn of this one
		s.err = net.ErrClosed
		return true
	}
	defer func() { s.readers <- r }()
	n, err := read(int(fd), r.buffer)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return false
	case err != nil:
		s.err = err
	case n == 0:
		s.err = io.EOF
	default:
		s.err = s.feed(r, r.buffer[:n])
	}
	return true
}

// read is read(2).
func read(fd int, buffer []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buffer)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// feed passes on the messages that data completes.
func (s *stream) feed(r *reader, data []byte) error {
	s.begin(r)
	defer s.finish()
	return s.splitter.Feed(data, s.onMessage)
}

// end is feed for the end of the stream.
func (s *stream) end(r *reader) {
	s.begin(r)
	defer s.finish()
	s.splitter.End(s.onMessage)
}

func (s *stream) begin(r *reader) {
	s.reader = r
	r.now = time.Now()
}

func (s *stream) finish() {
	r := s.reader
	s.reader = nil
	for i, added := range r.added {
		if added {
			s.queues[i].wake()
		}
	}
	s.counters.addRead(&r.counts, &s.losses)
	r.counts, r.added, s.losses = readCounts{}, [numQueues]bool{}, wire.Counts{}
}

// deliver takes a message, whose payload is valid during the call only.
func (s *stream) deliver(m wire.Message) {
	r, kind := s.reader, m.Type.Index()
	r.counts.received[kind]++
	done := false
	defer func() {
		if !done {
			r.counts.panicked[kind]++
		}
	}()
	s.pass(r, kind, &m)
	done = true
}

func (s *stream) pass(r *reader, kind int, m *wire.Message) {
	r.counts.bytes[kind] += uint64(len(m.Payload))
	client := s.see(&m.Header)
	if latency := r.now.Sub(m.Sent); !m.Padded && latency >= 0 && latency < maxLatency {
		r.counts.latency.Observe(latencyBounds, latency.Seconds())
	}
	queue := statsQueue
	switch m.Type {
	case wire.ProcessInit, wire.RequestInit:
		s.init(client, m.Payload)
		r.counts.processed[kind]++
		return
	case wire.ProcessShutdown, wire.RequestShutdown: // the state is not theirs, and spans may follow
		r.counts.processed[kind]++
		return
	case wire.TraceExport:
		if !s.takesTraces(r.now) {
			r.counts.unsupported++
			return
		}
		queue = traceQueue
	}
	if s.queues[queue].add(client.from, m, r.now) {
		r.added[queue] = true
	} else {
		r.counts.queueFull[kind]++
	}
}

// init keeps the version of PHP.
func (s *stream) init(c *process, payload []byte) {
	init, err := wire.DecodeInit(payload)
	if err != nil {
		return // the Splitter has decoded it
	}
	s.senders.setPHP(c, init.PHP)
	if init.Version != protocolVersion {
		s.events.unknownVersion(s, init.Version)
	}
}

// lose takes what was not delivered.
func (s *stream) lose(l wire.Loss) {
	s.lost.note(l)
	if l.Header.Type != 0 { // the number is used up
		s.see(&l.Header)
	}
}

// see notes the sequence number of a message.
func (s *stream) see(h *wire.Header) *process {
	c, gap := s.senders.see(h)
	s.reader.counts.gaps += gap
	return c
}
