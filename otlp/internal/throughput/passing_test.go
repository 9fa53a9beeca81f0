package throughput

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"correlator/otlp"
	"correlator/otlp/receiver"
)

// passerConfig configures an agent that receives OTLP and passes it on.
type passerConfig struct {
	To         string // the receiver
	QueueBytes int64
}

type passerResult struct {
	Queued  int    // batches that were acknowledged and not yet sent when the client had ended
	Refused uint64 // items that the client had to send again
	Dropped uint64 // items
}

// pass passes on until the standard input ends. It prints its address first, and a passerResult at
// the end.
func pass(c passerConfig) error {
	d := otlp.NewDestination(c.To)
	d.QueueBytes, d.Compression = c.QueueBytes, otlp.None
	x, err := otlp.Open(otlp.Options{Destinations: []otlp.Destination{d}})
	if err != nil {
		return err
	}
	r, err := receiver.Open(receiver.Config{Listen: "127.0.0.1:0"}, x)
	if err != nil {
		return err
	}
	fmt.Println("http://" + r.Addr().String())
	io.Copy(io.Discard, os.Stdin)
	s := x.Status()[0]
	result := passerResult{Queued: s.QueuedBatches + s.InFlight}
	for _, signal := range r.Status().Signals {
		result.Refused += signal.Refused
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		return err
	}
	if err := x.Shutdown(ctx); err != nil {
		return err
	}
	result.Dropped = x.Status()[0].Dropped.Sum()
	return json.NewEncoder(os.Stdout).Encode(result)
}

// BenchmarkPassing is how fast a sender is through --otlp-listen compared with sending directly, by
// the time that the receiver takes for a response. The queue is small, so that it is full most of
// the time.
func BenchmarkPassing(b *testing.B) {
	for _, c := range []struct {
		wait    time.Duration
		batches int
	}{{2 * time.Millisecond, 4000}, {50 * time.Millisecond, 2000}, {500 * time.Millisecond, 400}} {
		b.Run(c.wait.String(), func(b *testing.B) {
			all := rounds{}
			for b.Loop() {
				client := clientConfig{
					Client: exporter, Shape: small, Concurrency: otlp.DefaultConcurrency, Batches: c.batches,
					Waiting: 20,
				}
				direct, _ := run(b, receiverConfig{Wait: c.wait}, client)
				b.Logf("directly: %v", direct)

				end, address := startReceiver(b, receiverConfig{Wait: c.wait})
				passer := start(b, role{Passer: &passerConfig{To: address, QueueBytes: 1 << 20}})
				client.Addresses = []string{passer.line()}
				var through clientResult
				var passed passerResult
				var received receiverResult
				start(b, role{Client: &client}).end(&through)
				passer.end(&passed)
				end.end(&received)
				b.Logf("through: %v; %+v", through, passed)
				if through.Lost > 0 || passed.Dropped > 0 || received.Taken < c.batches {
					b.Errorf("lost: %d batches by the client, %d items on the way; %d of %d arrived", through.Lost,
						passed.Dropped,
						received.Taken, c.batches)
				}
				// What waits at the end has not been passed on.
				all.add("direct/s", direct.perSecond())
				all.add("through×", float64(c.batches-passed.Queued)/through.Seconds/direct.perSecond())
				all.add("refused", float64(passed.Refused)/float64(small.Spans))
			}
			all.report(b)
		})
	}
}
