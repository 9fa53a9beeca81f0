package receiver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"

	"correlator/internal/host/connlimit"
	"correlator/internal/lab/testenv"
	"correlator/otlp"
)

// begin opens a call that the client does not end, and sends message unless it is nil.
func begin(t testing.TB, conn *grpc.ClientConn, message []byte) (grpc.ClientStream, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, otlp.Traces.Method())
	if err == nil && message != nil {
		err = stream.SendMsg(message)
	}
	return stream, err
}

// finish ends a call.
func finish(stream grpc.ClientStream) error {
	if err := stream.CloseSend(); err != nil {
		return err
	}
	var answer []byte
	return stream.RecvMsg(&answer)
}

// At most 16 requests of a connection and 64 in all are in work; as many wait for them. Further
// ones are refused at once.
func TestLimits(t *testing.T) {
	for _, c := range []struct{ connections, each, inWork, refused int }{
		{1, maxStreams + 4, maxStreams, 0}, {5, maxStreams, maxInWork, 0}, {10, maxStreams, maxInWork, 160 - maxOpen},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := openBubble(t)
			body, items := sound(t, otlp.Traces)
			var mu sync.Mutex
			var streams []grpc.ClientStream
			for range c.connections {
				conn := b.dial()
				for range c.each {
					go func() {
						stream, err := begin(t, conn, body)
						mu.Lock()
						defer mu.Unlock()
						streams = append(streams, stream)
						assert.Check(t, err == nil || err == io.EOF, err)
					}()
				}
			}
			synctest.Wait()
			n := b.Status().InWork
			assert.Check(t, n == c.inWork, "%d requests are in work, want %d", n, c.inWork)
			want := ""
			if c.refused > 0 {
				want = fmt.Sprintf("items=%d, refused_items overload=%[1]d, requests UNAVAILABLE=%[1]d", c.refused)
			}
			got := counts(t, b.Receiver, otlp.Traces)
			assert.Check(t, got == want, "counters: %s, want %s", got, want)
			refused := 0
			for done := 0; done < c.connections*c.each; {
				mu.Lock()
				batch := streams
				streams = nil
				mu.Unlock()
				done += len(batch)
				for _, stream := range batch {
					go func() {
						if err := finish(stream); err != nil {
							wantError(t, err, codes.Unavailable, true)
							mu.Lock()
							refused++
							mu.Unlock()
						}
					}()
				}
				synctest.Wait()
			}
			if n, want := len(b.taken()), c.connections*c.each-c.refused; refused != c.refused || n != want {
				t.Errorf("%d requests were refused and %d taken, want %d and %d of %d items", refused, n, c.refused,
					want, items)
			}
			n, s := b.opened(), b.Status()
			assert.Check(t, n == 0 && s.InWork == 0 && s.Connections == c.connections, "%d calls, %+v", n, s)
		})
	}
}

// If too many wait, one of those who have the most is refused; and whoever has the least is next.
func TestGreedyAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		p := newPool(context.Background(), 2, 2)
		greedy, modest := &caller{conn: new(connlimit.Conn)}, &caller{conn: new(connlimit.Conn)}
		holder, kept := p.try(greedy, 1), p.try(greedy, 1)
		acquire := func(by *caller) chan error {
			result := make(chan error, 1)
			go func() {
				_, err := p.acquire(ctx, by, 1)
				result <- err
			}()
			synctest.Wait()
			return result
		}
		first, second, ours := acquire(greedy), acquire(greedy), acquire(modest)
		assert.Check(t, len(first) == 0 && len(ours) == 0 && <-second == errTooMany, "the greedy one is not refused")
		p.release(holder)
		assert.Check(t, <-ours)
		cancel()
		assert.Check(t, <-first == context.Canceled && kept != nil, "the greedy one has it, too")
	})
}

// slowSenders opens calls without data, as many as there are slots, from four connections.
func (b *bubble) slowSenders() []grpc.ClientStream {
	b.Helper()
	var streams []grpc.ClientStream
	for range maxInWork / maxStreams {
		conn := b.dial()
		for range maxStreams {
			stream, err := begin(b, conn, nil)
			assert.NilError(b, err)
			streams = append(streams, stream)
		}
	}
	synctest.Wait()
	if n := b.inWork(); n != maxInWork {
		b.Fatalf("%d slots are taken, want %d", n, maxInWork)
	}
	return streams
}

