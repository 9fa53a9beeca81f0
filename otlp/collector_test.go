package otlp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"gotest.tools/v3/assert"

	"correlator/internal/host/seconds"
)

// The metrics are the same ones whatever happened, and valid for a registry.
func TestCollect(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{delay: 30 * time.Millisecond})
		d := r.destination("a")
		d.Signals = []Signal{Metrics, Profiles}
		l := lab1(t, d)
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(l.Exporter)
		names := func() (all []string) {
			for _, r := range readings(t, l.Exporter) {
				all = append(all, fmt.Sprint(r.name, r.signal, r.label))
			}
			_, err := registry.Gather()
			assert.Check(t, err)
			return all
		}
		before := names()
		l.send(Metrics, strings.Repeat("x", 5000), 3)
		l.send(Metrics, "x", 3)
		l.send(Traces, "x", 3) // not for this destination
		l.after(time.Minute)
		after := names()
		assert.Check(t, slices.Equal(before, after), "the set of metrics has changed")
		assert.Check(t, len(slices.Compact(slices.Sorted(slices.Values(before)))) == len(before),
			"a metric comes twice")

		for _, r := range readings(t, l.Exporter) {
			if r.histogram == nil || r.signal != "metrics" {
				continue
			}
			// 30 ms: at most 0.05. 1 and 5000 bytes: at most 256 and 16384. Buckets include those
			// below.
			want := map[string]string{
				"request_seconds": "[0 0 0 0 0 2 2 2 2 2 2 2] 2 0.06",
				"request_bytes":   "[1 1 1 2 2 2 2 2 2 2 2 2] 2 5001",
			}[r.name]
			var counts []uint64
			for _, bucket := range r.histogram.Bucket {
				counts = append(counts, bucket.GetCumulativeCount())
			}
			got := fmt.Sprint(counts, r.histogram.GetSampleCount(), r.histogram.GetSampleSum())
			assert.Check(t, got == want, "%s: %s, want %s", r.name, got, want)
		}
	})
}

// One of the states is 1, for each signal.
func TestStateMetric(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{code: codes.Unimplemented})
		l := lab1(t, r.destination("a"))
		want := func(want string) {
			t.Helper()
			var got []string
			for _, r := range readings(t, l.Exporter) {
				if r.name == "state" && r.value == 1 {
					got = append(got, r.label)
				}
			}
			assert.Check(t, strings.Join(got, " ") == want,
				"states of traces, metrics, profiles: %v, want %s", got, want)
		}
		want("open open open")
		l.send(Profiles, "x", 1)
		want("open open unsupported")
		r.answer(reply{code: codes.Unauthenticated})
		l.send(Traces, "x", 1)
		want("rejected rejected unsupported")
		r.answer(unavailable)
		l.send(Traces, "x", 1)
		want("waiting waiting unsupported")
		s := l.Status()[0]
		if time.Until(s.Until) != time.Second/2 || s.Concurrency != 0 || s.LastError.Message != "UNAVAILABLE: later" {
			t.Errorf("status %+v", s)
		}
		r.answer(reply{delay: time.Second})
		l.after(time.Second)
		want("probing probing unsupported")
		l.after(10 * time.Second)
		want("open open unsupported")
	})
}

// The age of the oldest batch, by signal.
func TestOldest(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{hang: true})
		d := r.destination("a")
		d.Concurrency, d.Timeout, d.QueueBytes = 1, time.Hour, 1<<20
		l := lab1(t, d)
		l.send(Traces, "x", 1) // in flight
		l.send(Traces, "x", 1)
		l.after(3 * time.Second)
		l.send(Metrics, "x", 1)
		l.after(4 * time.Second)
		for _, r := range readings(t, l.Exporter) {
			assert.Check(t, r.name != "queue_limit_bytes" || r.value == float64(d.QueueBytes),
				"the queue is limited to %v bytes, want %d", r.value, d.QueueBytes)
			want := map[string]float64{"traces": 7, "metrics": 4}[r.signal]
			assert.Check(t, r.name != "queue_oldest_seconds" || r.value == want,
				"%s: %v, want %v", r.signal, r.value, want)
		}
		s := l.Status()[0]
		assert.Check(t, s.Oldest == seconds.Seconds(7*time.Second), "oldest %v", s.Oldest)
	})
}
