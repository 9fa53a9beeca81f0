// Package client is a guest of a DOTS broker: it publishes objects, and keeps what other guests
// publish in containers. Its types come from .dots files, or are learned from the broker.
//
//	c := client.New(client.Options{Name: "thermostat"})
//	rooms, err := client.Subscribe(c, func(e *client.Event[*home.Room]) { ... })
//	err = c.Connect(ctx, "tcp://127.0.0.1")  // rooms is filled when it returns
//	err = c.Publish(ctx, &home.Room{ID: value.Some[uint32](7), Target: value.Some(21.5)})
//	room, ok := rooms.Get(home.RoomKey{ID: 7})
//	err = c.Close()
//
// What happens on the connection:
//
//	guest                                                broker
//	                             <-  DotsMsgHello          challenge, capabilities
//	DotsMsgConnect               ->                        name, answer to the challenge
//	                             <-  DotsMsgConnectResponse  client id
//	descriptors, DotsMember join ->                        of what is subscribed before Connect
//	                             <-  cached objects, DotsCacheInfo
//	DotsMsgConnect               ->                        all joined
//	                             <-  DotsMsgConnectResponse  all answered: Connect returns
//	DotsClient                   ->                        running
//	anything                     <->
//	DotsMsgError, code 0         ->                        Close
//
// # Goroutines
//
// One goroutine reads, changes containers and calls handlers, one after the other, in the order of
// the broker. A handler may publish, subscribe and read containers; it must not wait for anything
// that arrives later (Ping, Wait, Close), as nothing arrives until it returns. Another goroutine
// writes what is published: at once if that is little, and 32 KiB at a time if it is much. A
// publisher waits when Options.OutputBytes are not yet written. All methods may be called
// concurrently.
//
// A container changes only by what comes from the broker, own publications included, so that all
// guests see one order of changes.
//
// # Trust
//
// The broker is not trusted. Frames, types, and the objects in containers are bounded; a broker
// that exceeds a bound, or sends what is no DOTS, loses the client, with an error that says what it
// was. Nothing is reconnected: when Done is closed, a new Client may be made.
package client
