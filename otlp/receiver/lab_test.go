package receiver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collecttraces "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/otlp"
)

// store is a queue that keeps what it accepts.
type store struct {
	mu      sync.Mutex
	batches []*otlp.Batch
	err     error         // returned instead of accepting a batch
	refuse  func() error  // if not nil: returns err, each time
	entered chan struct{} // if not nil: receives a value for each batch
	open    chan struct{} // if not nil: batches wait until it is closed
}

func (s *store) EnqueueReceived(_ context.Context, b *otlp.Batch) error {
	if s.entered != nil {
		s.entered <- struct{}{}
	}
	if s.open != nil {
		<-s.open
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.err
	if s.refuse != nil {
		err = s.refuse()
	}
	if err == nil {
		s.batches = append(s.batches, b)
	}
	return err
}

// taken returns the batches since the last call.
func (s *store) taken() []*otlp.Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.batches
	s.batches = nil
	return all
}

// only returns the only batch since the last call.
func (s *store) only(t testing.TB) *otlp.Batch {
	t.Helper()
	all := s.taken()
	assert.Assert(t, len(all) == 1, "%d batches were passed on, want 1", len(all))
	return all[0]
}

// lab is a receiver on a Unix socket, and a client of it.
type lab struct {
	testing.TB
	*Receiver
	*store
	conn *grpc.ClientConn
}

func openLab(t testing.TB, c Config) *lab {
	t.Helper()
	s := &store{}
	return openLabWith(t, c, s, s)
}

func openLabWith(t testing.TB, c Config, queue Queue, s *store) *lab {
	t.Helper()
	c.Listen = "unix:" + filepath.Join(t.TempDir(), "otlp.sock")
	r, err := Open(c, queue)
	assert.NilError(t, err)
	t.Cleanup(func() { r.Shutdown(testenv.Ended()) })
	return &lab{TB: t, Receiver: r, store: s, conn: dial(t, c.Listen)}
}

// dial connects with a codec that sends bytes as they are.
func dial(t testing.TB, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})),
	}, options...)
	conn, err := grpc.NewClient(target, options...)
	assert.NilError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// bytesCodec sends and receives bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// patience is the time limit for what must happen, on a machine that may be busy.
const patience = time.Minute

// export sends one request.
func export(conn *grpc.ClientConn, signal otlp.Signal, body []byte, options ...grpc.CallOption) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var answer []byte
	err := conn.Invoke(ctx, signal.Method(), body, &answer, options...)
	return answer, err
}

// send sends one request that must be accepted, and returns the partial success.
func (l *lab) send(signal otlp.Signal, body []byte, options ...grpc.CallOption) (rejected int64, message string) {
	l.Helper()
	answer, err := export(l.conn, signal, body, options...)
	if err != nil {
		l.Fatalf("%v: %v", signal, err)
	}
	rejected, message, err = readAnswer(answer)
	if err != nil {
		l.Fatalf("%v: answer %x: %v", signal, answer, err)
	}
	return rejected, message
}

// readAnswer reads an Export response, which must be empty, or a partial success with a message.
func readAnswer(answer []byte) (rejected int64, message string, err error) {
	if len(answer) == 0 {
		return 0, "", nil
	}
	var r collecttraces.ExportTraceServiceResponse // the same for all signals, except for names
	if err := proto.Unmarshal(answer, &r); err != nil {
		return 0, "", err
	}
	p := r.GetPartialSuccess()
	if p.GetErrorMessage() == "" || len(r.ProtoReflect().GetUnknown())+len(p.ProtoReflect().GetUnknown()) > 0 {
		return 0, "", errors.New("not a partial success with a message")
	}
	return p.RejectedSpans, p.ErrorMessage, nil
}

// refusal sends one request that must be refused.
func (l *lab) refusal(signal otlp.Signal, body []byte, options ...grpc.CallOption) *status.Status {
	l.Helper()
	_, err := export(l.conn, signal, body, options...)
	if err == nil {
		l.Fatalf("%v: taken", signal)
	}
	return status.Convert(err)
}

// wantStatus compares the code, and whether there is a RetryInfo.
func wantStatus(t testing.TB, s *status.Status, code codes.Code, retry bool) {
	t.Helper()
	assert.Check(t, s.Code() == code, "answered with %v, want %v", s, code)
	delay := retryAfter(s)
	assert.Check(t, retry == (delay >= minRetryDelay), "%v comes with RetryInfo of %v", s, delay)
}

