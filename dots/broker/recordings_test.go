package broker

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/recordings"
	"correlator/dots/system"
	"correlator/dots/value"
)

// recordedAnswer is what this broker sends where the recorded one sent a frame: the differences are
// made here, each for its reason. ok is false if this broker sends nothing.
func recordedAnswer(t *testing.T, f frame.Format, data []byte) (out []byte, ok bool) {
	t.Helper()
	var h frame.Header
	instance, n, err := frame.Next(f, data, frame.DefaultLimit, &h)
	assert.Assert(t, err == nil && n == len(data), "recorded frame: %v", err)
	if h.Set&frame.SentTime == 0 && h.Set&frame.Sender != 0 { // a Rust broker's own message
		h.Set = h.Set&^frame.Sender | frame.SentTime | frame.RemoveObj
	}
	switch string(h.TypeName) {
	case "DotsMsgConnectResponse": // of a Rust broker has its name, and repeats what is known
		var m system.DotsMsgConnectResponse
		decodeInto(t, instance, m.DecodeInstance)
		if m.ServerName.Unset(); m.PreloadFinished.IsSet() {
			m = system.DotsMsgConnectResponse{PreloadFinished: m.PreloadFinished}
		}
		h.Attributes, instance = m.Valid(), m.AppendInstance(nil, m.Valid())
	case "DotsMsgHello": // announces filtered subscriptions
		var m system.DotsMsgHello
		decodeInto(t, instance, m.DecodeInstance)
		if !m.AuthenticationRequired.Value() {
			m.AuthenticationRequired.Unset() // Rust brokers send false
		}
		m.Capabilities.Set(system.DotsServerCapabilities{FilteredSubscriptions: value.Some(true)})
		h.Attributes, instance = m.Valid(), m.AppendInstance(nil, m.Valid())
	case "DotsMsgError": // texts are free
		var m system.DotsMsgError
		decodeInto(t, instance, m.DecodeInstance)
		if text := m.ErrorText.Value(); text == "End of file" || strings.HasPrefix(text, "received DOTS error") {
			return nil, false // the peer is gone, or is about to be
		}
		m.ErrorText.Unset()
		h.Attributes, instance = m.Valid(), m.AppendInstance(nil, m.Valid())
	case "DotsClient": // has the member running while it is
		var m system.DotsClient
		decodeInto(t, instance, m.DecodeInstance)
		if h.Sender == ownID && !h.RemoveObj {
			switch m.ConnectionState.Value() {
			case system.DotsConnectionStateEarlySubscribe, system.DotsConnectionStateConnected:
				m.Running.Set(true)
			case system.DotsConnectionStateClosed:
				m.Running.Set(false)
			}
			h.Attributes, instance = m.Valid(), m.AppendInstance(nil, m.Valid())
		}
	}
	if h.Set&frame.Sender != 0 && h.Set&frame.ServerSentTime != 0 {
		h.Set |= frame.RemoveObj // always sent; the recorded broker leaves it out if the guest did
		h.IsFromMyself = false   // means nothing; the recorded broker sends true for its own objects
		if h.Set&frame.FromCache == 0 {
			h.Set |= frame.IsFromMyself // always sent; Rust brokers leave it out
		}
		if h.Set&frame.IsFromMyself != 0 {
			h.Set &^= frame.FromCache // in no live transmission, also if the guest set it
		}
	}
	return timeless(t, f, &h, instance), true
}

// timeless encodes a transmission without the times, which differ.
func timeless(t *testing.T, f frame.Format, h *frame.Header, instance []byte) []byte {
	t.Helper()
	x := *h
	x.SentTime, x.ServerSentTime = 0, 0
	out, err := frame.Append(nil, f, &x, false, 0, instance)
	assert.NilError(t, err)
	return out
}

// player plays the client's side of a recording.
type player struct {
	*peer
	t        *testing.T
	b        *Broker
	r        recordings.Recording
	position int
}

// play connects, such that the client gets the recorded id.
func play(t *testing.T, b *Broker, addr net.Addr, number string) *player {
	t.Helper()
	r := recordings.Load(t, number)
	if id := recordedID(t, r); id > 0 {
		b.mu.Lock()
		b.lastID = id - 1
		b.mu.Unlock()
	}
	return &player{peer: dial(t, addr, r.Format), t: t, b: b, r: r}
}

