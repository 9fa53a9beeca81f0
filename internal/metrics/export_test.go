package metrics

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"correlator/internal/export"
	"correlator/internal/testenv"
	"correlator/otlp"
	"correlator/otlp/receiver"
)

// both is an exporter and a receiver that passes on to it, or what there is of them.
type both struct {
	exporter *otlp.Exporter
	receiver *receiver.Receiver
}

func (b *both) Families() []otlp.Family { return exportFamilies() }

func (b *both) Each(add func(otlp.Reading)) {
	if b.exporter != nil {
		b.exporter.Each(add)
	}
	if b.receiver != nil {
		b.receiver.Each(add)
	}
}

// exportFamilies is every family that there may be.
func exportFamilies() []otlp.Family { return (*export.Export)(nil).Families() }

// exporting is an export to one destination, which does not exist, with a receiver.
func exporting(t testing.TB) *export.Export {
	t.Helper()
	return openExport(t, "unix:"+filepath.Join(t.TempDir(), "otlp.sock"))
}

func openExport(t testing.TB, listen string) *export.Export {
	t.Helper()
	config := export.DefaultConfig()
	config.Destinations = []otlp.Destination{otlp.NewDestination("unix:" + filepath.Join(t.TempDir(), "none.sock"))}
	config.Receiver.Listen = listen
	e, err := export.Open(config, export.About{SamplesPerSecond: 20}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Shutdown(atOnce()) }) // what it loses is of no interest
	return x
}

func receiving(t testing.TB, queue receiver.Queue) (r *receiver.Receiver, endpoint string) {
	t.Helper()
	endpoint = "unix:" + filepath.Join(t.TempDir(), "otlp.sock")
	r, err := receiver.Open(receiver.Config{Listen: endpoint}, queue)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Shutdown(atOnce()) })
	return r, endpoint
}

// atOnce is a context that has ended.
func atOnce() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// taker takes all that is received.
type taker struct{}

func (taker) EnqueueReceived(context.Context, *otlp.Batch) error { return nil }

// exported are the families of the export.
func exported(families map[string]*dto.MetricFamily) map[string]*dto.MetricFamily {
	maps.DeleteFunc(families, func(name string, _ *dto.MetricFamily) bool {
		return !strings.HasPrefix(name, "correlator_"+exportPrefix)
	})
	return families
}

// Families are there when there is something to count.
func TestExportFamilies(t *testing.T) {
	withoutReceiver := slices.DeleteFunc(exportFamilies(), func(f otlp.Family) bool {
		return slices.ContainsFunc(receiver.Families(), func(of otlp.Family) bool { return of.Name == f.Name })
	})
	for _, c := range []struct {
		what   string
		export Export
		want   []otlp.Family
	}{
		{"nothing", nil, nil},
		{"an exporter", openExport(t, ""), withoutReceiver},
		{"a receiver", exporting(t), exportFamilies()},
	} {
		var owners []prometheus.Collector
		if c.export != nil {
			owners = append(owners, NewExportCollector(c.export))
		}
		var want []string
		for _, f := range c.want {
			want = append(want, "correlator_"+exportPrefix+f.Name)
		}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(exported(gather(t, owners...)))); !slices.Equal(got, want) {
			t.Errorf("%s: families %q, want %q", c.what, got, want)
		}
	}
}

// span is a request with a span that is none, for its ids are all zero: it is answered with a partial success.
var span = []byte{0x0a, 4, 0x12, 2, 0x12, 0}

