package lifecycle

import (
	"cmp"
	"errors"
	"math"
	"sync"
	"time"

	"correlator/internal/worker"
)

// This file is who is served when there are more processes than Options.MaxProcesses. A user is a
// worker.User here: a container is one.
//
// Whether a process publishes shows only when it is probed. So the limit is on those that publish,
// and some more (maxNewcomers) may be there to be probed: what publishes nothing never keeps out
// what does. When all room is taken, one gives way to a newcomer, the first of:
//
//  1. processes that are excluded: by the filter, or because their library takes no part;
//  2. candidates, which have not published: of the user who has the most of them, the one that has
//     been there for the longest. It gives way to a user who has at least two fewer, so to nobody
//     for whom others would have to give way in turn; and after its probation to every user who has
//     no more than its own.
//
// When as many publish as may, and another begins to, the publisher gives way that began last, of
// the user who has the most of them, again to a user who has at least two fewer. Otherwise the one
// that begins goes itself. So users have equal shares of what is scarce, and those who want less
// than a share get all they want. Of equals the later by name, and the higher pid, give way.

const (
	// maxNewcomers is how many processes there may be beyond Options.MaxProcesses, so that there is
	// room for candidates when that many publish.
	maxNewcomers = 32

	// maxLeaving is how many that gave way to others may not have ended yet: their goroutine may hang.
	// When there are as many, nobody gives way.
	maxLeaving = 32

	// ExtraProcesses is how many processes may be open beyond Options.MaxProcesses, and how many may
	// be sampled for a moment.
	ExtraProcesses = maxNewcomers + maxLeaving

	// probation is more than it takes an agent from loading its library to publishing, on a machine
	// that is not overloaded.
	probation = 10 * time.Second
)

// standing is what a process has a claim to when there is no room for all.
type standing uint8

const (
	standingCandidate standing = iota // has not published, as far as is known
	standingExcluded                  // is left out by the filter, or its library takes no part
	standingPublisher                 // has published something that is its own
	numStandings
)

// EvictionReason is why a process has to give way to another.
type EvictionReason uint8

const (
	EvictedExcluded    EvictionReason = iota // left out by the filter, or by its library
	EvictedUnpublished                       // has not published
	EvictedShare                             // its user has more than a share
	NumEvictionReasons
)

// String returns the reason's label in logs and metrics.
func (r EvictionReason) String() string {
	return [NumEvictionReasons]string{"excluded", "unpublished", "share"}[r]
}

// RefusalReason is why a process that was found is not served, for a reason of ours.
type RefusalReason uint8

const (
	RefusedPublishing RefusalReason = iota // as many publish as may, and its user has a share
	RefusedUnprobed                        // there is no room to find out whether it publishes
	RefusedError                           // want of descriptors, or an error of Client.Admit
	NumRefusalReasons
)

// String returns the reason's label in logs and metrics.
func (r RefusalReason) String() string {
	return [NumRefusalReasons]string{"publishing", "unprobed", "error"}[r]
}

var (
	// errPublishing and errUnprobed are what Client.Refused is called with.
	errPublishing = errors.New("as many processes publish as may be served (--max-processes)")
	errUnprobed   = errors.New("all room to probe processes is taken (--max-processes)")
	// errEvicted: the process has to give way to another.
	errEvicted = errors.New("giving way to another process")
)

// place is the part of a Process that places guards.
type place struct {
	standing standing
	user     worker.User
	since    time.Time // when it came, or became a publisher
	times    int       // how often it went since it last published
	left     bool      // it has to go, or has gone
}

// places are who is there, and who had to go. Its methods do not block.
type places struct {
	limit     int // of publishers
	probation time.Duration
	counters  *Counters

	mu      sync.Mutex
	held    map[*Process]struct{}              // those that have not ended, except leaving
	counts  map[worker.User]*[numStandings]int // of held that need not go, by user
	total   [numStandings]int                  // of held that need not go
	leaving int                                // those that gave way to others and have not ended
	away    map[int]*away                      // by pid
	refused int                                // publishers among away
}

// init sets how many publishers are served at most; 0: there is no limit.
func (s *places) init(limit int, counters *Counters) {
	if limit == 0 {
		limit = math.MaxInt - maxNewcomers
	}
	s.limit, s.probation, s.counters = limit, probation, counters
	s.held, s.counts = make(map[*Process]struct{}), make(map[worker.User]*[numStandings]int)
	s.away = make(map[int]*away)
}

// enter lets a process of a user in, to be probed, or returns errUnprobed. It returns what the
// process was when it went before.
func (s *places) enter(p *Process, user worker.User) (before standing, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.place = place{user: user, since: time.Now()}
	if a := s.awayAs(p.id); a != nil {
		before, p.place.times = a.place.standing, a.place.times
	}
	if len(s.held) >= s.limit+maxNewcomers && !s.makeRoom(p) {
		return before, errUnprobed
	}
	s.forget(p.id.PID)
	s.held[p] = struct{}{}
	s.count(p, 1)
	return before, nil
}

