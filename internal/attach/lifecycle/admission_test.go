package lifecycle

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/procscan/watch"
)

// admitting is an admission of processes that do not exist.
type admitting struct {
	*testing.T
	admission
	Counters
	there []*Process
	now   time.Time
}

// admit is an admission of so many publishers.
func admit(t *testing.T, limit int) *admitting {
	a := &admitting{T: t, now: time.Now()}
	a.init(limit, &a.Counters, func() []*Process { return a.there })
	return a
}

func newClaimant(pid int) *Process {
	m := &Manager{started: time.Now().Add(-time.Hour)}
	return &Process{manager: m, id: procscan.ProcessID{PID: pid, StartTime: 1}, evicted: make(chan struct{})}
}

// try lets a process in, later than those before, or returns an error.
func (a *admitting) try(pid int, user worker.User) (*Process, error) {
	p := newClaimant(pid)
	if _, err := a.enter(p, user); err != nil {
		return nil, err
	}
	a.now = a.now.Add(time.Second)
	p.claim.since = a.now
	a.there = append(a.there, p)
	return p, nil
}

// come lets a process in, which fails the test if that is refused.
func (a *admitting) come(pid int, user worker.User) *Process {
	a.Helper()
	p, err := a.try(pid, user)
	if err != nil {
		a.Fatalf("process %d of user %s: %v", pid, user, err)
	}
	return p
}

// published is come for a process that publishes.
func (a *admitting) published(pid int, user worker.User) *Process {
	a.Helper()
	p := a.come(pid, user)
	if err := a.publish(p, user); err != nil {
		a.Fatalf("process %d of user %s: %v", pid, user, err)
	}
	a.now = a.now.Add(time.Second)
	p.claim.since = a.now
	return p
}

// fill has candidates of a user take all room.
func (a *admitting) fill(user worker.User) (candidates []*Process) {
	for pid := 1000; a.held < a.limit+maxNewcomers; pid++ {
		candidates = append(candidates, a.come(pid, user))
	}
	return candidates
}

// ends ends a process.
func (a *admitting) ends(p *Process) {
	for i, other := range a.there {
		if other == p {
			a.there = append(a.there[:i], a.there[i+1:]...)
			break
		}
	}
	a.end(p)
}

func (a *admitting) refuses(pid int, user worker.User) bool {
	_, err := a.try(pid, user)
	return errors.Is(err, errUnprobed)
}

func (p *Process) gone() bool {
	select {
	case <-p.evicted:
		return true
	default:
		return false
	}
}

// What a process counts as is what it did last; since when, for those that publish, is since they do.
func TestAdmissionClasses(t *testing.T) {
	a := admit(t, 3)
	p := a.come(1, "7")
	p.claim.since = time.Time{}
	for i, step := range []struct {
		do   func()
		want class
	}{
		{func() { a.exclude(p, false) }, classCandidate}, {func() { a.exclude(p, true) }, classExcluded},
		{func() { a.exclude(p, false) }, classCandidate},
		{func() { assert.Check(t, a.publish(p, "7")) }, classPublisher},
		{func() { a.exclude(p, false) }, classPublisher}, {func() { a.withdrew(p) }, classCandidate},
	} {
		step.do()
		want := [numClasses]int{}
		want[step.want] = 1
		assert.Check(t, a.total == want && p.claim.since.IsZero() == (i < 3), "step %d: %v, %v", i, a.total, p.claim)
	}
}

