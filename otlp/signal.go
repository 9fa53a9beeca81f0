package otlp

// Requests with profiles have metadata (gRPC) or a header (HTTP) with the development version of their schema, which
// goes up with each change that a receiver of another version could misunderstand. Without it, the version is 1:
// opentelemetry-proto, pull request 857.
const (
	ProfilesVersionKey = "otlp-profiles-development-version"
	ProfilesVersion    = "1" // of what is sent here, and passed on
)

// Signal is a kind of telemetry. Each has its own service, and a receiver may lack one.
type Signal uint8

const (
	Traces Signal = iota
	Metrics
	Profiles
	NumSignals
)

// signals has the name of each signal, the method that takes it, and the path of that by HTTP.
var signals = [NumSignals]struct{ name, method, path string }{
	Traces:  {"traces", "/opentelemetry.proto.collector.trace.v1.TraceService/Export", "/v1/traces"},
	Metrics: {"metrics", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "/v1/metrics"},
	Profiles: {
		"profiles", "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
		"/v1development/profiles",
	},
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

// Path returns the default path to which HTTP requests with the signal are sent.
func (s Signal) Path() string { return signals[s].path }
