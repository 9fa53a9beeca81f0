// Package backend is a small OTLP server for tests and the demo. It does what a backend has to do
// to get from the ids on a transaction to frames: it decodes requests with the official messages
// and computes stack-trace-ids by their definition. It shares no code with the packages that encode
// requests.
package backend

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"path"
	"strings"
	"sync"

	collectormetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectorprofiles "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	collectortrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // every receiver takes it
	"google.golang.org/grpc/status"

	"correlator/otlp"
)

// Backend keeps what it receives. It is safe for concurrent use.
type Backend struct {
	server   *grpc.Server
	listener net.Listener
	served   sync.WaitGroup

	mu       sync.Mutex
	profiles Profiles
	metrics  map[string]Metric
	spans    map[Span]int
	refused  error // of the last request that was refused
}

// Open listens on a network address and serves until Close.
func Open(network, address string) (*Backend, error) {
	b := &Backend{profiles: newProfiles(), metrics: make(map[string]Metric), spans: make(map[Span]int)}
	err := b.serve(network, address, b.profiles.add,
		func(r *collectormetrics.ExportMetricsServiceRequest) error { return addMetrics(b.metrics, r) },
		func(r *collectortrace.ExportTraceServiceRequest) error { addSpans(b.spans, r); return nil })
	return b, err
}

// serve begins to serve, with functions that are called one at a time.
func (b *Backend) serve(network, address string, profiles func(*collectorprofiles.ExportProfilesServiceRequest) error,
	metrics func(*collectormetrics.ExportMetricsServiceRequest) error,
	traces func(*collectortrace.ExportTraceServiceRequest) error) (err error) {
	b.listener, err = net.Listen(network, address)
	if err != nil {
		return fmt.Errorf("listening for OTLP: %w", err)
	}
	b.server = grpc.NewServer()
	register(b, otlp.Profiles, &collectorprofiles.ExportProfilesServiceResponse{}, profiles)
	register(b, otlp.Metrics, &collectormetrics.ExportMetricsServiceResponse{}, metrics)
	register(b, otlp.Traces, &collectortrace.ExportTraceServiceResponse{}, traces)
	b.served.Go(func() { _ = b.server.Serve(b.listener) }) // until Close
	return nil
}

// Close ends the server. What it has received stays readable.
func (b *Backend) Close() {
	b.server.Stop()
	b.served.Wait()
}

// register registers the service of a signal, whose requests are passed to add. All of them get the
// same response.
func register[Request any](b *Backend, signal otlp.Signal, response any, add func(*Request) error) {
	name, method := path.Split(signal.Method())
	handle := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := new(Request)
		if err := decode(request); err != nil {
			return nil, err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if err := add(request); err != nil {
			b.refused = err
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		return response, nil
	}
	b.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: strings.Trim(name, "/"),
		Methods:     []grpc.MethodDesc{{MethodName: method, Handler: handle}},
	}, nil)
}

// Err returns the error of the last request that was refused, or nil.
func (b *Backend) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

// id returns an id in hexadecimal digits, or nothing if it is all zero.
func id(bytes []byte) string {
	if len(strings.Trim(string(bytes), "\x00")) == 0 {
		return ""
	}
	return hex.EncodeToString(bytes)
}
