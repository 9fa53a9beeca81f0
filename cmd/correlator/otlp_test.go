package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	collectormetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	otlpmetrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/backend"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/otlp"
	"correlator/otlp/profiles"
	"correlator/profile"
)

func openBackend(t *testing.T, socket string) *backend.Backend {
	t.Helper()
	b, err := backend.Open("unix", socket)
	assert.NilError(t, err)
	t.Cleanup(func() {
		b.Close()
		assert.Check(t, b.Err())
	})
	return b
}

// startExporting starts an agent with a file that has a section otlp.
func startExporting(t *testing.T, otlp string, flags ...string) *agentProcess {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	assert.NilError(t, os.WriteFile(path, []byte("otlp:\n"+otlp), 0o600))
	return startAgent(t, nil, append([]string{"--config", path}, flags...)...)
}

// terminate is end for an agent that logs something about destinations after it has ended.
func (a *agentProcess) terminate() counters {
	a.t.Helper()
	assert.NilError(a.t, a.command.Process.Signal(syscall.SIGTERM))
	return a.wait()
}

// wait waits for the agent to end, checks that it succeeds, and returns its counters.
func (a *agentProcess) wait() counters {
	a.t.Helper()
	late := time.AfterFunc(deadline, func() { a.command.Process.Kill() })
	defer late.Stop()
	err := a.command.Wait()
	assert.NilError(a.t, err, "the agent ended with %v", err)
	ended := a.logged("correlator ends")
	if len(ended) != 1 {
		a.t.Fatalf("the log is %+v", a.entries())
	}
	return ended[0].Counters
}

// scraped returns the counters of /metrics, and the numbers of values of its histograms, by name
// and labels.
func (a *agentProcess) scraped() map[string]float64 {
	a.t.Helper()
	text, err := os.ReadFile(a.log)
	assert.NilError(a.t, err)
	address := regexp.MustCompile(`"serving metrics","address":"([^"]*)"`).FindSubmatch(text)
	assert.Assert(a.t, address != nil, "no address in the log")
	answer, err := http.Get("http://" + string(address[1]) + "/metrics")
	assert.NilError(a.t, err)
	defer answer.Body.Close()
	found, kinds := make(map[string]float64), make(map[string]string)
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if words := strings.Fields(lines.Text()); words[0] == "#" {
			if words[1] == "TYPE" {
				kinds[words[2]] = words[3]
			}
			continue
		}
		at := strings.LastIndexByte(lines.Text(), ' ')
		series, text := lines.Text()[:at], lines.Text()[at+1:]
		series = strings.Replace(series, `code="",`, "", 1) // Prometheus takes an empty label for none, OTLP does not
		name, labels, _ := strings.Cut(series, "{")
		if family, of := strings.CutSuffix(name, "_count"); of && kinds[family] == "histogram" {
			series = family
			if labels != "" {
				series += "{" + labels
			}
		} else if kinds[name] != "counter" {
			continue
		}
		found[series], err = strconv.ParseFloat(text, 64)
		assert.NilError(a.t, err)
	}
	return found
}

// count returns the value of a counter or the number of values of a histogram.
func count(m backend.Metric) float64 {
	if m.Kind == "histogram" {
		return float64(m.Count)
	}
	return m.Value
}

