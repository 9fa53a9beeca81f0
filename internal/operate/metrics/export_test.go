package metrics

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/out"
	"correlator/internal/out/export"
	"correlator/otlp"
	"correlator/otlp/receiver"
)

// exporting returns an export with both receivers, to one destination that does not exist.
func exporting(t testing.TB) *export.Export {
	t.Helper()
	return openExport(t, "unix:"+filepath.Join(t.TempDir(), "otlp.sock"))
}

func openExport(t testing.TB, listen string) *export.Export {
	t.Helper()
	config := export.DefaultConfig()
	config.Destinations = []otlp.Destination{otlp.NewDestination("unix:" + filepath.Join(t.TempDir(), "none.sock"))}
	if config.Receiver.Listen = listen; listen != "" {
		config.OpenCensus.Receiver.Socket = filepath.Join(t.TempDir(), "opencensus.sock")
	}
	e, err := export.Open(config, out.About{SamplesPerSecond: 20}, nil, zap.NewNop())
	assert.NilError(t, err)
	t.Cleanup(e.Close)
	return e
}

func exporter(t testing.TB, endpoints ...string) *otlp.Exporter {
	t.Helper()
	var o otlp.Options
	for _, endpoint := range endpoints {
		o.Destinations = append(o.Destinations, otlp.NewDestination(endpoint))
	}
	x, err := otlp.Open(o)
	assert.NilError(t, err)
	t.Cleanup(func() { x.Shutdown(testenv.Ended()) }) // it may lose data
	return x
}

func receiving(t testing.TB, queue receiver.Queue) (r *receiver.Receiver, endpoint string) {
	t.Helper()
	endpoint = "unix:" + filepath.Join(t.TempDir(), "otlp.sock")
	r, err := receiver.Open(receiver.Config{Listen: endpoint}, queue)
	assert.NilError(t, err)
	t.Cleanup(func() { r.Shutdown(testenv.Ended()) })
	return r, endpoint
}

type taker struct{}

func (taker) EnqueueReceived(context.Context, *otlp.Batch) error { return nil }

func exported(families map[string]*dto.MetricFamily) map[string]*dto.MetricFamily {
	maps.DeleteFunc(families, func(name string, _ *dto.MetricFamily) bool {
		return !strings.HasPrefix(name, "correlator_otlp_")
	})
	return families
}

// The families of the receiver are there if there is one.
func TestExportFamilies(t *testing.T) {
	with, without := exported(gather(t, exporting(t))), exported(gather(t, openExport(t, "")))
	for name := range with {
		ofReceiver := strings.HasPrefix(name, "correlator_otlp_receive")
		_, ok := without[name]
		assert.Check(t, ok != ofReceiver, "%s is there without a receiver: %v", name, ok)
	}
	assert.Check(t, len(with) >= 30 && len(without) >= 20,
		"%d families, %d without a receiver", len(with), len(without))
}

// span is a request with an invalid span, whose ids are all zero. The response is a partial
// success.
var span = []byte{0x0a, 4, 0x12, 2, 0x12, 0}

// The series depend only on the destinations, and their number is proportional to that of
// destinations.
func TestSeriesDoNotDependOnTraffic(t *testing.T) {
	r, endpoint := receiving(t, taker{})
	x := exporter(t, endpoint, "unix:"+filepath.Join(t.TempDir(), "none.sock"))
	before := values(exported(gather(t, x, r)))
	for signal := range otlp.NumSignals {
		x.Enqueue(otlp.NewBatch(signal, []byte{}, 3, time.Now()))
		x.Enqueue(otlp.NewBatch(signal, []byte{0xff}, 5, time.Now()))
	}
	x.Enqueue(otlp.NewBatch(otlp.Traces, span, 1, time.Now()))
	var after map[string]float64
	of := func(metric, labels string) float64 { return after["correlator_otlp_"+metric+"{"+labels+"}"] }
	good, bad := `destination="`+endpoint+`"`, `destination="`+x.Status()[1].Name+`"`
	testenv.Poll(t, deadline, "responses", func() bool {
		after = values(exported(gather(t, x, r)))
		return of("queue_items", good+`,signal="traces"`)+of("in_flight_items", good+`,signal="traces"`) == 0 &&
			of("sent_items_total", good+`,signal="profiles"`) > 0 &&
			of("state", bad+`,signal="traces",state="waiting"`) == 1 &&
			of("received_refused_items_total", `reason="undecodable",signal="metrics"`) > 0 &&
			of("received_requests_total", `code="INVALID_ARGUMENT",signal="profiles"`) > 0
	})
	share := float64(otlp.Quotas(0, []otlp.Destination{otlp.NewDestination(endpoint),
		otlp.NewDestination(endpoint)})[0])
	for series, want := range map[string]float64{
		"accepted_items_total{" + good + `,signal="traces"}`:                                         9,
		"sent_items_total{" + good + `,signal="traces"}`:                                             3,
		`dropped_items_total{code="",` + good + `,reason="rejected",signal="traces"}`:                1,
		`dropped_items_total{code="INVALID_ARGUMENT",` + good + `,reason="refused",signal="traces"}`: 5,
		`attempts_total{code="OK",` + good + `,signal="traces"}`:                                     2,
		"request_seconds{" + good + `,signal="traces"}`:                                              3,
		"queue_limit_bytes{" + good + `,signal="traces"}`:                                            share,
		"queue_items{" + bad + `,signal="traces"}`:                                                   9,
		`received_rejected_items_total{reason="bad_id",signal="traces"}`:                             1,
		`received_refused_items_total{reason="undecodable",signal="metrics"}`:                        1,
		`received_requests_total{code="INVALID_ARGUMENT",signal="profiles"}`:                         1,
	} {
		got, ok := after["correlator_otlp_"+series]
		assert.Check(t, ok && got == want, "%s is %v (there: %v), want %v", series, got, ok, want)
	}
	got, want := slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before))
	assert.Check(t, slices.Equal(got, want), "series %q, and before there was anything to count %q", got, want)
	one := len(values(exported(gather(t, exporter(t, endpoint)))))
	two := len(values(exported(gather(t, x))))
	assert.Check(t, two == 2*one && one <= 200, "%d series of one destination, %d of two", one, two)
}