// recordedID returns the id that the recorded client was given, 0 if it was given none.
func recordedID(t *testing.T, r recordings.Recording) uint32 {
	t.Helper()
	for _, f := range r.Frames {
		var h frame.Header
		instance, _, err := frame.Next(r.Format, f.Data, frame.DefaultLimit, &h)
		if err != nil || f.From != recordings.Broker || string(h.TypeName) != "DotsMsgConnectResponse" {
			continue
		}
		var m system.DotsMsgConnectResponse
		decodeInto(t, instance, m.DecodeInstance)
		return m.ClientID.Value()
	}
	return 0
}

// until plays as many frames; all if n is negative.
func (p *player) until(n int) {
	p.t.Helper()
	if n < 0 {
		n = len(p.r.Frames)
	}
	for ; p.position < n; p.position++ {
		f := p.r.Frames[p.position]
		if f.From == recordings.Client {
			p.write(f.Data)
			continue
		}
		want, ok := recordedAnswer(p.t, p.r.Format, f.Data)
		if !ok {
			continue
		}
		got, err := p.nextRecorded()
		assert.Assert(p.t, err == nil, "%s line %d: %v, want %x", p.r.Name, f.Line, err, want)
		if got.name == "DotsMsgError" {
			var m system.DotsMsgError
			decodeInto(p.t, got.instance, m.DecodeInstance)
			if m.ErrorText.Unset(); m.ErrorCode.IsSet() {
				got.Attributes, got.instance = m.Valid(), m.AppendInstance(nil, m.Valid())
			}
		}
		got.TypeName = []byte(got.name)
		if have := timeless(p.t, p.r.Format, &got.Header, got.instance); !bytes.Equal(have, want) {
			p.t.Fatalf("%s line %d:\nreceived %x\nwant     %x", p.r.Name, f.Line, have, want)
		}
	}
}

// nextRecorded returns the next transmission without the groups and types of guests, which the
// recorded broker never published.
func (p *player) nextRecorded() (received, error) {
	p.t.Helper()
	const lists = system.DotsClientSubscribedTypes | system.DotsClientPublishedTypes
	for {
		r, err := p.next()
		if err != nil || r.name != recordType || r.Attributes&lists == 0 {
			return r, err
		}
		var m system.DotsClient
		decodeInto(p.t, r.instance, m.DecodeInstance)
		m.SubscribedTypes.Unset()
		m.PublishedTypes.Unset()
		r.Attributes &^= lists
		r.instance = m.AppendInstance(nil, m.Valid())
		if r.Attributes != system.DotsClientID {
			return r, nil
		}
	}
}

// finish plays the rest, and sees who closes.
func (p *player) finish() {
	p.t.Helper()
	p.until(-1)
	if p.r.Closed[0] == recordings.Broker || endsByError(p.r) {
		p.end()
	}
	p.conn.Close()
}

// endsByError reports whether the client's last frame is a DotsMsgError, which makes the broker
// close.
func endsByError(r recordings.Recording) bool {
	var h frame.Header
	last := r.Frames[len(r.Frames)-1]
	_, _, err := frame.Next(r.Format, last.Data, frame.DefaultLimit, &h)
	return err == nil && last.From == recordings.Client && string(h.TypeName) == "DotsMsgError"
}

func TestRecordingsAlone(t *testing.T) {
	for _, number := range []string{
		"01", "02", "03", "04", "06", "08", "11", "12", "15", "19", "20", "21", "22", "23", "24", "25", "26", "27",
		"28", "29", "30", "31", "33", "34", "35", "36",
	} {
		t.Run(number, func(t *testing.T) {
			b := newBroker(t, Options{})
			addr := listenUnix(t, b, recordings.Load(t, number).Format)
			if number == "23" { // in which the type is known from another client
				play(t, b, addr, "19").finish()
			}
			p := play(t, b, addr, number)
			p.finish()
		})
	}
}

