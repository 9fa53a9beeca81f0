package lifecycle

import (
	"cmp"
	"errors"
	"math"
	"sync"
	"time"

	"correlator/internal/host/share"
	"correlator/internal/worker"
)

// This file decides who is served when there are more processes than Options.MaxProcesses. A user is a
// worker.User here: a container is one.
//
// Whether a process publishes shows only when it is probed. So the limit is on those that publish, and some
// more (maxNewcomers) may be there to be probed. Users have equal shares of both: where no room is left, the
// last process of the user who has the most gives way to one of a user who has at least two fewer, so to
// nobody for whom others would have to give way in turn. Otherwise the newcomer is refused, with a reason that
// is counted, and sweeps try again. Two more rules: a process that is excluded gives way to all others, and a
// candidate to a process that is known to publish.

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

	// maxRefused is how many are remembered that were refused, 100 bytes each.
	maxRefused = 16384
)

// class is what a process has a claim to when there is no room for all.
type class uint8

const (
	classCandidate class = iota // has not published, as far as is known
	classExcluded               // is left out by the filter, or its library takes no part
	classPublisher              // has published something that is its own
	numClasses
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

// claim is the part of a Process that the admission guards.
type claim struct {
	class   class
	user    worker.User
	since   time.Time // when it came, or became a publisher
	over    bool      // it has to go, or has gone
	evicted bool      // the same, and it takes no room
}

// admission is who is there, and who was refused. Its methods do not block.
type admission struct {
	limit     int // of publishers
	counters  *Counters
	processes func() []*Process // that have not ended, whether they have to go or not

	mu      sync.Mutex
	held    int                              // processes that take room
	leaving int                              // those that gave way to others and have not ended
	counts  map[worker.User]*[numClasses]int // of those that need not go, by user
	total   [numClasses]int                  // of those that need not go
	refusals
}

// init sets how many publishers are served at most; 0: there is no limit.
func (a *admission) init(limit int, counters *Counters, processes func() []*Process) {
	if limit == 0 {
		limit = math.MaxInt - maxNewcomers
	}
	a.limit, a.counters, a.processes = limit, counters, processes
	a.counts = make(map[worker.User]*[numClasses]int)
	a.refusals = refusals{byPID: make(map[int]*refusal), shares: share.NewBudget[worker.User](maxRefused)}
}

// enter lets a process of a user in, to be probed, or returns errUnprobed. It returns as what the process was
// refused before.
func (a *admission) enter(p *Process, user worker.User) (before class, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.refusal(p.id); r != nil {
		before = r.class
	}
	p.claim = claim{user: user, since: time.Now()}
	if a.held >= a.limit+maxNewcomers && !a.makeRoom(user, before) {
		a.remember(p, before)
		return before, errUnprobed
	}
	a.forget(p.id.PID)
	a.held++
	a.count(p, 1)
	return before, nil
}

// makeRoom has another process go, so that one of a user can be probed.
func (a *admission) makeRoom(user worker.User, before class) bool {
	if a.leaving >= maxLeaving {
		return false
	}
	if excluded := a.last(classExcluded, nil); excluded != nil {
		a.evict(excluded, EvictedExcluded)
		return true
	}
	victim := a.victim(classCandidate, user)
	if before == classPublisher {
		victim = a.last(classCandidate, nil)
	}
	if victim != nil {
		a.evict(victim, EvictedUnpublished)
	}
	return victim != nil
}

// publish makes a process a publisher, as the user that it is now. With errPublishing or errEvicted it has to
// go.
func (a *admission) publish(p *Process, user worker.User) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.claim.over {
		return errEvicted
	}
	a.count(p, -1)
	p.claim.user = user
	a.count(p, 1)
	if p.claim.class == classPublisher {
		return nil
	}
	if a.total[classPublisher] >= a.limit {
		victim := a.victim(classPublisher, user)
		if victim == nil {
			a.leave(p)
			a.remember(p, classPublisher)
			return errPublishing
		}
		a.evict(victim, EvictedShare)
	}
	a.become(p, classPublisher)
	p.claim.since = time.Now()
	return nil
}

