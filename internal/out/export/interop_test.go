//go:build interop

package export_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	collectortrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	"correlator/otlp"
	"correlator/otlp/metrics"
	"correlator/otlp/profiles"
	"correlator/otlp/receiver"
	"correlator/profile"
)

// The OpenTelemetry Collector's own receiver takes all three signals as they were sent, and what it
// makes of them is what was meant: the same ids of stacks, spans and traces, names and values.
// `make interop` builds it.
func TestInterop(t *testing.T) {
	program := os.Getenv("INTEROP")
	assert.Assert(t, program != "", "no program: `make interop` builds the collector's receiver")
	for name, c := range map[string]struct {
		protocol    otlp.Protocol
		compression otlp.Compression
		relay       bool // through our receiver
		collector   bool // before that through another collector, whose exporter speaks HTTP
	}{
		"gzip": {otlp.GRPC, otlp.Gzip, false, false}, "none": {otlp.GRPC, otlp.None, false, false},
		"through our receiver":       {otlp.GRPC, otlp.Gzip, true, false},
		"HTTP, gzip":                 {otlp.HTTPProtobuf, otlp.Gzip, false, false},
		"HTTP, none":                 {otlp.HTTPProtobuf, otlp.None, false, false},
		"HTTP, through our receiver": {otlp.HTTPProtobuf, otlp.Gzip, true, false},
		"HTTP, through the collector's exporter and our receiver": {otlp.HTTPProtobuf, otlp.Gzip, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "interop") // a short path, as sockets need
			assert.NilError(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			socket := filepath.Join(dir, "collector")
			remote := startCollector(t, program, socket)
			var exporters []*otlp.Exporter
			connect := func(to string) *otlp.Exporter {
				d := otlp.NewDestination("unix:" + to)
				d.Protocol, d.Compression = c.protocol, c.compression
				if c.protocol == otlp.HTTPProtobuf && strings.HasSuffix(to, "collector") {
					d.Endpoint += ".http"
				}
				x, err := otlp.Open(otlp.Options{Destinations: []otlp.Destination{d}, Version: "test"})
				assert.NilError(t, err)
				exporters = append(exporters, x)
				return x
			}
			x := connect(socket)
			if c.relay {
				listen, next := "unix:"+filepath.Join(dir, "relay"), filepath.Join(dir, "relay")
				if c.collector { // its exporter knows no Unix sockets
					listen, next = "127.0.0.1:0", filepath.Join(dir, "another-collector")
				}
				r, err := receiver.Open(receiver.Config{Listen: listen}, x)
				assert.NilError(t, err)
				t.Cleanup(func() { r.Shutdown(context.Background()) })
				if c.collector {
					startCollector(t, program, next, "http://"+r.Addr().String())
				}
				x = connect(next)
			}

			sent := make(map[string][][]byte)
			var want []item
			for _, batch := range []func(*testing.T) ([]*otlp.Batch, []item){traceBatches, metricBatches,
				profileBatches} {
				batches, items := batch(t)
				want = append(want, items...)
				for _, b := range batches {
					sent[b.Signal().String()] = append(sent[b.Signal().String()], b.Request())
					x.Enqueue(b)
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			for _, x := range slices.Backward(exporters) { // the runtime's first, then the relay's
				assert.Check(t, x.Shutdown(ctx))
				s := x.Status()[0]
				assert.Check(t, s.Sent == s.Accepted && s.Sent != 0 && s.Dropped.Sum() == 0 && s.LastError == nil,
					"%d of %d items sent, %v dropped, last error %v", s.Sent, s.Accepted, s.Dropped, s.LastError)
			}
			got, requests := remote.finish(t)
			compare(t, joined(got), want)
			for signal, bodies := range sent {
				compareRequests(t, signal, requests[signal], bodies)
			}
			t.Logf("%d spans, %d points and %d samples in %d requests", count(got, "traces"), count(got, "metrics"),
				count(got, "profiles"), len(requests["traces"])+len(requests["metrics"])+len(requests["profiles"]))
		})
	}
}

func count(items []item, signal string) (n int) {
	for _, i := range items {
		if i.Signal == signal {
			n++
		}
	}
	return n
}

// joined merges samples that were split between requests. Values may come in any order: there is at
// most one.
func joined(items []item) (whole []item) {
	places := make(map[string]int)
	for _, i := range items {
		identity := i
		identity.Values, identity.Timestamps = nil, nil
		at, ok := places[identity.String()]
		if !ok || i.Signal != "profiles" {
			places[identity.String()] = len(whole)
			whole = append(whole, i)
			continue
		}
		whole[at].Values = append(whole[at].Values, i.Values...)
		whole[at].Timestamps = append(whole[at].Timestamps, i.Timestamps...)
		slices.Sort(whole[at].Timestamps)
	}
	return whole
}

// compare holds what arrived against what was meant, in any order.
func compare(t *testing.T, got, want []item) {
	t.Helper()
	seen := make(map[string]int)
	for _, i := range want {
		seen[i.String()]++
	}
	for _, i := range got {
		seen[i.String()]--
	}
	shown := 0
	for _, text := range slices.Sorted(maps.Keys(seen)) {
		if n := seen[text]; n != 0 && shown < 20 {
			t.Errorf("%+d of %s", -n, text)
			shown++
		}
	}
}

var interopStart = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// traceBatches are spans as a runtime has them.
func traceBatches(t *testing.T) ([]*otlp.Batch, []item) {
	text := func(s string) *common.AnyValue {
		return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: s}}
	}
	var spans []*trace.Span
	var want []item
	for i := range 500 {
		s := &trace.Span{
			TraceId: []byte(fmt.Sprintf("trace-%010d", i/10)), SpanId: []byte(fmt.Sprintf("span%04d", i)),
			Name: fmt.Sprint("GET /", i),
			Kind: trace.Span_SPAN_KIND_SERVER, StartTimeUnixNano: uint64(interopStart.UnixNano()),
			EndTimeUnixNano: uint64(interopStart.UnixNano() + 5e6),
			Attributes:      []*common.KeyValue{{Key: "url.path", Value: text("/")}},
		}
		spans = append(spans, s)
		want = append(want, item{
			Signal: "traces", Name: s.Name, Trace: hex.EncodeToString(s.TraceId), Span: hex.EncodeToString(s.SpanId),
			Attributes: map[string]any{"url.path": "/"}, Resource: map[string]any{"service.name": "shop"},
		})
	}
	body, err := proto.Marshal(&collectortrace.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{
		Resource:   &resource.Resource{Attributes: []*common.KeyValue{{Key: "service.name", Value: text("shop")}}},
		ScopeSpans: []*trace.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "runtime"}, Spans: spans}},
	}}})
	assert.NilError(t, err)
	return []*otlp.Batch{otlp.NewBatch(otlp.Traces, body, len(spans), time.Now())}, want
}