// A call without data loses its slot to another that waits, after connlimit.Grace. Without others
// it is served until its deadline.
func TestSlowSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t)
		start := time.Now()
		streams := b.slowSenders()
		body, _ := sound(t, otlp.Metrics)
		_, err := export(b.dial(), otlp.Metrics, body)
		assert.Check(t, err)
		took := time.Since(start)
		assert.Check(t, took == connlimit.Grace, "it was taken after %v, want %v", took, connlimit.Grace)
		b.only(t)
		slow := 0
		for _, stream := range streams {
			var answer []byte
			switch err := stream.RecvMsg(&answer); status.Code(err) {
			case codes.Unavailable:
				wantError(t, err, codes.Unavailable, true)
				slow++
			case codes.DeadlineExceeded:
			default:
				t.Errorf("a slow sender got %v", err)
			}
		}
		if took := time.Since(start); slow != 1 || took != callTimeout {
			t.Errorf("%d slow senders lost their slot; the others after %v", slow, took)
		}
		got, want := counts(t, b.Receiver, otlp.Traces), fmt.Sprintf("items=1, refused_items slow=1, "+
			"requests DEADLINE_EXCEEDED=%d, requests UNAVAILABLE=1", maxInWork-1)
		assert.Check(t, got == want, "counters: %s, want %s", got, want)
	})
}

// Requests that get no slot in time are refused while their clients still wait.
func TestNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t)
		var taken []*claim
		for range maxInWork { // of calls that are being checked
			taken = append(taken, b.slots.try(&caller{conn: new(connlimit.Conn)}, 1))
		}
		body, _ := sound(t, otlp.Metrics)
		start := time.Now()
		_, err := export(b.dial(), otlp.Metrics, body)
		wantError(t, err, codes.Unavailable, true)
		took := time.Since(start)
		assert.Check(t, took == slotTimeout, "it was refused after %v, want %v", took, slotTimeout)
		// A request that is cancelled meanwhile counts as not received.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = b.dial().Invoke(ctx, otlp.Profiles.Method(), body, new([]byte))
		wantError(t, err, codes.DeadlineExceeded, false)
		synctest.Wait()
		for signal, want := range map[otlp.Signal]string{
			otlp.Profiles: "requests DEADLINE_EXCEEDED=1",
			otlp.Metrics:  "items=1, refused_items overload=1, requests UNAVAILABLE=1",
		} {
			got := counts(t, b.Receiver, signal)
			assert.Check(t, got == want || signal != otlp.Metrics, "counters of %v: %s, want %s", signal, got, want)
		}
		for _, c := range taken {
			b.slots.release(c)
		}
		_, err = export(b.dial(), otlp.Metrics, body)
		assert.Check(t, err)
	})
}

// prefix returns the prefix of a message of size bytes.
func prefix(size int) []byte { return binary.BigEndian.AppendUint32([]byte{0}, uint32(size)) }

// trickle is the body of a request that is shorter than announced, and stays open.
type trickle struct {
	io.Reader
	closed chan struct{}
	once   sync.Once
}

func newTrickle(announced, sent int) *trickle {
	return &trickle{
		Reader: io.MultiReader(bytes.NewReader(prefix(announced)), io.LimitReader(zeros{}, int64(sent))),
		closed: make(chan struct{}),
	}
}

func (s *trickle) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if err == io.EOF {
		<-s.closed
	}
	return n, err
}

func (s *trickle) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// client returns a connection for arbitrary requests.
func client(t testing.TB, dial func(ctx context.Context) (net.Conn, error)) *http.Transport {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols: &protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn,
			error) {
			return dial(ctx)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// post sends a request over it, which ends with ctx.
func post(ctx context.Context, t testing.TB, transport *http.Transport, path string, headers map[string]string,
	body io.Reader) (*http.Response, error) {
	t.Helper()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://receiver"+path, body)
	assert.NilError(t, err)
	q.Header.Set("Content-Type", "application/grpc")
	q.Header.Set("Te", "trailers")
	for k, v := range headers {
		q.Header.Set(k, v)
	}
	return transport.RoundTrip(q)
}

// Two large requests that arrive slowly take all memory for large requests. Small ones are accepted
// nevertheless; another large one takes the memory of a slow one, after connlimit.Grace.
func TestLargeRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		slow := client(t, b.listener.DialContext)
		ended := make(chan struct{}, 2)
		for range 2 {
			go func() {
				if answer, err := post(ctx, t, slow, otlp.Traces.Method(), nil,
					newTrickle(DefaultMaxRequestBytes, 1)); err == nil {
					answer.Body.Close()
				}
				ended <- struct{}{}
			}()
		}
		synctest.Wait()
		assert.Assert(t, !b.memoryFree(1), "there is memory left for large requests")
		small, _ := sound(t, otlp.Metrics)
		conn := b.dial()
		start := time.Now()
		if _, err := export(conn, otlp.Metrics, small); err != nil || time.Since(start) > 0 {
			t.Errorf("a small request: %v, after %v", err, time.Since(start))
		}
		large := encode(t, traceRequest(largeSpan(100_000)))
		if _, err := export(conn, otlp.Traces, large); err != nil || time.Since(start) != connlimit.Grace {
			t.Errorf("a large request: %v, after %v", err, time.Since(start))
		}
		<-ended
		assert.Check(t, len(ended) == 0, "both slow requests were ended")
		cancel()
		<-ended
		synctest.Wait()
		assert.Check(t, b.memoryFree(memoryLimit(DefaultMaxRequestBytes)),
			"memory for large requests is taken in the end")
	})
}

