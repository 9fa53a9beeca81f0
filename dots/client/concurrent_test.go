package client_test

import (
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/dots/client"
	"correlator/dots/internal/demo"
	"correlator/dots/value"
)

// TestConcurrent has several goroutines publish on one connection, and then close it: everything
// arrives, and what each goroutine published in its order, also when handlers publish meanwhile.
func TestConcurrent(t *testing.T) {
	const publishers, each = 4, 300
	_, uris := startBroker(t, broker.Options{})
	for _, kind := range []string{"tcp", "uds-v1", "ws"} {
		subscriber, publisher := client.New(client.Options{}), client.New(client.Options{OutputBytes: 4 << 10})
		next := make(map[uint32]float64)
		answers := 0
		gadgets, err := client.Subscribe(subscriber, func(e *client.Event[*demo.DemoGadget]) {
			if e.Operation == client.Remove {
				return
			}
			id := e.Updated.ID.Value()
			got := e.Updated.Level.Value()
			assert.Check(t, got == next[id], "object %d has level %v instead of %v", id, got, next[id])
			next[id]++
			assert.Check(t, subscriber.Publish(t.Context(), &demo.DemoEvent{N: value.Some(id)}))
		})
		must(t, err)
		_, err = client.Subscribe(subscriber, func(e *client.Event[*demo.DemoEvent]) {
			assert.Check(t, e.Own, "%+v", e.Header)
			answers++
		})
		must(t, err)
		dial(t, subscriber, uris[kind])
		dial(t, publisher, uris[kind])
		var all sync.WaitGroup
		for id := range uint32(publishers) {
			all.Go(func() {
				x := gadget(id, "x")
				for n := range each {
					x.Level.Set(float64(n))
					if err := publisher.Publish(t.Context(), x); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		must(t, publisher.Close())
		must(t, subscriber.Ping(t.Context())) // the objects have arrived
		must(t, subscriber.Ping(t.Context())) // and the answers of the handlers
		assert.Check(t, gadgets.Len() == publishers && answers == publishers*each,
			"%s: %d objects, %d answers", kind, gadgets.Len(), answers)
		for id := range uint32(publishers) {
			must(t, subscriber.Remove(t.Context(), gadget(id, ""))) // for the next subscriber
			assert.Check(t, next[id] == each, "%s: object %d was transmitted %v times", kind, id, next[id])
		}
		must(t, subscriber.Close())
	}
}
