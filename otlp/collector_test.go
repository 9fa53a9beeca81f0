package otlp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// The metrics are the same ones whatever happened, in the order and with the labels of Families.
func TestReadings(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{delay: 30 * time.Millisecond})
		d := r.destination("a")
		d.Signals = []Signal{Metrics, Profiles}
		l := lab1(t, d)
		names := func() []string {
			var all []string
			families := Families()
			l.Each(func(r Reading) {
				i := slices.IndexFunc(families, func(f Family) bool { return f.Name == r.Family.Name })
				if i < 0 || len(r.Labels) != len(families[i].Labels) {
					t.Errorf("reading of %+v with labels %q", r.Family, r.Labels)
				}
				all = append(all, r.Family.Name+fmt.Sprint(r.Labels))
			})
			return all
		}
		before := names()
		l.send(Metrics, strings.Repeat("x", 5000), 3)
		l.send(Metrics, "x", 3)
		l.send(Traces, "x", 3) // not for this destination
		l.after(time.Minute)
		if after := names(); !slices.Equal(before, after) {
			t.Error("the set of metrics has changed")
		}
		if sorted := slices.Sorted(slices.Values(before)); len(slices.Compact(sorted)) != len(before) {
			t.Error("a metric comes twice")
		}

		l.Each(func(r Reading) {
			if r.Family.Kind != Distribution || r.Labels[1] != "metrics" {
				return
			}
			// 30 ms: at most 0.05. 1 and 5000 bytes: at most 256 and 16384.
			want := map[string]string{
				"request_seconds": "[0 0 0 0 0 2 0 0 0 0 0 0 0] 0.06", "request_bytes": "[1 0 0 1 0 0 0 0 0 0 0 0 0] 5001",
			}[r.Family.Name]
			if got := fmt.Sprint(r.Counts, r.Sum); got != want || len(r.Bounds)+1 != len(r.Counts) {
				t.Errorf("%s: %s, want %s", r.Family.Name, got, want)
			}
		})
	})
}

// One of the states is 1, for each signal.
func TestStateReadings(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{code: codes.Unimplemented})
		l := lab1(t, r.destination("a"))
		want := func(want string) {
			t.Helper()
			var got []string
			l.Each(func(r Reading) {
				if r.Family.Name == "state" && r.Value == 1 {
					got = append(got, r.Labels[2])
				}
			})
			if strings.Join(got, " ") != want {
				t.Errorf("states of traces, metrics, profiles: %v, want %s", got, want)
			}
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
		if time.Until(s.Until) != time.Second/2 || s.Concurrency != 0 || s.LastError != "UNAVAILABLE: later" {
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
		l.Each(func(r Reading) {
			if r.Family.Name == "queue_limit_bytes" && r.Value != float64(d.QueueBytes) {
				t.Errorf("the queue is limited to %v bytes, want %d", r.Value, d.QueueBytes)
			}
			if want := map[string]float64{"traces": 7, "metrics": 4}[r.Labels[1]]; r.Family.Name == "queue_oldest_seconds" && r.Value != want {
				t.Errorf("%s: %v, want %v", r.Labels[1], r.Value, want)
			}
		})
		if s := l.Status()[0]; s.Oldest != 7*time.Second {
			t.Errorf("oldest %v", s.Oldest)
		}
	})
}
