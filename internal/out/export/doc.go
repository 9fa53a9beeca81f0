// Package export is what leaves the host by OTLP, and what comes in.
//
//	samples of the agent ──▶ otlp/profiles ──┐
//	counters, as gathered ──▶ otlp/metrics ──┼──▶ otlp.Exporter ──▶ destinations
//	what others send ──▶ otlp/receiver ──────┘
//
// Nothing in it waits for a destination but the end. What is made into requests, and what could not
// be, is counted; what becomes of requests is counted by the exporter, and told to the log by
// events.
package export
