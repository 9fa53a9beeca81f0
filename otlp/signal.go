package otlp

// Signal is a kind of telemetry. Each has its own service, and a receiver may lack one.
type Signal uint8

const (
	Traces Signal = iota
	Metrics
	Profiles
	NumSignals
)

// signals has the name of each signal, and the method that takes it.
var signals = [NumSignals]struct{ name, method string }{
	Traces:   {"traces", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"},
	Metrics:  {"metrics", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"},
	Profiles: {"profiles", "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"},
}

// String returns the signal's name in configuration, metrics and logs.
func (s Signal) String() string {
	if s < NumSignals {
		return signals[s].name
	}
	return "unknown"
}

// Method returns the full gRPC method that takes the signal.
func (s Signal) Method() string { return signals[s].method }
