// Package otlp sends telemetry to one or more OTLP receivers, by gRPC or by HTTP with protobuf, as
// the OpenTelemetry protocol 1.11.0 specifies for clients, and keeps what cannot be sent yet.
//
//	Batch        one Export request: encoded once, compressed once, shared by all destinations
//	Exporter     queues and sends batches: Enqueue for our own data, EnqueueReceived for received data
//	Destination  the configuration of one receiver: endpoint, credentials, limits
//
// Each destination has a queue with a quota of bytes, a circuit and senders of its own;
// destinations share nothing but the batches. The circuit decides when a request may start: waiting
// is a property of the destination, not of a request, so all requests wait when a receiver asks for
// time.
//
// All decisions are made by a state machine without goroutines, clock or network (scheduler,
// destinationState, circuit); senders and a transport (grpc.go, http.go) carry them out. For every
// destination and signal, at any time,
//
//	accepted = sent + dropped + queued + in flight        (in items)
//
// The package does not log: what an operator should know is an Event.
package otlp
