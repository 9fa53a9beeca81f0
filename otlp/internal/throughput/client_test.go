package throughput

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	traceservice "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"

	"correlator/otlp"
	"correlator/otlp/profiles"
)

// client is a way to send.
type client string

const (
	exporter client = "exporter" // ours, with batches of encoded spans
	builder  client = "builder"  // ours, with profiles that are built of samples
	messages client = "messages" // grpc-go as anybody would use it: generated messages, encoded in every call
)

// clientConfig is what a client does.
type clientConfig struct {
	Client      client
	Shape       shape // of a batch; of no use to builder
	Gzip        bool
	Concurrency int
	Batches     int // that are sent and measured, after some to begin with

	// Of those with an exporter:
	Shared    bool          // the bytes of all batches are the same, in the same memory
	Waiting   int           // how many batches wait besides those in flight, at most
	Every     time.Duration // of them, one is offered; 0: as fast as they are sent
	Addresses []string      // of the receivers; all figures are of the first
}

// clientResult is how the client did while the batches were sent that count.
type clientResult struct {
	Batches, Lost    int // those lost before count too
	BatchBytes       int
	Seconds          float64
	CPU, User        float64 // seconds of this process
	Resident, AtMost float64 // MB at the end, and at any time
}

// samplesPerRequest is what two busy processes have in ten seconds.
const samplesPerRequest = 1000

func (r clientResult) perSecond() float64    { return float64(r.Batches) / r.Seconds }
func (r clientResult) perCPUSecond() float64 { return float64(r.Batches) / r.CPU }

func (r clientResult) String() string {
	return fmt.Sprintf("%d batches of %d bytes, %d lost, in %.3f s: %.0f/s, %.0f per CPU second (%.0f %% of it user), %.1f MB, at most %.1f",
		r.Batches, r.BatchBytes, r.Lost, r.Seconds, r.perSecond(), r.perCPUSecond(), 100*r.User/r.CPU, r.Resident,
		r.AtMost)
}

// runClient is the process of a client. It prints a clientResult.
func runClient(c clientConfig) error {
	send := c.export
	if c.Client == messages {
		send = c.invoke
	}
	r, err := send()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// since adds to a result what was used, and what memory there is now.
func (r *clientResult) since(before usage) error {
	after, err := used()
	if err != nil {
		return err
	}
	r.Seconds = after.at.Sub(before.at).Seconds()
	r.CPU, r.User = (after.cpu - before.cpu).Seconds(), (after.user - before.user).Seconds()
	r.Resident, r.AtMost, err = resident()
	return err
}

// export sends with our exporter.
func (c clientConfig) export() (r clientResult, err error) {
	var options otlp.Options
	for _, address := range c.Addresses {
		d := otlp.NewDestination(address)
		d.Concurrency = c.Concurrency
		if !c.Gzip {
			d.Compression = otlp.None
		}
		options.Destinations = append(options.Destinations, d)
	}
	x, err := otlp.Open(options)
	if err != nil {
		return r, err
	}
	defer func() {
		now, cancel := context.WithCancel(context.Background())
		cancel() // all is sent, but to those that hang
		x.Shutdown(now)
	}()
	next, err := c.batches()
	if err != nil {
		return r, err
	}
	f := flow{x: x, most: c.Concurrency + c.Waiting, every: c.Every}
	f.send(2*c.Concurrency, next)
	begun := x.Status()[0]
	before, err := used()
	if err != nil {
		return r, err
	}
	r.BatchBytes = f.send(c.Batches, next)
	if err := r.since(before); err != nil {
		return r, err
	}
	done := x.Status()[0]
	items := (done.Accepted - begun.Accepted) / uint64(c.Batches)
	r.Batches, r.Lost = int((done.Sent-begun.Sent)/items), int(done.Dropped.Sum()/items)
	return r, nil
}

// batches returns what makes the next batch.
func (c clientConfig) batches() (next func() *otlp.Batch, err error) {
	if c.Client == exporter {
		e, err := c.Shape.encode()
		return func() *otlp.Batch {
			now, body := time.Now(), e.body
			if !c.Shared {
				body = e.copyAt(now)
			}
			return otlp.NewBatch(otlp.Traces, body, c.Shape.Spans, now)
		}, err
	}
	all := samples(samplesPerRequest)
	var batch *otlp.Batch
	b := profiles.NewBuilder(profiles.Options{SamplesPerSecond: 20, HostID: "node-1", Version: "1"},
		func(r profiles.Request) {
			batch = otlp.NewProfilesBatch(r.Body, samplesPerRequest, r.Profiles, time.Now())
		})
	return func() *otlp.Batch {
		now := time.Now()
		for i := range all {
			s := &all[i]
			s.Start = now.Add(time.Duration(i/10) * 100 * time.Millisecond)
			s.End = s.Start.Add(100 * time.Millisecond)
			if err := b.Add(s); err != nil {
				panic(err)
			}
		}
		b.Flush()
		return batch
	}, nil
}

// flow offers batches so that there are never more than most at the first destination.
type flow struct {
	x     *otlp.Exporter
	most  int
	every time.Duration
}

// send returns the size of a batch when all have left the first destination's queue.
func (f flow) send(n int, next func() *otlp.Batch) (bytes int) {
	room := 0
	begin := time.Now()
	for i := range n {
		for ; room == 0; room = f.most - f.held() {
			time.Sleep(tick)
		}
		if f.every > 0 {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * f.every)))
		}
		b := next()
		bytes = len(b.Request())
		f.x.Enqueue(b)
		room--
	}
	for f.held() > 0 {
		time.Sleep(tick)
	}
	return bytes
}

// tick is how often a client looks. Go makes a millisecond of it when nothing else happens.
const tick = 200 * time.Microsecond

// held is how many batches the first destination has.
func (f flow) held() int {
	s := f.x.Status()[0]
	return s.QueuedBatches + s.InFlight
}

// invoke sends without an exporter: as many callers as requests in flight, each with a message of
// its own.
func (c clientConfig) invoke() (r clientResult, err error) {
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if c.Gzip {
		// The compressor is that of package otlp, level 1 as well, in every call.
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	}
	conn, err := grpc.NewClient(strings.TrimPrefix(c.Addresses[0], "http://"), options...)
	if err != nil {
		return r, err
	}
	defer conn.Close()
	callers := make([]*traceservice.ExportTraceServiceRequest, c.Concurrency)
	for i := range callers {
		callers[i] = c.Shape.message()
	}
	send := func(n int) (lost int) {
		var left, failed atomic.Int64
		left.Store(int64(n))
		var wait sync.WaitGroup
		for _, m := range callers {
			wait.Go(func() {
				for left.Add(-1) >= 0 {
					m.ResourceSpans[0].ScopeSpans[0].Spans[0].StartTimeUnixNano = uint64(time.Now().UnixNano())
					ctx, cancel := context.WithTimeout(context.Background(), otlp.DefaultTimeout)
					if conn.Invoke(ctx, otlp.Traces.Method(), m, &traceservice.ExportTraceServiceResponse{}) != nil {
						failed.Add(1)
					}
					cancel()
				}
			})
		}
		wait.Wait()
		return int(failed.Load())
	}
	send(2 * c.Concurrency)
	before, err := used()
	if err != nil {
		return r, err
	}
	r.Lost = send(c.Batches)
	r.Batches = c.Batches - r.Lost
	if err := r.since(before); err != nil {
		return r, err
	}
	e, err := c.Shape.encode()
	r.BatchBytes = len(e.body)
	return r, err
}
