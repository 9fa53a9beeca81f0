package client

import (
	"maps"
	"slices"

	"correlator/dots/cbor"
	"correlator/dots/frame"
	"correlator/dots/system"
)

// routes says where transmissions go. It is never changed: each subscription makes a new one, so
// that the reading goroutine needs no lock.
type routes struct {
	byName map[string]*route
}

// route is where the transmissions of a type go.
type route struct {
	name     string
	protocol func(c *Client, instance []byte) error // nil for most types
	subs     []*subscription                        // in the order of joining
}

// addRoute adds a subscription. The caller holds mu.
func (c *Client) addRoute(s *subscription) {
	name := s.typ.Name
	r := &route{name: name, protocol: protocolHandler([]byte(name))}
	all := c.routes.Load().byName
	if old := all[name]; old != nil {
		r.subs = slices.Clone(old.subs)
	}
	r.subs = append(r.subs, s)
	c.replaceRoute(r)
	c.subs = append(c.subs, s)
}

// removeRoute removes a subscription, and reports whether it was there. The caller holds mu.
func (c *Client) removeRoute(s *subscription) bool {
	i := slices.Index(c.subs, s)
	if i < 0 {
		return false
	}
	c.subs = slices.Delete(c.subs, i, i+1)
	old := c.routes.Load().byName[s.typ.Name]
	r := &route{name: old.name, protocol: old.protocol, subs: slices.Clone(old.subs)}
	r.subs = slices.DeleteFunc(r.subs, func(other *subscription) bool { return other == s })
	c.replaceRoute(r)
	return true
}

func (c *Client) replaceRoute(r *route) {
	all := maps.Clone(c.routes.Load().byName)
	if all == nil {
		all = make(map[string]*route)
	}
	if all[r.name] = r; len(r.subs) == 0 {
		delete(all, r.name)
	}
	c.routes.Store(&routes{byName: all})
}

// hasUnfiltered reports whether there is an unfiltered subscription to a type. The caller holds mu.
func (c *Client) hasUnfiltered(name string) bool {
	r := c.routes.Load().byName[name]
	return r != nil && slices.ContainsFunc(r.subs, func(s *subscription) bool { return s.id == 0 && !s.closed.Load() })
}

// deliver gives a transmission to the subscriptions that it is for.
func (c *Client) deliver(r *route, h *frame.Header, instance []byte) error {
	id := uint32(0)
	if h.Set&frame.SubscriptionID != 0 {
		id = h.SubscriptionID
	}
	if h.Set&frame.FromCache != 0 {
		// Replays follow each other like the joins that they answer. Older subscriptions know the
		// state already.
		if s := r.unfilled(func(s *subscription) bool { return s.id == id }); s != nil {
			if s.closed.Load() {
				c.counters.unsubscribed.Add(1)
				return nil
			}
			s.started.Store(true)
			return s.receive(h, instance)
		}
	}
	found := false
	for _, s := range r.subs {
		if s.id != id || !s.started.Load() || s.closed.Load() {
			continue
		}
		found = true
		if err := s.receive(h, instance); err != nil {
			return err
		}
	}
	if !found {
		c.counters.unsubscribed.Add(1)
	}
	return nil
}

// unfilled returns the oldest of some subscriptions that waits for its replay, nil if none does.
func (r *route) unfilled(matches func(*subscription) bool) *subscription {
	for _, s := range r.subs {
		if matches(s) && !s.isFilled() {
			return s
		}
	}
	return nil
}

// onCacheInfo handles DotsCacheInfo: the end of a replay, or of the answer to a request for types.
func onCacheInfo(c *Client, instance []byte) error {
	var info system.DotsCacheInfo
	if err := decodeMessage(&info, instance); err != nil {
		return err
	}
	if info.EndTransmission.Value() {
		c.endReplay(info.TypeName.Value())
	}
	if info.EndDescriptorRequest.Value() {
		c.endDiscovery()
	}
	return nil
}

// endReplay notes that everything cached of a type has arrived, for the oldest subscription that
// waits for it.
func (c *Client) endReplay(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.routes.Load().byName[name]; r != nil {
		if s := r.unfilled(func(*subscription) bool { return true }); s != nil {
			c.setFilled(s)
		}
	}
}

// message is a message of the protocol.
type message interface {
	Instance
	DecodeInstance(r *cbor.Reader)
}

func decodeMessage(m message, instance []byte) error {
	r := cbor.NewReader(instance)
	m.DecodeInstance(&r)
	return decoded(m.Descriptor(), &r)
}
