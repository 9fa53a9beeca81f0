package broker

import (
	"slices"
	"strings"
	"sync"

	"correlator/dots/dynamic"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// objectOverhead is counted for each cached object besides its key and its instance: the object,
// its version, and its place in the map and in the order.
const objectOverhead = 200

// maxHeader is about the longest header: the name of a type, and eight short members.
const maxHeader = 2 + maxName + 8*10

var (
	errCacheFull = fail(CacheFull, "too much is cached")
	errTooLarge  = fail(BadInstance, "with its other properties, an object is longer than a frame")
	errTooLong   = fail(BadInstance, "in its usual encoding, an object is longer than a frame")
)

// versionOverhead is counted for a version besides its instance.
const versionOverhead = 64

// object is a cached object.
type object struct {
	key         string // see dynamic.AppendKey
	now         *version
	createdFrom uint32
}

// version is the state of an object. It is changed in place, unless a replay may still need it.
type version struct {
	data     []byte // canonical instance
	set      value.PropertySet
	from     uint32 // who updated it
	modified value.Timepoint
	epoch    uint32          // of the container, when it was made
	layout   *dynamic.Layout // of a large instance, otherwise nil
}

// scan makes the layout of a stored instance.
func (v *version) scan(s *schema.Struct, l *dynamic.Layout) {
	if v.layout != nil {
		*l = *v.layout
		return
	}
	if _, err := dynamic.Scan(s, v.data, l); err != nil {
		l.Set = 0 // impossible: it was scanned before it was stored
	}
}

// remember keeps the layout of a large instance.
func (v *version) remember(l *dynamic.Layout) {
	v.layout = nil
	if len(v.data) > largeInstance {
		v.layout = new(*l)
	}
}

// container has the objects of a cached type.
type container struct {
	objects map[string]*object
	order   []*object // by key, except for the new ones at its end
	sorted  int       // how many are in order
	removed int       // how many of them are no longer in objects; their version is nil
	epoch   uint32    // number of snapshots

	pinMu   sync.Mutex
	replays []*replay // of snapshots, by epoch
}

func newContainer() *container { return &container{objects: map[string]*object{}} }

// inOrder returns all objects by ascending key. The slice is the container's.
func (c *container) inOrder() []*object {
	if c.removed > 0 {
		c.sorted -= countRemoved(c.order[:c.sorted])
		c.order = slices.DeleteFunc(c.order, func(o *object) bool { return o.now == nil })
		c.removed = 0
	}
	if c.sorted == len(c.order) {
		return c.order
	}
	byKey := func(a, b *object) int { return strings.Compare(a.key, b.key) }
	added := slices.Clone(c.order[c.sorted:])
	slices.SortFunc(added, byKey)
	// Merged from behind, so that nothing is overwritten that is still needed.
	old := c.order[:c.sorted]
	for at := len(c.order); len(added) > 0; {
		at--
		last := added[len(added)-1]
		if n := len(old); n > 0 && old[n-1].key > last.key {
			c.order[at], old = old[n-1], old[:n-1]
			continue
		}
		c.order[at], added = last, added[:len(added)-1]
	}
	c.sorted = len(c.order)
	return c.order
}

func countRemoved(objects []*object) (n int) {
	for _, o := range objects {
		if o.now == nil {
			n++
		}
	}
	return n
}

// snapshot returns the present versions by ascending key. They are not changed any more.
func (c *container) snapshot() []*version {
	c.epoch++
	order := c.inOrder()
	versions := make([]*version, len(order))
	for i, o := range order {
		versions[i] = o.now
	}
	return versions
}

// follow notes that a replay has the versions of the present epoch.
func (c *container) follow(r *replay) {
	c.pinMu.Lock()
	defer c.pinMu.Unlock()
	r.epoch = c.epoch
	c.replays = append(c.replays, r)
}

// pin counts the memory of a version that is replaced or removed, and that a replay may still have:
// for the guest of the newest of them. The broker is locked.
func (c *container) pin(v *version) {
	if v.epoch == c.epoch {
		return // no snapshot has it
	}
	c.pinMu.Lock()
	defer c.pinMu.Unlock()
	if n := len(c.replays); n > 0 && c.replays[n-1].epoch > v.epoch {
		r, size := c.replays[n-1], versionOverhead+cap(v.data)
		r.pinned += size
		r.g.b.use(r.g, size)
	}
}

// unpin forgets a replay. What is counted for it may be in an older one, which gets it.
func (c *container) unpin(r *replay) {
	c.pinMu.Lock()
	defer c.pinMu.Unlock()
	i := slices.Index(c.replays, r)
	c.replays = slices.Delete(c.replays, i, i+1)
	r.g.account(-r.pinned)
	if i > 0 {
		older := c.replays[i-1]
		older.pinned += r.pinned
		older.g.account(r.pinned)
	}
	r.pinned = 0
}

// add adds an object whose key is new.
func (c *container) add(o *object) {
	c.objects[o.key] = o
	if n := len(c.order); n == c.sorted && (n == 0 || c.order[n-1].key < o.key) {
		c.sorted++
	}
	c.order = append(c.order, o)
}

// remove removes an object.
func (c *container) remove(o *object) {
	delete(c.objects, o.key)
	o.now = nil
	if c.removed++; c.removed > len(c.objects)+64 {
		c.inOrder()
	}
}

// transmission is what is known of a transmission when it reaches a container: normalised, with a
// canonical instance.
type transmission struct {
	key        []byte
	instance   []byte
	set        value.PropertySet // properties in the instance
	attributes value.PropertySet // properties that it is about
	from       uint32
	sent       value.Timepoint
	remove     bool
}

// store applies a transmission to the container of a topic, unless the cache or a frame would be
// too large for the object.
func (b *Broker) store(t *topic, tr *transmission, layout *dynamic.Layout) error {
	c := t.container
	o := c.objects[string(tr.key)]
	switch {
	case tr.remove:
		if o != nil {
			b.forget(t, o)
		}
		return nil
	case o == nil:
		size := objectOverhead + len(tr.key) + len(tr.instance)
		if !b.mayCache(tr.from, tr.from, size) {
			return errCacheFull
		}
		v := &version{data: slices.Clone(tr.instance), set: tr.set, from: tr.from, modified: tr.sent, epoch: c.epoch}
		v.remember(layout)
		o = &object{key: string(tr.key), now: v, createdFrom: tr.from}
		c.add(o)
		b.objects++
		b.account(tr.from, objectOverhead+len(tr.key)+cap(v.data))
		b.refs[tr.from] += 2
		b.claim(t, o)
		return nil
	}
	v := o.now
	data, set := tr.instance, tr.set
	if kept := v.set &^ tr.attributes; kept != 0 {
		set |= kept
		old, merged := &b.batch.oldLayout, &b.batch.mergedLayout
		v.scan(t.s, old)
		data = dynamic.AppendMerged(b.batch.merged[:0], t.s, v.data, old, tr.instance, layout, tr.attributes, merged)
		b.batch.merged, layout = data, merged
		if len(data)+maxHeader > b.options.Limits.Frame {
			return errTooLarge
		}
	}
	if !b.mayCache(tr.from, o.createdFrom, len(data)-cap(v.data)) {
		return errCacheFull
	}
	before := cap(v.data)
	if v.epoch == c.epoch && len(data) <= cap(v.data) {
		v.data = append(v.data[:0], data...)
	} else {
		c.pin(v)
		o.now = &version{data: slices.Clone(data), from: v.from, epoch: c.epoch}
		v = o.now
	}
	b.account(o.createdFrom, cap(v.data)-before)
	if v.from != tr.from {
		b.disclaim(t, o)
		b.release(v.from, 1)
		b.refs[tr.from]++
		v.from = tr.from
		b.claim(t, o)
	}
	v.set, v.modified = set, tr.sent
	v.remember(layout)
	return nil
}

// forget removes an object from its container.
func (b *Broker) forget(t *topic, o *object) {
	v := o.now
	b.objects--
	b.account(o.createdFrom, -objectOverhead-len(o.key)-cap(v.data))
	b.disclaim(t, o)
	b.release(v.from, 1)
	b.release(o.createdFrom, 1)
	t.container.pin(v)
	t.container.remove(o)
}

// release says that cached objects name a client id in fewer places.
func (b *Broker) release(id uint32, places int) {
	if b.refs[id] -= places; b.refs[id] <= 0 {
		delete(b.refs, id)
	}
}