// mayEnter reports whether a process that was found may be let in, as far as that is known before it is opened,
// and if not, as what it was refused before.
func (a *admission) mayEnter(pid int, is func(*refusal) bool) (before class, may bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.byPID[pid]
	if r == nil || !is(r) {
		return 0, true
	}
	r.seen = true
	room := a.held < a.limit+maxNewcomers
	switch r.class {
	case classPublisher:
		return r.class, a.total[classPublisher] < a.limit || a.victim(classPublisher, r.user) != nil
	case classExcluded:
		return r.class, room
	}
	return r.class, room || a.total[classExcluded] > 0 || a.victim(classCandidate, r.user) != nil
}

// exclude records whether a process is excluded.
func (a *admission) exclude(p *Process, excluded bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if excluded {
		a.become(p, classExcluded)
	} else if p.claim.class == classExcluded {
		a.become(p, classCandidate)
	}
}

// withdrew records that a process publishes nothing: it may run another program.
func (a *admission) withdrew(p *Process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.become(p, classCandidate)
}

// become gives a process another class, if it need not go.
func (a *admission) become(p *Process, class class) {
	if !p.claim.over && p.claim.class != class {
		a.count(p, -1)
		p.claim.class = class
		a.count(p, 1)
	}
}

// end removes a process that has ended, or has gone.
func (a *admission) end(p *Process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.claim.evicted {
		a.leaving--
		return
	}
	a.held--
	if !p.claim.over {
		a.count(p, -1)
	}
}

// evict has a process go that is there.
func (a *admission) evict(p *Process, reason EvictionReason) {
	a.leave(p)
	p.claim.evicted = true
	a.held--
	a.leaving++
	a.remember(p, p.claim.class)
	a.counters.Evicted[reason].Add(1)
	close(p.evicted)
}

// leave records that a process has to go. Until its end it takes the room of a newcomer, unless
// evict makes that free.
func (a *admission) leave(p *Process) {
	a.count(p, -1)
	p.claim.over = true
}

// count adds n to what a process counts for.
func (a *admission) count(p *Process, n int) {
	counts := a.counts[p.claim.user]
	if counts == nil {
		counts = new([numClasses]int)
		a.counts[p.claim.user] = counts
	}
	counts[p.claim.class] += n
	a.total[p.claim.class] += n
	if *counts == [numClasses]int{} {
		delete(a.counts, p.claim.user)
	}
}

// victim returns the process of a class that gives way to one more of a user, or nil.
func (a *admission) victim(class class, user worker.User) *Process {
	own := 0
	if counts := a.counts[user]; counts != nil {
		own = counts[class]
	}
	greediest, most := a.greediest(class)
	if a.leaving >= maxLeaving || most < own+2 {
		return nil
	}
	return a.last(class, &greediest)
}

// greediest returns the user who has the most of a class.
func (a *admission) greediest(class class) (user worker.User, most int) {
	for other, counts := range a.counts {
		if n := counts[class]; n > most || n == most && other > user {
			user, most = other, n
		}
	}
	return user, most
}

// last returns who gives way first among those of a class, of one user or of all (nil), or nil. One that
// hangs, which goes later, does so only if all do.
func (a *admission) last(class class, user *worker.User) (last *Process) {
	for _, p := range a.processes() {
		if c := &p.claim; c.over || c.class != class || user != nil && c.user != *user {
			continue
		}
		if last == nil || compareLeaving(p, last) < 0 {
			last = p
		}
	}
	return last
}

// compareLeaving orders processes of the same class, by which of them gives way first.
func compareLeaving(one, other *Process) int {
	if stuck := one.IsStuck(); stuck != other.IsStuck() {
		if stuck {
			return 1
		}
		return -1
	}
	order := one.claim.since.Compare(other.claim.since)
	if one.claim.class == classPublisher { // the later goes; of others the earlier, which had its time
		order = -order
	}
	return cmp.Or(order, cmp.Compare(other.id.PID, one.id.PID))
}
