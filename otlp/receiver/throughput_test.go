package receiver

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"correlator/otlp"
)

// slowQueue accepts every batch after a delay: it never does without waiting.
type slowQueue struct {
	delay time.Duration
	taken atomic.Int64
}

func (q *slowQueue) EnqueueReceived(ctx context.Context, _ *otlp.Batch) error {
	if ctx.Err() != nil {
		return &otlp.OverloadError{}
	}
	time.Sleep(q.delay)
	q.taken.Add(1)
	return nil
}

// BenchmarkForward sends batches of 15 kB to a backend that takes 20 ms for each, 10 at a time:
// directly, and through a receiver and an exporter whose queue is full nearly all the time. The
// time is that until the backend has all of them. The sender retries as OTLP clients do.
func BenchmarkForward(b *testing.B) {
	const inFlight = 10
	body := encode(b, traceRequest(largeSpan(15_000)))
	backend := func(b *testing.B) (*slowQueue, string) {
		q := &slowQueue{delay: 20 * time.Millisecond}
		return q, "unix:" + openLabWith(b, Config{}, q, nil).Addr().String()
	}
	send := func(b *testing.B, conn *grpc.ClientConn) {
		var retries atomic.Int64
		var senders sync.WaitGroup
		next := make(chan struct{})
		for range inFlight {
			senders.Go(func() {
				for range next {
					for {
						_, err := export(conn, otlp.Traces, body, zipped)
						if err == nil {
							break
						}
						delay := retryAfter(status.Convert(err))
						if delay == 0 {
							b.Error(err)
							break
						}
						retries.Add(1)
						time.Sleep(delay)
					}
				}
			})
		}
		for range b.N {
			next <- struct{}{}
		}
		close(next)
		senders.Wait()
		b.ReportMetric(float64(retries.Load()), "retries")
	}
	report := func(b *testing.B, q *slowQueue) {
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
		if n := q.taken.Load(); n != int64(b.N) {
			b.Errorf("%d of %d batches arrived", n, b.N)
		}
	}
	body = zip(b, body)
	b.Run("direct", func(b *testing.B) {
		q, endpoint := backend(b)
		conn := dial(b, endpoint)
		b.ResetTimer()
		send(b, conn)
		report(b, q)
	})
	b.Run("through", func(b *testing.B) {
		q, endpoint := backend(b)
		d := otlp.NewDestination(endpoint)
		d.Concurrency = inFlight
		d.QueueBytes = 1 << 20
		x, err := otlp.Open(otlp.Options{Destinations: []otlp.Destination{d}})
		if err != nil {
			b.Fatal(err)
		}
		l := openLabWith(b, Config{}, x, nil)
		b.ResetTimer()
		send(b, l.conn)
		if err := x.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
		report(b, q)
	})
}
