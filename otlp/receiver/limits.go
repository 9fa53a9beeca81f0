package receiver

import (
	"context"
	"time"
)

const (
	// maxConnections is how many there may be at a time. A node of Kubernetes has 110 pods unless told
	// otherwise, and an exporter needs one connection.
	maxConnections = 128
	// maxStreams is how many requests of one connection are looked at; exporters send up to that many. More
	// wait on their side.
	maxStreams = 16
	// maxInWork is how many requests are received or checked at a time, of all connections.
	maxInWork = 64
	// maxOpen is those and the ones that wait for their turn, in the flow control of HTTP/2: nothing beyond
	// the window is read of them. More are told to come again.
	maxOpen = 2 * maxInWork

	// window is what is read of a request that waits: the least that HTTP/2 knows, and grpc takes. On one
	// machine there is no latency for which more would be needed.
	window = 64<<10 - 1
	// maxHeaders is the headers of a request: what grpc-go will have as its default, and most HTTP servers
	// take. A token has one to four.
	maxHeaders = 8 << 10
	// Buffers of a connection: requests are large, answers small. There may be many idle connections.
	readBuffer  = 8 << 10
	writeBuffer = 4 << 10

	// callTimeout is how long a request may take to come, waiting included. It is what exporters give it.
	callTimeout = 10 * time.Second
	// turnTimeout is how long it waits for its turn: so long that who is refused still listens.
	turnTimeout = callTimeout / 2
	// holdTimeout limits how long a request is held while the queue is full.
	holdTimeout = time.Second
	// handshakeTimeout is how long a new connection may take to become one.
	handshakeTimeout = 10 * time.Second
	// idleTimeout is when a connection without requests is closed. Exporters send every minute at the
	// slowest, and may come again.
	idleTimeout = 10 * time.Minute
	// minPing is how often clients may ask whether we are there, with and without requests: no client library
	// does so more often.
	minPing = 10 * time.Second
)

// room is memory for requests that are larger than a window, in units of one.
type room struct {
	turn  chan struct{} // held by who is taking: one after the other, so that nobody waits with a part of it
	units chan struct{}
}

// newRoom has room for two requests of limit bytes: one that comes slowly does not keep the others out.
func newRoom(limit int) *room {
	return &room{turn: make(chan struct{}, 1), units: make(chan struct{}, 2*unitsOf(limit))}
}

// unitsOf is the room that a request of size bytes needs.
func unitsOf(size int) int {
	if size <= window {
		return 0 // counted with the requests in work
	}
	return (size + window - 1) / window
}

// take waits until there are n units, in the order of callers. They are to be given back. It fails when ctx is
// done.
func (r *room) take(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.turn }()
	for i := range n {
		select {
		case r.units <- struct{}{}:
		case <-ctx.Done():
			r.give(i)
			return ctx.Err()
		}
	}
	return nil
}

func (r *room) give(n int) {
	for range n {
		<-r.units
	}
}
