package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	collectortrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	"correlator/dots/client"
	"correlator/internal/lab/backend"
	"correlator/internal/lab/testenv"
	"correlator/internal/operate/admin"
	"correlator/internal/operate/config"
	"correlator/internal/operate/metrics"
	"correlator/internal/out/agent"
	"correlator/internal/out/export"
	"correlator/internal/out/keep"
	"correlator/internal/out/live"
	"correlator/internal/out/live/types"
	"correlator/otlp"
	"correlator/otlp/receiver"
	"correlator/procscan"
	"correlator/profile"
)

// The services are shut down with the agent, also when no signal ended it, and the service manager
// is told. Until then, metrics of all are served.
func TestServicesEnd(t *testing.T) {
	testenv.NeedRoot(t)
	t.Setenv("GOGC", "100") // or the rest of the tests would have less
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	dir := t.TempDir()
	notified := filepath.Join(dir, "notify")
	manager, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err == nil {
		err = unix.Bind(manager, &unix.SockaddrUnix{Name: notified})
	}
	assert.NilError(t, err)
	defer unix.Close(manager)
	t.Setenv("NOTIFY_SOCKET", notified)
	cfg := config.Default()
	cfg.Samples.PerSecond, cfg.Samplers.FeedSocket = 0, filepath.Join(dir, "feed")
	cfg.Monitoring.AdminSocket, cfg.Monitoring.MetricsAddress = filepath.Join(dir, "admin"), "127.0.0.1:0"
	cfg.Keep.For, cfg.LiveView = time.Minute, live.Config{Listen: []string{"uds:" + filepath.Join(dir, "live")}}
	s, err := openServices(&cfg, metrics.Build{}, zap.NewNop())
	assert.NilError(t, err)
	a, err := agent.New(cfg.Agent(), nil, zap.NewNop())
	assert.NilError(t, err)
	shutdown := s.serve(t.Context(), a) // that context has not ended
	response, err := http.Get("http://" + s.metrics.Addr().String() + "/metrics")
	assert.NilError(t, err)
	served, err := io.ReadAll(response.Body)
	assert.NilError(t, errors.Join(err, response.Body.Close()))
	for _, of := range []string{"keep", "live", "http"} {
		assert.Check(t, bytes.Contains(served, []byte("\ncorrelator_"+of+"_")), "no metric of %s: %s", of, served)
	}
	ended := make(chan struct{})
	go func() {
		shutdown(t.Context())
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(deadline):
		t.Fatal("the services do not end")
	}
	told, buffer := "", make([]byte, 4096)
	for !strings.HasPrefix(told, "STOPPING=1") {
		n, _, err := unix.Recvfrom(manager, buffer, unix.MSG_DONTWAIT)
		assert.NilError(t, err, "the service manager is told at last: %s", told)
		told = string(buffer[:n])
	}
	_, err = net.Dial("unix", cfg.Monitoring.AdminSocket)
	assert.Check(t, err != nil, "the admin socket is still there")
}

// What was acknowledged before the agent could not be opened is passed on all the same.
func TestServicesClosed(t *testing.T) {
	t.Setenv("GOGC", "100") // or the rest of the tests would have less
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	dir := t.TempDir()
	address, listen := filepath.Join(dir, "otlp"), "unix:"+filepath.Join(dir, "listen")
	cfg := config.Config{Export: export.DefaultConfig()}
	cfg.Export.Destinations = []otlp.Destination{otlp.NewDestination("unix:" + address)}
	cfg.Export.Receiver = receiver.Config{Listen: listen}
	cfg.Export.ShutdownTimeout = deadline
	s, err := openServices(&cfg, metrics.Build{Version: "test"}, zap.NewNop())
	assert.NilError(t, err)
	client, err := otlp.Open(otlp.Options{Destinations: []otlp.Destination{otlp.NewDestination(listen)},
		Version: "test"})
	assert.NilError(t, err)
	client.Enqueue(otlp.NewBatch(otlp.Traces, oneSpan(t), 1, time.Now()))
	assert.NilError(t, client.Shutdown(t.Context()))
	b, err := backend.Open("unix", address) // nobody could have it before
	assert.NilError(t, err)
	defer b.Close()
	s.close(t.Context())
	got := b.Spans()
	assert.Check(t, len(got) == 1, "%d spans arrived of one that was acknowledged", len(got))
}

