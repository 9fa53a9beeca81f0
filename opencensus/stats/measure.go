package stats

import (
	"strings"
	"time"

	"correlator/opencensus/wire"
)

// measure is a measure that was created, recorded, or named by a view. Its description is not kept,
// since views have their own.
type measure struct {
	name    string           // as sent
	kind    wire.MeasureType // Int, Float; 0: not known yet
	created bool             // by a message of its own, which has the unit
	unit    string
	views   []*view // in the order of registration
	user    *user
	bytes   int       // charged to the user
	unitOf  *user     // is charged the unit, which is kept as long as the measure
	used    time.Time // when it was last created, recorded, or named by a view
}

// CreateMeasure creates a measure. If it exists, the first unit stays.
func (u *Update) CreateMeasure(m wire.Measure) {
	if loss, ok := u.createMeasure(&m); !ok {
		u.s.counts.Lost[loss]++
	}
}

func (u *Update) createMeasure(m *wire.Measure) (Loss, bool) {
	switch {
	case m.Type != wire.Int && m.Type != wire.Float:
		return CreateType, false
	case len(m.Name) > maxName:
		return CreateName, false
	}
	known := u.s.measures[m.Name]
	switch {
	case known == nil:
		if known = u.addMeasure(m.Name); known == nil {
			return CreateNoRoom, false
		}
	case known.kind != 0 && known.kind != m.Type:
		return CreateConflict, false
	}
	known.used = u.now
	known.kind = m.Type
	if known.created {
		return 0, true
	}
	unit := u.s.text(m.Unit)
	if unit != "" && !u.s.memory.take(u.owner(), len(unit)) {
		return CreateNoRoom, false
	}
	known.created, known.unit, known.unitOf = true, unit, u.owner()
	return 0, true
}

// addMeasure adds a measure of which nothing but the name is known, or returns nil if there is no
// room.
func (u *Update) addMeasure(name string) *measure {
	s := u.s
	m := &measure{name: strings.Clone(name), user: u.owner(), bytes: measureBytes + len(name),
		used: u.now}
	if m.user.measures >= s.options.MaxMeasures || !s.memory.take(m.user, m.bytes) {
		return nil
	}
	m.user.measures++
	s.measures[m.name] = m
	return m
}

// forget removes a measure that nothing is known of, unless a view has it.
func (s *State) forget(m *measure) {
	if m.kind == 0 && len(m.views) == 0 {
		s.remove(m)
	}
}

// remove removes a measure without views.
func (s *State) remove(m *measure) {
	delete(s.measures, m.name)
	m.user.measures--
	s.memory.give(m.user, m.bytes)
	if m.unit != "" {
		s.memory.give(m.unitOf, len(m.unit))
	}
}

// forgetUnused forgets views and measures that are not used any more, of users that have many. The views are
// encoded once more.
func (s *State) forgetUnused(now time.Time) {
	if now.Sub(s.looked) < unusedLook {
		return
	}
	s.looked = now
	unused := func(m *measure) bool { return now.Sub(m.used) >= unusedAge }
	for _, v := range s.inOrder() {
		if v.user.bytes > modestBytes && unused(v.measure) && now.Sub(v.registered) >= unusedAge {
			s.counts.Lost[ViewUnused]++
			s.drop(v, now)
		}
	}
	for _, m := range s.measures {
		if m.user.bytes > modestBytes && unused(m) && len(m.views) == 0 {
			s.counts.Lost[MeasureUnused]++
			s.remove(m)
		}
	}
}
