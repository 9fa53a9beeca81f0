package otlp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"gotest.tools/v3/assert"
)

// Each signal has its service; a batch is one request, with exactly its bytes.
func TestServices(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t)
		l := lab1(t, r.destination("a"))
		for s, method := range map[Signal]string{
			Traces:   "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
			Metrics:  "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
			Profiles: "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
		} {
			before := len(r.got())
			l.send(s, "body of "+s.String(), 1)
			got := r.got()[before:]
			assert.Check(t, len(got) == 1 && got[0].method == method && got[0].body == "body of "+s.String(),
				"%v: %+v", s, got)
		}
	})
}

// What the receiver learns of us: the user agent, and the headers of the configuration.
func TestRequestHeaders(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t)
		d := r.destination("a")
		d.Headers = Headers{"Authorization": "Bearer 1234", "x-bin": "\x00\xff"}
		l := lab1(t, d)
		l.send(Metrics, "x", 1)
		h := r.got()[0].headers
		got := h.Get("user-agent")[0]
		assert.Check(t, strings.HasPrefix(got,
			"correlator/1.2.3 OTel-OTLP-Exporter-Go/1.2.3 grpc-go/"), "user agent %q", got)
		assert.Check(t, fmt.Sprint(h.Get("authorization"), h.Get("x-bin")) == "[Bearer 1234] [\x00\xff]" &&
			len(h.Get(ProfilesVersionKey)) == 0, "headers %v", h)
		l.send(Profiles, "x", 1)
		h = r.got()[1].headers
		assert.Check(t, fmt.Sprint(h.Get("authorization"), h.Get(ProfilesVersionKey)) == "[Bearer 1234] [1]",
			"headers %v", h)
	})
}

// A receiver that repeats our key, in an error or in a warning, does not get it into anybody's log.
func TestHeadersAreNotEchoed(t *testing.T) {
	for _, answer := range []reply{
		{code: codes.Unauthenticated, message: "no such key: s3cret-t0ken (of tenant 1)"},
		{code: codes.Unauthenticated, message: "bad header Bearer s3cret-t0ken"},
		{response: partialResponse(0, "s3cret-t0ken is deprecated")},
	} {
		inBubble(t, "", func(t *testing.T) {
			r := newReceiver(t, answer)
			d := r.destination("a")
			d.Headers = Headers{"authorization": "Bearer s3cret-t0ken", "x-tenant": "1"}
			l := lab1(t, d)
			l.send(Metrics, "x", 1)
			texts := l.Status()[0].LastError.String()
			for _, e := range l.newEvents() {
				texts += e.Message
			}
			assert.Check(t, !strings.Contains(texts, "s3cret") && strings.Contains(texts, "REDACTED"),
				"reported %s", texts)
		})
	}
}

// No more requests are in flight than configured; with 1, each waits for the answer before.
func TestConcurrency(t *testing.T) {
	for _, n := range []int{1, 4, maxConcurrency} {
		inBubble(t, fmt.Sprint(n), func(t *testing.T) {
			r := newReceiver(t, reply{delay: time.Second})
			d := r.destination("a")
			d.Concurrency = n
			l := lab1(t, d)
			for range 2 * maxConcurrency {
				l.Enqueue(NewBatch(Metrics, []byte("x"), 1, time.Now()))
			}
			l.after(1500 * time.Millisecond)
			if got := l.Status()[0]; r.most() != n || got.InFlight != n || got.Sent != uint64(n) ||
				got.Concurrency != n || got.MaxConcurrency != n {
				t.Errorf("%d at a time, %d in flight, %d sent, want %d of each", r.most(), got.InFlight, got.Sent, n)
			}
			l.after(2 * maxConcurrency * time.Second)
			got := l.Status()[0]
			assert.Check(t, time.Duration(got.Latency) == time.Second && got.Sent == 2*maxConcurrency, "status %+v",
				got)
		})
	}
}