func TestAdmissionOfCandidates(t *testing.T) {
	a := admit(t, 3)
	candidates := a.fill("7")
	assert.Check(t, a.refuses(1, "7"), "one more let in of the user who has them all")
	a.come(2, "8") // who has fewer
	assert.Check(t, candidates[0].gone() && !candidates[1].gone(), "not the one went that was there for the longest")
	a.exclude(candidates[9], true)
	a.come(3, "7")
	assert.Check(t, candidates[9].gone() && !candidates[1].gone(), "an excluded one did not give way first")
	got := [...]uint64{a.Evicted[EvictedExcluded].Load(), a.Evicted[EvictedUnpublished].Load(),
		a.Evicted[EvictedShare].Load()}
	assert.Check(t, got == [...]uint64{1, 1, 0}, "counted as evicted: %v", got)

	// What had to go comes back when there is room; an excluded one has others give way at no time.
	for _, id := range []procscan.ProcessID{candidates[0].id, candidates[9].id, {PID: 1, StartTime: 1}} {
		_, admitted := a.found(id)
		assert.Check(t, !admitted && a.skips(id.PID), "process %d may come back at once", id.PID)
	}
	_, admitted := a.found(procscan.ProcessID{PID: 1000, StartTime: 2})
	assert.Check(t, admitted, "another process with the same pid is taken for one that went")
	a.exclude(candidates[2], true)
	_, admitted = a.found(candidates[9].id)
	assert.Check(t, !admitted, "an excluded one has another one give way")
	if before, admitted := a.found(candidates[0].id); !admitted || before != classCandidate {
		t.Error("a candidate may not come back for which an excluded one gives way")
	}
	a.ends(candidates[3])
	_, admitted = a.found(candidates[9].id)
	assert.Check(t, admitted && !a.skips(candidates[9].id.PID), "an excluded one may not come back while there is room")
	again := newClaimant(candidates[9].id.PID)
	before, err := a.enter(again, "7")
	assert.Check(t, err == nil && before == classExcluded && a.refusal(again.id) == nil,
		"came back as %v: %v", before, err)

	// Those that a sweep has not found are forgotten.
	a.swept()
	a.skips(1)
	if a.swept(); len(a.byPID) != 1 || a.byPID[1] == nil {
		t.Errorf("%d are remembered, want the one that a sweep has found", len(a.byPID))
	}
	if a.swept(); len(a.byPID) != 0 || a.shares.Used() != 0 {
		t.Errorf("%d are remembered that a sweep has not found", len(a.byPID))
	}
}

func TestAdmissionOfPublishers(t *testing.T) {
	a := admit(t, 4)
	var publishers []*Process
	for pid := range 4 {
		publishers = append(publishers, a.published(10+pid, "7"))
	}
	own := a.come(1, "7")
	if err := a.publish(own, "7"); !errors.Is(err, errPublishing) || a.publishing != 1 {
		t.Errorf("one more of the same user: %v, %d refused", err, a.publishing)
	}
	a.ends(own)
	a.published(2, "8")
	a.published(3, "8")
	assert.Check(t, publishers[3].gone() && publishers[2].gone() && !publishers[1].gone(),
		"not those went that published last")
	err := a.publish(publishers[3], "7")
	assert.Check(t, errors.Is(err, errEvicted), "one that has to go publishes: %v", err)
	err = a.publish(a.come(4, "8"), "8")
	assert.Check(t, errors.Is(err, errPublishing), "a user got more than a share: %v", err)
	before, admitted := a.found(publishers[2].id)
	assert.Check(t, !admitted && before == classPublisher && !a.skips(publishers[2].id.PID),
		"one comes back for which another would have to go that has no more than a share, or is not counted")
	a.ends(publishers[0])
	_, admitted = a.found(publishers[2].id)
	assert.Check(t, admitted, "one that publishes may not come back when there is room")
	a.published(publishers[2].id.PID, "7")
	assert.Check(t, a.publishing == 3, "%d refused, want the others that went", a.publishing)

	// A process may change its user.
	root := a.come(5, "0")
	err = a.publish(root, "7")
	assert.Check(t, errors.Is(err, errPublishing), "a process that is not root's any more took root's share: %v", err)
	if counts := a.counts["0"]; counts != nil {
		t.Errorf("%v of root", *counts)
	}
}

// One that is known to publish, and for which there is room, does not wait for candidates of its own user.
func TestAdmissionOfKnownPublisher(t *testing.T) {
	a := admit(t, 1)
	first, second := a.published(1, "7"), a.come(2, "7")
	err := a.publish(second, "7")
	assert.Assert(t, errors.Is(err, errPublishing), err)
	a.ends(second)
	candidates := a.fill("7")
	_, admitted := a.found(second.id)
	assert.Check(t, !admitted, "let in while as many publish as may")
	a.become(first, classCandidate) // it executes another program
	_, admitted = a.found(second.id)
	assert.Assert(t, admitted, "not let in though no more publish")
	a.published(2, "7")
	assert.Check(t, first.gone() || candidates[0].gone(), "no candidate gave way")
}

