package broker

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/auth"
	"correlator/dots/cbor"
	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

func TestPublishOwnObjects(t *testing.T) {
	b := newBroker(t, Options{})
	assert.NilError(t, b.Publish(thing(2), &demo.DemoThing{ID: value.Some[uint32](1), Name: value.Some("a")}))
	p := connect(t, listenUnix(t, b, frame.V2), frame.V2)
	p.join("DemoThing")
	p.expect("StructDescriptorData")
	const id, name = 1 << 1, 1 << 2
	p.want("DemoThing", id|name, 1, false, "a20101026161")
	p.expect("DemoThing")
	p.expect("DotsCacheInfo")
	n := b.Members("DemoThing")
	assert.Check(t, n == 1, "%d members", n)
	assert.NilError(t, b.PublishProperties(&demo.DemoThing{ID: value.Some[uint32](1)}, name))
	p.want("DemoThing", id|name, 1, false, "a10101")
	assert.NilError(t, b.Remove(thing(2)))
	p.want("DemoThing", id, 1, true, "a10102")
	var ids []uint32
	b.Objects("DemoThing", func(r *cbor.Reader) bool {
		var x demo.DemoThing
		x.DecodeInstance(r)
		ids = append(ids, x.ID.Value())
		return true
	})
	assert.Check(t, slices.Equal(ids, []uint32{1}), "objects %d", ids)
	assert.Check(t, b.Publish(&demo.DemoThing{Name: value.Some("no key")}) != nil,
		"an object without its key was published")
	assert.Check(t, b.Remove(&demo.DemoPing{}) != nil, "an object of an uncached type was removed")
	other, err := schema.NewStruct("DemoThing", schema.Flags{}, []schema.Property{
		{Name: "x", Tag: 1, Type: schema.Builtin(schema.Bool)}}, "")
	assert.NilError(t, err)
	err = b.RegisterType(other)
	assert.Check(t, errors.Is(err, schema.ErrConflict), "conflict: %v", err)
}

func TestReadOnly(t *testing.T) {
	b, p, r := limited(t, Options{ReadOnly: true})
	p.send(&system.DotsClient{ID: value.Some(p.id), Running: value.Some(true)})
	p.describe((&demo.DemoThing{}).Descriptor())
	p.join("DemoThing")
	p.expect("DotsCacheInfo")
	p.barrier()
	p.send(thing(1))
	p.wantError(1)
	p.conn.Close()
	r.want(t, ReadOnly)
	addr := p.conn.RemoteAddr()
	for _, x := range []Instance{
		&system.DotsClient{ID: value.Some[uint32](1), Running: value.Some(true)},
		&system.DotsClearCache{TypeNames: value.Some([]string{"DotsClient"})},
		&system.DotsAuthenticationPolicy{NameSpace: value.Some(""), Accept: value.Some(true)},
	} {
		p := connect(t, addr, frame.V2)
		p.send(x)
		p.wantError(1)
		p.conn.Close()
		r.want(t, ReadOnly)
	}
	assert.Check(t, b.Publish(thing(1)))
}

// Whether anybody has joined an object is decided by filters, as far as guests have joined with such.
func TestSelects(t *testing.T) {
	b := newBroker(t, Options{})
	check := func(what string, one, two bool) {
		t.Helper()
		if b.Selects(thing(1)) != one || b.Selects(thing(2)) != two {
			t.Errorf("%s: %v, %v", what, b.Selects(thing(1)), b.Selects(thing(2)))
		}
	}
	check("unknown type", false, false)
	assert.NilError(t, b.RegisterType((&demo.DemoThing{}).Descriptor()))
	check("nobody", false, false)
	addr := listenUnix(t, b, frame.V2)
	filtered, other := connect(t, addr, frame.V2), connect(t, addr, frame.V2)
	member := func(event system.DotsMemberEvent) *system.DotsMember {
		return &system.DotsMember{GroupName: value.Some("DemoThing"), Event: value.Some(event),
			SubscriptionID: value.Some[uint32](7)}
	}
	join := member(system.DotsMemberEventJoin)
	join.Filter.Set(*filterOf(leaf(1, system.DotsCompareOpEq, pvalue{UintValue: value.Some[uint64](2)})))
	filtered.send(join)
	filtered.expect("DotsCacheInfo")
	check("a filter", false, true)
	other.join("DemoThing")
	other.expect("DotsCacheInfo")
	check("all", true, true)
	other.member("DemoThing", system.DotsMemberEventLeave)
	other.barrier()
	check("a filter again", false, true)
	filtered.send(member(system.DotsMemberEventLeave))
	filtered.barrier()
	check("nobody again", false, false)
}