// What limits the throughput can be seen: n requests of a second each are n batches a second.
func TestThroughput(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{delay: time.Second})
		d := r.destination("a")
		d.Concurrency = 3
		l := lab1(t, d)
		for range 3 * 300 {
			l.Enqueue(NewBatch(Metrics, []byte("0123456789"), 2, time.Now()))
		}
		l.after(299*time.Second + time.Second/2)
		near := func(got, want float64) bool { return got > 0.95*want && got < 1.05*want }
		s := l.Status()[0]
		assert.Check(t, near(s.ItemsPerSecond, 6) && near(s.BytesPerSecond, 30) && s.Concurrency == 3, "status %+v", s)
		l.after(time.Hour)
		s = l.Status()[0]
		assert.Check(t, s.ItemsPerSecond <= 0.001, "an hour later: %+v", s)
	})
}

// A batch without items is nothing: not sent, not counted. One over the limit of requests is
// dropped.
func TestNeverSent(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t)
		d := r.destination("a")
		d.MaxRequestBytes = 10
		l := lab1(t, d)
		l.send(Metrics, "envelope", 0)
		assert.Check(t, l.EnqueueReceived(context.Background(),
			NewBatch(Metrics, []byte("envelope"), 0, time.Now())), "received envelope")
		l.wantCounts("a", Metrics, "")
		l.send(Metrics, "0123456789", 1)
		l.send(Metrics, "0123456789a", 3)
		l.wantCounts("a", Metrics, "accepted_items=4 sent_items=1 dropped_items{too_large}=3 attempts{OK}=1")
		err := l.EnqueueReceived(context.Background(),
			NewBatch(Metrics, []byte("0123456789a"), 3, time.Now()))
		assert.Check(t, errors.Is(err, ErrTooLarge), "received data over the limit: %v", err)
		if len(r.got()) != 1 {
			t.Errorf("%d requests", len(r.got()))
		}
	})
}

// A batch is compressed once for all destinations and attempts, and the receivers can read it.
func TestCompression(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		gz1, gz2, plain := newReceiver(t, unavailable, reply{delay: time.Second}), newReceiver(t), newReceiver(t)
		d := plain.destination("plain")
		d.Compression = None
		l := openLab(t, Options{Destinations: []Destination{gz1.destination("gz1"), gz2.destination("gz2"), d}})
		body := strings.Repeat("telemetry ", 10_000)
		b := NewBatch(Traces, []byte(body), 1, time.Now())
		l.Enqueue(b)
		l.after(0)
		gzipped := func() []byte {
			l.Exporter.mu.Lock()
			defer l.Exporter.mu.Unlock()
			return b.gzipped
		}
		once := gzipped()
		l.after(time.Second) // the second attempt is in flight
		again := gzipped()
		assert.Check(t, &again[0] == &once[0], "compressed again for the second attempt")
		l.after(time.Minute)
		for _, r := range []*receiver{gz1, gz2, plain} {
			want := len(once)
			if r == plain {
				want = len(body)
			}
			for _, q := range r.got() {
				assert.Check(t, q.body == body && q.compressed == want,
					"%d bytes came as %d, want %d as %d", len(q.body), q.compressed, len(body), want)
			}
		}
		if kept := gzipped(); len(gz1.got()) != 2 || len(once) > len(body)/10 || kept != nil {
			t.Errorf("%d attempts, %d bytes compressed, %d kept", len(gz1.got()), len(once), len(kept))
		}
	})
}

// sent is counted when the answer is there.
func TestSentMeansAnswered(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{delay: time.Second})
		l := lab1(t, r.destination("a"))
		l.send(Metrics, "x", 7)
		l.after(time.Second - 1)
		l.wantCounts("a", Metrics, "accepted_items=7 in_flight=1 in_flight_items=7")
		l.after(1)
		l.wantCounts("a", Metrics, "accepted_items=7 sent_items=7 attempts{OK}=1")
	})
}

