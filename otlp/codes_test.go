package otlp

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"gotest.tools/v3/assert"
)

// Every code, as OTLP 1.11.0 says what it means, with and without a RetryInfo.
func TestStatusCodes(t *testing.T) {
	const (
		retried   = "retried"
		throttled = "only with RetryInfo"
		dropped   = "dropped"
	)
	for _, c := range []struct {
		code codes.Code
		name string
		want string
	}{
		{1, "CANCELLED", retried},
		{2, "UNKNOWN", dropped},
		{3, "INVALID_ARGUMENT", dropped},
		{4, "DEADLINE_EXCEEDED", retried},
		{5, "NOT_FOUND", dropped},
		{6, "ALREADY_EXISTS", dropped},
		{7, "PERMISSION_DENIED", dropped},
		{8, "RESOURCE_EXHAUSTED", throttled},
		{9, "FAILED_PRECONDITION", dropped},
		{10, "ABORTED", retried},
		{11, "OUT_OF_RANGE", retried},
		{13, "INTERNAL", dropped},
		{14, "UNAVAILABLE", retried},
		{15, "DATA_LOSS", retried},
		{16, "UNAUTHENTICATED", dropped},
		{17, "UNKNOWN", dropped},
		{4711, "UNKNOWN", dropped},
	} {
		for _, info := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%d/%t", c.code, info), func(t *testing.T) {
				no := reply{code: c.code, message: "no"}
				if info {
					no.retry = durationpb.New(3 * time.Second)
				}
				start := time.Now()
				r := newReceiver(t, no, reply{})
				l := lab1(t, r.destination("a"))
				l.send(Metrics, "x", 5)
				l.after(time.Minute)

				again := c.want == retried || c.want == throttled && info
				attempts := fmt.Sprintf("attempts{OK}=1 attempts{%s}=1", c.name)
				switch {
				case again && info:
					r.wantTimes(start, 0, 3*time.Second)
					l.wantCounts("a", Metrics, "accepted_items=5 sent_items=5 "+attempts+
						" retries=1 throttled=1 throttled_seconds=3"+duplicated(c.code))
				case again:
					r.wantTimes(start, 0, 500*time.Millisecond)
					l.wantCounts("a", Metrics,
						"accepted_items=5 sent_items=5 "+attempts+" retries=1"+duplicated(c.code))
				default:
					r.wantTimes(start, 0)
					l.wantCounts("a", Metrics,
						fmt.Sprintf("accepted_items=5 dropped_items{refused,%s}=5 attempts{%s}=1", c.name, c.name))
				}
			})
		}
	}
}

// duplicated: a receiver that took too long may have taken the batch.
func duplicated(c codes.Code) string {
	if c == codes.DeadlineExceeded {
		return " maybe_duplicated_batches=1"
	}
	return ""
}

// Credentials that are not good are a state, until something is taken, and a warning a minute.
func TestCredentialsRejected(t *testing.T) {
	for _, code := range []codes.Code{codes.PermissionDenied, codes.Unauthenticated} {
		inBubble(t, code.String(), func(t *testing.T) {
			r := newReceiver(t, reply{code: code, message: "who are you"})
			l := lab1(t, r.destination("a"))
			want := "refused, " + statusCodes[code].name + ", who are you"
			l.send(Metrics, "x", 1)
			l.send(Metrics, "x", 1)
			l.wantState("a", StateRejected)
			l.wantEvents(want)
			l.after(time.Minute)
			l.send(Metrics, "x", 1)
			l.wantEvents(want)
			r.answer(reply{})
			l.send(Metrics, "x", 1)
			l.wantState("a", StateOpen)
		})
	}
}

// A receiver that says RESOURCE_EXHAUSTED to a large batch has probably a lower limit: that is
// reported. With retry-resource-exhausted it is sent again, whatever its size.
func TestResourceExhausted(t *testing.T) {
	large := string(make([]byte, 64<<10+1))
	for _, c := range []struct {
		body  string
		retry bool
		hint  bool
	}{{large, false, true}, {large[1:], false, false}, {large, true, false}} {
		inBubble(t, fmt.Sprint(len(c.body), c.retry), func(t *testing.T) {
			r := newReceiver(t, reply{code: codes.ResourceExhausted, message: "full"}, reply{})
			d := r.destination("a")
			d.RetryResourceExhausted = c.retry
			l := lab1(t, d)
			l.send(Metrics, c.body, 1)
			l.after(time.Minute)
			var hint bool
			for _, e := range l.newEvents() {
				hint = hint || e.Hint != ""
			}
			if hint != c.hint || len(r.got()) != map[bool]int{false: 1, true: 2}[c.retry] {
				t.Errorf("hint %t, %d requests", hint, len(r.got()))
			}
		})
	}
}

