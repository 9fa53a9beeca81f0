package otlp

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
	"gotest.tools/v3/assert"
)

var unavailable = reply{code: codes.Unavailable, message: "later"}

// An outage costs one request per wait, however many batches wait; then everything is sent, oldest
// first.
func TestOutage(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		start := time.Now()
		r := newReceiver(t, unavailable)
		l := lab1(t, r.destination("a"))
		l.send(Metrics, "0", 1)
		for i := 1; i < 20; i++ {
			l.send(Metrics, fmt.Sprint(i), 1)
		}
		l.wantState("a", StateWaiting)
		l.after(50 * time.Second)
		second := time.Second
		r.wantTimes(start, 0, second/2, second*3/2, second*7/2, second*15/2, second*31/2, second*61/2, second*91/2)
		for _, q := range r.got() {
			assert.Check(t, q.body == "0", "batch %s was sent while the oldest waits", q.body)
		}
		r.answer(reply{})
		l.after(time.Minute)
		if got := r.got(); len(got) != 8+20 || got[8].body != "0" {
			t.Errorf("%d requests, the first after the outage is %s", len(got), got[8].body)
		}
		l.wantState("a", StateOpen)
		l.wantCounts("a", Metrics, "accepted_items=20 sent_items=20 attempts{OK}=20 attempts{UNAVAILABLE}=8 retries=8")
		l.wantEvents("waiting, UNAVAILABLE, later", "recovered")
	})
}

// RetryInfo delays as they are followed. With a random number of 0 the first backoff is 0.5 s.
func TestRetryInfo(t *testing.T) {
	seconds := func(s int64) *durationpb.Duration { return &durationpb.Duration{Seconds: s} }
	for _, c := range []struct {
		name string
		result
		retry *durationpb.Duration
		bare  bool
		want  time.Duration
		extra string // counters besides
	}{
		{name: "longer than the backoff", retry: seconds(7), want: 7 * time.Second,
			extra: " throttled=1 throttled_seconds=7"},
		{name: "shorter than the backoff", retry: durationpb.New(250 * time.Millisecond), want: time.Second / 4,
			extra: " throttled=1 throttled_seconds=0.25"},
		{name: "shorter than a round trip", retry: durationpb.New(time.Nanosecond), want: minThrottle,
			extra: " throttled=1 throttled_seconds=0.1"},
		{name: "zero", retry: seconds(0), want: time.Second / 2},
		{name: "missing", bare: true, want: time.Second / 2},
		{name: "negative", retry: seconds(-5), want: time.Second / 2, extra: " bad_response=1"},
		{name: "negative nanoseconds", retry: &durationpb.Duration{Seconds: 1, Nanos: -1}, want: time.Second / 2,
			extra: " bad_response=1"},
		{name: "10 minutes", retry: seconds(600), want: 10 * time.Minute, extra: " throttled=1 throttled_seconds=600"},
		{name: "longer than 10 minutes", retry: seconds(601), want: 10 * time.Minute,
			extra: " throttled=1 throttled_seconds=600 bad_response=1"},
		{name: "absurd", retry: &durationpb.Duration{Seconds: 1<<63 - 1, Nanos: 1<<31 - 1}, want: 10 * time.Minute,
			extra: " throttled=1 throttled_seconds=600 bad_response=1"},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			start := time.Now()
			r := newReceiver(t, reply{code: codes.Unavailable, retry: c.retry, bare: c.bare}, reply{})
			d := r.destination("a")
			d.MaxAge = 0
			l := lab1(t, d)
			l.send(Metrics, "x", 1)
			l.after(time.Hour)
			r.wantTimes(start, 0, c.want)
			l.wantCounts("a", Metrics,
				"accepted_items=1 sent_items=1 attempts{OK}=1 attempts{UNAVAILABLE}=1 retries=1"+c.extra)
		})
	}
}

