package throughput

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"correlator/dots/broker"
	"correlator/dots/client"
	"correlator/dots/value"
)

const (
	ahead         = 200_000 // transmissions that the publisher may be ahead of the subscriber
	progressEvery = 20_000
	warmUp        = 5 // a part of so much is not measured
	objects       = 1000
	batch         = 100 // round trips: some milliseconds, less than a slice of time
)

// payload makes an instance of 40 bytes: 1 for the map, 6 for the number, 10 for the level.
var payload = strings.Repeat("x", 21)

func runBroker(role) error {
	b := broker.New(broker.Options{})
	address, err := b.ListenURI("tcp://127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("tcp://%v\n", address)
	if err := untilEnd(); err != nil {
		return err
	}
	return b.Shutdown(context.Background())
}

// runSubscriber prints a line when it has subscribed, and then how many transmissions it received
// in a second.
func runSubscriber(r role) error {
	ctx := context.Background()
	c := client.New(client.Options{Name: r.Name})
	defer c.Close()
	done := make(chan float64, 1)
	received := 0
	var begin time.Time
	first := r.Count / warmUp
	on := func() {
		received++
		if received == first {
			begin = time.Now()
		}
		if received%progressEvery == 0 || received == r.Count {
			_ = c.Publish(ctx, &BenchProgress{Received: value.Some(uint32(received))})
		}
		if received == r.Count {
			done <- float64(r.Count-first) / time.Since(begin).Seconds()
		}
	}
	var err error
	if r.Cached {
		_, err = client.Subscribe(c, func(*client.Event[*BenchObject]) { on() })
	} else {
		_, err = client.Subscribe(c, func(*client.Event[*BenchItem]) { on() })
	}
	if err != nil {
		return err
	}
	if err := c.Connect(ctx, r.Broker); err != nil {
		return err
	}
	fmt.Println("ready")
	select {
	case rate := <-done:
		fmt.Println(rate)
		return nil
	case <-c.Done():
		return c.Err()
	}
}

func runPublisher(r role) error {
	ctx := context.Background()
	c := client.New(client.Options{Name: r.Name})
	defer c.Close()
	var received atomic.Int64
	progress := make(chan struct{}, 1)
	_, err := client.Subscribe(c, func(e *client.Event[*BenchProgress]) {
		received.Store(int64(e.Updated.Received.Value()))
		select {
		case progress <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	if err := c.Connect(ctx, r.Broker); err != nil {
		return err
	}
	item := &BenchItem{Level: value.Some(1.5), Text: value.Some(payload)}
	object := &BenchObject{Level: value.Some(1.5), Text: value.Some(payload[:16])}
	for i := range r.Count {
		for int64(i)-received.Load() >= ahead {
			select {
			case <-progress:
			case <-c.Done():
				return c.Err()
			}
		}
		number := uint32(1<<16 + i) // of the same size always
		if r.Cached {
			object.ID.Set(1<<16 + number%objects)
			object.Number.Set(number)
			err = c.Publish(ctx, object)
		} else {
			item.Number.Set(number)
			err = c.Publish(ctx, item)
		}
		if err != nil {
			return err
		}
	}
	return c.Ping(ctx)
}

// runFiller publishes different objects, and prints a line when the broker has them.
func runFiller(r role) error {
	ctx := context.Background()
	c, err := client.Dial(ctx, r.Broker, client.Options{Name: r.Name})
	if err != nil {
		return err
	}
	defer c.Close()
	object := &BenchObject{Level: value.Some(1.5), Text: value.Some(payload[:16])}
	for i := range r.Count {
		object.ID.Set(uint32(1<<16 + i))
		object.Number.Set(uint32(1<<16 + i))
		if err := c.Publish(ctx, object); err != nil {
			return err
		}
	}
	if err := c.Ping(ctx); err != nil {
		return err
	}
	fmt.Println("filled")
	return nil
}

// runJoiner prints how many objects a second it gets from the cache.
func runJoiner(r role) error {
	ctx := context.Background()
	c, err := client.Dial(ctx, r.Broker, client.Options{Name: r.Name})
	if err != nil {
		return err
	}
	defer c.Close()
	begin := time.Now()
	s, err := client.Subscribe[*BenchObject](c, nil)
	if err != nil {
		return err
	}
	if err := s.Wait(ctx); err != nil {
		return err
	}
	took := time.Since(begin)
	if s.Len() != r.Count {
		return fmt.Errorf("%d objects, want %d", s.Len(), r.Count)
	}
	fmt.Println(float64(r.Count) / took.Seconds())
	return nil
}

// runEcho prints how many microseconds its own publication takes to the broker and back: the mean,
// and that of the fastest 100 in a row, which other work on the machine did not interrupt.
func runEcho(r role) error {
	ctx := context.Background()
	c := client.New(client.Options{Name: r.Name})
	defer c.Close()
	done := make(chan struct{})
	trip := &BenchRoundTrip{}
	last, fastest := time.Now(), time.Hour
	_, err := client.Subscribe(c, func(e *client.Event[*BenchRoundTrip]) {
		n := e.Updated.Number.Value()
		if int(n) == r.Count {
			close(done)
			return
		}
		if n%batch == 0 {
			now := time.Now()
			fastest = min(fastest, now.Sub(last))
			last = now
		}
		trip.Number.Set(n + 1)
		_ = c.Publish(ctx, trip) // an error ends the connection
	})
	if err != nil {
		return err
	}
	if err := c.Connect(ctx, r.Broker); err != nil {
		return err
	}
	begin := time.Now()
	if err := c.Publish(ctx, &BenchRoundTrip{Number: value.Some[uint32](1)}); err != nil {
		return err
	}
	select {
	case <-done:
	case <-c.Done():
		return c.Err()
	}
	fmt.Println(time.Since(begin).Seconds() * 1e6 / float64(r.Count))
	fmt.Println(fastest.Seconds() * 1e6 / batch)
	return nil
}

// bareBytes is about as long as what runEcho publishes.
const bareBytes = 48

// runMirror sends back what one connection sends.
func runMirror(role) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	var buf [bareBytes]byte
	for {
		n, err := conn.Read(buf[:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			_, err = conn.Write(buf[:n])
		}
		if err != nil {
			return err
		}
	}
}

// runBare prints how many microseconds a write takes that is sent back, as runEcho does: what the
// kernel and the runtime of Go need.
func runBare(r role) error {
	conn, err := net.Dial("tcp", r.Broker)
	if err != nil {
		return err
	}
	defer conn.Close()
	var buf [bareBytes]byte
	begin := time.Now()
	last, fastest := begin, time.Hour
	for n := range r.Count {
		if _, err := conn.Write(buf[:]); err != nil {
			return err
		}
		if _, err := conn.Read(buf[:]); err != nil {
			return err
		}
		if n%batch == batch-1 {
			now := time.Now()
			fastest = min(fastest, now.Sub(last))
			last = now
		}
	}
	fmt.Println(time.Since(begin).Seconds() * 1e6 / float64(r.Count))
	fmt.Println(fastest.Seconds() * 1e6 / batch)
	return nil
}

// runIdle connects guests that do nothing.
func runIdle(r role) error {
	ctx := context.Background()
	for range r.Count {
		c, err := client.Dial(ctx, r.Broker, client.Options{Name: r.Name})
		if err != nil {
			return err
		}
		defer c.Close()
	}
	fmt.Println("connected")
	return untilEnd()
}