// answer connects by TCP with a secret, and reports whether the guest was accepted.
func answer(t *testing.T, b *Broker, name, secret string) (challenged, accepted bool) {
	t.Helper()
	p := dial(t, listenAt(t, b, "tcp://127.0.0.1:0"), frame.V2)
	var hello system.DotsMsgHello
	decodeInto(t, p.expect("DotsMsgHello").instance, hello.DecodeInstance)
	m := &system.DotsMsgConnect{ClientName: value.Some(name), PreloadCache: value.Some(false)}
	if secret != "" {
		m.AuthChallengeResponse.Set(auth.Response(name, secret, hello.AuthChallenge.Value(), "nonce"))
		m.Cnonce.Set("nonce")
	}
	p.send(m)
	var response system.DotsMsgConnectResponse
	decodeInto(t, p.expect("DotsMsgConnectResponse").instance, response.DecodeInstance)
	if !response.Accepted.Value() {
		p.end()
	}
	p.conn.Close()
	return hello.AuthenticationRequired.Value(), response.Accepted.Value()
}

func TestStaticAuthentication(t *testing.T) {
	local, elsewhere := netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")
	tests := []struct {
		what                 string
		auth                 Auth
		name, secret         string
		challenged, accepted bool
	}{
		{"nothing", Auth{}, "a", "", false, true},
		{"secret", Auth{Secret: "s"}, "a", "s", true, true},
		{"wrong secret", Auth{Secret: "s"}, "a", "x", true, false},
		{"wrong secret, accepting by default", Auth{Secret: "s", Accept: true}, "a", "x", true, false},
		{"no secret", Auth{Secret: "s"}, "a", "", true, false},
		{"network", Auth{Rules: []Rule{{Network: local, Accept: true}}}, "a", "", false, true},
		{"another network", Auth{Rules: []Rule{{Network: elsewhere, Accept: true}}}, "a", "", false, false},
		{"network besides the secret", Auth{Secret: "s", Rules: []Rule{{Network: local, Accept: true}}}, "a", "", false, true},
		{"refused name", Auth{Accept: true, Rules: []Rule{{ClientName: "a"}}}, "a", "", false, false},
		{"another name", Auth{Accept: true, Rules: []Rule{{ClientName: "a"}}}, "b", "", false, true},
		{"priority", Auth{Rules: []Rule{{Priority: 2, Accept: true}, {Priority: 1}}}, "a", "", false, false},
		{"wrong, then accepted", Auth{Rules: []Rule{{Secret: "s", Accept: true}, {Priority: 1, Accept: true}}},
			"a", "x", true, true},
		{"unasked answer", Auth{Rules: []Rule{{ClientName: "a", Secret: "s", Accept: true}}}, "a", "s", false, false},
	}
	for _, tt := range tests {
		b := newBroker(t, Options{Auth: tt.auth})
		challenged, accepted := answer(t, b, tt.name, tt.secret)
		assert.Check(t, challenged == tt.challenged && accepted == tt.accepted,
			"%s: challenged %v accepted %v", tt.what, challenged, accepted)
		connect(t, listenUnix(t, b, frame.V2), frame.V2) // which needs no secret
	}
}

// TestGuestsCannotChangeStaticAuthentication checks that published rules mean nothing beside it.
func TestGuestsCannotChangeStaticAuthentication(t *testing.T) {
	b := newBroker(t, Options{Auth: Auth{Secret: "s"}})
	p := connect(t, listenUnix(t, b, frame.V2), frame.V2)
	p.send(&system.DotsAuthentication{NameSpace: value.Some(""), Network: value.Some(system.DotsNetwork{
		Network: value.Some("0.0.0.0"), Prefix: value.Some[uint8](0)}), ClientName: value.Some(""),
		Priority: value.Some[uint16](0), Accept: value.Some(true)})
	p.send(&system.DotsAuthenticationPolicy{NameSpace: value.Some(""), Accept: value.Some(true)})
	p.barrier()
	_, accepted := answer(t, b, "a", "x")
	assert.Check(t, !accepted, "accepted")
}

