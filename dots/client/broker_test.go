package client_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/dots/client"
	"correlator/dots/internal/demo"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// startBroker starts a broker with an endpoint of each kind.
func startBroker(t testing.TB, o broker.Options) (b *broker.Broker, uris map[string]string) {
	t.Helper()
	b = broker.New(o)
	uris = make(map[string]string)
	for _, kind := range []string{"tcp", "tcp-v1", "uds", "uds-v1", "ws"} {
		uri := kind + "://127.0.0.1:0"
		if kind[0] == 'u' {
			uri = kind + "://" + filepath.Join(t.TempDir(), kind)
		}
		addr, err := b.ListenURI(uri)
		assert.NilError(t, err)
		uris[kind] = kind + "://" + addr.String()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.Check(t, b.Shutdown(ctx))
	})
	return b, uris
}

func dial(t testing.TB, c *client.Client, uri string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	assert.NilError(t, c.Connect(ctx, uri))
	t.Cleanup(func() { _ = c.Close() })
}

// log collects what handlers are told.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprint(args...))
}

func (l *log) want(t *testing.T, lines ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Check(t, slices.Equal(l.lines, lines), "events\n%q\ninstead of\n%q", l.lines, lines)
	l.lines = nil
}

func gadget(id uint32, name string) *demo.DemoGadget {
	return &demo.DemoGadget{ID: value.Some(id), Name: value.Some(name)}
}

func must(t testing.TB, err error) {
	t.Helper()
	assert.NilError(t, err)
}

// TestTransports has a publisher and a subscriber on each kind of connection.
func TestTransports(t *testing.T) {
	_, uris := startBroker(t, broker.Options{})
	for kind, uri := range uris {
		t.Run(kind, func(t *testing.T) {
			ctx := t.Context()
			var events log
			subscriber, publisher := client.New(client.Options{Name: "s"}), client.New(client.Options{Name: "p"})
			gadgets, err := client.Subscribe(subscriber, func(e *client.Event[*demo.DemoGadget]) {
				assert.Check(t, !e.Own && e.Header.Sender == publisher.ID(), "%+v", e.Header)
				events.add(e.Operation, " ", e.Updated.Name.Value(), " ", e.Updated.Level.Value(),
					" ", e.Transmitted.Valid())
			})
			must(t, err)
			dial(t, subscriber, uri)
			dial(t, publisher, uri)
			one := gadget(1, "one")
			must(t, publisher.Publish(ctx, one))
			one.Level.Set(2)
			must(t, publisher.PublishProperties(ctx, one, demo.DemoGadgetLevel))
			one.Name.Unset()
			must(t, publisher.PublishProperties(ctx, one, demo.DemoGadgetName))
			must(t, publisher.Publish(ctx, gadget(2, "two")))
			must(t, publisher.Ping(ctx))
			must(t, subscriber.Ping(ctx))
			events.want(t, "create one 0 6", "update one 2 66", "update  2 2", "create two 0 6")
			if x, clone, ok := gadgets.GetClone(demo.DemoGadgetKey{ID: 1}); !ok || x.Valid() != 0x42 ||
				clone.LastOperation != client.Update || clone.CreatedFrom != publisher.ID() {
				t.Errorf("%+v, %+v, %v", x, clone, ok)
			}
			must(t, publisher.Remove(ctx, gadget(1, "")))
			must(t, publisher.Remove(ctx, gadget(2, "")))
			must(t, publisher.Remove(ctx, gadget(3, "")))
			must(t, publisher.Ping(ctx))
			must(t, subscriber.Ping(ctx))
			events.want(t, "remove  2 2", "remove two 0 2")
			n := gadgets.Len()
			assert.Check(t, n == 0, "%d objects are left", n)
			must(t, publisher.Close())
			must(t, subscriber.Close())
			assert.Check(t, errors.Is(subscriber.Err(), client.ErrClosed), subscriber.Err())
		})
	}
}