// Whatever is sent and received, and becomes of it, the series are the same for the same destinations, and
// their number grows with that of destinations alone.
func TestSeriesDoNotDependOnTraffic(t *testing.T) {
	r, endpoint := receiving(t, taker{})
	x := exporter(t, endpoint, "unix:"+filepath.Join(t.TempDir(), "none.sock"))
	exports := &both{x, r}
	before := values(exported(gather(t, NewExportCollector(exports))))
	for signal := range otlp.NumSignals {
		x.Enqueue(otlp.NewBatch(signal, []byte{}, 3, time.Now()))
		x.Enqueue(otlp.NewBatch(signal, []byte{0xff}, 5, time.Now()))
	}
	x.Enqueue(otlp.NewBatch(otlp.Traces, span, 1, time.Now()))
	var after map[string]float64
	of := func(metric, labels string) float64 { return after["correlator_otlp_"+metric+"{"+labels+"}"] }
	good, bad := `destination="`+endpoint+`"`, `destination="`+x.Status()[1].Name+`"`
	testenv.Poll(t, deadline, "answers", func() bool {
		after = values(exported(gather(t, NewExportCollector(exports))))
		return of("queue_items", good+`,signal="traces"`)+of("in_flight_items", good+`,signal="traces"`) == 0 &&
			of("sent_items_total", good+`,signal="profiles"`) > 0 && of("state", bad+`,signal="traces",state="waiting"`) == 1
	})
	for series, want := range map[string]float64{
		"accepted_items_total{" + good + `,signal="traces"}`:                                         9,
		"sent_items_total{" + good + `,signal="traces"}`:                                             3,
		`dropped_items_total{code="",` + good + `,reason="rejected",signal="traces"}`:                1,
		`dropped_items_total{code="INVALID_ARGUMENT",` + good + `,reason="refused",signal="traces"}`: 5,
		`attempts_total{code="OK",` + good + `,signal="traces"}`:                                     2,
		"request_seconds{" + good + `,signal="traces"}`:                                              3,
		"queue_limit_bytes{" + good + `,signal="traces"}`:                                            otlp.DefaultQueueBytes,
		"queue_items{" + bad + `,signal="traces"}`:                                                   9,
		`received_rejected_items_total{reason="bad_id",signal="traces"}`:                             1,
		`received_refused_items_total{reason="undecodable",signal="metrics"}`:                        1,
		`received_requests_total{code="INVALID_ARGUMENT",signal="profiles"}`:                         1,
	} {
		if got, ok := after["correlator_otlp_"+series]; !ok || got != want {
			t.Errorf("%s is %v (there: %v), want %v", series, got, ok, want)
		}
	}
	if got, want := slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)); !slices.Equal(got, want) {
		t.Errorf("series %q, and before there was anything to count %q", got, want)
	}
	one := len(values(exported(gather(t, NewExportCollector(&both{exporter: exporter(t, endpoint)})))))
	two := len(values(exported(gather(t, NewExportCollector(&both{exporter: x})))))
	if two != 2*one || one > 200 {
		t.Errorf("%d series of one destination, %d of two", one, two)
	}
}

// reads gives readings.
type reads []otlp.Reading

func (r reads) Families() []otlp.Family { return otlp.Families() }

func (r reads) Each(add func(otlp.Reading)) {
	for _, reading := range r {
		add(reading)
	}
}

// Buckets of a histogram hold what those below hold, too.
func TestHistogramReading(t *testing.T) {
	f := gather(t, NewExportCollector(reads{{
		Family: &otlp.Family{Name: "request_seconds", Kind: otlp.Distribution}, Labels: []string{"unix:/run/\xff", "traces"},
		Bounds: []float64{.5, 2}, Counts: []uint64{3, 0, 4}, Sum: 41,
	}, {
		Family: &otlp.Family{Name: "that_nobody_announced"}, Labels: []string{},
	}}))["correlator_otlp_request_seconds"]
	h := f.GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 7 || h.GetSampleSum() != 41 || len(h.Bucket) != 2 ||
		h.Bucket[0].GetCumulativeCount() != 3 || h.Bucket[0].GetUpperBound() != .5 || h.Bucket[1].GetCumulativeCount() != 3 {
		t.Errorf("%v", h)
	}
	if got := labelValues(f, "destination"); !slices.Equal(got, []string{`unix:/run/\xff`}) {
		t.Errorf("destinations %q", got)
	}
}