// Answers with a partial success, and such with nonsense in them. None is ever retried.
func TestPartialSuccess(t *testing.T) {
	rejected := []string{"partial success, too old"}
	for _, c := range []struct {
		name     string
		response []byte
		want     string
		events   []string
	}{
		{"success", nil, "sent_items=10", nil},
		{"both unset", partialResponse(0, ""), "sent_items=10", nil},
		{"some rejected", partialResponse(3, "too old"), "sent_items=7 dropped_items{rejected}=3", rejected},
		{"all rejected", partialResponse(10, "too old"), "dropped_items{rejected}=10", rejected},
		{"rejected without a word", partialResponse(3, ""), "sent_items=7 dropped_items{rejected}=3",
			[]string{"partial success"}},
		{"warning", partialResponse(0, "too old"), "sent_items=10", rejected},
		{"more than all", partialResponse(11, "too old"), "dropped_items{rejected}=10 bad_response=1", rejected},
		{"negative", partialResponse(-1, "too old"), "sent_items=10 bad_response=1", rejected},
		{"rubbish", []byte("\xff\xff\xff rubbish"), "sent_items=10 bad_response=1", nil},
		{"truncated", partialResponse(3, "too old")[:7], "sent_items=10 bad_response=1", nil},
		{"unknown fields", append([]byte("\x12\x03abc\x18\x05"), partialResponse(3, "too old")...),
			"sent_items=7 dropped_items{rejected}=3", rejected},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			r := newReceiver(t, reply{response: c.response})
			l := lab1(t, r.destination("a"))
			l.send(Metrics, "x", 10)
			l.after(time.Minute)
			want := "accepted_items=10 " + c.want
			if head, bad, ok := strings.Cut(want, " bad"); ok {
				want = head + " attempts{OK}=1 bad" + bad
			} else {
				want += " attempts{OK}=1"
			}
			l.wantCounts("a", Metrics, want)
			l.wantEvents(c.events...)
			if len(r.got()) != 1 {
				t.Errorf("%d requests", len(r.got()))
			}
			if c.name == "rejected without a word" {
				got := l.Status()[0].LastError.Message
				assert.Check(t, got == "OK: 3 of 10 items rejected: the receiver says no reason", got)
			}
		})
	}
}

// The text of partial successes is reported when it changes, at most once a minute.
func TestPartialSuccessEvents(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{response: partialResponse(1, "one")})
		l := lab1(t, r.destination("a"))
		send := func(text string) { r.answer(reply{response: partialResponse(1, text)}); l.send(Metrics, "x", 2) }
		send("one")
		l.wantEvents("partial success, one")
		send("two") // too soon
		l.after(time.Minute)
		send("one") // the same
		l.wantEvents()
		send("two")
		l.wantEvents("partial success, two")
		long := strings.Repeat("x", 1<<20)
		l.after(time.Minute)
		send(long + "\n")
		l.wantEvents("partial success, " + long[:1024])
	})
}

// An answer of more than 4 MiB is final, on the wire or behind gzip, also where RESOURCE_EXHAUSTED
// is not.
func TestResponseTooLarge(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{response: make([]byte, maxResponse+1)}) // goes as gzip, like the request
		d := r.destination("a")
		d.RetryResourceExhausted = true
		l := lab1(t, d)
		l.send(Metrics, "x", 1)
		l.after(time.Minute)
		l.wantCounts("a", Metrics, "accepted_items=1 dropped_items{refused,RESOURCE_EXHAUSTED}=1"+
			" attempts{RESOURCE_EXHAUSTED}=1 bad_response=1")
	})
}

// A status with a lot of text is cut; with more than may be read it does not hurt either: the
// receiver is kept from sending it, which is a stream without an answer.
func TestStatusTooLarge(t *testing.T) {
	for _, c := range []struct {
		size int
		want string
	}{
		{3 << 20, "accepted_items=1 dropped_items{refused,INVALID_ARGUMENT}=1 attempts{INVALID_ARGUMENT}=1"},
		{10 << 20, "accepted_items=1 sent_items=1 attempts{OK}=1 attempts{UNAVAILABLE}=1 retries=1" +
			" maybe_duplicated_batches=1"},
	} {
		inBubble(t, fmt.Sprint(c.size), func(t *testing.T) {
			long := strings.Repeat(incompressible, c.size)
			r := newReceiver(t, reply{code: codes.InvalidArgument, message: long}, reply{})
			l := lab1(t, r.destination("a"))
			l.send(Metrics, "x", 1)
			l.after(time.Minute)
			l.wantCounts("a", Metrics, c.want)
			s := l.Status()[0]
			assert.Check(t, len(s.LastError.Message) <= maxMessage+40, "%d bytes of error", len(s.LastError.Message))
		})
	}
}
