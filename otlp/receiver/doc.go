// Package receiver takes traces, metrics and profiles in by OTLP over gRPC and passes them on, as the
// OpenTelemetry protocol 1.11.0 asks of a server.
//
//	Receiver  listens on a Unix socket, on loopback, or with TLS anywhere
//	Queue     where requests go: an answer of success means that it has taken them
//
// Requests are never turned into messages: they are checked as the bytes that they are, by tables of the
// schema, and what is sound in them is passed on as those bytes. So a request costs what its bytes cost,
// and not, like a list of empty messages, fifty times as much; and fields that are newer than this program
// get through. What is checked, in this order:
//
//	the protobuf encoding, UTF-8 included    the request is refused: INVALID_ARGUMENT
//	the envelopes: resource and scope        all their items are rejected
//	each item: span, data point, profile     it is rejected, the others are taken: partial success
//	attribute lists                          what must be ignored is taken out
//
// An item is a span, a data point or a profile sample; a metric or a profile without any counts as one.
// For every signal, at any time,
//
//	received = passed on + rejected + refused        (in items)
//
// The package does not log.
package receiver
