package client_test

import (
	"context"
	"fmt"
	"time"

	"correlator/dots/broker"
	"correlator/dots/client"
	"correlator/dots/internal/demo"
	"correlator/dots/value"
)

// A subscriber follows the objects that a publisher changes.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b := broker.New(broker.Options{Name: "example"})
	addr, err := b.ListenURI("tcp://127.0.0.1:0")
	check(err)

	subscriber := client.New(client.Options{Name: "subscriber"})
	gadgets, err := client.Subscribe(subscriber, func(e *client.Event[*demo.DemoGadget]) {
		fmt.Println(e.Operation, e.Updated.Name.Or("?"), e.Updated.Level.Value())
	})
	check(err)
	check(subscriber.Connect(ctx, "tcp://"+addr.String()))

	publisher, err := client.Dial(ctx, "tcp://"+addr.String(), client.Options{Name: "publisher"})
	check(err)
	check(publisher.Publish(ctx, &demo.DemoGadget{ID: value.Some[uint32](7), Name: value.Some("lamp")}))
	check(publisher.Publish(ctx, &demo.DemoGadget{ID: value.Some[uint32](7), Level: value.Some(0.5)}))
	check(publisher.Publish(ctx, &demo.DemoGadget{ID: value.Some[uint32](8), Name: value.Some("fan")}))
	check(publisher.Remove(ctx, &demo.DemoGadget{ID: value.Some[uint32](8)}))
	check(publisher.Close())

	check(subscriber.Ping(ctx)) // everything has arrived
	lamp, ok := gadgets.Get(demo.DemoGadgetKey{ID: 7})
	fmt.Println(gadgets.Len(), ok, lamp.Name.Value(), lamp.Level.Value())
	check(subscriber.Close())
	check(b.Shutdown(ctx))
	// Output:
	// create lamp 0
	// update lamp 0.5
	// create fan 0
	// remove fan 0
	// 1 true lamp 0.5
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