func TestRecordingShutdown(t *testing.T) {
	b := newBroker(t, Options{})
	p := play(t, b, listenUnix(t, b, frame.V2), "14")
	p.until(len(p.r.Frames) - 1)
	p.barrier()
	go b.Shutdown(t.Context())
	p.finish()
}

func TestRecordingErrorOfClient(t *testing.T) {
	b := newBroker(t, Options{})
	p := play(t, b, listenUnix(t, b, frame.V2), "32")
	p.finish()
	eventually(t, "counted", func() bool { return b.Counters().Closed[GuestError] == 1 })
}

// TestRecordingsUpdates plays a subscriber, a publisher of updates, another publisher, and a
// subscriber that comes late.
func TestRecordingsUpdates(t *testing.T) {
	b := newBroker(t, Options{})
	addr := listenUnix(t, b, frame.V2)
	subscriber := play(t, b, addr, "05")
	subscriber.until(11)
	subscriber.barrier()
	play(t, b, addr, "04").finish()
	subscriber.finish()
	late := play(t, b, addr, "06")
	late.finish()
	play(t, b, addr, "07").finish()
}

// TestRecordingsOfRustBroker plays what C++ clients sent to a Rust broker.
func TestRecordingsOfRustBroker(t *testing.T) {
	b := newBroker(t, Options{})
	addr := listenUnix(t, b, frame.V2)
	subscriber := play(t, b, addr, "39")
	subscriber.until(11)
	subscriber.barrier()
	play(t, b, addr, "38").finish()
	subscriber.finish()
}

// TestRecordingOfRustEnum plays a Rust client that sends the value of an enumerator, which a Rust
// broker forwards, and this one refuses: subscribers in C++ would lose their connection.
func TestRecordingOfRustEnum(t *testing.T) {
	t.Parallel()
	b := newBroker(t, Options{})
	p := play(t, b, listenUnix(t, b, frame.V2), "37")
	p.until(13)
	p.wantError(1)
	eventually(t, "counted", func() bool { return b.Counters().Closed[BadInstance] == 1 })
}

// TestRecordingsDynamic plays a client without types of its own, one that watches the others, and
// guests whose objects are removed when they leave.
func TestRecordingsDynamic(t *testing.T) {
	b := newBroker(t, Options{})
	addr := listenUnix(t, b, frame.V2)
	play(t, b, addr, "08").finish()
	gone(t, b, 2)
	dynamic := play(t, b, addr, "09")
	dynamic.until(21)
	publisher := play(t, b, addr, "06")
	publisher.until(10)
	dynamic.until(28)
	publisher.finish()
	gone(t, b, 4)
	dynamic.finish()
	gone(t, b, 3)
	watcher := play(t, b, addr, "10")
	watcher.until(16)
	session := play(t, b, addr, "13")
	session.until(9)
	watcher.until(20)
	play(t, b, addr, "11").finish()
	watcher.until(25)
	session.until(13)
	play(t, b, addr, "12").finish()
	watcher.until(30)
	session.finish()
	watcher.until(31)
	b.sweep()
	watcher.finish()
}

// gone waits until a connection has ended.
func gone(t *testing.T, b *Broker, id uint32) {
	t.Helper()
	eventually(t, "closed", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.guests[id] == nil
	})
}

func TestRecordingsAuthentication(t *testing.T) {
	t.Parallel()
	b := newBroker(t, Options{})
	play(t, b, listenUnix(t, b, frame.V2), "15").finish()
	tcp := listenAt(t, b, "tcp://127.0.0.1:0")
	for _, number := range []string{"16", "17", "18"} {
		var hello system.DotsMsgHello
		r := recordings.Load(t, number)
		var h frame.Header
		instance, _, err := frame.Next(r.Format, r.Frames[0].Data, frame.DefaultLimit, &h)
		assert.NilError(t, err)
		decodeInto(t, instance, hello.DecodeInstance)
		b.mu.Lock()
		b.nonce = hello.AuthChallenge.Value
		b.mu.Unlock()
		p := play(t, b, tcp, number)
		if number == "17" { // whose client goes on after it was refused
			p.until(3)
			p.end()
			continue
		}
		p.finish()
	}
	eventually(t, "counted", func() bool { return b.Counters().Closed[AuthRefused] == 1 })
}
