package throughput

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	profilesservice "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	traceservice "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// receiverConfig is how a receiver answers, after it has decoded the request.
type receiverConfig struct {
	Wait     time.Duration // before each answer
	Hang     bool          // instead of all answers
	Throttle time.Duration // from the first request on, all are answered with a RetryInfo
	Retry    time.Duration // of that
}

type receiverResult struct {
	Throttled, Taken int // requests
	// P50 and P99 are from the stamp of a batch, which says when it was offered, until it was
	// decoded.
	P50, P99 time.Duration
	CPU      time.Duration // of the process, for each that was taken
}

// backend is a gRPC server as anybody would write it.
type backend struct {
	receiverConfig

	mu        sync.Mutex
	first     time.Time
	throttled int
	delays    []time.Duration
}

// receive serves until the standard input ends. It prints its address first, and a receiverResult
// at the end.
func receive(c receiverConfig) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// Decoding makes a lot of garbage. Collected less often, more of the machine is left for the
	// client.
	debug.SetGCPercent(400)
	r := &backend{receiverConfig: c}
	server := grpc.NewServer()
	server.RegisterService(r.service("opentelemetry.proto.collector.trace.v1.TraceService",
		func() (request, response proto.Message) {
			return &traceservice.ExportTraceServiceRequest{}, &traceservice.ExportTraceServiceResponse{}
		}), nil)
	server.RegisterService(r.service("opentelemetry.proto.collector.profiles.v1development.ProfilesService",
		func() (request, response proto.Message) {
			return &profilesservice.ExportProfilesServiceRequest{}, &profilesservice.ExportProfilesServiceResponse{}
		}), nil)
	go server.Serve(listener)
	fmt.Println("http://" + listener.Addr().String())
	io.Copy(io.Discard, os.Stdin)
	server.Stop()
	result, err := r.result()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// service describes one of the services, which have one method each.
func (r *backend) service(name string, messages func() (request, response proto.Message)) *grpc.ServiceDesc {
	export := func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request, response := messages()
		if err := decode(request); err != nil {
			return nil, err
		}
		return response, r.take(ctx, request)
	}
	return &grpc.ServiceDesc{
		ServiceName: name, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Export",
			Handler: export}},
	}
}

func (r *backend) take(ctx context.Context, request proto.Message) error {
	throttled := r.note(request, time.Now())
	if r.Hang {
		<-ctx.Done()
		return ctx.Err()
	}
	pause(r.Wait)
	if !throttled {
		return nil
	}
	retry := &errdetails.RetryInfo{RetryDelay: durationpb.New(r.Retry)}
	s, err := status.New(codes.Unavailable, "overloaded").WithDetails(retry)
	if err != nil {
		return err
	}
	return s.Err()
}

// pause waits exactly: what sleeps in an idle Go program sleeps a millisecond at least.
func pause(d time.Duration) {
	if d >= 2*time.Millisecond {
		time.Sleep(d)
		return
	}
	for begin := time.Now(); time.Since(begin) < d; {
		runtime.Gosched()
	}
}

func (r *backend) note(request proto.Message, now time.Time) (throttled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first.IsZero() {
		r.first = now
	}
	if now.Sub(r.first) < r.Throttle {
		r.throttled++
		return true
	}
	if traces, ok := request.(*traceservice.ExportTraceServiceRequest); ok {
		stamp := traces.ResourceSpans[0].ScopeSpans[0].Spans[0].StartTimeUnixNano
		r.delays = append(r.delays, now.Sub(time.Unix(0, int64(stamp))))
	}
	return false
}

func (r *backend) result() (receiverResult, error) {
	all, err := used()
	if err != nil {
		return receiverResult{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	result := receiverResult{Throttled: r.throttled, Taken: len(r.delays)}
	if n := len(r.delays); n > 0 {
		slices.Sort(r.delays)
		result.P50, result.P99 = r.delays[n/2], r.delays[n*99/100]
		result.CPU = all.cpu / time.Duration(n)
	}
	return result, nil
}
