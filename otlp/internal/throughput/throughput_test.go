// Package throughput measures the exporter against a receiver in a process of its own that is
// written with grpc-go, decodes every request, and waits before it answers; and for comparison, in
// turns with it, grpc-go used with generated messages. Clients are processes of their own, too:
// their CPU time and memory are theirs alone. With -v each run of a client is told; the figures are
// those of the median round, of -benchtime 3x, say. A round takes up to two minutes.
//
// Spans come to the exporter as bytes, as they were received, so encoding them is no part of what
// is measured there; copying them into memory of their own is. Profiles are built of samples within
// what is measured.
package throughput

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"correlator/otlp"
)

// rounds collects a figure of each round.
type rounds map[string][]float64

func (r rounds) add(name string, v float64) { r[name] = append(r[name], v) }

// report gives the median of each.
func (r rounds) report(b *testing.B) {
	for name, all := range r {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name)
	}
	b.ReportMetric(0, "ns/op") // says nothing
}

// BenchmarkConcurrency is by how much 20 requests in flight are faster than one, by the time that
// the receiver takes for an answer.
func BenchmarkConcurrency(b *testing.B) {
	for _, c := range []struct {
		wait    time.Duration
		batches int // one after the other
	}{
		{20 * time.Microsecond, 800}, {2 * time.Millisecond, 400}, {20 * time.Millisecond, 100},
		{200 * time.Millisecond, 15},
	} {
		b.Run(c.wait.String(), func(b *testing.B) {
			all := rounds{}
			for b.Loop() {
				for _, who := range []client{exporter, messages} {
					rate := func(concurrency, batches int) float64 {
						r, receiver := run(b, receiverConfig{Wait: c.wait}, clientConfig{
							Client: who, Shape: large, Concurrency: concurrency, Batches: batches, Waiting: 20,
						})
						b.Logf("%s, %d in flight: %v; receiver %v of CPU each", who, concurrency, r, receiver.CPU)
						return r.perSecond()
					}
					many, one := rate(20, min(20*c.batches, 1600)), rate(1, c.batches)
					all.add(string(who)+"-20:1", many/one)
				}
			}
			all.report(b)
		})
	}
}

// BenchmarkClient is what sending costs the client, with 20 requests in flight. The batches have
// memory of their own, as they do in the agent, or share it, so that nothing is measured but the
// exporter.
func BenchmarkClient(b *testing.B) {
	for _, c := range []struct {
		name             string
		shape            shape
		batches, waiting int
	}{
		{"large", large, 2000, 4}, {"small", small, 8000, 60},
	} {
		for _, gzip := range []bool{false, true} {
			name := c.name + "/none"
			if gzip {
				name = c.name + "/gzip"
			}
			b.Run(name, func(b *testing.B) {
				all := rounds{}
				for b.Loop() {
					send := func(name string, who client, shared bool) float64 {
						r, _ := run(b, receiverConfig{Wait: 20 * time.Microsecond}, clientConfig{
							Client: who, Shape: c.shape, Gzip: gzip, Concurrency: 20, Batches: c.batches,
							Waiting: c.waiting, Shared: shared,
						})
						b.Logf("%s: %v", name, r)
						all.add(name+"/cpu-s", r.perCPUSecond())
						all.add(name+"-RSS-MB", r.AtMost)
						return r.perCPUSecond()
					}
					own, shared, base := send("own", exporter, false), send("shared", exporter, true),
						send("messages", messages, false)
					all.add("own×messages", own/base)
					all.add("shared×messages", shared/base)
				}
				all.report(b)
			})
		}
	}
}

// BenchmarkThrottled is how many requests reach a receiver that asks for two seconds again and
// again for 15 s, with 20 in flight and more waiting.
func BenchmarkThrottled(b *testing.B) {
	all := rounds{}
	for b.Loop() {
		sent, received := run(b,
			receiverConfig{Wait: 20 * time.Millisecond, Throttle: 15 * time.Second, Retry: 2 * time.Second},
			clientConfig{Client: exporter, Shape: large, Gzip: true, Concurrency: 20, Batches: 100, Waiting: 20})
		b.Logf("%d throttled, %d taken: %v", received.Throttled, received.Taken, sent)
		all.add("throttled", float64(received.Throttled))
		all.add("lost", float64(sent.Lost))
	}
	all.report(b)
}

// BenchmarkHanging is how much a destination notices of one, or two, others that take requests and
// never answer: delays are from the offer until a batch is decoded. The batches that wait are the
// same for all of them, so with two there should be no more memory than with one.
func BenchmarkHanging(b *testing.B) {
	all := rounds{}
	for b.Loop() {
		var alone clientResult
		var aloneDelay receiverResult
		for hanging := range 3 {
			var hang []*process
			var addresses []string
			for range hanging {
				p, address := startReceiver(b, receiverConfig{Hang: true})
				hang, addresses = append(hang, p), append(addresses, address)
			}
			to := receiverConfig{Wait: 2 * time.Millisecond}
			fast, _ := run(b, to, clientConfig{
				Client: exporter, Shape: large, Concurrency: 20, Batches: 2000, Waiting: 4, Addresses: addresses,
			})
			b.Logf("%d hang, as fast as it goes: %v", hanging, fast)
			// 12 s: long enough for those that hang to be given up, and tried again.
			paced, delay := run(b, to, clientConfig{
				Client: exporter, Shape: small, Concurrency: 20, Batches: 6000, Waiting: 60,
				Every: 2 * time.Millisecond, Addresses: addresses,
			})
			b.Logf("%d hang, one in 2 ms: p50 %v, p99 %v: %v", hanging, delay.P50, delay.P99, paced)
			for _, p := range hang {
				p.end(&receiverResult{})
			}
			all.add(fmt.Sprintf("RSS-MB-%d", hanging), fast.AtMost)
			if hanging == 0 {
				alone, aloneDelay = fast, delay
				continue
			}
			all.add(fmt.Sprintf("throughput×-%d", hanging), fast.perSecond()/alone.perSecond())
			all.add(fmt.Sprintf("p50×-%d", hanging), delay.P50.Seconds()/aloneDelay.P50.Seconds())
			all.add(fmt.Sprintf("p99×-%d", hanging), delay.P99.Seconds()/aloneDelay.P99.Seconds())
		}
	}
	all.report(b)
}

// BenchmarkProfiles is what a sample costs from the builder until the receiver has it.
func BenchmarkProfiles(b *testing.B) {
	for _, gzip := range []bool{false, true} {
		name := "none"
		if gzip {
			name = "gzip"
		}
		b.Run(name, func(b *testing.B) {
			all := rounds{}
			for b.Loop() {
				r, _ := run(b, receiverConfig{Wait: 2 * time.Millisecond}, clientConfig{
					Client: builder, Gzip: gzip, Concurrency: otlp.DefaultConcurrency, Batches: 2000, Waiting: 4,
				})
				b.Logf("%d samples each: %v", samplesPerRequest, r)
				all.add("samples/s", samplesPerRequest*r.perSecond())
				all.add("user-ns/sample", r.User*1e9/samplesPerRequest/float64(r.Batches))
				all.add("cpu-ns/sample", r.CPU*1e9/samplesPerRequest/float64(r.Batches))
				all.add("RSS-MB", r.AtMost)
			}
			all.report(b)
		})
	}
}
