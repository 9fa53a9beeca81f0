// Package receiver accepts what PHP's OpenCensus clients send to their daemon on a Unix socket, and
// passes it on as OTLP: spans as they come, and measures as metrics of the views that clients
// register.
//
//	listener   accepts connections, and does nothing else: a client that finds the backlog full does
//	           not wait
//	stream     one connection that has sent something: reads, cuts the stream into messages, knows
//	           who sends
//	fairQueue  messages between the streams and the workers, one for measures and views, one for spans
//	requests   encoded spans of all trace workers, until they are enough to be sent
//	Queue      where requests go
//
// Package wire decodes, package spans encodes spans, package stats keeps measures and views. This
// package does not log: what an operator may want to read in a log is an Event.
//
// # Connections
//
// A client never reads, so nothing is written. There is no idle timeout: a PHP worker can be idle
// for hours. Bad data costs the message that it is in, and the connection goes on, for a client of
// the PHP extension never connects again; only a stream in which no message is found is closed.
//
// The socket's buffer is all that the userland client has: it does not wait, and what does not fit
// is lost. So nobody who reads ever waits for something else than the CPU. Where there is no room,
// messages are dropped and counted. For each type of message, when nothing is waiting,
//
//	received = processed + dropped
//
// and sequence numbers show what clients could not even send.
//
// # Order
//
// All that concerns measures and views is processed by one goroutine, for each user in the order of
// arrival, since a view may have to be registered before a record counts. Spans are independent of
// each other: a goroutine for each CPU encodes them. Users whose messages wait have their turn one
// after the other, with a batch of messages each, so none waits for all that another has sent.
//
// While the Queue has no room for spans, trace workers wait and their fairQueue fills up, and reading
// and statistics go on.
//
// # Processes
//
// What a message says of its process is a number, which is that of the process's own pid namespace,
// and anything that the process likes. The kernel tells which process has connected: its pid here,
// its container and program are read of /proc, and belong to that process for certain
// (procscan.Peer). The memory of the process is not read.
//
// # Memory
//
// Messages that are not complete, or wait, take at most Config.BufferBytes, in which everything is
// counted that they hold: unused parts of batches, and what is known of their senders. A user gets as much of
// that as is left free then, so one user cannot keep others out, and connections are shared in the
// same manner (package connlimit). A connection that is silent has no buffer: it takes 4 KB of
// memory, most of it the stack of a goroutine; one that has sent, a few KB more.
package receiver