// Other details do not disturb, and of several RetryInfo the longest counts.
func TestStatusDetails(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		start := time.Now()
		r := newReceiver(t, reply{code: codes.ResourceExhausted, details: []protoadapt.MessageV1{
			protoadapt.MessageV1Of(&errdetails.BadRequest{}),
			protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(2 * time.Second)}),
			protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)}),
			protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)}),
		}}, reply{})
		l := lab1(t, r.destination("a"))
		l.send(Metrics, "x", 1)
		l.after(time.Minute)
		r.wantTimes(start, 0, 3*time.Second)
	})
}

// A receiver that throttles for 15 s, RetryInfo 2 s, with 20 requests in flight: those in flight
// are throttled, then there is one probe per RetryInfo, the first after 15 s succeeds, and nothing
// is lost.
func TestThrottledWithManyInFlight(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		start := time.Now()
		r := newReceiver(t, reply{
			code: codes.Unavailable, retry: durationpb.New(2 * time.Second), delay: 20 * time.Millisecond,
		})
		d := r.destination("a")
		d.Concurrency = 20
		l := lab1(t, d)
		for i := range 100 {
			l.Enqueue(NewBatch(Metrics, fmt.Appendf(nil, "%02d", i), 1, time.Now()))
		}
		l.after(15 * time.Second)
		n := len(r.got())
		assert.Check(t, n <= 20+7, "%d requests reached the receiver", n)
		n = r.most()
		assert.Check(t, n == 20, "%d requests at a time, want 20", n)
		throttled := len(r.got())
		r.answer(reply{delay: 20 * time.Millisecond})
		l.after(2 * time.Second)
		l.wantState("a", StateOpen)
		s := l.Status()[0]
		assert.Check(t, s.Sent == 100, "%d sent of 100 two seconds after the recovery", s.Sent)

		// The ramp: 1 (the probe), then 1, 2, 4, 8, 16, 20 at a time.
		var rounds []int
		last := start
		for _, q := range r.got()[throttled:] {
			if q.at.Sub(last) > 0 {
				rounds = append(rounds, 0)
			}
			rounds[len(rounds)-1]++
			last = q.at
		}
		assert.Check(t, fmt.Sprint(rounds[:7]) == "[1 1 2 4 8 16 20]",
			"requests in each round after the recovery: %v", rounds)
	})
}

// A batch is dropped when it becomes too old, whether it waits or not, and not before.
func TestMaxAge(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{code: codes.Unavailable, retry: durationpb.New(4 * time.Minute)})
		d := r.destination("a")
		d.MaxAge = 5 * time.Minute
		l := lab1(t, d)
		l.send(Metrics, "old", 1)
		l.after(2 * time.Minute)
		l.send(Metrics, "new", 1)
		want := func(held int, dropped uint64) {
			t.Helper()
			if s := l.Status()[0]; s.QueuedBatches != held || s.Dropped.Sum() != dropped ||
				s.Dropped["expired"] != dropped {
				t.Errorf("%d queued, %d dropped, want %d, %d", s.QueuedBatches, s.Dropped.Sum(), held, dropped)
			}
		}
		l.after(3*time.Minute - 1) // at 4 minutes the old one was sent again
		want(2, 0)
		l.after(1)
		want(1, 1)
		l.after(2*time.Minute - 1)
		want(1, 1)
		l.after(1)
		want(0, 2)
		l.wantCounts("a", Metrics, "accepted_items=2 dropped_items{expired}=2 attempts{UNAVAILABLE}=2 retries=1"+
			" throttled=2 throttled_seconds=480")
	})
	inBubble(t, "in flight", func(t *testing.T) {
		r := newReceiver(t, reply{hang: true})
		d := r.destination("a")
		d.MaxAge, d.Concurrency = 3*time.Second, 1
		l := lab1(t, d)
		l.send(Metrics, "x", 1)
		l.send(Metrics, "waits behind it", 1)
		l.after(3 * time.Second)
		l.wantCounts("a", Metrics, "accepted_items=2 dropped_items{expired}=1 in_flight=1 in_flight_items=1")
		l.after(7 * time.Second)
		l.wantCounts("a", Metrics, "accepted_items=2 dropped_items{expired}=2 attempts{DEADLINE_EXCEEDED}=1")
	})
	inBubble(t, "any age", func(t *testing.T) {
		r := newReceiver(t, reply{code: codes.Unavailable, retry: durationpb.New(4 * time.Minute)})
		d := r.destination("a")
		d.MaxAge = 0
		l := lab1(t, d)
		l.send(Metrics, "x", 1)
		l.after(24 * time.Hour)
		r.answer(reply{})
		l.after(5 * time.Minute)
		s := l.Status()[0]
		assert.Check(t, s.Sent == 1, "%+v", s)
	})
}