// metricBatches are metrics of all kinds, and those of a real process.
func metricBatches(t *testing.T) ([]*otlp.Batch, []item) {
	registry := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total", Help: "Requests."},
		[]string{"code", "path"})
	requests.WithLabelValues("200", "/ä").Add(7)
	requests.WithLabelValues("500", "").Add(1.5)
	latency := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "latency_seconds", Buckets: []float64{.1, 1, 10}})
	sizes := prometheus.NewSummary(prometheus.SummaryOpts{Name: "size_bytes", Objectives: map[float64]float64{.5: .05}})
	for _, v := range []float64{.1, .5, 5, 50} {
		latency.Observe(v)
		sizes.Observe(v)
	}
	registry.MustRegister(requests, latency, sizes, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := registry.Gather()
	assert.NilError(t, err)
	now := interopStart.Add(time.Minute)
	result, err := metrics.NewEncoder(metrics.Options{Start: interopStart, Version: "test"}).Encode(families, now)
	assert.Assert(t, err == nil && result.Skipped == 0, "%v %v", result.Skipped, err)
	var want []item
	for _, f := range families {
		for _, m := range f.Metric {
			i := item{Signal: "metrics", Name: f.GetName(), Attributes: map[string]any{},
				Start: uint64(interopStart.UnixNano()), Time: uint64(now.UnixNano())}
			for _, l := range m.Label {
				if l.GetValue() != "" {
					i.Attributes[l.GetName()] = l.GetValue()
				}
			}
			switch {
			case m.Counter != nil:
				i.Type, i.Value = "Sum", m.Counter.GetValue()
			case m.Gauge != nil:
				i.Type, i.Value, i.Start = "Gauge", m.Gauge.GetValue(), 0
			case m.Histogram != nil:
				i.Type, i.Count, i.Sum = "Histogram", m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum()
				before := uint64(0)
				for _, b := range m.Histogram.Bucket {
					i.Bounds, i.Counts = append(i.Bounds, b.GetUpperBound()),
						append(i.Counts, b.GetCumulativeCount()-before)
					before = b.GetCumulativeCount()
				}
				i.Counts = append(i.Counts, i.Count-before)
			case m.Summary != nil:
				i.Type, i.Count, i.Sum = "Summary", m.Summary.GetSampleCount(), m.Summary.GetSampleSum()
			}
			switch {
			case strings.Contains(i.Name, "seconds"):
				i.Unit = "s"
			case strings.Contains(i.Name, "bytes"):
				i.Unit = "By"
			}
			want = append(want, i)
		}
	}
	var batches []*otlp.Batch
	for _, r := range result.Requests {
		batches = append(batches, otlp.NewBatch(otlp.Metrics, r.Body, r.Points, time.Now()))
	}
	return batches, want
}