// TestReplay has a client that joins late: before connecting, and twice afterwards.
func TestReplay(t *testing.T) {
	b, uris := startBroker(t, broker.Options{})
	for id := range uint32(100) {
		must(t, b.Publish(gadget(id, "x")))
	}
	for _, uri := range uris {
		c := client.New(client.Options{})
		first, second := 0, 0
		early, err := client.Subscribe(c, func(e *client.Event[*demo.DemoGadget]) {
			if first++; e.Operation != client.Create || e.Header.FromCache != uint32(100-first) {
				t.Errorf("%s, fromCache %d as number %d", e.Operation, e.Header.FromCache, first)
			}
		})
		must(t, err)
		dial(t, c, uri)
		assert.Check(t, early.Len() == 100, "%d objects when connected", early.Len())
		late, err := client.Subscribe(c, func(*client.Event[*demo.DemoGadget]) { second++ })
		must(t, err)
		must(t, late.Wait(t.Context()))
		raw, err := c.SubscribeType("DemoGadget", nil)
		must(t, err)
		must(t, raw.Wait(t.Context()))
		assert.Check(t, first == 100 && second == 100 && late.Len() == 100 && raw.Len() == 100,
			"%d, %d events, %d, %d objects", first, second, late.Len(), raw.Len())
		must(t, early.Close())
		must(t, late.Close())
		must(t, raw.Close())
		must(t, raw.Close())
		again, err := client.Subscribe[*demo.DemoGadget](c, nil)
		must(t, err)
		must(t, again.Wait(t.Context()))
		assert.Check(t, again.Len() == 100, "%d objects after leaving and joining again", again.Len())
		must(t, c.Close())
	}
}

// TestDiscovery has a client that knows no types.
func TestDiscovery(t *testing.T) {
	for _, kind := range []string{"tcp", "tcp-v1", "uds", "uds-v1", "ws"} {
		t.Run(kind, func(t *testing.T) {
			_, uris := startBroker(t, broker.Options{})
			uri := uris[kind]
			var events log
			publisher := client.New(client.Options{})
			dial(t, publisher, uri)
			must(t, publisher.Publish(t.Context(), gadget(1, "one")))
			must(t, publisher.Ping(t.Context()))
			c := client.New(client.Options{})
			d, err := c.Discover(func(s *schema.Struct) {
				assert.Check(t, s.Name == "DemoGadget" || s.Name == "DemoPing", s.Name)
				_, err := c.SubscribeType(s.Name, func(e *client.Event[*client.Raw]) {
					o, err := e.Updated.Object()
					must(t, err)
					events.add(e.Operation, " ", o.Type.Name, " ", o.ByName("name"), " ", o.ByName("n"))
				})
				must(t, err)
			})
			must(t, err)
			dial(t, c, uri)
			must(t, d.Wait(t.Context()))
			must(t, c.Ping(t.Context()))
			must(t, publisher.Describe((*demo.DemoPing)(nil).Descriptor()))
			must(t, publisher.Ping(t.Context()))
			must(t, c.Ping(t.Context())) // DemoPing is described
			must(t, c.Ping(t.Context())) // and joined
			must(t, publisher.Publish(t.Context(), &demo.DemoPing{N: value.Some[uint32](6)}))
			must(t, publisher.Remove(t.Context(), gadget(1, "")))
			must(t, publisher.Ping(t.Context()))
			must(t, c.Ping(t.Context()))
			events.want(t, "create DemoGadget one <nil>", "create DemoPing <nil> 6", "remove DemoGadget one <nil>")
			must(t, publisher.Close())
			must(t, c.Close())
		})
	}
}

// TestFilter subscribes to some objects, of which it wants only some properties.
func TestFilter(t *testing.T) {
	_, uris := startBroker(t, broker.Options{})
	uri := uris["tcp"]
	var events log
	c := client.New(client.Options{})
	filter := levelAbove(1, false)
	filter.PropertyMask.Set(demo.DemoGadgetName)
	hot, err := client.SubscribeFiltered(c, filter, func(e *client.Event[*demo.DemoGadget]) {
		events.add(e.Operation, " ", e.Updated.ID.Value(), " ", e.Updated.Name.Value(), " ", e.Updated.Level.IsSet())
	})
	must(t, err)
	all, err := client.Subscribe[*demo.DemoGadget](c, nil)
	must(t, err)
	dial(t, c, uri)
	for _, level := range []float64{0, 2, 3, 1} {
		x := gadget(7, "seven")
		x.Level.Set(level)
		must(t, c.Publish(t.Context(), x))
	}
	must(t, c.Ping(t.Context()))
	assert.Check(t, hot.Len() == 0 && all.Len() == 1, "%d filtered, %d in all", hot.Len(), all.Len())
	events.mu.Lock()
	n := len(events.lines)
	assert.Check(t, n >= 2 && events.lines[0] == "create 7 seven false" && events.lines[n-1] == "remove 7 seven false",
		"%q", events.lines)
	events.mu.Unlock()
	must(t, hot.Close())
	must(t, c.Ping(t.Context()))
}
