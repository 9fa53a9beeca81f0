package broker

import (
	"errors"
	"slices"
	"unsafe"

	"correlator/dots/cbor"
	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// Bounds of filters: people write some comparisons, and each is evaluated for every object, while
// the broker is locked.
const (
	maxNodes    = 256
	maxOperands = 4096    // of all comparisons of a filter
	maxFilters  = 64      // subscriptions of one guest
	maxCost     = 1024    // of the filters of one guest
	maxTopic    = maxWork // cost of the filters of a type: an object takes no longer than a batch
)

var errFilter = errors.New("invalid filter")

// filter selects objects and properties. Its predicate is evaluated on whole objects, never on the
// fragments that updates are: an update without the compared property does not hide the object.
type filter struct {
	nodes    []node // in pre-order; empty selects all objects
	operands int
	bytes    int // of operands
	compared value.PropertySet
	mask     value.PropertySet
}

// cost returns about how many numbers could be compared in the time that a filter takes.
func (f *filter) cost() int {
	const bytes = 256 // that are compared as fast
	return 1 + len(f.nodes) + f.bytes/bytes
}

// node is a node of a predicate.
type node struct {
	kind  system.DotsPredicateKind
	arity int
	size  int // nodes of the subtree, itself included
	leaf  comparison
}

// nodesIn returns how many nodes an encoded filter has. One takes much more memory than bytes, so they
// are counted before they are decoded.
func nodesIn(encoded []byte) (n int) {
	const predicateTag, nodesTag = 1, 1
	r := cbor.NewReader(encoded)
	for range r.Map() {
		if r.Uint(32) != predicateTag {
			r.Skip()
			continue
		}
		for range r.Map() {
			if r.Uint(32) != nodesTag {
				r.Skip()
				continue
			}
			count := r.Array()
			n += count
			for i := 0; i < count && r.Err() == nil; i++ {
				r.Skip()
			}
		}
	}
	return n
}

// memory returns how much memory a subscription with the filter takes.
func (f *filter) memory() int {
	const subscription = 256
	return subscription + len(f.nodes)*int(unsafe.Sizeof(node{})) +
		f.operands*int(unsafe.Sizeof(operand{})) + f.bytes
}

// compileFilter checks a filter for a type.
func compileFilter(s *schema.Struct, f *system.DotsFilter) (*filter, error) {
	out := &filter{mask: s.All()}
	if mask, ok := f.PropertyMask.Get(); ok {
		out.mask = mask&s.All() | s.Keys()
	}
	p := f.Predicate.Value()
	described := p.Nodes.Value()
	if len(described) == 0 {
		return out, nil
	}
	if len(described) > maxNodes {
		return nil, errFilter
	}
	out.nodes = make([]node, 0, len(described))
	rest, err := out.add(s, described)
	if err == nil && len(rest) > 0 {
		err = errFilter
	}
	return out, err
}

// add adds the subtree that the nodes begin with, and returns the nodes behind it.
func (f *filter) add(s *schema.Struct, described []system.DotsPredicateNode) ([]system.DotsPredicateNode, error) {
	if len(described) == 0 {
		return nil, errFilter
	}
	d, rest := &described[0], described[1:]
	at := len(f.nodes)
	n := node{kind: d.Kind.Value(), arity: int(d.Arity.Value())}
	var err error
	switch n.kind {
	case system.DotsPredicateKindLeaf:
		leaf, ok := d.Leaf.Get()
		if !ok || n.arity != 0 {
			return nil, errFilter
		}
		v := leaf.Value.Value()
		if f.operands += countOperands(&v); f.operands > maxOperands {
			return nil, errFilter
		}
		n.leaf, err = compileLeaf(s, &leaf)
		for i := range n.leaf.values {
			f.bytes += len(n.leaf.values[i].s)
		}
		f.compared |= 1 << n.leaf.tag
	case system.DotsPredicateKindNot:
		if n.arity != 1 {
			return nil, errFilter
		}
	case system.DotsPredicateKindAnd, system.DotsPredicateKindOr:
		if d.Arity.Value() > maxNodes {
			return nil, errFilter
		}
	default:
		return nil, errFilter
	}
	f.nodes = append(f.nodes, n)
	for i := 0; i < n.arity && err == nil; i++ {
		rest, err = f.add(s, rest)
	}
	f.nodes[at].size = len(f.nodes) - at
	return rest, err
}

// matches reports whether an object is selected.
func (f *filter) matches(instance []byte, l *dynamic.Layout) bool {
	return len(f.nodes) == 0 || evaluate(f.nodes, instance, l)
}

// evaluate evaluates the subtree that the nodes begin with.
func evaluate(nodes []node, instance []byte, l *dynamic.Layout) bool {
	n := &nodes[0]
	if n.kind == system.DotsPredicateKindLeaf {
		return n.leaf.holds(instance, l)
	}
	at := 1
	for range n.arity {
		child := evaluate(nodes[at:], instance, l)
		switch {
		case n.kind == system.DotsPredicateKindNot:
			return !child
		case n.kind == system.DotsPredicateKindAnd && !child:
			return false
		case n.kind == system.DotsPredicateKindOr && child:
			return true
		}
		at += nodes[at].size
	}
	return n.kind == system.DotsPredicateKindAnd
}

// joinFiltered begins a filtered subscription, and replays what it selects. One that is impossible
// is ignored, as the implementation does that introduced them.
func (b *Broker) joinFiltered(g *guest, m *system.DotsMember) error {
	t := b.topics[m.GroupName.Value()]
	id, hasID := m.SubscriptionID.Get()
	described, hasFilter := m.Filter.Get()
	if t == nil || t.s == nil || !hasID || !hasFilter {
		b.count.ignored.Add(1)
		return nil
	}
	f, err := compileFilter(t.s, &described)
	if err != nil {
		b.count.ignored.Add(1)
		return nil
	}
	b.leaveFiltered(g, t.name, id)
	cost := f.cost()
	if g.subs >= b.options.Limits.Groups || len(g.filtered) >= maxFilters {
		return fail(TooManyGroups, "too many groups")
	}
	if g.cost+cost > maxCost || t.cost+cost > maxTopic {
		return fail(TooManyGroups, "filters compare too much")
	}
	if t.name == recordType {
		b.listGroups()
	}
	s := &subscription{member: member{g: g}, t: t, at: len(t.filtered), id: id, filter: f}
	t.filtered = append(t.filtered, s)
	g.filtered = append(g.filtered, s)
	g.subs++
	g.cost += cost
	t.cost += cost
	b.use(g, f.memory())
	b.membersChanged(t, g)
	if t.container != nil {
		b.replayFiltered(t, s)
		b.reply(g, &system.DotsCacheInfo{TypeName: value.Some(t.name), EndTransmission: value.Some(true)})
	}
	return nil
}

// leaveFiltered ends a filtered subscription.
func (b *Broker) leaveFiltered(g *guest, name string, id uint32) {
	i := slices.IndexFunc(g.filtered, func(s *subscription) bool { return s.t.name == name && s.id == id })
	if i >= 0 {
		b.endSubscription(g, i)
	}
}

// endSubscription ends the filtered subscription at a place of the guest's list.
func (b *Broker) endSubscription(g *guest, i int) {
	s := g.filtered[i]
	t, last := s.t, len(s.t.filtered)-1
	t.filtered[s.at] = t.filtered[last]
	t.filtered[s.at].at = s.at
	t.filtered[last] = nil
	t.filtered = t.filtered[:last]
	g.filtered = slices.Delete(g.filtered, i, i+1)
	g.subs--
	g.cost -= s.filter.cost()
	t.cost -= s.filter.cost()
	g.account(-s.filter.memory())
	b.membersChanged(t, g)
}

// replayFiltered queues the replay of the objects that a subscription selects. Which these are is
// found out without the lock, by the goroutine that reads for the guest; what is published meanwhile
// is queued behind them.
func (b *Broker) replayFiltered(t *topic, s *subscription) {
	if s.g.dead || len(t.container.objects) == 0 {
		return
	}
	b.describe(s.g, t.s)
	s.described = true
	r := &replay{s: t.s, versions: t.container.snapshot(), mask: s.filter.mask}
	r.header.SubscriptionID, r.header.Set = s.id, frame.SubscriptionID
	b.queueReplay(s.g, r)
	b.sentFrames -= uint64(len(r.versions)) // not yet
	s.g.traffic.sentFrames -= uint64(len(r.versions))
	r.pending, s.g.selecting = s.filter, r
}

// selectReplay removes what a filter does not select from the replay that the guest has asked for.
// The broker is not locked; nobody else uses the versions while the replay is pending.
func (g *guest) selectReplay() (selected int) {
	r := g.selecting
	g.selecting = nil
	var l dynamic.Layout
	versions := slices.DeleteFunc(r.versions, func(v *version) bool {
		return !layoutOf(r.s, v.data, &l) || !r.pending.matches(v.data, &l)
	})
	g.queueMu.Lock()
	defer g.queueMu.Unlock()
	r.versions, r.pending = versions, nil
	return len(versions)
}

// relock releases the lock within a batch, which writes what is queued, and takes it again. What is
// in the buffers of the batch is lost.
func (b *Broker) relock(g *guest) {
	g.writers = b.unlock(g.writers)
	if g.selecting == nil {
		b.lock()
		return
	}
	selected := g.selectReplay()
	b.lock()
	b.sentFrames += uint64(selected)
	g.traffic.sentFrames += uint64(selected)
	b.fill(g)
}

// forwardFiltered sends a transmission to the filtered subscriptions of a type: an object that is
// selected from now on as a whole, one that no longer is as its removal. before is the stored object
// before the transmission, nil if there was none.
func (b *Broker) forwardFiltered(
	t *topic, h *frame.Header, instance []byte, l *dynamic.Layout, before *version,
) {
	if len(t.filtered) == 0 {
		return
	}
	var old dynamic.Layout
	existed := before != nil
	if existed {
		before.scan(t.s, &old)
	}
	now, merged := instance, *l
	if t.container != nil && !h.RemoveObj {
		if o := t.container.objects[string(b.batch.key)]; o != nil {
			now = o.now.data
			o.now.scan(t.s, &merged)
		}
	}
	changed := h.Attributes &^ t.s.Keys()
	for _, s := range t.filtered {
		if s.g.dead {
			continue
		}
		b.batch.work += s.filter.cost()
		is := !h.RemoveObj && s.filter.matches(now, &merged)
		was := existed && is
		if existed && (h.RemoveObj || s.filter.compared&changed != 0) {
			was = s.filter.matches(before.data, &old)
			b.batch.work += s.filter.cost()
		}
		header := *h
		header.Set = h.Set&^frame.RemoveObj | frame.SubscriptionID | frame.RemoveObj
		header.SubscriptionID = s.id
		source, layout, props := instance, l, h.Attributes&s.filter.mask
		switch {
		case is && (was || t.container == nil):
		case is: // now selected
			source, layout = now, &merged
			props = merged.Set & s.filter.mask
		case was:
			header.RemoveObj, props = true, t.s.Keys()
		default:
			continue
		}
		header.Attributes = props
		if !s.described {
			b.describe(s.g, t.s)
			s.described = true
		}
		b.batch.own = dynamic.AppendSelected(b.batch.own[:0], t.s, source, layout, props)
		f := s.g.format
		b.batch.frames[f] = encode(b.batch.frames[f][:0], f, &header, t.s, b.batch.own)
		b.enqueue(s.g, b.batch.frames[f])
	}
}
