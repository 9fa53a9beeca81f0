package lifecycle

import (
	"cmp"
	"time"

	"correlator/procscan"
)

// This file is who had to go (places.go), and when they return.
//
// Who went is remembered until it executes another program, and comes last: after all others that a
// sweep has found, publishers first; a publisher as soon as it would be let in, a candidate after a
// pause that doubles each time, an excluded one when there is room.

const (
	// A candidate that went is probed again after pauses that double between these.
	minAway = 30 * time.Second
	maxAway = 16 * time.Minute

	// maxRemembered is how many that went are remembered, 100 bytes each, and as many publishers.
	// When there are more, candidates no longer give way because of their probation alone: they
	// would be back as newcomers at once.
	maxRemembered = 16384
)

// away is a process that went and has not come back.
type away struct {
	id    procscan.ProcessID
	place place
	until time.Time // a candidate does not come back before
	seen  bool      // since the last sweep
}

// remember records that a process went.
func (s *places) remember(p *Process) {
	a := &away{id: p.id, place: p.place, seen: true}
	pause := maxAway
	if a.place.times < 5 { // longer than maxAway, from there on
		pause = minAway << a.place.times
	}
	a.place.times++
	a.until = time.Now().Add(pause)
	alike := &s.refused
	s.forget(p.id.PID)
	if a.place.standing != standingPublisher {
		others := len(s.away) - s.refused
		alike = &others
	}
	if *alike < maxRemembered {
		s.away[p.id.PID] = a
		*alike++
	}
}

// forget undoes remember.
func (s *places) forget(pid int) {
	if a := s.away[pid]; a != nil && a.place.standing == standingPublisher {
		s.refused--
	}
	delete(s.away, pid)
}

// awayAs returns what is remembered of a process, or nil.
func (s *places) awayAs(id procscan.ProcessID) *away {
	if a := s.away[id.PID]; a != nil && a.id == id {
		return a
	}
	return nil
}

// mayReturn reports whether a process would be let in that went before.
func (s *places) mayReturn(a *away) bool {
	switch a.place.standing {
	case standingPublisher:
		return s.mayPublish(a.place.user)
	case standingExcluded:
		return len(s.held) < s.limit+maxNewcomers
	}
	return len(s.held) < s.limit+maxNewcomers || time.Now().After(a.until)
}

// found returns whether a process that was found went before (then with what it was), and whether
// it may come in now.
func (s *places) found(id procscan.ProcessID) (before *place, admitted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.awayAs(id)
	if a == nil {
		return nil, true
	}
	a.seen = true
	was := a.place
	return &was, s.mayReturn(a)
}

// skips reports whether a sweep need not look at what has a pid: it went, and may not come back
// yet. That it is another process by now, or has executed another program, live events report.
func (s *places) skips(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.away[pid]
	if a == nil || a.place.standing == standingPublisher || s.mayReturn(a) {
		return false
	}
	a.seen = true
	return true
}

// see records that what has a pid is there, in case that it had to go: until its goroutine has ended,
// sweeps take it for one that is served.
func (s *places) see(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.away[pid]; a != nil {
		a.seen = true
	}
}

// swept forgets those that went and that a complete sweep has not found.
func (s *places) swept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid, a := range s.away {
		if !a.seen {
			s.forget(pid)
		}
		a.seen = false
	}
}

// compareReturning orders those that went, by which of them returns first.
func compareReturning(a, b *place) int {
	rank := [numStandings]int{standingPublisher: 0, standingCandidate: 1, standingExcluded: 2}
	return cmp.Or(cmp.Compare(rank[a.standing], rank[b.standing]), cmp.Compare(a.times, b.times))
}

// WithoutPlace returns how many processes had to give way, or were not let in, and live: those that
// publish, and the others.
func (m *Manager) WithoutPlace() (publishing, others int) {
	m.places.mu.Lock()
	defer m.places.mu.Unlock()
	return m.places.refused, len(m.places.away) - m.places.refused
}
