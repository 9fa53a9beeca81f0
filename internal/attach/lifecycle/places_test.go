package lifecycle

import (
	"errors"
	"slices"
	"testing"
	"time"

	"correlator/internal/attach"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/procscan/watch"
)

// newPlaces are places for so many publishers, in which no probation is over.
func newPlaces(limit int) *places {
	s := new(places)
	s.init(limit, new(Counters))
	s.probation = time.Hour
	return s
}

// come lets a process in, which fails the test if that is refused.
func (s *places) come(t *testing.T, pid int, user worker.User) *Process {
	t.Helper()
	p := &Process{id: procscan.ProcessID{PID: pid, StartTime: 1}, evicted: make(chan struct{})}
	if _, err := s.enter(p, user); err != nil {
		t.Fatalf("process %d of user %s: %v", pid, user, err)
	}
	return p
}

// full are places that are full of candidates of a user, the first of which came first.
func full(t *testing.T, limit int, user worker.User) (*places, []*Process) {
	s := newPlaces(limit)
	var candidates []*Process
	for pid := range limit + maxNewcomers {
		p := s.come(t, 1000+pid, user)
		p.place.since = time.Now().Add(time.Duration(pid-1000) * time.Second)
		candidates = append(candidates, p)
	}
	return s, candidates
}

func (p *Process) gone() bool {
	select {
	case <-p.evicted:
		return true
	default:
		return false
	}
}

func (s *places) refuses(pid int, user worker.User) bool {
	p := &Process{id: procscan.ProcessID{PID: pid, StartTime: 1}, evicted: make(chan struct{})}
	_, err := s.enter(p, user)
	return errors.Is(err, errUnprobed)
}

func TestPlacesOfCandidates(t *testing.T) {
	s, candidates := full(t, 3, "7")
	if !s.refuses(1, "7") {
		t.Error("let in before the probation of others of its user is over")
	}
	s.come(t, 2, "8") // who has fewer
	if !candidates[0].gone() || candidates[1].gone() {
		t.Error("not the one went that was there for the longest")
	}
	s.exclude(candidates[9], true)
	s.come(t, 3, "7")
	if !candidates[9].gone() || candidates[1].gone() {
		t.Error("an excluded one did not give way first")
	}
	s.probation = 0
	s.come(t, 4, "7")
	if !candidates[1].gone() || candidates[2].gone() {
		t.Error("no candidate went after its probation")
	}
	if got := s.counts["8"][standingCandidate]; got != 1 {
		t.Errorf("%d candidates of the user with few, want its one", got)
	}

	// Who went comes back neither at once nor in a loop, and sooner than who went more often.
	if a, admitted := s.found(candidates[1].id); a == nil || admitted || !s.skips(candidates[1].id.PID) {
		t.Error("one that had to go may come back at once")
	}
	if a, _ := s.found(procscan.ProcessID{PID: candidates[1].id.PID, StartTime: 2}); a != nil {
		t.Error("another process with the same pid is taken for one that went")
	}
	s.away[candidates[1].id.PID].until = time.Now().Add(-time.Second)
	if _, admitted := s.found(candidates[1].id); !admitted {
		t.Error("one that had to go may not come back after its pause")
	}
	again := s.come(t, candidates[1].id.PID, "7")
	s.evict(again, EvictedUnpublished)
	if a := s.away[again.id.PID]; a.place.times != 2 || time.Until(a.until) < minAway*3/2 {
		t.Errorf("went again: %+v", a)
	}
	if s.end(again); s.leaving != 4 {
		t.Errorf("%d are leaving", s.leaving)
	}
	s.swept()
	s.see(again.id.PID)
	s.swept()
	if s.awayAs(again.id) == nil {
		t.Error("one that had not ended yet is forgotten")
	}
	s.swept() // without any
	if len(s.away) != 0 {
		t.Errorf("%d are remembered that a sweep has not found", len(s.away))
	}
}