// Who makes its goroutine hang gives way too, after those of its user who do not: with more of them
// than there is room for, a user keeps nobody out.
func TestAdmissionOfHanging(t *testing.T) {
	hang := func(processes []*Process) {
		for _, p := range processes {
			p.busySince.Store(p.manager.uptime() - int64(time.Minute))
		}
	}
	const limit = 3
	a := admit(t, limit)
	hanging := a.fill("7")
	hang(append(hanging[:1:1], hanging[2:]...))
	a.come(1, "8")
	assert.Check(t, hanging[1].gone(), "the only one that does not hang did not give way first")
	a.come(2, "8")
	assert.Check(t, hanging[0].gone() && !hanging[2].gone(),
		"of those that hang, not the one went that was there for the longest")
	a.exclude(hanging[9], true)
	a.come(3, "8")
	assert.Check(t, hanging[9].gone(), "an excluded one that hangs did not give way first")
	a = admit(t, limit)
	var publishers []*Process
	for pid := range limit {
		publishers = append(publishers, a.published(10+pid, "7"))
	}
	hang(publishers)
	if honest := a.come(1, "8"); a.publish(honest, "8") != nil || !publishers[limit-1].gone() {
		t.Error("not served while all publishers of another user hang")
	}
}

// What is remembered is bounded, without those of others being forgotten, and so is how many may be on their
// way out.
func TestAdmissionIsBounded(t *testing.T) {
	a := admit(t, 2*maxLeaving)
	candidates := a.fill("7")
	for pid := range maxLeaving {
		a.come(1+pid, worker.User(string(rune('a'+pid))))
	}
	assert.Check(t, a.refuses(900, "8"), "more than %d were made to go at once", maxLeaving)
	for i, p := range candidates[:maxLeaving] {
		assert.Check(t, p.gone(), "candidate %d did not go", i)
		a.ends(p)
	}
	if a.leaving != 0 || a.refuses(901, "9") {
		t.Errorf("%d are leaving after their end", a.leaving)
	}
	for pid := 10_000; pid < 10_000+2*maxRefused; pid++ {
		a.remember(&Process{id: procscan.ProcessID{PID: pid}, claim: claim{user: "7"}}, classPublisher)
	}
	assert.Check(t, len(a.byPID) <= maxRefused*2/3, "%d remembered of one user", len(a.byPID))
	a.remember(&Process{id: procscan.ProcessID{PID: 2}, claim: claim{user: "8"}}, classPublisher)
	assert.Check(t, a.refusal(procscan.ProcessID{PID: 2}) != nil,
		"a process is not remembered because of those of another user")
}

// A process that had to go and executes another program comes in like a new one.
func TestAdmissionAfterExec(t *testing.T) {
	a := admit(t, 1)
	m := &Manager{processes: attach.NewColumn[*Process](attach.NewTable())}
	m.discovery.contexts = newContextLooks(nil, nil, nil, nil)
	m.admission.init(1, new(Counters), nil)
	candidate, publisher := newClaimant(1), newClaimant(2)
	candidate.claim.user, publisher.claim.user = "7", "7"
	m.admission.remember(candidate, classCandidate)
	m.admission.remember(publisher, classPublisher)
	m.admission.held = a.limit + maxNewcomers
	m.admission.total[classPublisher] = 1
	for _, p := range []*Process{candidate, publisher} {
		if _, admitted := m.admission.found(p.id); admitted {
			t.Fatalf("process %d may come back before", p.id.PID)
		}
		m.handleEvent(watch.Event{Kind: watch.EventExec, PID: p.id.PID})
		if _, admitted := m.admission.found(p.id); !admitted || m.admission.skips(p.id.PID) {
			t.Errorf("process %d is taken for the one that had to go", p.id.PID)
		}
	}
	publishing, others := m.WithoutPlace()
	assert.Check(t, publishing+others == 0, "%d publishers and %d others are left out", publishing, others)
}

// A process that had to give way and hangs is not forgotten by sweeps, which take it for one that is served.
func TestAdmissionRemembersHanging(t *testing.T) {
	a := admit(t, 3)
	evicted := a.fill("7")[0]
	a.come(1, "8")
	assert.Assert(t, evicted.gone())
	for range 3 {
		a.saw(evicted.id.PID)
		a.swept()
	}
	assert.Check(t, a.refusal(evicted.id) != nil, "it is forgotten, and would come back as a newcomer")
	a.swept() // which does not find it
	assert.Check(t, a.refusal(evicted.id) == nil)
}