// Status shows since when nothing is answered, as soon as that is longer than usual.
func TestNoAnswer(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{delay: 4 * time.Second}, reply{hang: true}, unavailable, reply{})
		l := lab1(t, r.destination("a"))
		want := func(since time.Time) {
			t.Helper()
			got := l.Status()[0].NoAnswerSince
			assert.Check(t, got.Equal(since), "no answer since %v, want %v", got, since)
		}
		start := time.Now()
		l.send(Metrics, "x", 1)
		l.after(minSilence - 1)
		want(time.Time{})
		l.after(1) // how long this receiver takes is not known yet
		want(start)
		l.after(2 * time.Second)
		want(time.Time{})

		start = time.Now()
		l.send(Metrics, "x", 1)
		l.after(8*time.Second - 1)
		want(time.Time{})
		l.after(1)
		want(start)
		l.after(2400 * time.Millisecond) // the request has timed out, and there is a wait
		l.wantState("a", StateWaiting)
		want(start)
		l.after(time.Second)
		want(time.Time{}) // the probe was refused: that is an answer
		l.after(time.Minute)
		r.setDown(true)
		l.after(time.Minute)
		start = time.Now()
		l.send(Metrics, "x", 1)
		l.after(time.Minute)
		want(start)
	})
}

// A timeout is a retryable error, with a wait and a possible duplicate; every attempt has its own.
func TestTimeout(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		start := time.Now()
		r := newReceiver(t, reply{hang: true})
		d := r.destination("a")
		d.Timeout = 3 * time.Second
		l := lab1(t, d)
		l.send(Metrics, "x", 1)
		l.wantCounts("a", Metrics, "accepted_items=1 in_flight=1 in_flight_items=1")
		l.after(5 * time.Second)
		l.wantCounts("a", Metrics,
			"accepted_items=1 attempts{DEADLINE_EXCEEDED}=1 retries=1 maybe_duplicated_batches=1 in_flight=1 in_flight_items=1")
		l.after(5 * time.Second)
		r.answer(reply{})
		l.after(time.Minute)
		r.wantTimes(start, 0, 3500*time.Millisecond, 7500*time.Millisecond, 12500*time.Millisecond)
		l.wantCounts("a", Metrics,
			"accepted_items=1 sent_items=1 attempts{OK}=1 attempts{DEADLINE_EXCEEDED}=3 retries=3 maybe_duplicated_batches=1")
	})
}

// A connection that breaks before the answer: retried, and maybe a duplicate.
func TestBrokenConnection(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		start := time.Now()
		r := newReceiver(t, reply{reset: true}, reply{})
		l := lab1(t, r.destination("a"))
		l.send(Metrics, "x", 1)
		l.after(time.Minute)
		r.wantTimes(start, 0, time.Second/2)
		l.wantCounts("a", Metrics,
			"accepted_items=1 sent_items=1 attempts{OK}=1 attempts{UNAVAILABLE}=1 retries=1 maybe_duplicated_batches=1")
	})
}

