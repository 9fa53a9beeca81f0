package otlp

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// lab is an exporter in a bubble of synctest: time passes only when everything waits.
type lab struct {
	testing.TB
	*Exporter

	mu     sync.Mutex
	events []Event
}

// inBubble runs a test whose time is not that of the world.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// openLab opens an exporter whose random numbers are all 0: a backoff is half of its interval, and
// a RetryInfo is followed to the point. At the end of the test it is shut down, and everything must
// add up.
func openLab(t testing.TB, o Options) *lab {
	t.Helper()
	l := &lab{TB: t}
	o.Version = "1.2.3"
	if o.random == nil {
		o.random = always(0)
	}
	o.Observe = func(e Event) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, e)
	}
	var err error
	l.Exporter, err = Open(o)
	assert.NilError(t, err)
	t.Cleanup(func() {
		l.Shutdown(testenv.Ended())
		l.sums()
		l.metricSums()
		l.Exporter.mu.Lock()
		defer l.Exporter.mu.Unlock()
		for _, d := range l.scheduler.destinations {
			if d.bytes != 0 || d.unevictable != 0 {
				t.Errorf("%s holds %d bytes after the shutdown, %d unevictable", d.config.Name, d.bytes, d.unevictable)
			}
		}
	})
	return l
}

// lab1 is an exporter with one destination.
func lab1(t testing.TB, d Destination) *lab {
	t.Helper()
	return openLab(t, Options{Destinations: []Destination{d}})
}

// send offers n items of own data and waits until nothing happens any more at this time.
func (l *lab) send(signal Signal, body string, n int) {
	l.Helper()
	l.Enqueue(NewBatch(signal, []byte(body), n, time.Now()))
	l.after(0)
}

// after lets time pass.
func (l *lab) after(d time.Duration) {
	l.Helper()
	time.Sleep(d)
	synctest.Wait()
	l.sums()
}

// reading is a metric.
type reading struct {
	name                string // without the prefix
	destination, signal string
	label               string // values of the other labels, with commas
	value               float64
	histogram           *dto.Histogram
}

var metricName = regexp.MustCompile(`fqName: "correlator_otlp_(\w+)"`)

// readings returns all metrics of an exporter, in the order of Collect.
func readings(t testing.TB, x *Exporter) (all []reading) {
	t.Helper()
	metrics := make(chan prometheus.Metric, 1000)
	x.Collect(metrics)
	close(metrics)
	for m := range metrics {
		var v dto.Metric
		assert.NilError(t, m.Write(&v))
		r := reading{name: metricName.FindStringSubmatch(m.Desc().String())[1], histogram: v.Histogram}
		labels := make(map[string]string)
		for _, l := range v.Label {
			labels[l.GetName()] = l.GetValue()
		}
		r.destination, r.signal = labels["destination"], labels["signal"]
		r.label = strings.Trim(labels["reason"]+","+labels["code"]+labels["state"], ",")
		r.value = v.GetCounter().GetValue() + v.GetGauge().GetValue()
		all = append(all, r)
	}
	return all
}

// sums fails if an item is lost or counted twice.
func (l *lab) sums() {
	l.Helper()
	l.Exporter.mu.Lock()
	defer l.Exporter.mu.Unlock()
	for _, d := range l.scheduler.destinations {
		checkItems(l, d)
	}
}

// metricSums is sums for what metrics say, which takes longer to find out.
func (l *lab) metricSums() {
	l.Helper()
	type key struct{ destination, signal string }
	left := make(map[key]float64)
	for _, r := range readings(l, l.Exporter) {
		k := key{r.destination, r.signal}
		switch r.name {
		case "accepted_items_total":
			left[k] += r.value
		case "sent_items_total", "dropped_items_total", "queue_items", "in_flight_items":
			left[k] -= r.value
		}
	}
	for k, n := range left {
		if n != 0 {
			l.Errorf("%v: accepted is %v more than sent, dropped, queued and in flight", k, n)
		}
	}
}

// counts returns every metric of a destination's signal that is not 0, without histograms, state,
// age and bytes.
func (l *lab) counts(destination string, signal Signal) string {
	var all []string
	for _, r := range readings(l, l.Exporter) {
		if r.destination != destination || r.signal != signal.String() || r.value == 0 {
			continue
		}
		switch r.name {
		case "state", "queue_oldest_seconds", "queue_bytes", "queue_limit_bytes":
		default:
			label := r.label
			if label != "" {
				label = "{" + label + "}"
			}
			all = append(all, fmt.Sprintf("%s%s=%v", strings.TrimSuffix(r.name, "_total"), label, r.value))
		}
	}
	return strings.Join(all, " ")
}

func (l *lab) wantCounts(destination string, signal Signal, want string) {
	l.Helper()
	if got := l.counts(destination, signal); got != want {
		l.Errorf("counters of %s, %v:\n got %s\nwant %s", destination, signal, got, want)
	}
}

func (l *lab) wantState(destination string, want State) {
	l.Helper()
	for _, s := range l.Status() {
		if s.Name == destination && s.State != want.String() {
			l.Errorf("state of %s is %v, want %v (last error %q)", destination, s.State, want, s.LastError)
		}
	}
}

// newEvents returns the events since the last call.
func (l *lab) newEvents() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.events
	l.events = nil
	return events
}

// wantEvents compares events as text: kind, then code, message, hint where there are any.
func (l *lab) wantEvents(want ...string) {
	l.Helper()
	var got []string
	for _, e := range l.newEvents() {
		s := e.Kind.String()
		for _, part := range []string{e.Code, e.Message} {
			if part != "" {
				s += ", " + part
			}
		}
		got = append(got, s)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		l.Errorf("events:\n%q\nwant\n%q", got, want)
	}
}

// wantTimes compares when requests came, from the start on.
func (r *receiver) wantTimes(start time.Time, want ...time.Duration) {
	r.t.Helper()
	var got []time.Duration
	for _, q := range r.got() {
		got = append(got, q.at.Sub(start))
	}
	assert.Check(r.t, fmt.Sprint(got) == fmt.Sprint(want), "requests came at %v, want %v", got, want)
}