type source struct{}

func (source) Status() agent.Status { return agent.Status{} }

func (source) Work() ([]agent.ProcessWork, map[procscan.ProcessID]time.Time, error) {
	return nil, nil, nil
}

// Whoever takes samples gets each of them: the exporter, the live view and what keeps them. Names that were
// read for one are there for the others.
func TestEveryReceiverIsGivenSamples(t *testing.T) {
	t.Setenv("GOGC", "100") // or the rest of the tests would have less
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	dir := t.TempDir()
	uri, address := "uds:"+filepath.Join(dir, "live"), filepath.Join(dir, "otlp")
	b, err := backend.Open("unix", address)
	assert.NilError(t, err)
	defer b.Close()
	cfg := config.Default()
	cfg.Monitoring.AdminSocket, cfg.Export = "", export.DefaultConfig()
	cfg.Export.Destinations = []otlp.Destination{otlp.NewDestination("unix:" + address)}
	cfg.Export.ShutdownTimeout = deadline
	cfg.LiveView = live.Config{Listen: []string{uri}}
	cfg.Keep.For = time.Minute
	s, err := openServices(&cfg, metrics.Build{Version: "test"}, zap.NewNop())
	assert.NilError(t, err)
	s.live.Start(source{})
	guest, err := client.Dial(t.Context(), uri, client.Options{})
	assert.NilError(t, err)
	defer guest.Close()
	transactions, err := client.Subscribe[*types.CorrelatorTransaction](guest, nil)
	assert.NilError(t, err)

	self, err := procfs.Self()
	assert.NilError(t, err)
	stat, err := self.Stat()
	assert.NilError(t, err)
	perfMap := fmt.Sprintf("/tmp/perf-%d.map", self.PID)
	testenv.WriteFile(t, perfMap, "1000 20 sell\n")
	defer os.Remove(perfMap)
	resource := &profile.Resource{PID: self.PID,
		Process: procscan.ProcessID{PID: self.PID, StartTime: stat.Starttime}}
	frames := []profile.Frame{{Address: 0x1010}}
	sample := profile.Sample{Resource: resource, Count: 1, TraceID: [16]byte{1}, TransactionID: [8]byte{2},
		Stack: &profile.Stack{ID: profile.TraceID(frames), Frames: frames}}
	give := func(to agent.Exporter) {
		sample.At = time.Now()
		sample.Start, sample.End = sample.At, sample.At
		to.Sampled(&sample)
	}
	var given, kept uint64
	ask := func() (name string) {
		err := s.keep.Answer(t.Context(), keep.Query{}, func(a *keep.Answer) error {
			name, kept = a.Frames[0].Function, a.Kept
			return nil
		})
		assert.NilError(t, err)
		return name
	}
	before := uint64(0)
	testenv.Poll(t, deadline, "a name where samples are kept", func() bool {
		give(s.keep)
		before++
		return ask() == "sell"
	})
	testenv.Poll(t, deadline, "the transaction in the live view", func() bool {
		give(s.exporter())
		given++
		return transactions.Len() == 1
	})
	ask()
	exported := s.export.Status().Samples
	assert.Check(t, exported == given && kept == before+given, "of %d samples %d were exported, %d are kept, of %d before",
		given, exported, kept, before)
	s.close(t.Context())
	emitted := 0
	sample.Stack = &profile.Stack{Frames: []profile.Frame{{Address: 0x5010}}}
	s.namer.NewConsumer(func(*profile.Sample) { emitted++ }).Sampled(&sample)
	assert.Check(t, emitted == 1, "what names frames has not ended")
	stack := b.Profiles().Stacks[profile.TraceID(frames).String()]
	assert.Check(t, len(stack) == 1 && stack[0].Function == "sell", "exported as %+v, %v", b.Profiles().Stacks, b.Err())
}