// GOAWAY: what is in flight is answered, the rest goes over a new connection.
func TestGoAway(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		old := newReceiver(t, reply{delay: 5 * time.Second})
		l := lab1(t, old.destination("a"))
		l.send(Metrics, "x", 1)
		go old.server.GracefulStop()
		l.after(10 * time.Second)
		l.wantCounts("a", Metrics, "accepted_items=1 sent_items=1 attempts{OK}=1")
		l.send(Metrics, "x", 1) // there is nobody any more
		l.wantCounts("a", Metrics,
			"accepted_items=2 sent_items=1 attempts{OK}=1 attempts{UNAVAILABLE}=1 queue_batches=1 queue_items=1")
	})
}

// A receiver that is not there costs one attempt per wait, is no possible duplicate, and is found
// again by the first probe after it came back, however long it was away.
func TestUnreachable(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t)
		d := r.destination("a")
		d.MaxAge = 0
		l := lab1(t, d)
		read := func(family, label string) (n float64) {
			for _, r := range readings(t, l.Exporter) {
				if r.name == family && r.signal == "metrics" && r.label == label {
					n = r.value
				}
			}
			return n
		}
		for i := range 10 {
			r.setDown(true)
			l.after(0) // the client notices: a request on a connection that is cut may have come
			before := read("attempts_total", "UNAVAILABLE")
			l.send(Metrics, "x", 1)
			away := 10*time.Minute + time.Duration(i)*time.Second
			if i == 0 {
				away = time.Hour
			}
			l.after(away)
			// After 0.5, 1, 2, 4 and 8 s the waits are 15 s each, and a second of dialing.
			attempts := read("attempts_total", "UNAVAILABLE") - before
			if want := 6 + (away.Seconds()-20)/16; attempts > want+1 || attempts < want-1 {
				t.Errorf("%v attempts in %v, want about %v", attempts, away, want)
			}
			r.setDown(false)
			l.after(16 * time.Second)
			s := l.Status()[0]
			assert.Assert(t, s.Sent == uint64(i+1), "not sent by the first probe after the receiver came back: %+v", s)
		}
		n := read("maybe_duplicated_batches_total", "")
		assert.Check(t, n == 0, "%v possible duplicates of what was never sent", n)
	})
}

// A name that cannot be resolved is a receiver that is not there: looked up again for each probe.
func TestUnknownName(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t)
		r.setDown(true)
		d := r.destination("a")
		d.Endpoint, d.Insecure, d.MaxAge = "otlp.invalid", true, 0
		d.dial = func(ctx context.Context, target string) (net.Conn, error) {
			assert.Check(t, target == "otlp.invalid:4317", "connecting to %s", target)
			return r.dial(ctx, target)
		}
		l := lab1(t, d)
		l.send(Metrics, "x", 1)
		l.after(time.Hour)
		r.setDown(false)
		l.after(16 * time.Second)
		s := l.Status()[0]
		assert.Check(t, s.Sent == 1, "%+v", s)
	})
}

// With a short timeout the attempt still ends with the reason, not with the time that it took to
// dial.
func TestUnreachableWithShortTimeout(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t)
		r.setDown(true)
		d := r.destination("a")
		d.Timeout = probeDial / 2
		l := lab1(t, d)
		l.send(Metrics, "x", 1)
		l.after(time.Second)
		l.wantCounts("a", Metrics, "accepted_items=1 attempts{UNAVAILABLE}=2 retries=1 queue_batches=1 queue_items=1")
	})
}

// An idle connection is kept: no idle timeout, no new dial, and no pings that receivers punish.
func TestOneLongLivedConnection(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t)
		l := lab1(t, r.destination("a"))
		for range 10 {
			l.send(Metrics, "x", 1)
			l.send(Traces, "x", 1)
			l.after(3 * time.Hour)
		}
		if n := r.dialed(); n != 1 || len(r.got()) != 20 {
			t.Errorf("%d connections for %d requests", n, len(r.got()))
		}
	})
}
