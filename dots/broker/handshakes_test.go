package broker

import (
	"errors"
	"io"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/cbor"
	"correlator/dots/frame"
	"correlator/dots/system"
	"correlator/dots/value"
)

// TestSilentConnections checks that connections that say nothing take no places of guests, and that
// their number is bounded, over all listeners.
func TestSilentConnections(t *testing.T) {
	const guests = 2
	b := newBroker(t, Options{Limits: Limits{Guests: guests}})
	tcp, web := listenAt(t, b, "tcp://127.0.0.1:0"), listenAt(t, b, "ws://127.0.0.1:0")
	for range guests {
		dial(t, tcp, frame.V2).expect("DotsMsgHello")
	}
	first, second := connect(t, tcp, frame.V2), connect(t, tcp, frame.V2)
	refusedForOthers(t, dial(t, tcp, frame.V2))
	eventually(t, "refused", func() bool { return b.Counters().Closed[TooManyGuests] == 1 })
	first.conn.Close()
	gone(t, b, first.id)
	connect(t, tcp, frame.V2)
	second.barrier()
	for range 2 * minHandshakes { // half requests
		dial(t, web, frame.V2).write([]byte("GET / HTTP/1.1\r\n"))
	}
	eventually(t, "closed", func() bool { return b.Counters().EndedHandshakes >= minHandshakes })
	n := b.Counters().Handshakes
	assert.Check(t, n <= minHandshakes, "%d connections that are no guests are open", n)
	eventually(t, "counted", func() bool {
		return b.Counters().Closed[TooManyHandshakes] == b.handshakes.Counts().Refused
	})
	second.barrier()
}

// TestHandshakeMakesRoom checks what is said of a connection that was closed for another one.
func TestHandshakeMakesRoom(t *testing.T) {
	r := recorder{make(chan Reason, 3)}
	b := newBroker(t, Options{Events: r})
	p := dial(t, listenUnix(t, b, frame.V2), frame.V2)
	p.expect("DotsMsgHello")
	b.handshakes.CloseAll()
	_, err := p.next()
	assert.Check(t, errors.Is(err, io.EOF), "%v, want the end", err)
	r.want(t, TooManyHandshakes)
}

// TestStrangersHaveNoRecord checks that nobody is told of connections before they prove that they know
// the secret.
func TestStrangersHaveNoRecord(t *testing.T) {
	b := newBroker(t, Options{Auth: Auth{Secret: "secret"}})
	p := dial(t, listenAt(t, b, "tcp://127.0.0.1:0"), frame.V2)
	p.expect("DotsMsgHello")
	records := func() (n int) {
		b.Objects(recordType, func(*cbor.Reader) bool { n++; return true })
		return n
	}
	n := records()
	assert.Check(t, n == 0, "%d records during the handshake", n)
	p.send(&system.DotsMsgConnect{ClientName: value.Some("x"), PreloadCache: value.Some(false)})
	p.expect("DotsMsgConnectResponse")
	p.end()
	p.conn.Close()
	eventually(t, "closed", func() bool { return b.Counters().Closed[AuthRefused] == 1 })
	n = records()
	assert.Check(t, n == 0, "%d records of one that was refused", n)
	connect(t, listenUnix(t, b, frame.V2), frame.V2)
	n = records()
	assert.Check(t, n == 1, "%d records of a guest", n)
}
