// Package receiver accepts traces, metrics and profiles by OTLP and queues them for the exporter. It
// implements the server side of the OpenTelemetry protocol 1.11.0: gRPC, and HTTP with protobuf, at
// the same address, told apart by content type.
//
//	Receiver  listens on a Unix socket, on loopback, or with TLS on any address
//	Queue     where requests go; a request is acknowledged once the queue has accepted it
//
// Package validate checks the requests. For every signal, at any time,
//
//	received = passed on + rejected + refused        (in items)
//
// The package does not log.
//
// # Transport
//
// The server is that of net/http, with the framing and the trailers of gRPC in grpc.go. grpc-go's
// own server is not used: it buffers a message, and what it inflates to, before the handler knows
// how large the message is, and it keeps each DATA frame in a buffer of its own, so that a message
// sent in frames of one byte takes twelve times its size. net/http hands out the body as it
// arrives, in a buffer of fixed size, which makes the limits below possible. A request by HTTP whose
// length is unknown, as when a client compresses while it sends, counts as one of the largest once
// it is larger than a window.
//
// # Sharing
//
// Whoever may connect may also try to keep others out. So connections (package connlimit), slots
// and memory for large requests (pool) go to the peer that has the least of them: the user of a
// Unix socket, the address of a port. When there are not enough, the peer that has the most loses
// the idlest connection, or the request that has waited for its sender for the longest time.
//
// # Memory
//
// For requests of at most L bytes, all clients together cannot make the receiver hold more than
//
//	8 MiB     128 open requests that wait for their turn: a flow-control window of 64 KiB each
//	4 MiB     64 requests in work that fit into a window
//	2 L       larger requests in work: none is read before there is room for all of it
//	2.5 L     the one request being checked: inflated, and a copy of its valid parts
//	3 MiB     128 connections, 23 KiB each: buffers, stacks, header compression
//
// With the default L, 4 MiB, that is 33 MiB; a busy host sees a tenth of it. Nothing is kept beyond
// the end of a request or connection.
package receiver
