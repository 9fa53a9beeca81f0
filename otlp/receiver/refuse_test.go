package receiver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/otlp"
)

// A request that the queue refuses is refused as a whole, with a status by which the client keeps
// it or not.
func TestRefused(t *testing.T) {
	body := encode(t, traceRequest(aSpan("a"), badSpan(), aSpan("b")))
	for _, c := range []struct {
		err    error
		code   codes.Code
		retry  bool
		counts string
	}{
		{&otlp.OverloadError{Destination: "secret", RetryAfter: 7 * time.Second}, codes.Unavailable, true,
			"items=3, refused_items overload=3, requests UNAVAILABLE=1"},
		{fmt.Errorf("queueing: %w", &otlp.OverloadError{}), codes.Unavailable, true,
			"items=3, refused_items overload=3, requests UNAVAILABLE=1"},
		{fmt.Errorf("%w: 5 bytes", otlp.ErrTooLarge), codes.ResourceExhausted, false,
			"items=3, refused_items too_large=3, requests RESOURCE_EXHAUSTED=1"},
		{otlp.ErrUnsupported, codes.Unimplemented, false,
			"items=3, refused_items unsupported=3, requests UNIMPLEMENTED=1"},
		{otlp.ErrClosed, codes.Unavailable, true, "items=3, refused_items shutdown=3, requests UNAVAILABLE=1"},
		{errors.New("what else"), codes.Unavailable, true, "items=3, refused_items overload=3, requests UNAVAILABLE=1"},
	} {
		l := openLab(t, Config{})
		l.store.err = c.err
		s := l.refusal(otlp.Traces, body)
		wantStatus(t, s, c.code, c.retry)
		if strings.Contains(s.Message(), "secret") {
			t.Errorf("the response names a destination: %s", s.Message())
		}
		var overload *otlp.OverloadError
		if errors.As(c.err, &overload) {
			got, want := retryAfter(s), max(overload.RetryAfter, minRetryDelay)
			assert.Check(t, got == want, "RetryInfo of %v, want %v", got, want)
		}
		l.wantCounts(otlp.Traces, c.counts)
	}
}

// exporterTo is an exporter whose destination is another receiver.
func exporterTo(t testing.TB, l *lab, queueBytes int64) *otlp.Exporter {
	t.Helper()
	d := otlp.NewDestination("unix:" + l.Addr().String())
	d.QueueBytes = queueBytes
	x, err := otlp.Open(otlp.Options{Destinations: []otlp.Destination{d}})
	assert.NilError(t, err)
	t.Cleanup(func() { x.Shutdown(testenv.Ended()) })
	return x
}

// With a real exporter, the backend gets what was sent, and what does not fit is refused with
// RetryInfo, or permanently.
func TestExporter(t *testing.T) {
	end := openLab(t, Config{})
	end.store.entered = make(chan struct{}, 100)
	end.store.open = make(chan struct{})
	const queueBytes = 20_000
	x := exporterTo(t, end, queueBytes)
	l := openLabWith(t, Config{}, x, nil)

	body := encode(t, traceRequest(largeSpan(6000)))
	l.send(otlp.Traces, body)
	<-end.store.entered // and stays in flight
	sent := 1
	for ; ; sent++ {
		_, err := export(l.conn, otlp.Traces, body)
		if err != nil {
			wantStatus(t, status.Convert(err), codes.Unavailable, true)
			break
		}
	}
	want := queueBytes * 3 / 4 / 6000
	assert.Check(t, sent == want, "%d requests were taken, want %d", sent, want)
	huge := encode(t, traceRequest(largeSpan(queueBytes)))
	wantStatus(t, l.refusal(otlp.Traces, huge), codes.ResourceExhausted, false)
	l.wantCounts(otlp.Traces, fmt.Sprintf(
		"items=%d, refused_items overload=1, refused_items too_large=1, requests OK=%d, requests RESOURCE_EXHAUSTED=1, requests UNAVAILABLE=1", sent+2, sent))

	close(end.store.open)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	assert.Check(t, x.Shutdown(ctx))
	all := end.store.taken()
	assert.Check(t, len(all) == sent, "%d requests arrived, want %d", len(all), sent)
	for _, b := range all {
		if !bytes.Equal(b.Request(), body) {
			t.Errorf("%x arrived, want %x", b.Request(), body)
		}
	}
	wantStatus(t, l.refusal(otlp.Traces, body), codes.Unavailable, true) // the exporter is closed
}

// During a shutdown requests in work are finished, and others are refused with RetryInfo.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t)
		b.store.open = make(chan struct{})
		body, _ := sound(t, otlp.Metrics)
		conn := b.dial()
		inWork := make(chan error, 1)
		go func() {
			_, err := export(conn, otlp.Metrics, body)
			inWork <- err
		}()
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- b.Shutdown(context.Background()) }()
		synctest.Wait()
		_, err := export(conn, otlp.Metrics, body)
		wantStatus(t, status.Convert(err), codes.Unavailable, true)
		if got, want := counts(t, b.Receiver, otlp.Metrics),
			"items=1, refused_items shutdown=1, requests UNAVAILABLE=1"; got != want {
			t.Errorf("counters: %s, want %s", got, want)
		}

		close(b.store.open)
		err = <-inWork
		assert.Check(t, err, "the request in work was answered with %v", err)
		err = <-ended
		assert.Check(t, err)
		b.only(t)
		want := "items=5, refused_items shutdown=1, requests OK=1, requests UNAVAILABLE=1"
		got := counts(t, b.Receiver, otlp.Metrics)
		assert.Check(t, got == want, "counters: %s, want %s", got, want)
		assert.Check(t, b.Shutdown(context.Background()), "the second time")
	})
}

// A shutdown whose context is done cancels requests in work.
func TestShutdownAtOnce(t *testing.T) {
	l := openLab(t, Config{})
	stream, err := l.conn.NewStream(context.Background(), &grpc.StreamDesc{ClientStreams: true}, otlp.Traces.Method())
	assert.NilError(t, err)
	testenv.Poll(t, patience, "the request has a slot", func() bool { return l.inWork() == 1 })
	err = l.Shutdown(testenv.Ended())
	assert.Check(t, errors.Is(err, context.Canceled), "got %v", err)
	var answer []byte
	assert.Check(t, stream.RecvMsg(&answer) != nil, "the request was answered")
	n := l.inWork()
	assert.Check(t, n == 0, "%d slots are taken", n)
}
