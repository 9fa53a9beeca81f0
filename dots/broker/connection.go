package broker

import (
	"cmp"
	"errors"
	"io"
	"math"
	"slices"
	"strings"

	"correlator/dots/system"
	"correlator/dots/value"
)

// accept admits a new connection and sends the Hello, unless there are too many connections.
func (b *Broker) accept(g *guest) bool {
	b.lock()
	b.count.accepted.Add(1)
	// Whether there is a place for a guest is decided, and said, when it introduces itself.
	full := len(b.guests) >= b.options.Limits.Guests+maxHandshakes
	if b.closed || full || b.lastID == math.MaxUint32 { // ids are never reused
		reason := TooManyGuests
		if b.closed {
			reason = Shutdown
		}
		b.unlock(nil)
		b.refuse(g.address, reason)
		return false
	}
	b.lastID++
	g.b, g.id, g.name, g.state = b, b.lastID, "<not_set>", connecting
	g.changed.L = &g.queueMu
	b.guests[g.id] = g
	if len(b.rules) == 0 { // otherwise it is nobody yet
		b.publishState(g)
	}
	hello := &system.DotsMsgHello{ServerName: value.Some(b.options.Name), AuthChallenge: value.Some(uint64(0))}
	if b.challenges(g.ip) {
		g.challenged, g.challenge = true, b.nonce()
		hello.AuthChallenge.Set(g.challenge)
		hello.AuthenticationRequired.Set(true)
	}
	hello.Capabilities.Set(system.DotsServerCapabilities{FilteredSubscriptions: value.Some(true)})
	b.reply(g, hello)
	g.begin(b.options.Limits.Handshake) // locked, as Shutdown sets the deadline, too
	g.writers = b.unlock(g.writers)
	return true
}

// refuse counts a connection that does not become one of a guest.
func (b *Broker) refuse(address string, reason Reason) {
	b.count.closed[reason].Add(1)
	if b.options.Events != nil {
		b.options.Events.Closed(0, "", address, reason, nil)
	}
}

// handleConnect handles both uses of DotsMsgConnect.
func (b *Broker) handleConnect(g *guest, instance []byte) error {
	var m system.DotsMsgConnect
	if err := decode(instance, m.DecodeInstance); err != nil {
		return err
	}
	switch {
	case g.state == connecting && m.ClientName.IsSet() && m.PreloadCache.IsSet():
		return b.connect(g, &m)
	case g.state == earlySubscribe && m.PreloadClientFinished.Value():
		g.state = connected
		b.publishState(g)
		b.reply(g, &system.DotsMsgConnectResponse{PreloadFinished: value.Some(true)})
		b.connectedEvent(g)
		return nil
	}
	return fail(HandshakeViolation, "unexpected DotsMsgConnect")
}

// connect answers the first DotsMsgConnect.
func (b *Broker) connect(g *guest, m *system.DotsMsgConnect) error {
	if len(m.ClientName.Value()) > maxName {
		return fail(HandshakeViolation, "name of a client has %d bytes", len(m.ClientName.Value()))
	}
	g.name = m.ClientName.Value()
	accepted, preload := b.authenticate(g, m), m.PreloadCache.Value()
	answer := &system.DotsMsgConnectResponse{
		ClientID: value.Some(g.id), Accepted: value.Some(accepted), Preload: value.Some(preload),
	}
	if !accepted {
		b.reply(g, answer)
		return fail(AuthRefused, "")
	}
	if b.accepted >= b.guestLimit(g) {
		return b.crowded(g)
	}
	if g.handshake != nil && !g.handshake.Release() {
		return fail(TooManyHandshakes, "")
	}
	b.accepted++
	g.admitted = true
	g.accepted(g)
	if g.state = connected; preload {
		g.state = earlySubscribe
	}
	b.reply(g, answer)
	b.publishState(g)
	if !preload {
		b.connectedEvent(g)
	}
	return nil
}

func (b *Broker) connectedEvent(g *guest) {
	if b.options.Events != nil {
		b.options.Events.Connected(g.id, g.name, g.address)
	}
}

// sayGoodbye ends a connection that has no fault.
func (b *Broker) sayGoodbye(g *guest) {
	if g.dead {
		return
	}
	if g.state == connected || g.state == earlySubscribe {
		b.reply(g, &system.DotsMsgError{ErrorCode: value.Some(int32(0))})
	}
	g.dead, g.goodbye, g.reason = true, true, Shutdown
	b.fill(g)
	g.stopped = true
	g.changed.Broadcast()
	g.stopReading(g)
}

// drop disconnects a guest at once.
func (b *Broker) drop(g *guest, reason Reason) {
	if g.dead {
		return
	}
	g.dead, g.reason = true, reason
	g.abort()
}

// leave is called when reading from a guest has ended: it is told why if that is its fault.
func (b *Broker) leave(g *guest, reason Reason, text string) {
	b.lock()
	if !g.left {
		if !g.dead && g.state == connected && text != "" {
			b.reply(g, &system.DotsMsgError{ErrorCode: value.Some(int32(1)), ErrorText: value.Some(text)})
		}
		if !g.dead && reason != StreamError {
			g.goodbye = true
		}
		if g.dead {
			reason = g.reason
		}
		b.depart(g, reason)
	}
	g.writers = b.unlock(g.writers)
}

// depart ends the membership of a guest: its record says so, it leaves its groups, and objects of
// types with the flag cleanup that it updated last are removed.
func (b *Broker) depart(g *guest, reason Reason) {
	g.dead, g.left, g.reason = true, true, reason
	g.state = closed
	delete(b.unlisted, g)
	if g.recorded {
		b.publishState(g)
	}
	b.leaveAll(g)
	b.publishReport(g)
	b.cleanUp(g)
}

// cleanUp removes the objects that a guest which is gone has updated last, in slices.
func (b *Broker) cleanUp(g *guest) {
	type owned struct {
		t *topic
		o *object
	}
	for len(b.owned[g.id]) > 0 {
		var slice []owned
		for o, t := range b.owned[g.id] {
			if slice = append(slice, owned{t, o}); len(slice) == removeSlice {
				break
			}
		}
		slices.SortFunc(slice, func(x, y owned) int {
			return cmp.Or(strings.Compare(x.t.name, y.t.name), strings.Compare(x.o.key, y.o.key))
		})
		for _, x := range slice {
			b.removeOwn(x.t, x.o)
		}
		if len(slice) == removeSlice {
			b.relock(g)
		}
	}
}

// remove forgets a connection that is closed.
func (b *Broker) remove(g *guest, err error) {
	b.mu.Lock()
	delete(b.guests, g.id)
	if g.admitted {
		b.accepted--
	}
	b.mu.Unlock()
	b.count.closed[g.reason].Add(1)
	if b.options.Events == nil {
		return
	}
	if errors.Is(err, io.EOF) || g.reason == Goodbye || g.reason == Shutdown {
		err = nil
	}
	b.options.Events.Closed(g.id, g.name, g.address, g.reason, err)
}