func TestPlacesOfPublishers(t *testing.T) {
	s := newPlaces(4)
	publish := func(pid int, user worker.User) *Process {
		t.Helper()
		p := s.come(t, pid, user)
		if err := s.publish(p, user); err != nil {
			t.Fatalf("process %d of user %s: %v", pid, user, err)
		}
		return p
	}
	var publishers []*Process
	for pid := range 4 {
		publishers = append(publishers, publish(10+pid, "7"))
	}
	own := s.come(t, 1, "7")
	if err := s.publish(own, "7"); !errors.Is(err, errPublishing) || s.refused != 1 {
		t.Errorf("one more of the same user: %v, %d refused", err, s.refused)
	}
	s.end(own)
	publish(2, "8")
	publish(3, "8")
	if !publishers[3].gone() || !publishers[2].gone() || publishers[1].gone() {
		t.Error("not those went that published last")
	}
	third := s.come(t, 4, "8")
	if err := s.publish(third, "8"); !errors.Is(err, errPublishing) {
		t.Errorf("a user got more than a share: %v", err)
	}
	if _, admitted := s.found(publishers[2].id); admitted {
		t.Error("one comes back for which another would have to go that has no more than a share")
	}
	s.end(publishers[0]) // it ends
	if _, admitted := s.found(publishers[2].id); !admitted {
		t.Error("one that publishes may not come back when there is room")
	}
	if back := publish(publishers[2].id.PID, "7"); s.refused != 3 || back.place.times != 0 {
		t.Errorf("%d refused, want the others that went", s.refused)
	}

	// A process may change its user.
	root := s.come(t, 5, "0")
	if err := s.publish(root, "7"); !errors.Is(err, errPublishing) {
		t.Errorf("a process that is not root's any more took root's share: %v", err)
	}
	if n := s.of("0", standingPublisher) + s.of("0", standingCandidate); n != 0 {
		t.Errorf("%d of root", n)
	}
}

// Who makes its goroutine hang gives way too, after those of its user who do not: with more of them
// than there is room for, a user keeps nobody out.
func TestPlacesOfHanging(t *testing.T) {
	m := &Manager{started: time.Now().Add(-time.Hour)}
	hang := func(processes []*Process) {
		for _, p := range processes {
			p.manager = m
			p.busySince.Store(m.uptime() - int64(time.Minute))
		}
	}
	const limit = 3
	s, hanging := full(t, limit, "7")
	hang(hanging[1:])
	s.come(t, 1, "8")
	if !hanging[0].gone() {
		t.Error("the only one that does not hang did not give way first")
	}
	s.come(t, 2, "8")
	if !hanging[1].gone() || hanging[2].gone() {
		t.Error("of those that hang, not the one went that was there for the longest")
	}
	s.exclude(hanging[9], true)
	s.come(t, 3, "8")
	if !hanging[9].gone() {
		t.Error("an excluded one that hangs did not give way first")
	}

	s = newPlaces(limit)
	var publishers []*Process
	for pid := range limit {
		p := s.come(t, 10+pid, "7")
		if err := s.publish(p, "7"); err != nil {
			t.Fatal(err)
		}
		publishers = append(publishers, p)
	}
	hang(publishers)
	if honest := s.come(t, 1, "8"); s.publish(honest, "8") != nil || !publishers[limit-1].gone() {
		t.Error("not served while all publishers of another user hang")
	}
}