// The exported metrics are those of /metrics: earlier ones are not larger, later ones are not
// smaller, and all have the same start time and instance. The last ones are sent when the agent has
// ended.
func TestExportedMetrics(t *testing.T) {
	needSampler(t)
	socket := filepath.Join(t.TempDir(), "otlp")
	b := openBackend(t, socket)
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	start := func() *agentProcess {
		return startExporting(t, "  metrics-interval: 1s\n  destinations: [{endpoint: unix:"+socket+"}]\n",
			"--samples-per-second", "997", "--metrics-address", "127.0.0.1:0")
	}
	const exported = "correlator_otlp_profile_samples_total"
	newer := func(than uint64) (metrics map[string]backend.Metric) {
		testenv.Poll(t, deadline, "metrics", func() bool {
			metrics = b.Metrics()
			return metrics[exported].At > than
		})
		return metrics
	}
	a := start()
	p.Registration(1)
	testenv.Poll(t, deadline, "exported samples", func() bool { return b.Metrics()[exported].Value >= 100 })
	before := newer(uint64(time.Now().UnixNano()))
	scraped := a.scraped()
	after := newer(uint64(time.Now().UnixNano()))
	assert.Assert(t, len(scraped) >= 50 && scraped[exported] >= 100, "/metrics has %v", scraped)
	life := after[exported]
	for series, n := range scraped {
		m, there := after[series]
		if !there || count(before[series]) > n || n > count(m) {
			t.Errorf("%s: %v exported, then %v at /metrics, then %v (%v) exported", series, count(before[series]),
				n, count(m), there)
		}
		assert.Check(t, m.IsCumulative && m.ServiceName == "correlator" && m.Instance == life.Instance &&
			m.Start == life.Start && m.At >= m.Start,
			"%s is %+v, which is not of a life like %+v", series, m, life)
		if was, there := before[series]; there && (was.Start != m.Start || was.Instance != m.Instance ||
			was.At >= m.At) {
			t.Errorf("%s is %+v after %+v", series, m, was)
		}
	}
	counted := a.end()
	counted.addUp(t)
	last := b.Metrics()[exported]
	var arrived uint64
	for _, n := range b.Profiles().Samples {
		arrived += n
	}
	sampled := counted["sampled_correlated"]
	assert.Check(t, last.At > life.At && last.Value == float64(sampled) && arrived == sampled,
		"%d samples were handed on, %v are told at last, %d arrived", sampled, last.Value, arrived)

	a = start()
	next := newer(last.At)[exported]
	a.end()
	assert.Check(t, next.Start > life.Start && next.Instance != life.Instance && next.Instance != "",
		"another life is %+v after %+v", next, life)
}

// An agent that takes no samples exports its metrics, and no profiles of samples that it is fed:
// these have only ids.
func TestExportedWithoutSampler(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	b := openBackend(t, filepath.Join(dir, "otlp"))
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	feed := filepath.Join(dir, "feed")
	a := startAgent(t, nil, "--samples-per-second", "0", "--samples-delay", "30s", "--feed-socket", feed,
		"--otlp-endpoint", "unix:"+filepath.Join(dir, "otlp"), "--otlp-untraced")
	p.Registration(1)
	context := p.Begin(1)
	command(t, fmt.Sprintf("%d %d TJMmu5gF-o-FiCwS6uckzg 2 %s %s\n", p.PID, context.Thread.TID, context.TraceID,
		context.TransactionID), "feed", "--socket", feed)
	p.ReportWhen("a sample", func(report demo.Report) bool { return report.Samples == 2 })
	a.end()
	if fed := b.Metrics()["correlator_feed_samples_total"]; fed.Value != 2 || len(b.Profiles().Samples) != 0 {
		t.Errorf("%+v fed, profiles %v", fed, b.Profiles())
	}
}

func spans(service string, number int) *collectortrace.ExportTraceServiceRequest {
	return &collectortrace.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{
		Resource: of(service),
		ScopeSpans: []*trace.ScopeSpans{{Spans: []*trace.Span{{
			TraceId: fmt.Appendf(nil, "%016d", 1), SpanId: fmt.Appendf(nil, "%08d",
				number), Name: strconv.Itoa(number), StartTimeUnixNano: 1, EndTimeUnixNano: 2,
		}}}},
	}}}
}

func of(service string) *resource.Resource {
	return &resource.Resource{Attributes: []*common.KeyValue{
		{Key: "service.name", Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: service}}},
	}}
}

func encoded(t *testing.T, m proto.Message) []byte {
	t.Helper()
	body, err := proto.Marshal(m)
	assert.NilError(t, err)
	return body
}

