package otlp

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"gotest.tools/v3/assert"
)

// shutdown shuts down with a timeout, and gives how long that took.
func (l *lab) shutdown(timeout time.Duration) (time.Duration, error) {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	start := time.Now()
	err := l.Shutdown(ctx)
	synctest.Wait()
	l.sums()
	return time.Since(start), err
}

func TestShutdown(t *testing.T) {
	second := reply{delay: time.Second}
	late := reply{delay: time.Millisecond, code: codes.Unavailable}
	throttled := reply{code: codes.Unavailable, retry: durationpb.New(2 * time.Second)}
	for _, c := range []struct {
		name    string
		script  []reply
		batches int
		before  time.Duration // between the offers and the shutdown
		timeout time.Duration
		took    time.Duration
		want    string
		lost    bool
	}{
		{
			name: "nothing to do", script: []reply{second}, timeout: 5 * time.Second,
		}, {
			name:   "open: sends on with full concurrency until the queue is empty",
			script: []reply{second}, batches: 10, timeout: 5 * time.Second, took: 3 * time.Second,
			want: "accepted_items=10 sent_items=10 attempts{OK}=10",
		}, {
			name:   "timeout: what is in flight is cancelled, the rest is dropped",
			script: []reply{second}, batches: 10, timeout: 1500 * time.Millisecond, took: 1500 * time.Millisecond,
			want: "accepted_items=10 sent_items=4 dropped_items{shutdown}=6 attempts{OK}=4 attempts{CANCELLED}=4",
			lost: true,
		}, {
			name:   "timeout 0: nothing is waited for",
			script: []reply{second}, batches: 10, timeout: 0,
			want: "accepted_items=10 dropped_items{shutdown}=10 attempts{CANCELLED}=4", lost: true,
		}, {
			name:   "hanging",
			script: []reply{{hang: true}}, batches: 2, timeout: 5 * time.Second, took: 5 * time.Second,
			want: "accepted_items=2 dropped_items{shutdown}=2 attempts{CANCELLED}=2", lost: true,
		}, {
			name: "waiting: one more attempt at once, which opens",
			// With concurrency 4, as many are out when the first error comes.
			script: []reply{late, late, late, late, {}}, batches: 6,
			before:  100 * time.Millisecond,
			timeout: 5 * time.Second,
			want:    "accepted_items=6 sent_items=6 attempts{OK}=6 attempts{UNAVAILABLE}=4 retries=4",
		}, {
			name:   "waiting: one more attempt at once, no second",
			script: []reply{unavailable}, batches: 1, before: 100 * time.Millisecond, timeout: 5 * time.Second,
			want: "accepted_items=1 dropped_items{shutdown}=1 attempts{UNAVAILABLE}=2 retries=1", lost: true,
		}, {
			name:   "throttled: none",
			script: []reply{throttled, {}}, batches: 1, before: 100 * time.Millisecond, timeout: 5 * time.Second,
			want: "accepted_items=1 dropped_items{shutdown}=1 attempts{UNAVAILABLE}=1 throttled=1 throttled_seconds=2",
			lost: true,
		}, {
			name:   "goes away during the shutdown: one more attempt",
			script: []reply{{delay: time.Second, code: codes.Unavailable}, {}}, batches: 1,
			timeout: 5 * time.Second, took: time.Second,
			want: "accepted_items=1 sent_items=1 attempts{OK}=1 attempts{UNAVAILABLE}=1 retries=1",
		}, {
			name:   "refuses during the shutdown: not our doing",
			script: []reply{{delay: time.Second, code: codes.InvalidArgument}}, batches: 1,
			timeout: 5 * time.Second, took: time.Second,
			want: "accepted_items=1 dropped_items{refused,INVALID_ARGUMENT}=1 attempts{INVALID_ARGUMENT}=1",
		},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			r := newReceiver(t, c.script...)
			d := r.destination("a")
			d.Concurrency = 4
			l := lab1(t, d)
			for range c.batches {
				l.Enqueue(NewBatch(Metrics, []byte("x"), 1, time.Now()))
			}
			l.after(c.before)
			l.newEvents()
			took, err := l.shutdown(c.timeout)
			assert.Check(t, took == c.took && errors.Is(err, errLost) == c.lost,
				"took %v, want %v; error %v", took, c.took, err)
			l.wantCounts("a", Metrics, c.want)
			var lost Event
			for _, e := range l.newEvents() {
				if e.Kind == EventLost {
					lost = e
				}
			}
			if want := l.Status()[0].Dropped.Sum(); c.lost && (lost.Items != want || lost.Batches != want) {
				t.Errorf("EventLost has %d items in %d batches, want %d", lost.Items, lost.Batches, want)
			}

			// Afterwards nothing is taken.
			l.Enqueue(NewBatch(Traces, []byte("x"), 3, time.Now()))
			l.wantCounts("a", Traces, "accepted_items=3 dropped_items{shutdown}=3")
			err = l.EnqueueReceived(context.Background(),
				NewBatch(Traces, []byte("x"), 3, time.Now()))
			assert.Check(t, err == ErrClosed, "received data: %v", err)
			_, err = l.shutdown(time.Second)
			assert.Check(t, err == ErrClosed, "second shutdown: %v", err)
		})
	}
}

// Destinations drain side by side, each with the whole timeout; a second signal ends it at once.
func TestShutdownSideBySide(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		slow, hanging := newReceiver(t, reply{delay: 4 * time.Second}), newReceiver(t, reply{hang: true})
		l := openLab(t, Options{Destinations: []Destination{hanging.destination("hanging"), slow.destination("slow")}})
		l.send(Metrics, "x", 1)
		took, err := l.shutdown(5 * time.Second)
		assert.Check(t, took == 5*time.Second && err == errLost, "took %v: %v", took, err)
		l.wantCounts("slow", Metrics, "accepted_items=1 sent_items=1 attempts{OK}=1")
		l.wantCounts("hanging", Metrics, "accepted_items=1 dropped_items{shutdown}=1 attempts{CANCELLED}=1")
	})
	inBubble(t, "second signal", func(t *testing.T) {
		r := newReceiver(t, reply{hang: true})
		l := lab1(t, r.destination("a"))
		l.send(Metrics, "x", 1)
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		l.Shutdown(ctx)
		took := time.Since(start)
		assert.Check(t, took == time.Second, "took %v", took)
	})
}

// A batch that has grown too old is not worth the last attempt, and the shutdown does not wait for
// it.
func TestShutdownWithExpired(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, unavailable)
		d := r.destination("a")
		d.MaxAge = 2 * time.Second
		l := lab1(t, d)
		l.send(Metrics, "x", 1)
		l.after(2100 * time.Millisecond)
		took, err := l.shutdown(time.Minute)
		assert.Check(t, took == 0 && err == nil, "took %v: %v", took, err)
		l.wantCounts("a", Metrics, "accepted_items=1 dropped_items{expired}=1 attempts{UNAVAILABLE}=3 retries=2")
	})
}