// Publishers come back first, then candidates, those first that went less often.
func TestReturning(t *testing.T) {
	want := []place{{standing: standingPublisher, times: 9}, {times: 1}, {times: 2}, {standing: standingExcluded}}
	got := []place{want[3], want[2], want[1], want[0]}
	slices.SortStableFunc(got, func(a, b place) int { return compareReturning(&a, &b) })
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// What is remembered is bounded, and so is how many may be on their way out.
func TestPlacesAreBounded(t *testing.T) {
	s, candidates := full(t, 2*maxLeaving, "7")
	s.probation = 0
	for pid := range maxLeaving {
		s.come(t, 1+pid, "7")
	}
	if !s.refuses(900, "7") || !s.refuses(900, "8") {
		t.Errorf("more than %d were made to go at once", maxLeaving)
	}
	for i, p := range candidates[:maxLeaving] {
		if !p.gone() {
			t.Errorf("candidate %d did not go", i)
		}
		s.end(p)
	}
	for pid := 10_000; len(s.away) < maxRemembered; pid++ {
		s.remember(&Process{id: procscan.ProcessID{PID: pid}})
	}
	s.remember(&Process{id: procscan.ProcessID{PID: 1}})
	if len(s.away) != maxRemembered || !s.refuses(901, "7") {
		t.Errorf("%d remembered; others of the same user may go on for new ones: %v", len(s.away), !s.refuses(901, "7"))
	}
	s.come(t, 902, "8") // who has few is not concerned
	s.remember(&Process{id: procscan.ProcessID{PID: 2}, place: place{standing: standingPublisher}})
	if s.refused != 1 {
		t.Error("a publisher is not remembered because of the others")
	}
}

// A process that had to go and executes another program comes in like a new one.
func TestPlacesAfterExec(t *testing.T) {
	m := &Manager{processes: attach.NewColumn[*Process](attach.NewTable())}
	m.discovery.contexts = newContextLooks(nil, nil)
	m.places.init(1, new(Counters))
	s := &m.places
	candidate, publisher, other := s.come(t, 1, "7"), s.come(t, 2, "7"), s.come(t, 3, "7")
	for s.limit+maxNewcomers > len(s.held) {
		s.come(t, 100+len(s.held), "8")
	}
	if err := errors.Join(s.publish(other, "7"), s.publish(publisher, "7")); !errors.Is(err, errPublishing) {
		t.Fatal(err)
	}
	s.evict(candidate, EvictedUnpublished)
	s.come(t, 4, "8")
	for _, p := range []*Process{candidate, publisher} {
		if _, admitted := s.found(p.id); admitted {
			t.Fatalf("process %d may come back before", p.id.PID)
		}
		m.handleEvent(watch.Event{Kind: watch.EventExec, PID: p.id.PID})
		if before, admitted := s.found(p.id); before != nil || !admitted || s.skips(p.id.PID) {
			t.Errorf("process %d is taken for the one that had to go: %+v", p.id.PID, before)
		}
	}
	if s.refused != 0 {
		t.Errorf("%d publishers are left out", s.refused)
	}
}

// Publishers that are not let in keep their room until they end, and do not count as leaving.
func TestPlacesOfRefused(t *testing.T) {
	const limit = 1
	s := newPlaces(limit)
	if err := s.publish(s.come(t, 1, "7"), "7"); err != nil {
		t.Fatal(err)
	}
	var refused []*Process
	for pid := range maxNewcomers {
		p := s.come(t, 10+pid, "7")
		if err := s.publish(p, "7"); !errors.Is(err, errPublishing) {
			t.Fatalf("process %d: %v", pid, err)
		}
		refused = append(refused, p)
	}
	if s.leaving != 0 || len(s.held) != limit+maxNewcomers || !s.refuses(900, "8") {
		t.Errorf("%d are leaving, %d are there, and more may come", s.leaving, len(s.held))
	}
	for _, p := range refused {
		s.end(p)
	}
	want := [numStandings]int{standingPublisher: limit}
	if s.leaving != 0 || len(s.held) != limit || len(s.counts) != 1 || s.total != want {
		t.Errorf("after their end %d are leaving, %d are there, %v count", s.leaving, len(s.held), s.total)
	}
	s.come(t, 901, "8")
}

// Many processes of one user that publish nothing take turns, each at most once in its pause, and
// one of the same user that publishes gets its place.
func TestCandidatesTakeTurns(t *testing.T) {
	const limit, crowd = 10, 100
	r := runPrepared(t, func(m *Manager) { m.places.probation = time.Second },
		func(o *Options) { o.MaxProcesses = limit })
	demo.StartMany(t, crowd, demo.Options{PublishAfter: 10 * time.Minute})
	evicted := func() uint64 { return r.counters.Evicted[EvictedUnpublished].Load() }
	testenv.Poll(t, deadline, "all to have been there", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.handlers) == crowd
	})
	p := demo.Start(t, demo.Options{})
	r.attached(p, 1)
	r.sweeps(r.counters.Sweeps.Load() + 20)
	if n := evicted(); n < crowd-limit-maxNewcomers || n > crowd {
		t.Errorf("%d had to go, of %d processes", n, crowd)
	}
	r.state(p, process.StateRegistered, "")
	if publishing, others := r.WithoutPlace(); publishing != 0 || others < crowd-limit-maxNewcomers {
		t.Errorf("without a place: %d that publish, %d others", publishing, others)
	}
}