// A large request that waits for memory is not slow: it keeps its slot, whoever waits for one.
func TestWaitForMemoryIsNotSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t)
		ours := &caller{conn: new(connlimit.Conn)} // in work, and not slow
		memory := b.memory.try(ours, memoryLimit(DefaultMaxRequestBytes))
		conn := b.dial()
		large, small := make(chan error, 1), make(chan error, 1)
		body := encode(t, traceRequest(largeSpan(100_000)))
		go func() {
			_, err := export(conn, otlp.Traces, body)
			large <- err
		}()
		synctest.Wait()
		n := b.inWork()
		assert.Assert(t, n == 1, "%d requests are in work, want 1", n)
		var slots []*claim
		for range maxInWork - 1 {
			slots = append(slots, b.slots.try(ours, 1))
		}
		go func() {
			body, _ := sound(t, otlp.Metrics)
			_, err := export(conn, otlp.Metrics, body)
			small <- err
		}()
		time.Sleep(3 * connlimit.Grace)
		if b.opened() != maxOpen/2+1 || len(large) > 0 || len(small) > 0 {
			t.Errorf("%d calls, want the large one and the one that waits for a slot", b.opened())
		}
		b.memory.release(memory)
		err := <-large
		assert.Check(t, err, "the large request")
		for _, c := range slots {
			b.slots.release(c)
		}
		err = <-small
		assert.Check(t, err, "the small request")
		got, want := counts(t, b.Receiver, otlp.Traces), "items=1, requests OK=1"
		assert.Check(t, got == want, "counters: %s, want %s", got, want)
	})
}

// A large request for which there is no memory in time is refused.
func TestNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t)
		b.memory.try(&caller{conn: new(connlimit.Conn)}, memoryLimit(DefaultMaxRequestBytes)) // not a slow one's
		start := time.Now()
		_, err := export(b.dial(), otlp.Traces, encode(t, traceRequest(largeSpan(100_000))))
		wantError(t, err, codes.Unavailable, true)
		took := time.Since(start)
		assert.Check(t, took == slotTimeout, "it was refused after %v, want %v", took, slotTimeout)
	})
}

// Clients that send as much as possible of as many requests as possible, and never end one, take
// the memory that the package documents, and none once they are gone.
func TestAbuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t)
		bound := measure(t)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var calls sync.WaitGroup
		conns := make(chan net.Conn, maxConnections)
		for range maxOpen/maxStreams + 2 {
			transport := client(t, func(ctx context.Context) (net.Conn, error) {
				conn, err := b.listener.DialContext(ctx)
				conns <- conn
				return conn, err
			})
			transport.MaxConnsPerHost = 1
			for range maxStreams {
				calls.Go(func() {
					body := newTrickle(DefaultMaxRequestBytes, DefaultMaxRequestBytes)
					if answer, err := post(ctx, t, transport, otlp.Traces.Method(), nil, body); err == nil {
						answer.Body.Close()
					}
				})
			}
		}
		synctest.Wait()
		if b.opened() != maxOpen || b.inWork() != maxInWork || b.memoryFree(1) {
			t.Errorf("%d calls, of which %d are in work; memory is left: %t", b.opened(), b.inWork(), b.memoryFree(1))
		}
		const most = maxOpen*(window+1) + maxInWork*(window+1) + 2*DefaultMaxRequestBytes
		bound(most + 8<<20) // the clients' share, about
		cancel()
		calls.Wait()
		for range len(conns) {
			(<-conns).Close()
		}
		synctest.Wait()
		b.wantNothingTaken()
		body, _ := sound(t, otlp.Traces)
		_, err := export(b.dial(), otlp.Traces, body)
		assert.Check(t, err)
		b.only(t)
	})
}

