// Package receiver takes traces, metrics and profiles in by OTLP over gRPC and passes them on, as the
// OpenTelemetry protocol 1.11.0 asks of a server.
//
//	Receiver  listens on a Unix socket, on loopback, or with TLS anywhere
//	Queue     where requests go: an answer of success means that it has taken them
//
// What is wrong in a request is for package verify to say. For every signal, at any time,
//
//	received = passed on + rejected + refused        (in items)
//
// The package does not log.
//
// # Memory
//
// Whoever may connect cannot make it hold more than this, for requests of at most L bytes:
//
//	8 MiB     what came of 128 open requests before it is their turn: a window of 64 KiB each
//	4 MiB     64 requests in work, of up to a window each
//	2 L       larger requests in work: none is read before there is room for all of it
//	2.5 L     the one that is being checked: inflated, and a copy of what is sound in it
//	3 MiB     128 connections, 23 KiB each: buffers, stacks, compression of headers
//
// With the default, 4 MiB, that is 33 MiB; a busy host sees a tenth of it. Nothing of it is kept: it is garbage
// once the request is answered or the connection gone.
package receiver