// taker takes samples, and counts those that it gets.
type taker struct {
	samples, untraced bool
	noWaits           bool
	got, accounted    int
	waited            int
}

func (k *taker) TakesAccounts() bool { return !k.noWaits }

func (k *taker) Accounted(*profile.Account) { k.accounted++ }

func (k *taker) Waited(*profile.Sample) { k.waited++ }

func (k *taker) Sampled(*profile.Sample) { k.got++ }
func (k *taker) TakesSamples() bool      { return k.samples }
func (k *taker) TakesUntraced() bool     { return k.untraced }

// Several receivers get each sample, and take what one of them takes.
func TestReceivers(t *testing.T) {
	for _, c := range []struct{ samples, untraced []bool }{
		{[]bool{false, false, false}, []bool{false, false, false}},
		{[]bool{true, false, false}, []bool{false, true, false}},
		{[]bool{false, false, true}, []bool{false, false, true}},
	} {
		var all receivers
		for i := range c.samples {
			all = append(all, &taker{samples: c.samples[i], untraced: c.untraced[i]})
		}
		assert.Check(t, all.TakesSamples() == slices.Contains(c.samples, true), "%+v", c)
		assert.Check(t, all.TakesUntraced() == slices.Contains(c.untraced, true), "%+v", c)
		all.Sampled(new(profile.Sample))
		assert.Check(t, all.TakesAccounts())
		all = append(all, &taker{noWaits: true})
		all.Accounted(new(profile.Account))
		all.Waited(new(profile.Sample))
		for i, one := range all {
			one := one.(*taker)
			waits := 1
			if one.noWaits {
				waits = 0
			}
			assert.Check(t, one.got == waits && one.accounted == waits && one.waited == waits, "receiver %d: %+v", i,
				one)
		}
	}
}

// The exporter of the agent is what takes samples: nobody, one, or all of several.
func TestExporter(t *testing.T) {
	s := &services{}
	assert.Check(t, s.exporter() == nil && s.keeper() == nil && len(s.outlets()) == 0)
	s.export = new(export.Export) // of what is received
	assert.Check(t, s.exporter() == nil)
	s.keep = new(keep.Keep)
	assert.Check(t, s.exporter() == agent.Exporter(s.keep))
	s.live = new(live.Live)
	assert.Check(t, len(s.exporter().(receivers)) == 2 && s.keeper() == admin.Keeper(s.keep) && len(s.outlets()) == 3)
}

// meeting is an outlet that ends when all others are asked to.
type meeting struct{ *sync.WaitGroup }

func (m meeting) Shutdown(context.Context) {
	m.Done()
	m.Wait()
}

func TestOutletsEndTogether(t *testing.T) {
	var all sync.WaitGroup
	all.Add(2)
	ended := make(chan struct{})
	go func() {
		endAll(t.Context(), meeting{&all}, meeting{&all})
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(deadline):
		t.Fatal("one waits for another")
	}
}

func oneSpan(t *testing.T) []byte {
	t.Helper()
	body, err := proto.Marshal(&collectortrace.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{
		ScopeSpans: []*trace.ScopeSpans{{Spans: []*trace.Span{{
			TraceId: []byte("0123456789abcdef"), SpanId: []byte("01234567"), Name: "7", StartTimeUnixNano: 1,
			EndTimeUnixNano: 2,
		}}}},
	}}})
	assert.NilError(t, err)
	return body
}

// deadline is far more than anything here takes on a machine that is busy with other tests.
const deadline = 60 * time.Second