// wantNothingTaken fails the test if there are calls, connections, or memory of calls.
func (b *bubble) wantNothingTaken() {
	b.Helper()
	if n := b.Status().Connections; n != 0 || b.opened() != 0 || !b.memoryFree(memoryLimit(b.limit)) {
		b.Errorf("%d connections and %d calls are left", n, b.opened())
	}
}

// frame returns a frame of HTTP/2: RFC 9113, section 4.1.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	b = binary.BigEndian.AppendUint32(append(b, flags), stream)
	return append(b, payload...)
}

const (
	frameData     = 0
	frameHeaders  = 1
	frameReset    = 3
	frameSettings = 4
	endStream     = 1
	endHeaders    = 4
)

// opening returns the preface of a connection with settings (pairs of identifier and value).
func opening(settings ...uint32) []byte {
	var payload []byte
	for i := 0; i < len(settings); i += 2 {
		payload = binary.BigEndian.AppendUint16(payload, uint16(settings[i]))
		payload = binary.BigEndian.AppendUint32(payload, settings[i+1])
	}
	return append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(frameSettings, 0, 0, payload)...)
}

// call returns the headers of a call of the traces service: RFC 7541, literal fields without
// indexing.
func call(stream uint32) []byte {
	var block []byte
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", otlp.Traces.Method()}, {":authority", "receiver"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		block = append(append(append(block, 0, byte(len(field[0]))), field[0]...), byte(len(field[1])))
		block = append(block, field[1]...)
	}
	return frame(frameHeaders, endHeaders, stream, block)
}

// A client with a flow-control window of 0, which cannot get a response, does not keep its call.
func TestNoWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t)
		conn, err := b.listener.DialContext(context.Background())
		assert.NilError(t, err)
		defer conn.Close()
		resets := make(chan uint32, 1)
		go func() {
			for header := make([]byte, 9); ; {
				if _, err := io.ReadFull(conn, header); err != nil {
					return
				}
				size := int64(header[0])<<16 | int64(header[1])<<8 | int64(header[2])
				if _, err := io.CopyN(io.Discard, conn, size); err != nil {
					return
				}
				if header[3] == frameReset {
					resets <- binary.BigEndian.Uint32(header[5:])
				}
			}
		}()
		body := encode(t, traceRequest(aSpan("a"), badSpan())) // so that the response is not empty
		const initialWindowSize = 4
		out := append(opening(initialWindowSize, 0), call(1)...)
		out = append(out, frame(frameData, endStream, 1, append(prefix(len(body)), body...))...)
		start := time.Now()
		_, err = conn.Write(out)
		assert.NilError(t, err)
		synctest.Wait()
		b.only(t)
		n, s := b.opened(), b.Status()
		assert.Check(t, n == 0 && s.InWork == 0, "%d calls, %+v", n, s)
		if stream := <-resets; stream != 1 || time.Since(start) != callTimeout+slotTimeout {
			t.Errorf("stream %d was reset after %v", stream, time.Since(start))
		}
	})
}

// Every item that was received was passed on, rejected or refused, also during a shutdown.
func TestIdentity(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		l := openLab(t, Config{MaxRequestBytes: 20_000})
		var requests [][]byte
		var signals []otlp.Signal
		for range 60 {
			signal := otlp.Signal(random.IntN(int(otlp.NumSignals)))
			body, _ := sound(t, signal)
			switch random.IntN(6) {
			case 0:
				body[random.IntN(len(body))] ^= byte(1 + random.IntN(255))
			case 1:
				body = body[:random.IntN(len(body))]
			case 2:
				signal, body = otlp.Traces, encode(t, traceRequest(aSpan("a"), badSpan(), badSpan()))
			case 3:
				signal, body = otlp.Traces, encode(t, traceRequest(largeSpan(random.IntN(40_000))))
			}
			signals, requests = append(signals, signal), append(requests, body)
		}
		l.store.refuse = func() error {
			return []error{nil, nil, nil, &otlp.OverloadError{}, otlp.ErrTooLarge, otlp.ErrUnsupported}[rand.IntN(6)]
		}
		stop := random.IntN(len(requests)) // at some time, or not before the end
		var calls sync.WaitGroup
		for i, body := range requests {
			var options []grpc.CallOption
			if i%2 == 0 {
				options = append(options, zipped)
			}
			calls.Go(func() { export(l.conn, signals[i], body, options...) })
			if i == stop {
				calls.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(stop)*time.Millisecond)
					defer cancel()
					l.Shutdown(ctx)
				})
			}
		}
		calls.Wait()
		passed := make(map[otlp.Signal]uint64)
		for _, b := range l.taken() {
			passed[b.Signal()] += uint64(b.Items())
		}
		for signal, s := range l.Status().Signals {
			assert.Check(t, s.PassedOn == passed[otlp.Signal(signal)] && s.Received == s.PassedOn+s.Rejected+s.Refused,
				"%v: %+v, %d items were passed on", otlp.Signal(signal), s, passed[otlp.Signal(signal)])
		}
	}
}