func TestDaemonStatus(t *testing.T) {
	t.Parallel()
	b := newBroker(t, Options{Name: "n"})
	p := connect(t, listenUnix(t, b, frame.V2), frame.V2)
	p.join("DotsDaemonStatus")
	p.expect("DotsCacheInfo")
	var x system.DotsDaemonStatus
	decodeInto(t, p.expect("DotsDaemonStatus").instance, x.DecodeInstance) // by the clock
	received := x.Received.Value()
	if x.ServerName.Value() != "n" ||
		received.Packages.Value() != 2 || !x.StartTime.IsSet() || !x.ResourceUsage.IsSet() {
		t.Errorf("%+v", x)
	}
	publish := func() {
		b.lock()
		defer b.unlock(nil)
		b.publishStatus()
	}
	publish() // nothing has changed
	p.barrier()
	publish()
	p.expect("DotsDaemonStatus")
}

func TestGroupsOfDeadGuestsEnd(t *testing.T) {
	b := newBroker(t, Options{})
	p := connect(t, listenUnix(t, b, frame.V2), frame.V2)
	p.join("unknown")
	p.barrier()
	p.conn.Close()
	eventually(t, "left", func() bool { return b.Members("unknown") == 0 })
	gone(t, b, p.id)
	n := b.Counters().Closed[EndOfStream]
	assert.Check(t, n == 1, "%d ends", n)
}

func TestContainerOrder(t *testing.T) {
	c := newContainer()
	add := func(keys ...string) {
		for _, k := range keys {
			c.add(&object{key: k, now: &version{}})
		}
	}
	order := func() (out string) {
		for _, o := range c.inOrder() {
			out += o.key
		}
		return out
	}
	add("b", "d", "f")
	add("a", "e", "c", "g")
	got := order()
	assert.Check(t, got == "abcdefg", got)
	c.remove(c.objects["a"])
	add("0", "x", "a")
	c.remove(c.objects["d"])
	c.remove(c.objects["x"])
	got = order()
	assert.Check(t, got == "0abcefg", got)
	for k := range c.objects {
		c.remove(c.objects[k])
	}
	got = order()
	assert.Check(t, got == "", got)
}

func FuzzGuest(f *testing.F) {
	f.Add(encoded(f, 2, true), false)
	f.Add([]byte("\x1a\x00\x00\x00\x00"), true)
	f.Add([]byte("\x36\x00\xa4\x01\x63SYS"), true)
	b := New(Options{Limits: Limits{Cache: 1 << 20, Types: 100}})
	assert.NilError(f, b.RegisterType((&demo.DemoThing{}).Descriptor()))
	f.Fuzz(func(t *testing.T, data []byte, v1 bool) {
		g := &guest{b: b, id: 2, state: connected, transport: nowhere{}}
		g.changed.L = &g.queueMu
		if v1 {
			g.format = formatV1
		}
		for _, part := range [][]byte{data, data} {
			rest, err := g.data(part)
			assert.Assert(t, err != nil || strings.HasSuffix(string(part), string(rest)), "rest %x of %x", rest, part)
		}
		b.leave(g, Goodbye, "")
		eventually(t, "written", func() bool {
			g.queueMu.Lock()
			defer g.queueMu.Unlock()
			return !g.writing
		})
		g.discard()
	})
}

// nowhere takes what is written.
type nowhere struct{}

func (nowhere) read(*guest) error   { return nil }
func (nowhere) begin(time.Duration) {}
func (nowhere) accepted(*guest)     {}
func (nowhere) stopReading(*guest)  {}
func (nowhere) linger()             {}
func (nowhere) abort()              {}
func (nowhere) close()              {}
func (nowhere) tryWrite(list *chunkList, _ bool) (int, bool, error) {
	return list.consume(list.size), false, nil
}