// What others on the host send to --otlp-listen arrives unchanged, for all signals.
func TestPassedThrough(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	b := openBackend(t, filepath.Join(dir, "otlp"))
	listen := "unix:" + filepath.Join(dir, "listen")
	a := startAgent(t, nil, "--samples-per-second", "0", "--feed-socket", filepath.Join(dir, "feed"),
		"--otlp-endpoint", "unix:"+filepath.Join(dir, "otlp"), "--otlp-listen", listen)
	testenv.Poll(t, deadline, "the receiver", func() bool { return len(a.logged("receiving OTLP")) == 1 })

	client, err := otlp.Open(otlp.Options{Destinations: []otlp.Destination{otlp.NewDestination(listen)},
		Version: "test"})
	assert.NilError(t, err)
	now := time.Now()
	client.Enqueue(otlp.NewBatch(otlp.Traces, encoded(t, spans("shop", 7)), 1, now))
	client.Enqueue(otlp.NewBatch(otlp.Metrics, encoded(t,
		&collectormetrics.ExportMetricsServiceRequest{ResourceMetrics: []*otlpmetrics.ResourceMetrics{{
			Resource: of("shop"),
			ScopeMetrics: []*otlpmetrics.ScopeMetrics{{Metrics: []*otlpmetrics.Metric{{Name: "orders",
				Data: &otlpmetrics.Metric_Gauge{
					Gauge: &otlpmetrics.Gauge{DataPoints: []*otlpmetrics.NumberDataPoint{{TimeUnixNano: 5,
						Value: &otlpmetrics.NumberDataPoint_AsDouble{AsDouble: 6.5}}}},
				}}}}},
		}}}), 1, now))
	builder := profiles.NewBuilder(profiles.Options{SamplesPerSecond: 20}, func(r profiles.Request) {
		client.Enqueue(otlp.NewProfilesBatch(r.Body, r.Samples, r.Profiles, now))
	})
	frames := []profile.Frame{{Address: 77}}
	sample := profile.Sample{
		Resource: &profile.Resource{Service: profile.Service{Name: "shop"}, PID: 9}, Count: 4, Start: now, End: now,
		Stack: &profile.Stack{ID: profile.TraceID(frames), Frames: frames},
	}
	assert.NilError(t, builder.Add(&sample))
	builder.Flush()
	assert.Check(t, client.Shutdown(t.Context()))
	s := client.Status()[0]
	assert.Check(t, s.Sent == 3, "of 3 items %d were acknowledged: %s", s.Sent, s.LastError)
	a.end()
	span := backend.Span{Service: "shop", Name: "7", TraceID: fmt.Sprintf("%x", fmt.Sprintf("%016d", 1)),
		SpanID: fmt.Sprintf("%x", "00000007"), Start: 1, End: 2}
	got := b.Spans()
	assert.Check(t, len(got) == 1 && got[span] == 1, "spans %+v, want %+v", got, span)
	want := backend.Metric{Kind: "gauge", Value: 6.5, At: 5, ServiceName: "shop"}
	if got := b.Metrics()["orders"]; got != want {
		t.Errorf("orders are %+v, want %+v", got, want)
	}
	for got, n := range b.Profiles().Samples {
		if got.Service != "shop" || got.PID != "9" || n != 4 || b.Profiles().Stacks[got.Stack][0].Address != 77 {
			t.Errorf("%d samples %+v", n, got)
		}
	}
	n := len(b.Profiles().Samples)
	assert.Check(t, n == 1, "%d samples arrived", n)
	passed := b.Metrics()[`correlator_otlp_received_items_total{signal="traces"}`]
	assert.Check(t, passed.Value == 1, "received spans: %+v", passed)
}