// Clients that never read what they are sent, and send what needs a response, take no more memory
// than others, and are disconnected.
func TestResponsesThatAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t)
		bound := measure(t)
		// Their responses have 17 bytes, of which net/http keeps 10,000 before it closes the connection.
		const framePing, pings, conns = 6, bubbleBuffer/17 + 15_000, 24
		out := append(opening(), bytes.Repeat(frame(framePing, 0, 0, make([]byte, 8)), pings)...)
		for i := range uint32(maxStreams) {
			out = append(out, call(2*i+1)...)
			for sent := 0; sent < window; sent += frameSize {
				size := min(frameSize, window-sent)
				out = append(out, frame(frameData, 0, 2*i+1, append(prefix(100_000), make([]byte, size)...)[:size])...)
			}
		}
		writers := make(chan error, conns)
		for range conns {
			conn, err := b.listener.DialContext(context.Background())
			assert.NilError(t, err)
			defer conn.Close()
			go func() {
				_, err := conn.Write(out)
				writers <- err
			}()
		}
		synctest.Wait()
		bound(maxOpen*(window+1) + maxInWork*(window+1) + 2*DefaultMaxRequestBytes + conns*(64<<10+2*bubbleBuffer))
		assert.Check(t, len(writers) < conns/2, "%d connections are not kept waiting", len(writers))
		start := time.Now()
		for range conns {
			err := <-writers
			assert.Check(t, err != nil, "all was read of a client that does not read")
		}
		took := time.Since(start)
		assert.Check(t, took <= 2*callTimeout, "connections were closed after %v", took)
	})
}

// A call with more metadata than is taken has an answer that is final, and is counted; other calls of its
// connection go on.
func TestLargeMetadata(t *testing.T) {
	l := openLab(t, Config{})
	body, items := sound(t, otlp.Traces)
	for _, c := range []struct {
		size int
		code codes.Code
	}{{100, codes.OK}, {8000, codes.OK}, {9000, codes.ResourceExhausted}, {15_000, codes.ResourceExhausted},
		{60_000, codes.ResourceExhausted}, {100, codes.OK}} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("v", c.size))
		var answer []byte
		err := l.conn.Invoke(ctx, otlp.Traces.Method(), body, &answer)
		wantError(t, err, c.code, false)
	}
	l.wantCounts(otlp.Traces, fmt.Sprintf("items=%d, refused_items too_large=3, requests OK=3, requests "+
		"RESOURCE_EXHAUSTED=3", 3*items+3))
}