// Publishers that are not let in keep their room until they end, and do not count as leaving.
func TestAdmissionOfRefused(t *testing.T) {
	const limit = 1
	a := admit(t, limit)
	a.published(1, "7")
	var refused []*Process
	for pid := range maxNewcomers {
		p := a.come(10+pid, "7")
		err := a.publish(p, "7")
		assert.Assert(t, errors.Is(err, errPublishing), "process %d: %v", pid, err)
		refused = append(refused, p)
	}
	if a.leaving != 0 || a.held != limit+maxNewcomers || !a.refuses(900, "8") {
		t.Errorf("%d are leaving, %d are there, and more may come", a.leaving, a.held)
	}
	for _, p := range refused {
		a.ends(p)
	}
	want := [numClasses]int{classPublisher: limit}
	assert.Check(t, a.leaving == 0 && a.held == limit && len(a.counts) == 1 && a.total == want,
		"after their end %d are leaving, %d are there, %v count", a.leaving, a.held, a.total)
	a.come(901, "8")
}

// Whatever the processes of other users do: no more are there than may be, what is counted is what is there, and a
// user with fewer publishers than a share is served, however many others are there.
func TestAdmissionIsFair(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 0))
		limit := 1 + random.IntN(20)
		a := admit(t, limit)
		users := []worker.User{"7", "8", "9"}
		for step := range 2000 {
			switch action := random.IntN(10); {
			case action < 5 || len(a.there) == 0:
				_, _ = a.try(step+1, users[random.IntN(len(users))])
			case action < 8:
				p := a.there[random.IntN(len(a.there))]
				if err := a.publish(p, p.claim.user); err != nil {
					a.ends(p)
				}
			case action < 9:
				a.exclude(a.there[random.IntN(len(a.there))], random.IntN(2) == 0)
			default:
				a.ends(a.there[random.IntN(len(a.there))])
			}
			held, leaving, total := 0, 0, [numClasses]int{}
			for _, p := range a.there {
				if p.claim.evicted {
					leaving++
				} else if held++; !p.claim.over {
					total[p.claim.class]++
				}
			}
			if held != a.held || leaving != a.leaving || total != a.total || held > limit+maxNewcomers ||
				leaving > maxLeaving || total[classPublisher] > limit {
				t.Fatalf("seed %d: %d there, %d leaving, %v, counted as %d, %d, %v; limit %d", seed, held, leaving, total,
					a.held, a.leaving, a.total, limit)
			}
		}
		for _, p := range append([]*Process(nil), a.there...) {
			if p.claim.over {
				a.ends(p)
			}
		}
		for i := range limit / (len(users) + 1) { // one at a time, and who has to go goes
			p, err := a.try(100_000+i, "honest")
			if err == nil {
				err = a.publish(p, "honest")
			}
			assert.NilError(t, err, "seed %d: publisher %d of a new user, of %d", seed, i, limit)
			for _, p := range append([]*Process(nil), a.there...) {
				if p.claim.over {
					a.ends(p)
				}
			}
		}
	}
}

// Processes of one user that publish nothing, more than there is room for, are counted, as long as
// they live; one of another user gets its place.
func TestCrowdOfCandidates(t *testing.T) {
	const limit, crowd, attacker = 4, 50, 4711
	r := run(t, func(o *Options) { o.MaxProcesses = limit })
	idle := demo.Options{PublishAfter: 10 * time.Minute, Placement: demo.Placement{UID: attacker, GID: attacker}}
	all := demo.StartMany(t, crowd, idle)
	testenv.Poll(t, deadline, "all to be let in or refused", func() bool {
		_, others := r.WithoutPlace()
		return others == crowd-limit-maxNewcomers
	})
	p := demo.Start(t, demo.Options{})
	r.attached(p, 1)
	r.state(p, process.StateRegistered, "")
	if publishing, others := r.WithoutPlace(); publishing != 0 || others < crowd-limit-maxNewcomers {
		t.Errorf("without a place: %d that publish, %d others", publishing, others)
	}
	all.Quit()
	testenv.Poll(t, deadline, "none to be without a place", func() bool {
		publishing, others := r.WithoutPlace()
		return publishing+others == 0
	})
}