// makeRoom has another process go, so that a newcomer can be probed.
func (s *places) makeRoom(newcomer *Process) bool {
	if s.leaving >= maxLeaving {
		return false
	}
	if excluded := s.last(standingExcluded, nil); excluded != nil {
		s.evict(excluded, EvictedExcluded)
		return true
	}
	user, most := s.greediest(standingCandidate)
	victim, own := s.last(standingCandidate, &user), s.of(newcomer.place.user, standingCandidate)
	switch {
	case victim == nil:
		return false
	case most >= own+2:
	case most >= own && time.Since(victim.place.since) >= s.probation && len(s.away)-s.refused < maxRemembered:
	default:
		return false
	}
	s.evict(victim, EvictedUnpublished)
	return true
}

// publish makes a process a publisher, as the user that it is now. With errPublishing or errEvicted
// it has to go.
func (s *places) publish(p *Process, user worker.User) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.place.left {
		return errEvicted
	}
	s.count(p, -1)
	p.place.user = user
	s.count(p, 1)
	if p.place.standing == standingPublisher {
		return nil
	}
	if s.total[standingPublisher] >= s.limit {
		victim := s.victimFor(user)
		if victim == nil {
			s.leave(p)
			p.place.standing = standingPublisher
			s.remember(p)
			return errPublishing
		}
		s.evict(victim, EvictedShare)
	}
	s.become(p, standingPublisher)
	p.place.since, p.place.times = time.Now(), 0
	return nil
}

// mayPublish reports whether one more process of a user would be served.
func (s *places) mayPublish(user worker.User) bool {
	return s.total[standingPublisher] < s.limit || s.victimFor(user) != nil
}

// victimFor returns the publisher that gives way to one more of a user, or nil.
func (s *places) victimFor(user worker.User) *Process {
	victims, most := s.greediest(standingPublisher)
	if most < s.of(user, standingPublisher)+2 || s.leaving >= maxLeaving {
		return nil
	}
	return s.last(standingPublisher, &victims)
}

// exclude records whether a process is excluded.
func (s *places) exclude(p *Process, excluded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if excluded {
		s.become(p, standingExcluded)
	} else if p.place.standing == standingExcluded {
		s.become(p, standingCandidate)
	}
}

// executed records that a process runs another program, which has not published.
func (s *places) executed(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.become(p, standingCandidate)
}

// become gives a process another standing, if it need not go.
func (s *places) become(p *Process, standing standing) {
	if !p.place.left && p.place.standing != standing {
		s.count(p, -1)
		p.place.standing = standing
		s.count(p, 1)
	}
}

// replaced forgets that what has a pid had to go: it runs another program now, which did not.
func (s *places) replaced(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(pid)
}

// end removes a process that has ended, or has gone.
func (s *places) end(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, held := s.held[p]; !held {
		s.leaving--
		return
	}
	delete(s.held, p)
	if !p.place.left {
		s.count(p, -1)
	}
}

// evict has a process go that is there.
func (s *places) evict(p *Process, reason EvictionReason) {
	s.leave(p)
	delete(s.held, p)
	s.leaving++
	s.remember(p)
	s.counters.Evicted[reason].Add(1)
	close(p.evicted)
}

// leave records that a process has to go. Until its end it takes the room of a newcomer, unless
// evict makes that free.
func (s *places) leave(p *Process) {
	s.count(p, -1)
	p.place.left = true
}

// of returns how many of a standing a user has.
func (s *places) of(user worker.User, standing standing) int {
	if counts := s.counts[user]; counts != nil {
		return counts[standing]
	}
	return 0
}

// count adds n to what a process counts for.
func (s *places) count(p *Process, n int) {
	counts := s.counts[p.place.user]
	if counts == nil {
		counts = new([numStandings]int)
		s.counts[p.place.user] = counts
	}
	counts[p.place.standing] += n
	s.total[p.place.standing] += n
	if *counts == [numStandings]int{} {
		delete(s.counts, p.place.user)
	}
}

// greediest returns the user who has the most of a standing.
func (s *places) greediest(standing standing) (user worker.User, most int) {
	for other, counts := range s.counts {
		if n := counts[standing]; n > most || n == most && other > user {
			user, most = other, n
		}
	}
	return user, most
}

// last returns who gives way first among those of a standing, of one user or of all (nil): one that
// hangs, which goes later, only if all do. There is one if any is counted.
func (s *places) last(standing standing, user *worker.User) *Process {
	var last, lastStuck *Process
	for p := range s.held {
		if p.place.left || p.place.standing != standing || user != nil && p.place.user != *user {
			continue
		}
		first := &last
		if p.IsStuck() {
			first = &lastStuck
		}
		if *first == nil || givesWay(p, *first) {
			*first = p
		}
	}
	return cmp.Or(last, lastStuck)
}

// givesWay reports whether one process gives way before another of the same standing.
func givesWay(one, other *Process) bool {
	order := one.place.since.Compare(other.place.since)
	if one.place.standing == standingPublisher { // the later goes; of others the earlier, which had its time
		order = -order
	}
	return cmp.Or(order, cmp.Compare(other.id.PID, one.id.PID)) < 0
}