// What net/http refuses or gives up by itself is counted, also on a connection that had calls before; a connection
// that ends otherwise is not.
func TestMalformed(t *testing.T) {
	l := openLab(t, Config{})
	body, _ := sound(t, otlp.Traces)
	l.send(otlp.Traces, body) // its connection stays open
	const frameContinuation = 9
	const fine = "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n" +
		"Content-Length: 0\r\n\r\n"
	large := append([]byte{0, 1, 'x', 0x7f}, binary.AppendUvarint(nil, 2*headerRoom)...)
	large = append(large, bytes.Repeat([]byte{'v'}, 2*headerRoom)...)
	metadata := append(opening(), frame(frameHeaders, 0, 1, large[:frameSize])...)
	for part := range slices.Chunk(large[frameSize:], frameSize) {
		metadata = append(metadata, frame(frameContinuation, 0, 1, part)...)
	}
	headers := "POST /v1/traces HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 2*headerRoom) + "\r\n\r\n"
	count := 0
	for _, c := range []struct {
		name, first, sent string
		malformed         int
	}{
		{"nothing", "", "", 0},
		{"a request", "", fine, 0},
		{"HTTP/2 without a request", "", string(opening()), 0},
		{"headers", "", headers, 1},
		{"no host", "", "POST /v1/traces HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 1},
		{"no length", "", strings.Replace(fine, "Length: 0", "Length: x", 1), 1},
		{"headers after a request", fine, headers, 1},
		{"expectation", "", strings.Replace(fine, "\r\n\r\n", "\r\nExpect: much\r\n\r\n", 1), 1},
		{"half a line", "", "POST /v1/tra", 1},
		{"TLS", "", "\x16\x03\x01\x02\x00\x01", 1},
		{"half a preface", "", "PRI * HTTP", 1},
		{"HTTP/2, metadata", "", string(metadata), 1},
		{"HTTP/2, no such stream", "", string(append(opening(), frame(frameData, 0, 99, []byte{1})...)), 1},
	} {
		conn, err := l.dialSocket(t.Context())
		assert.NilError(t, err)
		if c.first != "" {
			_, _ = io.WriteString(conn, c.first)
			_, err = conn.Read(make([]byte, 1000))
			assert.NilError(t, err)
		}
		_, _ = io.WriteString(conn, c.sent)      // not all of it is read
		if len(c.sent) < len("PRI * HTTP/2.0") { // net/http waits for more
			assert.NilError(t, conn.(*net.UnixConn).CloseWrite())
		}
		if c.malformed > 0 {
			count += c.malformed
			testenv.Poll(t, patience, c.name+" is counted", func() bool {
				return l.counters.strayCounts()[StrayMalformed] == uint64(count)
			})
		} else {
			_ = conn.(*net.UnixConn).CloseWrite()
			_, err = io.Copy(io.Discard, conn)
			assert.NilError(t, err)
		}
		conn.Close()
	}
	l.Shutdown(t.Context())
	l.wantStrays(fmt.Sprint("malformed=", count))
}

// A call that its client ends before it has begun here is counted once, and so is what net/http answers, or refuses,
// without a call.
func TestResetAtOnce(t *testing.T) {
	l := openLab(t, Config{})
	data := frame(frameData, 0, 1, prefix(100))
	reset := frame(frameReset, 0, 1, []byte{0, 0, 0, 8})
	var many []byte
	for i := range uint32(maxStreams + 2) {
		many = append(many, call(2*i+1)...)
	}
	connection := append([]byte{0, 10}, "connection\x05close"...)
	forbidden := call(1)
	forbidden = frame(frameHeaders, endHeaders, 1, append(forbidden[9:], connection...))
	const inARow = 8
	var again []byte
	for i := range uint32(inARow) {
		again = slices.Concat(again, call(2*i+1), frame(frameReset, 0, 2*i+1, []byte{0, 0, 0, 8}))
	}
	again = slices.Concat(again, call(2*inARow+1), frame(frameData, 0, 2*inARow+1, prefix(100)))
	cancelled, malformed := 0, 0
	for _, c := range []struct {
		sent                 []byte
		times                int
		cancelled, malformed int
	}{
		{append(call(1), data...), 200, 1, 0},
		{slices.Concat(call(1), data, reset), 200, 1, 0},
		{append(call(1), reset...), 200, 1, 0},
		{again, 50, inARow + 1, 0},
		{many, 1, maxStreams, 2},
		{forbidden, 1, 0, 1},
		{call(1)[:4], 10, 0, 1},
		{call(1)[:9], 10, 0, 1},
		{call(1)[:len(call(1))-1], 50, 0, 1},
		{frame(frameHeaders, 0, 1, call(1)[9:]), 10, 0, 1}, // more was to follow
		{append(call(1), data[:5]...), 50, 1, 0},
		{append(call(1), call(3)[:12]...), 10, 1, 1},
	} {
		for range c.times {
			conn, err := l.dialSocket(t.Context())
			assert.NilError(t, err)
			_, err = conn.Write(append(opening(), c.sent...))
			assert.NilError(t, errors.Join(err, conn.(*net.UnixConn).CloseWrite()))
			_, err = io.Copy(io.Discard, conn)
			assert.NilError(t, errors.Join(err, conn.Close()))
			cancelled, malformed = cancelled+c.cancelled, malformed+c.malformed
		}
	}
	testenv.Poll(t, patience, "all to be counted", func() bool {
		requests := l.counters.snapshot()[otlp.Traces].requests
		return requests[codes.Canceled] == uint64(cancelled) &&
			l.counters.strayCounts()[StrayMalformed] == uint64(malformed)
	})
	l.Shutdown(t.Context())
	l.wantStrays(fmt.Sprint("malformed=", malformed))
}
