// Command fleet sends to a backend of OTLP profiles what so many hosts would send in one interval, encoded as an agent
// does: to measure what a backend makes of it, and how long "explain --from" takes.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"correlator/otlp/profiles"
	"correlator/profile"
)

var (
	to     = flag.String("to", "http://127.0.0.1:4040", "the backend's URL")
	hosts  = flag.Int("hosts", 1000, "that send")
	of     = flag.Int("of", 5, "hosts that the trace ran on")
	traces = flag.Int("traces", 20, "others, of each host")
	at     = flag.Duration("ago", 0, "when it was")
	trace  = flag.String("trace", "4bf92f3577b34da6a3ce929d0e0e4736", "the trace that ran on several hosts")
)

var sent struct {
	sync.Mutex
	requests, bytes int
	samples         uint64
	err             error
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	id, err := hex.DecodeString(*trace)
	if err != nil || len(id) != 16 {
		log.Fatalf("-trace %q is not the id of a trace", *trace)
	}
	began := time.Now()
	numbers := make(chan int)
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for n := range numbers {
				send(n, [16]byte(id))
			}
		})
	}
	for n := range *hosts {
		numbers <- n
	}
	close(numbers)
	senders.Wait()
	if sent.err != nil {
		log.Fatal(sent.err)
	}
	fmt.Printf("%d hosts, %d requests, %d bytes, %d samples in %v\n", *hosts, sent.requests, sent.bytes, sent.samples,
		time.Since(began).Round(time.Millisecond))
}

// send sends what one host has sampled, of CPU and of waits.
func send(n int, trace [16]byte) {
	random := rand.New(rand.NewPCG(uint64(n), 1))
	options := profiles.Options{SamplesPerSecond: 20, HostName: fmt.Sprintf("host-%d", n), Version: "lab"}
	cpu, waits := profiles.NewBuilder(options, post), profiles.NewBuilder(options, post)
	process := &profile.Resource{PID: 1000 + n,
		Service: profile.Service{Name: fmt.Sprintf("shop-%d", n%20), Environment: "lab"}}
	for i := range *traces + 1 {
		id := [16]byte{15: 1}
		binary.BigEndian.PutUint64(id[:], random.Uint64())
		if i == 0 && n < *of {
			id = trace
		}
		for _, s := range samples(process, id, random) {
			to := cpu
			if s.Wait != nil {
				to = waits
			}
			fail(to.Add(&s))
		}
	}
	cpu.Flush()
	waits.Flush()
}

// samples are those of a transaction: of two threads, on a CPU and waiting for a lock and for the network.
func samples(process *profile.Resource, trace [16]byte, random *rand.Rand) (all []profile.Sample) {
	frames := func(names ...string) *profile.Stack {
		var frames []profile.Frame
		for i, name := range names {
			frames = append(frames, profile.NewJVMFrame(profile.NewFunction("shop."+name, "Shop.java"), uint32(10+i)))
		}
		return &profile.Stack{ID: profile.TraceID(frames), Frames: frames}
	}
	one := profile.Sample{Resource: process, TraceID: trace, TID: 7, Thread: "http-1", Count: 1,
		At: time.Now().Add(-*at)}
	binary.BigEndian.PutUint64(one.TransactionID[:], random.Uint64()|1)
	one.Last, one.Start, one.End = one.At, one.At.Add(-time.Second), one.At
	for i := range 4 {
		s := one
		s.Stack = frames(fmt.Sprintf("Basket.price%d", random.IntN(40)), "Basket.total", "Shop.checkout",
			"Server.serve")
		s.TID += i % 2
		s.Count = uint64(1 + i)
		all = append(all, s)
	}
	lock, network := one, one
	lock.Stack = frames("Stock.lock", "Stock.reserve", "Shop.checkout", "Server.serve")
	lock.Wait = &profile.Wait{State: profile.Futex, Sum: 80 * time.Millisecond, Waker: profile.Waker{
		Kind: profile.ThreadWaker, PID: process.PID, TID: 9, Thread: "http-2", TraceID: [16]byte{3},
		TransactionID: [8]byte{4}, Service: process.Name}}
	network.Stack = frames("Client.read", "Stock.reserve", "Shop.checkout", "Server.serve")
	network.Wait = &profile.Wait{State: profile.Net, Sum: 30 * time.Millisecond, Peer: "10.0.0.9:5432",
		Waker: profile.Waker{Kind: profile.NetworkWaker}}
	return append(all, lock, network)
}

func post(r profiles.Request) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, *to+"/v1development/profiles",
		bytes.NewReader(r.Body))
	if err != nil {
		fail(err)
		return
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		fail(err)
		return
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		fail(errors.Join(err, fmt.Errorf("%s: %q", response.Status, text)))
	}
	sent.Lock()
	defer sent.Unlock()
	sent.requests++
	sent.bytes += len(r.Body)
	sent.samples += r.Count
}

// fail keeps the first error.
func fail(err error) {
	sent.Lock()
	defer sent.Unlock()
	if sent.err == nil {
		sent.err = err
	}
}
