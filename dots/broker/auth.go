package broker

import (
	"cmp"
	"net/netip"

	"correlator/dots/auth"
	"correlator/dots/cbor"
	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/system"
	"correlator/dots/value"
	"correlator/internal/host/sorting"
)

// rule is a rule of authentication, a static one or one that was published.
type rule struct {
	network    netip.Prefix // invalid: all addresses
	text       string       // of the network
	impossible bool         // the network cannot be parsed: no address is in it
	name       string
	priority   uint16
	secret     value.Opt[string]
	accept     value.Opt[bool]
}

// compile returns the static rules by priority.
func (a *Auth) compile() []rule {
	rules := make([]rule, 0, len(a.Rules)+1)
	for _, r := range a.Rules {
		out := rule{network: r.Network, name: r.ClientName, priority: r.Priority, accept: value.Some(r.Accept)}
		if r.Secret != "" {
			out.secret.Set(r.Secret)
		}
		rules = append(rules, out)
	}
	sorting.Stable(rules, func(x, y rule) int { return cmp.Compare(x.priority, y.priority) })
	if a.Secret != "" {
		rules = append(rules, rule{secret: value.Some(a.Secret), accept: value.Some(true)})
	}
	return rules
}

// maxRules bounds the rules that guests publish: all are tried for a connection.
const maxRules = 1000

// publishedRules are the rules that guests have published, as they were when they were last needed.
type publishedRules struct {
	stale  bool // they have changed since
	rules  []rule
	accept bool
}

// checkRule refuses one published rule too many.
func (b *Broker) checkRule(t *topic, h *frame.Header, instance []byte, l *dynamic.Layout) error {
	if h.RemoveObj || len(t.container.objects) < maxRules {
		return nil
	}
	b.batch.key = dynamic.AppendKey(b.batch.key[:0], t.s, instance, l)
	if t.container.objects[string(b.batch.key)] == nil {
		return fail(CacheFull, "too many objects of type %s", t.name)
	}
	return nil
}

// present returns the rules, and what decides if none does.
func (b *Broker) present() (rules []rule, accept bool) {
	if len(b.rules) > 0 {
		return b.rules, b.options.Auth.Accept && b.options.Auth.Secret == ""
	}
	p := &b.published
	if p.stale {
		*p = publishedRules{rules: b.decodeRules(), accept: b.decodePolicy()}
	}
	return p.rules, p.accept
}

// decodeRules returns the rules that are cached, by priority.
func (b *Broker) decodeRules() (rules []rule) {
	for _, o := range b.topics["DotsAuthentication"].container.objects {
		var x system.DotsAuthentication
		r := cbor.NewReader(o.now.data)
		x.DecodeInstance(&r)
		network := x.Network.Value()
		out := rule{name: x.ClientName.Value(), priority: x.Priority.Value(), secret: x.Secret, accept: x.Accept}
		if addr, err := netip.ParseAddr(network.Network.Value()); err == nil {
			bits := int(network.Prefix.Value())
			if addr.Is4In6() {
				bits -= 96 // of the prefix that makes it an IPv6 address
			}
			out.network = netip.PrefixFrom(addr.Unmap(), bits)
		}
		out.impossible, out.text = !out.network.IsValid(), out.network.String()
		rules = append(rules, out)
	}
	sorting.Sort(rules, func(x, y rule) int {
		return cmp.Or(cmp.Compare(x.priority, y.priority), cmp.Compare(x.text, y.text), cmp.Compare(x.name, y.name))
	})
	return rules
}

// decodePolicy returns what decides if no cached rule does.
func (b *Broker) decodePolicy() bool {
	for _, o := range b.topics["DotsAuthenticationPolicy"].container.inOrder() {
		var x system.DotsAuthenticationPolicy
		r := cbor.NewReader(o.now.data)
		if x.DecodeInstance(&r); x.Accept.IsSet() {
			return x.Accept.Value()
		}
	}
	return true
}

// matches reports whether a rule is for a guest.
func (r *rule) matches(ip netip.Addr, name string) bool {
	if r.impossible || r.name != "" && r.name != name {
		return false
	}
	return !r.network.IsValid() || r.network.Contains(ip)
}

// challenges reports whether a guest at an address is asked to authenticate. Its name is not known
// yet. The address of a Unix socket is invalid.
func (b *Broker) challenges(ip netip.Addr) bool {
	if !ip.IsValid() {
		return false
	}
	rules, _ := b.present()
	for i := range rules {
		if r := &rules[i]; r.name == "" && r.matches(ip, "") && r.accept.Value() {
			return r.secret.IsSet()
		}
	}
	return false
}

// authenticate decides about a guest. A wrong answer to a rule is a refusal unless a later rule
// accepts; that no rule decides then does not.
func (b *Broker) authenticate(g *guest, m *system.DotsMsgConnect) bool {
	if !g.ip.IsValid() {
		return true
	}
	rules, accept := b.present()
	for i := range rules {
		r := &rules[i]
		if !r.matches(g.ip, m.ClientName.Value()) {
			continue
		}
		if secret, ok := r.secret.Get(); ok {
			if !g.challenged || !m.AuthChallengeResponse.IsSet() || !m.Cnonce.IsSet() {
				return false
			}
			response, name := m.AuthChallengeResponse.Value(), m.ClientName.Value()
			if !auth.Verify(response, name, secret, g.challenge, m.Cnonce.Value()) {
				accept = false
				continue
			}
		}
		if decision, ok := r.accept.Get(); ok {
			return decision
		}
	}
	return accept
}
