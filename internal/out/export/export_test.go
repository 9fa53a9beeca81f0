package export

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // every receiver takes it
	"google.golang.org/protobuf/types/known/emptypb"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/backend"
	"correlator/internal/out"
	"correlator/otlp"
	"correlator/otlp/receiver"
	"correlator/profile"
)

// deadline is how long anything may take that is to happen at once.
const deadline = 30 * time.Second

// opened is an Export with one destination, which may be changed, at a Unix socket.
func opened(t *testing.T, socket string, change func(*Config)) *Export {
	t.Helper()
	config := DefaultConfig()
	config.Destinations = []otlp.Destination{otlp.NewDestination("unix:" + socket)}
	config.ShutdownTimeout = deadline
	if change != nil {
		change(&config)
	}
	e, err := Open(config, out.About{Version: "test", HostID: "host", SamplesPerSecond: 20}, nil, zap.NewNop())
	assert.NilError(t, err)
	t.Cleanup(e.Close)
	return e
}

// gathered returns the values of counters by name, without the prefix, and labels.
func gathered(t *testing.T, e *Export) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(e)
	families, err := registry.Gather()
	assert.NilError(t, err)
	found := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			key := strings.TrimPrefix(f.GetName(), "correlator_otlp_")
			for _, label := range m.Label {
				key += " " + label.GetValue()
			}
			found[key] = m.GetCounter().GetValue()
		}
	}
	return found
}

func sampleOf(frames ...profile.Frame) *profile.Sample {
	s := &profile.Sample{
		Resource: &profile.Resource{Service: profile.Service{Name: "shop"}, PID: 1}, Count: 3, Start: time.Now(),
		Stack: &profile.Stack{ID: profile.TraceID(frames), Frames: frames},
	}
	s.End = s.Start.Add(time.Second)
	return s
}

// Every sample that is added is in a request, or lost for a reason.
func TestSamplesCounted(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "otlp")
	b, err := backend.Open("unix", socket)
	assert.NilError(t, err)
	defer b.Close()
	e := opened(t, socket, func(c *Config) { c.Destinations[0].MaxRequestBytes = 4 << 10 })
	e.Start(prometheus.NewRegistry())

	e.Sampled(sampleOf(profile.Frame{Address: 1}))
	e.Sampled(sampleOf())
	e.Sampled(sampleOf(profile.Frame{Address: 2}, profile.Frame{Address: 0}))
	old := sampleOf(profile.Frame{Address: 3})
	old.Start = time.Unix(-1, 0)
	e.Sampled(old)
	large := sampleOf(profile.Frame{Address: 4})
	large.Thread = strings.Repeat("t", 5<<10)
	e.Sampled(large)
	e.Sampled(sampleOf(profile.Frame{Address: 5}))
	e.Shutdown(t.Context())
	e.Sampled(sampleOf(profile.Frame{Address: 6}))

	assert.Check(t, b.Err())
	var got uint64
	for _, n := range b.Profiles().Samples {
		got += n
	}
	counted := gathered(t, e)
	for name, want := range map[string]float64{
		"profile_samples_total": 6, "profile_samples_lost_total no_stack": 3, "profile_samples_lost_total invalid": 6,
		"profile_samples_lost_total too_large": 3, "profile_samples_lost_total shutdown": 3,
	} {
		assert.Check(t, counted[name] == want, "%s is %v, want %v", name, counted[name], want)
	}
	if s := e.Status(); got != 6 || s.Samples != 6 || s.Lost != 15 {
		t.Errorf("%d samples arrived, %d are told, %d lost", got, s.Samples, s.Lost)
	}
}

// Waits are in requests of their own, which end as the others do, and are counted apart from samples.
func TestWaitsExported(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "otlp")
	b, err := backend.Open("unix", socket)
	assert.NilError(t, err)
	defer b.Close()
	e := opened(t, socket, nil)
	assert.Check(t, e.TakesAccounts())
	e.Start(prometheus.NewRegistry())
	wait := sampleOf(profile.Frame{Address: 1})
	wait.TraceID, wait.TransactionID = [16]byte{1}, [8]byte{2}
	wait.Wait = &profile.Wait{State: profile.Futex, Sum: time.Second, Waker: profile.Waker{Kind: profile.ThreadWaker,
		Thread: "java-7", TraceID: [16]byte{3}, TransactionID: [8]byte{4}}}
	e.Waited(wait)
	none := sampleOf()
	none.Wait = wait.Wait
	e.Waited(none)
	e.Sampled(sampleOf(profile.Frame{Address: 1}))
	e.Shutdown(t.Context())
	assert.Check(t, b.Err())
	got := b.Profiles()
	assert.Check(t, len(got.Samples) == 1 && len(got.Waits) == 1 && len(got.Intervals) == 2 && !got.Mixed, "%+v", got)
	for of, ns := range got.Waits {
		assert.Check(t, ns == 1e9 && of.Kind == "lock" && of.WakerThread == "java-7" &&
			of.SpanID == "0200000000000000" &&
			of.WakerTraceID == "03"+strings.Repeat("0", 30) && of.WakerTransactionID == "04"+strings.Repeat("0", 14),
			"%+v", of)
	}
	counted := gathered(t, e)
	assert.Check(t, counted["profile_waits_total"] == 3 && counted["profile_waits_lost_total no_stack"] == 3 &&
		counted["profile_samples_total"] == 3 && counted["profile_samples_lost_total no_stack"] == 0, counted)
}

