package broker

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// thing returns an object of about 40 bytes.
func thing(id uint32) *demo.DemoThing {
	return &demo.DemoThing{ID: value.Some(id), Name: value.Some("thirty bytes are in this string")}
}

// event is a struct like DemoThing, without a cache.
var event = func() *schema.Struct {
	s, err := schema.NewStruct("BenchEvent", schema.Flags{}, (&demo.DemoThing{}).Descriptor().Properties, "")
	if err != nil {
		panic(err)
	}
	return s
}()

// eventOf is a DemoThing of that type.
type eventOf struct{ *demo.DemoThing }

func (eventOf) Descriptor() *schema.Struct { return event }

// encoded returns n frames of objects with the first ids, or of events.
func encoded(tb testing.TB, n int, cached bool) (data []byte) {
	tb.Helper()
	var err error
	for i := range n {
		var x Instance = thing(uint32(i))
		if !cached {
			x = eventOf{thing(uint32(i))}
		}
		h := frame.Header{TypeName: []byte(x.Descriptor().Name), SentTime: 1.7e9, Attributes: x.Valid(),
			Set: frame.TypeName | frame.SentTime | frame.Attributes | frame.RemoveObj}
		data, err = frame.Append(data, frame.V2, &h, false, 0, x.AppendInstance(nil, x.Valid()))
		assert.NilError(tb, err)
	}
	return data
}

// benchmarkAddr returns the address of a new listener.
func benchmarkAddr(b *testing.B, br *Broker, network string) net.Addr {
	b.Helper()
	if network == "tcp" {
		return listenAt(b, br, "tcp://127.0.0.1:0")
	}
	return listenUnix(b, br, frame.V2)
}

// BenchmarkForward measures transmissions from one publisher to n subscribers that do not decode.
func BenchmarkForward(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		for _, cached := range []bool{false, true} {
			for _, n := range []int{1, 10} {
				b.Run(fmt.Sprintf("%s/cached=%v/to=%d", network, cached, n), func(b *testing.B) {
					benchmarkForward(b, network, cached, n)
				})
			}
		}
	}
}

func benchmarkForward(b *testing.B, network string, cached bool, n int) {
	const ids = 1000
	const ahead = 100 // rounds that the publisher may be ahead of each subscriber
	br := newBroker(b, Options{})
	addr := benchmarkAddr(b, br, network)
	publisher := connect(b, addr, frame.V2)
	s := event
	if cached {
		s = thing(0).Descriptor()
	}
	publisher.describe(s)
	publisher.barrier()
	subscribers := make([]*peer, n)
	for i := range subscribers {
		subscribers[i] = connect(b, addr, frame.V2)
		subscribers[i].join(s.Name)
		if cached {
			subscribers[i].expect("DotsCacheInfo")
		}
		subscribers[i].barrier()
	}
	data := encoded(b, ids, cached)
	// One round is waited for, which tells how many bytes one makes.
	publisher.write(data)
	round := 0
	for _, sub := range subscribers {
		round = 0
		for i := 0; i < ids; {
			r, err := sub.next()
			if err != nil {
				b.Fatal(err)
			}
			if r.name == s.Name {
				round += r.size
				i++
			}
		}
	}
	rounds := b.N/ids + 1
	done := make(chan error, n)
	windows := make([]chan struct{}, n)
	b.ReportAllocs()
	b.ResetTimer()
	for i, sub := range subscribers {
		window := make(chan struct{}, ahead)
		windows[i] = window
		go func() {
			_ = sub.conn.SetReadDeadline(time.Now().Add(time.Minute))
			buf := make([]byte, 256<<10)
			var err error
			got, seen := len(sub.buf), 0
			for got < rounds*round && err == nil {
				var n int
				n, err = sub.conn.Read(buf)
				for got += n; seen < got/round; seen++ {
					<-window
				}
			}
			for ; seen < rounds; seen++ { // after an error
				<-window
			}
			done <- err
		}()
	}
	for range rounds {
		for _, window := range windows {
			window <- struct{}{}
		}
		publisher.write(data)
	}
	for range subscribers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(rounds*ids*n)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkReplay measures how fast 100,000 cached objects reach a guest that joins.
func BenchmarkReplay(b *testing.B) {
	const objects = 100_000
	for _, network := range []string{"unix", "tcp"} {
		b.Run(network, func(b *testing.B) {
			br := newBroker(b, Options{})
			addr := benchmarkAddr(b, br, network)
			publisher := connect(b, addr, frame.V2)
			publisher.describe(thing(0).Descriptor())
			publisher.write(encoded(b, objects, true))
			publisher.barrier()
			buf := make([]byte, 256<<10)
			for b.Loop() {
				p := connect(b, addr, frame.V2)
				p.join("DemoThing")
				p.send(&system.DotsEcho{Request: value.Some(true), Data: value.Some("END")})
				_ = p.conn.SetReadDeadline(time.Now().Add(time.Minute))
				for {
					n, err := p.conn.Read(buf)
					if err != nil {
						b.Fatal(err)
					}
					if n >= 3 && string(buf[n-3:n]) == "END" {
						break
					}
				}
				p.conn.Close()
			}
			b.ReportMetric(float64(b.N*objects)/b.Elapsed().Seconds(), "obj/s")
		})
	}
}

// BenchmarkRoundTrip measures a publication that comes back to its publisher.
func BenchmarkRoundTrip(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		b.Run(network, func(b *testing.B) {
			br := newBroker(b, Options{})
			p := connect(b, benchmarkAddr(b, br, network), frame.V2)
			p.describe(event)
			p.join(event.Name)
			p.barrier()
			data := encoded(b, 1, false)
			p.write(data)
			p.expect(event.Name)
			buf := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				p.write(data)
				if _, err := p.conn.Read(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestIdleGuests measures the memory of a process with 1,000 idle guests, half of which are the
// other side: it is run with DOTS_IDLE=1.
func TestIdleGuests(t *testing.T) {
	if os.Getenv("DOTS_IDLE") == "" {
		t.Skip("DOTS_IDLE is not set")
	}
	b := newBroker(t, Options{})
	addr := listenUnix(t, b, frame.V2)
	before := resident(t)
	for range 1000 {
		connect(t, addr, frame.V2)
	}
	t.Logf("resident: %d KB, %d KB before", resident(t), before)
}

// resident returns the resident memory of this process in KB.
func resident(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	assert.NilError(t, err)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			assert.NilError(t, err)
			return n
		}
	}
	t.Fatal(io.ErrUnexpectedEOF)
	return 0
}
