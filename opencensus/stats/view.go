package stats

import (
	"slices"
	"strings"
	"time"

	"correlator/opencensus/wire"
)

// view is a view that is registered, or was until it is encoded once more.
type view struct {
	definition
	name        string // UTF-8
	description string
	measure     *measure
	ordinal     uint64 // of all views, in the order of registration

	start      time.Time
	registered time.Time // the last time
	ended      time.Time // dropped; zero: not
	conflicts  []uint64  // hashes of other definitions that were reported

	series   []*series          // in the order of creation
	byValues map[string]*series // by the values of the tags, without overflow
	overflow *series            // nil: there is none yet

	current *series // that of the record with the number record
	record  uint64

	user  *user
	bytes int // charged to the user: all but series that are not for overflow
}

// RegisterViews registers views, each on its own.
func (u *Update) RegisterViews(views []wire.View) {
	for i := range views {
		u.s.counts.Views++
		if loss, ok := u.register(&views[i]); !ok {
			u.s.counts.Lost[loss]++
		}
	}
}

func (u *Update) register(x *wire.View) (Loss, bool) {
	s, d := u.s, &u.definition
	if loss, ok := d.define(x, s.options.MaxBoundaries); !ok {
		return loss, false
	}
	name := valid(x.Name)
	known := s.views[name]
	switch {
	case known == nil:
		return u.create(name, x, nil)
	case known.equal(d):
		known.registered = u.now
		s.counts.ViewsKnown++
		return 0, true
	case u.now.Sub(known.registered) >= conflictAge:
		return u.create(name, x, known)
	default:
		u.report(known)
		return ViewConflict, false
	}
}

// create creates a view that has the definition of the Update, and replaces another one.
func (u *Update) create(name string, x *wire.View, replaced *view) (Loss, bool) {
	s := u.s
	views := u.owner().views
	if replaced != nil && replaced.user == u.owner() {
		views--
	}
	if views >= s.options.MaxViews {
		return ViewNoRoom, false
	}
	m := s.measures[x.Measure]
	if m == nil {
		if m = u.addMeasure(x.Measure); m == nil {
			return ViewNoRoom, false
		}
	}
	if m.viewsOf(u.owner(), replaced) >= maxViewsOfMeasure {
		return ViewTooMany, false
	}
	v := &view{
		definition: u.definition.clone(), name: strings.Clone(name), description: s.text(x.Description), measure: m,
		start: u.now, registered: u.now, user: u.owner(),
	}
	v.bytes = viewBytes + v.definition.bytes() + len(v.name) + len(v.description) +
		v.seriesBytes(0, len(overflowAttributes))
	if !s.memory.take(v.user, v.bytes) {
		s.forget(m)
		return ViewNoRoom, false
	}
	s.ordinal++
	v.ordinal = s.ordinal
	v.user.views++
	m.views = append(m.views, v) // before the other goes, which may be its last
	if replaced == nil {
		s.counts.ViewsCreated++
	} else {
		s.drop(replaced, u.now)
		s.counts.ViewsReplaced++
	}
	s.views[v.name] = v
	return 0, true
}

// viewsOf returns how many views of a user the measure has, without one.
func (m *measure) viewsOf(u *user, without *view) (n int) {
	for _, v := range m.views {
		if v.user == u && v != without {
			n++
		}
	}
	return n
}

// UnregisterViews drops views, whoever has registered them. They are encoded once more. What is not
// registered is ignored.
func (u *Update) UnregisterViews(names []string) {
	for _, name := range names {
		if len(name) > maxName {
			continue
		}
		if v := u.s.views[valid(name)]; v != nil {
			u.s.drop(v, u.now)
		}
	}
}

// LeftOut counts views, and names of views to unregister, that a message has beyond those that were
// decoded.
func (u *Update) LeftOut(views, names int) {
	u.s.counts.Views += uint64(views)
	u.s.counts.Lost[ViewTooMany] += uint64(views)
	u.s.counts.Lost[UnregisterTooMany] += uint64(names)
}

// drop drops a view. If it has data, its memory stays taken until it has been encoded.
func (s *State) drop(v *view, now time.Time) {
	delete(s.views, v.name)
	v.user.views--
	s.series -= len(v.series)
	m := v.measure
	m.views = slices.DeleteFunc(m.views, func(other *view) bool { return other == v })
	s.forget(m)
	if v.ended = now; len(v.series) > 0 {
		s.ended = append(s.ended, v)
		return
	}
	s.release(v)
}

// release returns the memory of a view that was dropped.
func (s *State) release(v *view) {
	for _, x := range v.series {
		s.clearExemplars(x)
		if x != v.overflow {
			s.memory.give(x.user, x.bytes)
		}
	}
	s.memory.give(v.user, v.bytes)
}
