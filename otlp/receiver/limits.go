package receiver

import "time"

const (
	// maxConnections is the number of connections at a time. A Kubernetes node runs at most 110
	// pods by default, and an exporter needs one connection. A further one replaces another: see
	// connlimit.Table.
	maxConnections = 128
	// maxStreams is the number of concurrent requests on one connection; exporters send up to that
	// many. Further ones wait in the client.
	maxStreams = 16
	// maxInWork is the number of requests that are read, checked or held at a time, on all
	// connections.
	maxInWork = 64
	// maxOpen counts those and the requests that wait for a slot. Nothing beyond the flow-control
	// window is read of a waiting request. When there are more, one of whoever has the most is
	// refused at once.
	maxOpen = 2 * maxInWork

	// window is the flow-control window of a stream, which is what a waiting request can occupy. It
	// is HTTP/2's initial value; on one host there is no latency that needs more.
	window = 64<<10 - 1
	// connectionWindow lets every stream of a connection fill its own.
	connectionWindow = maxStreams * (window + 1)
	// frameSize is HTTP/2's smallest limit of a frame; each connection keeps a buffer of that size.
	frameSize = 16 << 10
	// maxHeaders limits the headers of a request. Most HTTP servers accept that much; a bearer
	// token takes one to four KiB.
	maxHeaders = 8<<10 + 320 // with what HTTP/2 adds of its own
	// headerRoom is how much is read, so that a request with more has an answer, and is counted: beyond
	// it net/http answers, or closes the connection with all requests on it.
	headerRoom = 64 << 10

	// callTimeout limits a request from its headers to its response. It is the timeout of most
	// exporters.
	callTimeout = 10 * time.Second
	// slotTimeout limits the wait for a slot and for memory. It is shorter than callTimeout so that
	// the client still waits for the refusal.
	slotTimeout = callTimeout / 2
	// holdTimeout limits how long a request is held while the queue is full. A queue in use has
	// room again within the latency of its destination; for an outage the client's own queue is the
	// better place.
	holdTimeout = time.Second
	// handshakeTimeout limits TLS handshake and connection preface.
	handshakeTimeout = 10 * time.Second
	// beginTimeout is how long it takes at most until the call of a request begins that its client has ended.
	beginTimeout = time.Second
	// idleTimeout closes connections without requests. Exporters send at least once a minute.
	idleTimeout = 10 * time.Minute
	// lingerTimeout is how long Shutdown leaves connections open after the last response, which
	// net/http may still have to write.
	lingerTimeout = 100 * time.Millisecond
)