// Everything that was acknowledged arrives, even if the agent ends meanwhile.
func TestAcknowledgedArrives(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	b := openBackend(t, filepath.Join(dir, "otlp"))
	listen := "unix:" + filepath.Join(dir, "listen")
	a := startAgent(t, nil, "--samples-per-second", "0", "--feed-socket", filepath.Join(dir, "feed"),
		"--otlp-endpoint", "unix:"+filepath.Join(dir, "otlp"), "--otlp-listen", listen)
	testenv.Poll(t, deadline, "the receiver", func() bool { return len(a.logged("receiving OTLP")) == 1 })
	conn, err := grpc.NewClient(listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	assert.NilError(t, err)
	defer conn.Close()
	acknowledged, many := make(chan int, 1), make(chan struct{})
	go func() {
		n := 0
		for conn.Invoke(t.Context(), otlp.Traces.Method(), spans("shop", n),
			new(collectortrace.ExportTraceServiceResponse)) == nil {
			if n++; n == 100 {
				close(many)
			}
		}
		acknowledged <- n
	}()
	<-many
	counted := a.end()
	n, arrived := <-acknowledged, b.Spans()
	for i := range n {
		assert.Assert(t, arrived[backend.Span{Service: "shop", Name: strconv.Itoa(i), TraceID: fmt.Sprintf("%x",
			fmt.Sprintf("%016d", 1)), SpanID: fmt.Sprintf("%x", fmt.Sprintf("%08d", i)), Start: 1, End: 2}] == 1,
			"span %d of %d that were acknowledged is not there once; %d are; %v", i, n, len(arrived), counted)
	}
	t.Logf("%d spans acknowledged, %d arrived", n, len(arrived))
}

// A destination that is down and one that hangs do not affect another, and do not keep the agent
// from ending. What they did not get is logged.
func TestDestinationsDown(t *testing.T) {
	needSampler(t)
	dir := t.TempDir()
	b := openBackend(t, filepath.Join(dir, "otlp"))
	silent, err := net.Listen("unix", filepath.Join(dir, "silent")) // takes connections, and says nothing
	assert.NilError(t, err)
	defer silent.Close()
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	a := startExporting(t, fmt.Sprintf(`  profiles-interval: 100ms
  metrics-interval: 1s
  shutdown-timeout: 5s
  destinations:
    - {endpoint: "unix:%[1]s/otlp", name: well}
    - {endpoint: "unix:%[1]s/silent", name: silent}
    - {endpoint: "unix:%[1]s/nobody", name: down}
`, dir), "--samples-per-second", "997")
	p.Registration(1)
	testenv.Poll(t, deadline, "samples", func() bool { return len(b.Profiles().Samples) > 20 })
	p.StopThreads()
	counted := a.terminate()
	counted.addUp(t)
	var arrived uint64
	for _, n := range b.Profiles().Samples {
		arrived += n
	}
	assert.Check(t, arrived == counted["sampled_correlated"],
		"%d samples arrived of %d", arrived, counted["sampled_correlated"])
	m := b.Metrics()["correlator_otlp_profile_samples_total"]
	assert.Check(t, m.Value == float64(arrived), "the last metrics are %+v", m)
	var told []string
	for _, entry := range a.logged("not all data could be exported") {
		assert.Check(t, entry.Reason == "otlp_dropped_items_total" && entry.Items != 0 && entry.Level == "warn",
			"%+v", entry)
		told = append(told, entry.Destination)
	}
	slices.Sort(told)
	assert.Check(t, slices.Equal(told, []string{"down", "silent"}), "data was lost at %v", told)
}

// After a second signal the agent does not wait for a destination, however long its timeouts are.
func TestSecondSignal(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "hangs"))
	assert.NilError(t, err)
	asked := make(chan struct{}, 10)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		asked <- struct{}{}
		<-stream.Context().Done()
		return stream.Context().Err()
	}))
	go server.Serve(listener)
	defer server.Stop()
	a := startExporting(t, `  metrics-interval: 1s
  shutdown-timeout: 10m
  destinations: [{endpoint: "unix:`+dir+`/hangs", timeout: 10m}]
`, "--samples-per-second", "0", "--feed-socket", filepath.Join(dir, "feed"))
	select {
	case <-asked:
	case <-time.After(deadline):
		t.Fatal("nothing is exported")
	}
	for range 2 {
		assert.NilError(t, a.command.Process.Signal(syscall.SIGTERM))
		testenv.Poll(t, deadline, "the end of the agent's work",
			func() bool { return len(a.logged("correlator ends")) == 1 })
	}
	a.wait()
	lost := a.logged("not all data could be exported")
	assert.Check(t, len(lost) == 1 && lost[0].Items != 0, "lost: %+v", lost)
}