// There is room for all queues, and for what is received.
func TestMemoryBytes(t *testing.T) {
	for _, c := range []struct {
		queue  int64
		quotas []int64 // of destinations
		listen string
		want   int64
	}{
		{0, []int64{0}, "", 8 << 20},
		{64 << 20, []int64{0}, "", 64 << 20},
		{0, []int64{0, 0}, "", 8 << 20},
		{64 << 20, []int64{1 << 20, 2 << 20}, "", 3 << 20},
		{0, []int64{0, 1 << 20, 0}, "", 9 << 20},
		{0, []int64{0}, "unix:/x", 41 << 20},
	} {
		config := Config{QueueBytes: c.queue, Receiver: receiver.Config{Listen: c.listen}}
		for _, quota := range c.quotas {
			config.Destinations = append(config.Destinations, otlp.Destination{QueueBytes: quota})
		}
		got := config.MemoryBytes()
		assert.Check(t, got == c.want, "%+v: %d bytes", c, got)
	}
}

// Each destination, and each receiver, is a reason to export.
func TestEnabled(t *testing.T) {
	for i, change := range []func(*Config){
		func(c *Config) { c.Destinations = make([]otlp.Destination, 1) },
		func(c *Config) { c.Receiver.Listen = "unix:/x" }, func(c *Config) { c.OpenCensus.Receiver.Socket = "/x" },
	} {
		c := DefaultConfig()
		assert.Check(t, !c.Enabled())
		change(&c)
		assert.Check(t, c.Enabled(), "%d", i)
	}
}

// every calls at each interval, and once more at the end.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e Export
		ctx, stop := context.WithCancel(t.Context())
		began, n := time.Now(), 0
		e.every(ctx, 5*time.Second, func() {
			if n++; n < 4 && time.Since(began) != time.Duration(n)*5*time.Second {
				t.Errorf("number %d after %v", n, time.Since(began))
			}
		})
		time.Sleep(17 * time.Second)
		stop()
		e.running.Wait()
		if n != 4 || time.Since(began) != 17*time.Second {
			t.Errorf("%d times in %v", n, time.Since(began))
		}
	})
}

// Each kind of event has a line in the log, and each warning the name of a metric that counts on.
func TestEvents(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	e := opened(t, filepath.Join(t.TempDir(), "otlp"), nil)
	e.log = zap.New(core)
	counters := gathered(t, e)
	var kinds []otlp.EventKind
	for kind := otlp.EventKind(0); kind.String() != "unknown"; kind++ {
		kinds = append(kinds, kind)
		e.observe(otlp.Event{Kind: kind, Destination: "d", Signal: otlp.Profiles, Code: "UNAVAILABLE", Message: "m\x1b",
			Hint: "h",
			Wait: time.Second, Items: 1, Batches: 2})
	}
	assert.Check(t, len(kinds) == len(messages), "%d kinds of events, %d messages", len(kinds), len(messages))
	for i, entry := range logs.All() {
		fields := entry.ContextMap()
		reason, _ := fields["reason"].(string)
		calms := kinds[i] == otlp.EventRecovered || kinds[i] == otlp.EventSupported
		counted := false
		for name := range counters {
			name, _, _ = strings.Cut(name, " ")
			counted = counted || "otlp_"+name == reason
		}
		if entry.Message == "" || entry.Level == zapcore.WarnLevel == calms || counted == calms ||
			fields["destination"] != "d" {
			t.Errorf("%v: %q, level %v, %v", kinds[i], entry.Message, entry.Level, fields)
		}
	}
	e.observe(otlp.Event{Kind: otlp.EventRecovered, Destination: "d"})
	last := logs.All()[len(kinds)].ContextMap()
	assert.Check(t, len(last) == 1, "what is not known is told: %v", last)
}

// A panic of the receiver is an error in the log, with the stack and the name of the metric that
// counts on.
func TestPanicIsLogged(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	e := &Export{log: zap.New(core)}
	e.observePanic("a defect", []byte("goroutine 1"))
	n := logs.Len()
	assert.Assert(t, n == 1, "%d lines", n)
	entry := logs.All()[0]
	fields := entry.ContextMap()
	assert.Check(t, entry.Level == zapcore.ErrorLevel && fields["panic"] == "a defect" &&
		fields["stack"] == "goroutine 1" && fields["reason"] == "otlp_received_refused_items_total",
		"%v %q: %v", entry.Level, entry.Message, fields)
}

// A slow sender does not use up the time that destinations have at the end.
func TestShutdownWithSlowSender(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "destination"))
	assert.NilError(t, err)
	cut := make(chan struct{}) // the slow sender was
	arrived := make(chan struct{}, 1)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		arrived <- struct{}{}
		<-cut
		if err := stream.RecvMsg(new(emptypb.Empty)); err != nil {
			return err
		}
		return stream.SendMsg(new(emptypb.Empty))
	}))
	go server.Serve(listener)
	defer server.Stop()

	e := opened(t, listener.Addr().String(), func(c *Config) {
		c.ShutdownTimeout = 4 * time.Second
		c.Receiver = receiver.Config{Listen: "unix:" + filepath.Join(dir, "listen")}
	})
	e.Start(prometheus.NewRegistry())
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "listen"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	assert.NilError(t, err)
	defer conn.Close()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, otlp.Traces.Method())
	assert.NilError(t, err)
	go func() {
		stream.RecvMsg(new(emptypb.Empty))
		close(cut)
	}()
	e.exporter.Enqueue(otlp.NewBatch(otlp.Metrics, []byte{0x0a, 0}, 1, time.Now()))
	<-arrived
	e.Shutdown(t.Context())
	s := e.Status().Destinations[0]
	assert.Check(t, s.Sent == 1 && s.Dropped.Sum() == 0, "%+v", s)
}
