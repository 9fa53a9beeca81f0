package client

import (
	"context"
	"errors"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/system"
	"correlator/dots/value"
	"correlator/internal/lab/testenv"
)

// pong answers a question of the client, which must be the next that it sends.
func (p *peer) pong() {
	p.t.Helper()
	var echo system.DotsEcho
	p.read(&echo)
	echo.Request.Set(false)
	p.send(&echo)
}

// replay sends things as a broker does that has them cached.
func (p *peer) replay(ids ...uint32) {
	p.t.Helper()
	for i, id := range ids {
		p.sendHeader(&demo.DemoThing{ID: value.Some(id)}, frame.Header{
			Sender: 1, FromCache: uint32(len(ids) - 1 - i), Set: frame.Sender | frame.FromCache,
		})
	}
	p.send(&system.DotsCacheInfo{TypeName: value.Some("DemoThing"), EndTransmission: value.Some(true)})
}

// TestClosedBeforeReplay: the replay of a subscription that was closed meanwhile is not taken for
// that of the next one.
func TestClosedBeforeReplay(t *testing.T) {
	for _, other := range []bool{false, true} { // another subscription, so that the group is not left
		c := New(Options{})
		p := &peer{t: t, conn: accepted(t, c)}
		subscribe := func() *Subscription[demo.DemoThing, demo.DemoThingKey] {
			s, err := Subscribe[*demo.DemoThing](c, nil)
			must(t, err)
			return s
		}
		if other {
			subscribe()
			p.replay()
		}
		first := subscribe()
		must(t, first.Close())
		second := subscribe()
		p.replay(1, 2)
		p.replay(2, 3)
		must(t, second.Wait(t.Context()))
		_, stale := second.Get(demo.DemoThingKey{ID: 1})
		assert.Check(t, !stale && second.Len() == 2 && first.Len() == 0,
			"%d objects, the stale one %v; %d in the closed one", second.Len(), stale, first.Len())
		n := len(c.routes.Load().byName["DemoThing"].subs)
		assert.Check(t, (!other || n == 2) && (other || n == 1), "%d subscriptions are kept", n)
	}
}

// TestClosedWithoutReplay: a broker that replays nothing, as it knows the type as uncached, leaves
// no closed subscription behind.
func TestClosedWithoutReplay(t *testing.T) {
	c := New(Options{})
	p := &peer{t: t, conn: accepted(t, c)}
	s, err := Subscribe[*demo.DemoThing](c, nil)
	must(t, err)
	must(t, s.Close())
	p.read(&system.DotsMsgConnect{})
	p.read(&system.DotsClient{})
	p.read(&system.StructDescriptorData{})
	p.read(&system.DotsMember{})
	p.read(&system.DotsMember{})
	p.pong()
	must(t, s.Wait(t.Context()))
	if r := c.routes.Load().byName["DemoThing"]; r != nil {
		t.Errorf("%d subscriptions are kept", len(r.subs))
	}
}

// TestSubscribeDuringPreload: what a handler subscribes to while the broker fills older containers
// is not filled when those are.
func TestSubscribeDuringPreload(t *testing.T) {
	c := New(Options{})
	late := make(chan *Subscription[demo.DemoThing, demo.DemoThingKey], 1)
	_, err := Subscribe(c, func(*Event[*demo.DemoPing]) {
		s, err := Subscribe[*demo.DemoThing](c, nil)
		must(t, err)
		late <- s
	})
	must(t, err)
	p, result := connecting(t, c)
	p.send(hello())
	p.send(accept(2))
	p.send(&demo.DemoPing{N: value.Some[uint32](1)})
	p.send(&system.DotsMsgConnectResponse{PreloadFinished: value.Some(true)})
	must(t, <-result)
	s := <-late
	assert.Check(t, errors.Is(s.Wait(testenv.Ended()), context.Canceled) && !s.isFilled(), "filled before the replay")
	p.replay(1)
	must(t, s.Wait(t.Context()))
	assert.Check(t, s.Len() == 1, "%d objects", s.Len())
}

// TestNoPreloadAtBroker: a broker that does not fill containers while a client connects fills them
// later.
func TestNoPreloadAtBroker(t *testing.T) {
	c := New(Options{})
	s, err := Subscribe[*demo.DemoThing](c, nil)
	must(t, err)
	p, result := connecting(t, c)
	p.send(hello())
	response := accept(2)
	response.Preload.Set(false)
	p.send(response)
	must(t, <-result)
	assert.Check(t, !s.isFilled(), "filled before the replay")
	p.replay(1)
	must(t, s.Wait(t.Context()))
	assert.Check(t, s.Len() == 1, "%d objects", s.Len())
}