// profileBatches are samples of all kinds of frames, in spans, in transactions and in no trace,
// drained every 100 ms.
func profileBatches(t *testing.T) ([]*otlp.Batch, []item) {
	var batches []*otlp.Batch
	newBuilder := func() *profiles.Builder {
		return profiles.NewBuilder(profiles.Options{SamplesPerSecond: 20, HostID: "host", Version: "test"},
			func(r profiles.Request) {
				batches = append(batches, otlp.NewProfilesBatch(r.Body, r.Samples, r.Profiles, time.Now()))
			})
	}
	builder, waits := newBuilder(), newBuilder() // which are in requests of their own
	files := []*profile.File{
		nil,
		{ID: profile.FileID{1}, Kind: profile.NativeFrame, BuildID: "0a0b", Path: "/usr/lib/libjvm.so",
			Code: []profile.CodeRange{{Start: 1, Limit: 6000, Offset: 4096}}},
		{ID: profile.FileID{2}, Kind: profile.NativeFrame, Path: "/bin/läuft\xff"},
		{ID: profile.FileID{3}, Kind: profile.NativeFrame, BuildID: "ff", Path: "[vdso]"},
		{ID: profile.FileID{4}, Kind: profile.KernelFrame, BuildID: "0123", Path: "vmlinux"},
	}
	processes := []*profile.Resource{
		{Service: profile.Service{Name: "shop", Environment: "prod"}, ContainerID: "c0ffee", PID: 42,
			ExecutableName: "java",
			ExecutablePath: "/usr/bin/java"},
		{Service: profile.Service{Name: "cart"}, PID: 43},
	}
	resources := []map[string]any{
		{
			"service.name": "shop", "deployment.environment.name": "prod", "container.id": "c0ffee", "process.pid": 42.,
			"process.executable.name": "java", "process.executable.path": "/usr/bin/java", "host.id": "host",
		},
		{"service.name": "cart", "process.pid": 43., "host.id": "host"},
	}
	var functions []*profile.Function
	for i := range 100 {
		sourceFile := []string{"", "Läden.java"}[i%2]
		functions = append(functions, profile.NewFunction(fmt.Sprintf("shop.Läden.m%d", i), sourceFile))
	}
	random := rand.New(rand.NewPCG(5, 6))
	var want []item
	for i := range 8000 { // each with an identity of its own
		s := profile.Sample{Resource: processes[i%2], Stack: new(profile.Stack), TID: 1000 + i,
			Thread: fmt.Sprint("worker-", i%8)}
		w := item{
			Signal: "profiles", Resource: resources[i%2],
			Attributes: map[string]any{"thread.id": float64(s.TID), "thread.name": s.Thread},
		}
		for range 1 + random.IntN(60) {
			f := profile.Frame{File: files[random.IntN(len(files))], Address: 1 + random.Uint64N(5000)}
			kind := "native"
			switch {
			case random.IntN(5) == 0:
				f = profile.NewJVMFrame(functions[random.IntN(len(functions))], uint32(random.IntN(50)))
				kind = "jvm"
			case f.File == nil:
				f.Address += 0x7f0000000000
			case f.File.Kind == profile.KernelFrame:
				kind = "kernel"
			}
			s.Stack.Frames, w.Kinds = append(s.Stack.Frames, f), append(w.Kinds, kind)
		}
		if i%7 == 0 {
			s.Stack.Frames, w.Kinds = append(s.Stack.Frames, profile.NewCutFrame()), append(w.Kinds, "abort-marker")
		}
		s.Stack.ID = profile.TraceID(s.Stack.Frames)
		w.Stack = hex.EncodeToString(s.Stack.ID[:])
		if i%3 > 0 {
			copy(s.TraceID[:], fmt.Sprintf("trace-%010d", i/10))
			copy(s.TransactionID[:], fmt.Sprintf("tran%04d", i/10))
			w.Trace, w.Span = hex.EncodeToString(s.TraceID[:]), hex.EncodeToString(s.TransactionID[:])
		}
		if i%3 == 2 {
			copy(s.SpanID[:], fmt.Sprintf("span%04d", i))
			w.Attributes["transaction.id"], w.Span = w.Span, hex.EncodeToString(s.SpanID[:])
		}
		for n := range 1 + i%4 {
			s.Start, s.Count = interopStart.Add(time.Duration(n)*100*time.Millisecond), uint64(1+n*10)
			s.End = s.Start.Add(100 * time.Millisecond)
			repeated := int(s.Count)
			if i%500 == 0 { // too often for a timestamp each
				s.Count, repeated = 5000, 1
				w.Values = append(w.Values, int64(s.Count))
			}
			w.Timestamps = append(w.Timestamps, slices.Repeat([]uint64{uint64(s.Start.UnixNano() + 50e6)}, repeated)...)
			assert.NilError(t, builder.Add(&s))
		}
		want = append(want, w)
		if i%4 == 0 {
			want = append(want, addWait(t, waits, s, w))
		}
	}
	builder.Flush()
	assert.Assert(t, len(batches) >= 2, "no request is full")
	waits.Flush()
	return batches, want
}