// wantError is wantStatus for an error.
func wantError(t testing.TB, err error, code codes.Code, retry bool) *status.Status {
	t.Helper()
	s := status.Convert(err)
	wantStatus(t, s, code, retry)
	return s
}

// retryAfter returns the delay of a RetryInfo.
func retryAfter(s *status.Status) time.Duration {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration()
		}
	}
	return 0
}

// violation returns the field of a BadRequest.
func violation(s *status.Status) string {
	for _, d := range s.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok && len(bad.FieldViolations) == 1 {
			return bad.FieldViolations[0].Field
		}
	}
	return ""
}

// counts lists the metrics of a signal that are not 0.
func counts(t testing.TB, r *Receiver, signal otlp.Signal) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r)
	families, err := registry.Gather()
	assert.NilError(t, err)
	var all []string
	for _, f := range families {
		for _, m := range f.Metric {
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			var labels []string // except the signal
			labeled := ""
			for _, l := range m.Label {
				if l.GetName() == "signal" {
					labeled = l.GetValue()
				} else {
					labels = append(labels, l.GetValue())
				}
			}
			if labeled == signal.String() && value != 0 {
				name := strings.TrimSuffix(strings.TrimPrefix(f.GetName(), "correlator_otlp_received_"), "_total")
				all = append(all, fmt.Sprintf("%s=%v", strings.Join(append([]string{name}, labels...), " "), value))
			}
		}
	}
	return strings.Join(all, ", ")
}

func (l *lab) wantCounts(signal otlp.Signal, want string) {
	l.Helper()
	if got := counts(l, l.Receiver, signal); got != want {
		l.Errorf("counters of %v:\n got %s\nwant %s", signal, got, want)
	}
}

// bubble is a receiver without a network, for tests in a bubble of synctest.
type bubble struct {
	testing.TB
	*Receiver
	*store
	listener *bufconn.Listener
}

// bubbleBuffer is how many bytes fit into a connection of a bubble, in each direction.
const bubbleBuffer = 32 << 10

func openBubble(t testing.TB) *bubble {
	t.Helper()
	s := &store{}
	b := openBubbleWith(t, s)
	b.store = s
	return b
}

func openBubbleWith(t testing.TB, queue Queue) *bubble {
	t.Helper()
	oneP(t)
	b := &bubble{TB: t, listener: bufconn.Listen(bubbleBuffer)}
	b.Receiver = serve(&Config{}, b.listener, queue)
	t.Cleanup(func() { b.Shutdown(testenv.Ended()) })
	return b
}

// oneP has one goroutine run at a time until the test ends. Package bufconn sets timers that are due at once, and
// in a bubble those run where they are set: if two do at the same time, the race detector of Go 1.26 crashes in
// __tsan::SlotLock (both use the race context of the bubble's timers).
func oneP(t testing.TB) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// dial opens another connection.
func (b *bubble) dial(options ...grpc.DialOption) *grpc.ClientConn {
	b.Helper()
	return dial(b, "passthrough:bubble", append(options, grpc.WithContextDialer(func(ctx context.Context,
		_ string) (net.Conn, error) {
		return b.listener.DialContext(ctx)
	}))...)
}

// inWork returns how many calls have a slot.
func (r *Receiver) inWork() int {
	n, _ := r.slots.counts()
	return n
}

// opened returns how many calls have a slot or wait for one.
func (r *Receiver) opened() int {
	holding, waiting := r.slots.counts()
	return holding + waiting
}

// memoryFree reports whether so many bytes of the memory for large requests are free.
func (r *Receiver) memoryFree(size int64) bool {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	return r.memory.free >= size
}

// quiet has memory measured: where nothing else is measured at the same time, such as other tests.
var quiet bool

// measure returns a function that fails a test if more than so many bytes were taken meanwhile.
func measure(t testing.TB) (bound func(most int64)) {
	if !quiet {
		return func(int64) {}
	}
	before := heap()
	return func(most int64) {
		t.Helper()
		n := heap() - before
		t.Logf("%d kB are taken of %d", n>>10, most>>10)
		assert.Check(t, n <= most, "too much")
	}
}

// heap returns the size of live objects.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools released
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
