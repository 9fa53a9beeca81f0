package client_test

import (
	"testing"

	"correlator/dots/broker"
	"correlator/dots/client"
	"correlator/dots/internal/demo"
	"correlator/dots/value"
)

// BenchmarkThroughBroker has a publisher, a broker and a subscriber in one process. The publisher is
// some thousand transmissions ahead of the subscriber at most: the broker would disconnect that one.
func BenchmarkThroughBroker(b *testing.B) {
	const batch, batches = 1000, 100
	_, uris := startBroker(b, broker.Options{})
	subscriber, publisher := client.New(client.Options{}), client.New(client.Options{})
	n := 0
	done, window := make(chan struct{}), make(chan struct{}, batches)
	_, err := client.Subscribe(subscriber, func(*client.Event[*demo.DemoPing]) {
		if n++; n%batch == 0 {
			<-window
		}
		if n == b.N {
			close(done)
		}
	})
	must(b, err)
	dial(b, subscriber, uris["tcp"])
	dial(b, publisher, uris["tcp"])
	x := demo.DemoPing{N: value.Some[uint32](1), T: value.Some[value.Timepoint](1)}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if i%batch == 0 {
			window <- struct{}{}
		}
		must(b, publisher.Publish(b.Context(), &x))
	}
	<-done
}

// BenchmarkRoundTrip publishes the next object when the previous one has come back, in the handler.
func BenchmarkRoundTrip(b *testing.B) {
	_, uris := startBroker(b, broker.Options{})
	c := client.New(client.Options{})
	n, done := 0, make(chan struct{})
	x := demo.DemoPing{N: value.Some[uint32](1), T: value.Some[value.Timepoint](1)}
	_, err := client.Subscribe(c, func(*client.Event[*demo.DemoPing]) {
		if n++; n == b.N {
			close(done)
			return
		}
		must(b, c.Publish(b.Context(), &x))
	})
	must(b, err)
	dial(b, c, uris["tcp"])
	b.ReportAllocs()
	b.ResetTimer()
	must(b, c.Publish(b.Context(), &x))
	<-done
}