// addWait adds a wait of the thread of a sample, with its stack, and returns what of it arrives.
func addWait(t *testing.T, builder *profiles.Builder, s profile.Sample, w item) item {
	s.Count, s.Wait = 1, &profile.Wait{State: profile.Unix, Sum: time.Duration(s.TID) * time.Millisecond,
		Peer: "10.0.0.7:5432", Path: "/läuft\xff", Waker: profile.Waker{Kind: profile.ThreadWaker,
			PID: 7, TID: 70, Thread: "java-7", Service: "cart", TraceID: [16]byte{0xab}, TransactionID: [8]byte{0xcd}}}
	w.Attributes = maps.Clone(w.Attributes)
	maps.Copy(w.Attributes, map[string]any{
		"wait.kind": "unix", "network.peer.address": "10.0.0.7", "network.peer.port": 5432.,
		"wait.file.name": "/läuft\ufffd",
		"wait.waker":     "thread", "wait.waker.thread.name": "java-7", "wait.waker.thread.id": 70.,
		"wait.waker.process.pid": 7., "wait.waker.service.name": "cart",
		"wait.waker.trace_id":       "ab" + strings.Repeat("0", 30),
		"wait.waker.transaction.id": "cd" + strings.Repeat("0", 14),
	})
	w.Values, w.Timestamps = []int64{int64(s.Wait.Sum)}, []uint64{uint64(s.Start.UnixNano() + 50e6)}
	assert.NilError(t, builder.Add(&s))
	return w
}