// What a RetryInfo says decides if it is one: RESOURCE_EXHAUSTED with a delay of 0 is for now, with
// one that cannot be for ever.
func TestResourceExhaustedDelay(t *testing.T) {
	for _, c := range []struct {
		delay *durationpb.Duration
		want  string
	}{
		{&durationpb.Duration{},
			"accepted_items=1 sent_items=1 attempts{OK}=1 attempts{RESOURCE_EXHAUSTED}=1 retries=1"},
		{&durationpb.Duration{Seconds: -1}, "accepted_items=1 dropped_items{refused,RESOURCE_EXHAUSTED}=1" +
			" attempts{RESOURCE_EXHAUSTED}=1 bad_response=1"},
		{&durationpb.Duration{Seconds: 601}, "accepted_items=1 attempts{RESOURCE_EXHAUSTED}=1" +
			" throttled=1 throttled_seconds=600 bad_response=1 queue_batches=1 queue_items=1"},
	} {
		inBubble(t, c.delay.String(), func(t *testing.T) {
			r := newReceiver(t, reply{code: codes.ResourceExhausted, retry: c.delay}, reply{})
			l := lab1(t, r.destination("a"))
			l.send(Metrics, "x", 1)
			l.after(time.Minute)
			l.wantCounts("a", Metrics, c.want)
		})
	}
}

// A signal that the receiver does not know is off for 5 minutes; then one batch tries again.
func TestUnimplemented(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{code: codes.Unimplemented, message: "unknown service"})
		d := r.destination("a")
		d.Concurrency = 1
		l := lab1(t, d)
		for range 3 { // two of them are queued when the first is answered
			l.Enqueue(NewBatch(Profiles, []byte("x"), 2, time.Now()))
		}
		l.after(0)
		l.wantCounts("a", Profiles, "accepted_items=6 dropped_items{unsupported}=6 attempts{UNIMPLEMENTED}=1")
		l.wantEvents("unsupported, UNIMPLEMENTED, unknown service")

		r.answer(reply{})
		l.after(5*time.Minute - time.Second)
		l.send(Profiles, "x", 1)
		l.wantCounts("a", Profiles, "accepted_items=7 dropped_items{unsupported}=7 attempts{UNIMPLEMENTED}=1")
		if got := l.Status()[0]; !slices.Equal(got.Unsupported, []string{"profiles"}) ||
			got.State != StateOpen.String() {
			t.Errorf("status %+v", got)
		}
		err := l.EnqueueReceived(context.Background(),
			NewBatch(Profiles, []byte("x"), 1, time.Now()))
		assert.Check(t, err == ErrUnsupported, "received data: %v", err)
		// Other signals go on.
		l.send(Metrics, "x", 1)
		l.wantCounts("a", Metrics, "accepted_items=1 sent_items=1 attempts{OK}=1")

		// The first batch after the time is a trial. While it is out the others are dropped still.
		r.answer(reply{delay: time.Second, code: codes.Unimplemented}, reply{delay: time.Second})
		l.after(time.Second)
		l.send(Profiles, "trial", 1)
		l.send(Profiles, "x", 1)
		l.after(time.Second)
		l.wantCounts("a", Profiles, "accepted_items=9 dropped_items{unsupported}=9 attempts{UNIMPLEMENTED}=2")
		l.wantEvents()

		l.after(5 * time.Minute)
		l.send(Profiles, "trial", 1)
		l.send(Profiles, "x", 1)
		l.after(time.Second)
		l.send(Profiles, "x", 1)
		l.after(time.Second)
		l.wantCounts("a", Profiles,
			"accepted_items=12 sent_items=2 dropped_items{unsupported}=10 attempts{OK}=2 attempts{UNIMPLEMENTED}=2")
		l.wantEvents("supported")
	})
}
