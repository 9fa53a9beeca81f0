// Package otlp sends telemetry to one or more OTLP receivers over gRPC, as the OpenTelemetry
// protocol 1.11.0 asks of a client, and keeps what cannot be sent yet.
//
//	Batch        one Export request: encoded once, compressed once, shared by all destinations
//	Exporter     takes batches and sends them: Offer for our own data, EnqueueReceived for received data
//	Destination  the configuration of one receiver: endpoint, credentials, limits
//
// Each destination has a queue, a gate and senders of its own; destinations share nothing but the
// batches and the budget of bytes. The gate says when a request may start: waiting is a property of
// the destination, not of a request, so a receiver that asks for time gets it from all requests.
//
// What decides is one state machine without goroutines, clock or network (core, pipeline, gate);
// senders and transport around it only carry things out. For every destination and signal, at any time,
//
//	accepted = sent + dropped + queued + in flight        (in items)
//
// The package does not log: what an operator should hear of is an Event.
package otlp
