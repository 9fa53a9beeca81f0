package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach"
	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/procscan/watch"
)

// scriptedLooks are contextLooks that are stepped by a test, at times of its own.
type scriptedLooks struct {
	*contextLooks
	t           *testing.T
	start       time.Time
	at          time.Time
	looked      []lookedAt
	found, gone func(pid int) bool // what looks return
	reported    []int
	skipped     []int
	owners      map[int]worker.User   // by pid; empty: they have ended
	takes       map[int]time.Duration // how long a look takes, by pid
	pauseEnd    time.Time
}

type lookedAt struct {
	pid   int
	after time.Duration
}

func scriptLooks(t *testing.T) *scriptedLooks {
	start := time.Now()
	none := func(int) bool { return false }
	s := &scriptedLooks{t: t, start: start, at: start, found: none, gone: none}
	s.contextLooks = newContextLooks(func(pid int) (found bool, err error) {
		s.looked = append(s.looked, lookedAt{pid, s.at.Sub(s.start)})
		s.at = s.at.Add(s.takes[pid])
		switch {
		case s.found(pid):
			return true, nil
		case s.gone(pid):
			return false, procscan.ErrGone
		}
		return false, errors.New("it cannot be read")
	}, func(pid int) { s.reported = append(s.reported, pid) }, func(pid int) worker.User { return s.owners[pid] },
		func(pid int) { s.skipped = append(s.skipped, pid) })
	s.now = func() time.Time { return s.at }
	return s
}

// until takes all steps up to a time.
func (s *scriptedLooks) until(after time.Duration) {
	s.t.Helper()
	for steps := 0; ; steps++ {
		next := s.schedule(time.Time{})
		if next.IsZero() || next.After(s.start.Add(after)) {
			s.at = s.start.Add(after)
			return
		}
		assert.Assert(s.t, steps != 100000, "no end of looks")
		s.at = next
		s.step(next)
	}
}

// expect compares how often each process was looked at, and when.
func (s *scriptedLooks) expect(want ...lookedAt) {
	s.t.Helper()
	slices.SortStableFunc(s.looked, func(a, b lookedAt) int {
		return cmp.Or(cmp.Compare(a.after, b.after),
			a.pid-b.pid)
	})
	assert.Check(s.t, slices.Equal(s.looked, want), "looked at %v, want %v", s.looked, want)
	s.looked = nil
}

const ms = time.Millisecond

// A process is looked at five times after an event, and not again.
func TestContextLooks(t *testing.T) {
	s := scriptLooks(t)
	s.add(7)
	s.until(15 * ms)
	s.add(7) // others follow at once
	s.until(time.Hour)
	s.expect(lookedAt{7, 20 * ms}, lookedAt{7, 100 * ms}, lookedAt{7, 500 * ms}, lookedAt{7, 2000 * ms},
		lookedAt{7, 10000 * ms})
	if len(s.queue) != 0 || len(s.byPID) != 0 {
		t.Errorf("left are %v, %v", s.queue, s.byPID)
	}
	s.start = s.at
	s.add(7)
	s.until(30 * ms)
	s.expect(lookedAt{7, 20 * ms})
}

// An event restarts the looks once they have become rare.
func TestContextLooksAgain(t *testing.T) {
	s := scriptLooks(t)
	s.add(7)
	s.add(8)
	s.until(450 * ms)
	s.add(7) // looked at soon enough
	s.until(600 * ms)
	s.looked = nil
	s.add(7)
	s.until(2500 * ms)
	s.expect(lookedAt{7, 620 * ms}, lookedAt{7, 700 * ms}, lookedAt{7, 1100 * ms}, lookedAt{8, 2000 * ms})
	for range 100000 { // events without end
		s.add(7)
		s.add(8)
		s.at = s.at.Add(10 * time.Microsecond)
		if next := s.schedule(time.Time{}); !next.After(s.at) {
			s.step(next)
		}
	}
	assert.Check(t, len(s.looked) <= 2*8, "%d looks at two processes in a second", len(s.looked))
}

// What has a context is reported, and as little looked at any more as what is gone.
func TestContextLooksFound(t *testing.T) {
	s := scriptLooks(t)
	for pid := 1; pid <= 3; pid++ {
		s.add(pid)
	}
	s.until(50 * ms)
	s.found, s.gone = func(pid int) bool { return pid == 1 }, func(pid int) bool { return pid == 2 }
	s.until(450 * ms)
	s.expect(lookedAt{1, 20 * ms}, lookedAt{2, 20 * ms}, lookedAt{3, 20 * ms},
		lookedAt{1, 100 * ms}, lookedAt{2, 100 * ms}, lookedAt{3, 100 * ms})
	s.until(time.Second)
	s.expect(lookedAt{3, 500 * ms})
	if !slices.Equal(s.reported, []int{1}) || len(s.queue) != 2 {
		t.Errorf("reported %v, left are %v", s.reported, s.queue)
	}
	for range 100 { // events of one that was found are of interest after a while, together
		s.add(1)
	}
	s.until(2 * time.Second)
	s.expect(lookedAt{1, 1100 * ms}, lookedAt{3, 2000 * ms})
	assert.Check(t, slices.Equal(s.reported, []int{1, 1}), "reported %v after other events", s.reported)
	s.until(3 * time.Second)
	assert.Check(t, len(s.queue) == 1, "left are %v", s.queue)
}

// There is a limit of processes, and a smaller one of those that are looked at together. None is looked
// at twice before all others were.
func TestContextLooksBound(t *testing.T) {
	s := scriptLooks(t)
	for pid := range maxContextLooks {
		assert.Assert(t, s.add(pid), "process %d is too many", pid)
	}
	assert.Check(t, !s.add(maxContextLooks), "there is no end")
	assert.Check(t, s.add(1), "a process that is to be looked at anyway is too many")
	s.at = s.start.Add(time.Second)
	seen := make(map[int]bool)
	for len(seen) < maxContextLooks {
		s.step(s.at)
		assert.Assert(t, len(s.looked) != 0 && len(s.looked) <= contextBatch, "%d looks at a time", len(s.looked))
		for _, l := range s.looked {
			assert.Assert(t, !seen[l.pid], "a second look at process %d after %d others", l.pid, len(seen))
			seen[l.pid] = true
		}
		s.looked = nil
	}
	s.until(time.Hour)
	if len(s.looked) != 4*maxContextLooks || len(s.queue) != 0 {
		t.Errorf("%d more looks, %d processes left", len(s.looked), len(s.queue))
	}
}

// However many processes an owner has whose looks take long, those of others are looked at after one such look, and a
// pause as long, at most; and the owner's take a tenth of the time, in turn.
func TestContextLooksAreShared(t *testing.T) {
	s := scriptLooks(t)
	const slow, hogs = 100 * time.Millisecond, 50
	s.owners, s.takes = make(map[int]worker.User), make(map[int]time.Duration)
	for pid := 1; pid <= hogs; pid++ {
		s.owners[pid], s.takes[pid] = "hog", slow
		s.add(pid)
	}
	const fast = 1000
	for pid := fast; s.at.Sub(s.start) < 20*time.Second; pid++ {
		s.owners[pid] = "other"
		added := s.at
		s.add(pid)
		for until := added.Add(2*slow + 50*ms); s.at.Before(until); { // as run does
			next := s.schedule(s.pauseEnd)
			if next.IsZero() || next.After(until) {
				s.at = until
				break
			}
			if s.at.Before(next) {
				s.at = next
			}
			began := s.at
			s.step(began)
			s.pauseEnd = s.at.Add(s.at.Sub(began))
		}
		assert.Check(t, slices.ContainsFunc(s.looked, func(l lookedAt) bool { return l.pid == pid }),
			"process %d was not looked at in %v", pid, s.at.Sub(added))
	}
	took, first := time.Duration(0), make(map[int]bool)
	for _, l := range s.looked {
		took += s.takes[l.pid]
		first[l.pid] = true
	}
	assert.Check(t, took >= time.Second && took <= 3*time.Second, "looks at the hog's processes took %v", took)
	turns := 0
	for pid := 1; pid <= hogs; pid++ {
		if first[pid] {
			turns++
		}
	}
	assert.Check(t, turns >= int(took/slow), "%d of the hog's processes had a turn, in %v", turns, took)
}

// Of a thousand programs a second that end at once, looks take a tenth of the time, and none is looked at
// twice; each is looked at, waits, or was refused for lack of room. One of another owner finds room, and is looked at
// in time.
func TestContextLooksInForkStorm(t *testing.T) {
	s := scriptLooks(t)
	s.owners, s.takes = make(map[int]worker.User), make(map[int]time.Duration)
	const seconds, first, another = 30, 1000, 1
	s.owners[another], s.takes[another] = "another", ms
	s.gone = func(pid int) bool { return pid != another }
	refused := 0
	for i := range 1000 * seconds {
		pid := first + i
		s.owners[pid], s.takes[pid] = "storm", ms
		if added := s.start.Add(time.Duration(i) * ms); s.at.Before(added) {
			s.at = added
		}
		if !s.add(pid) {
			refused++
		}
		if i == 20_000 { // when one owner has asked for all places, and more
			assert.Check(t, refused+len(s.skipped) > maxContextLooks)
			assert.Check(t, s.add(another), "no place for another owner")
		}
		if next := s.schedule(s.pauseEnd); !next.IsZero() && !next.After(s.at) {
			began := s.at
			s.step(began)
			s.pauseEnd = s.at.Add(s.at.Sub(began))
		}
		assert.Assert(t, len(s.queue) <= maxContextLooks)
		if i == 20_100 {
			assert.Check(t, slices.ContainsFunc(s.looked, func(l lookedAt) bool { return l.pid == another }))
		}
	}
	looks, took := make(map[int]int), time.Duration(0)
	for _, l := range s.looked {
		looks[l.pid]++
		took += s.takes[l.pid]
	}
	for pid, n := range looks {
		assert.Check(t, n == 1 || pid == another, "%d looks at process %d", n, pid)
	}
	assert.Check(t, took > seconds*time.Second/20 && took <= seconds*time.Second/8, "looks took %v of %d s", took,
		seconds)
	refused += len(s.skipped)
	assert.Check(t, refused > 0 && len(looks)+refused+len(s.queue) >= 1000*seconds, "%d looked at, %d refused, %d wait",
		len(looks), refused, len(s.queue))
	s.until(time.Hour)
	assert.Check(t, s.places.Used() == 0, "%d places are taken of nothing", s.places.Used())
}

// Where processes of any kind are taken, one that there is no room to look at is probed: those that
// take the room do not keep it out.
func TestProbeWithoutRoomForLook(t *testing.T) {
	for _, all := range []bool{true, false} {
		m := &Manager{processes: attach.NewColumn[*Process](attach.NewTable()), counters: new(Counters)}
		m.options.Filter.All = all
		m.admission.init(1, m.counters, nil)
		scanner, err := procscan.NewScanner("/proc")
		assert.NilError(t, err)
		m.discovery.scanner, m.discovery.probes = scanner, newProbeQueue()
		m.discovery.contexts = newContextLooks(nil, nil, nil, nil)
		const first = 1 << 30 // there are no such processes
		for i := range maxContextLooks {
			m.handleEvent(watch.Event{Kind: watch.EventExec, PID: first + i})
		}
		assert.Check(t, m.counters.ContextLooksSkipped.Load() == 0 && m.counters.LiveProbes.Load() == 0)
		m.handleEvent(watch.Event{Kind: watch.EventExec, PID: first + maxContextLooks})
		if all {
			testenv.Poll(t, deadline, "a probe", func() bool { return m.counters.LiveProbes.Load() == 1 })
		}
		m.discovery.probes.close()
		assert.Check(t, m.counters.ContextLooksSkipped.Load() == 1 && (m.counters.LiveProbes.Load() == 1) == all)
	}
}

// Looks come by themselves, with none to wait for in between and at the end.
func TestContextLooksRun(t *testing.T) { synctest.Test(t, testContextLooksRun) }

func testContextLooksRun(t *testing.T) {
	var looks, found atomic.Int64
	look := func(int) (bool, error) { return looks.Add(1) == 3, nil }
	c := newContextLooks(look, func(int) { found.Add(1) }, func(int) worker.User { return "7" }, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.run(ctx)
	}()
	for i := range int64(2) {
		looks.Store(0)
		c.add(7)
		testenv.Poll(t, deadline, "a context to be found", func() bool { return found.Load() == i+1 })
		testenv.Poll(t, deadline, "nothing to wait for", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.queue) == 0 && c.until.IsZero()
		})
	}
	c.add(8)
	cancel()
	<-ended
}

// A program that publishes a process context a while after its start is found without a sweep.
func TestContextFoundLive(t *testing.T) {
	source := filepath.Join(t.TempDir(), "publisher.c")
	testenv.WriteFile(t, source, publisher)
	program := testenv.Compile(t, "cc", source)
	r := run(t, sweepOnce)
	r.sweeps(1)
	cmd := exec.Command(program)
	stdin, _ := testenv.Start(t, cmd)
	pid := cmd.Process.Pid
	testenv.Poll(t, deadline, "the program to be looked at", func() bool { return r.timesLookedAt(pid) > 0 })
	assert.Assert(t, r.counters.LiveProbes.Load() == 0, "something else maps a library")
	_, err := io.WriteString(stdin, "publish\n")
	assert.NilError(t, err)
	testenv.Poll(t, deadline, "a probe", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.handlers[pid] != nil
	})
	if r.counters.EventsLost.Load() == 0 && r.counters.Sweeps.Load() != 1 {
		t.Errorf("%d sweeps, want one", r.counters.Sweeps.Load())
	}
	if r.counters.ContextLooks.Load() == 0 || r.counters.ContextLooksSkipped.Load() != 0 {
		t.Errorf("%d looks, %d skipped", r.counters.ContextLooks.Load(), r.counters.ContextLooksSkipped.Load())
	}
}

// timesLookedAt is how often a process that is to be looked at was.
func (r *running) timesLookedAt(pid int) int {
	c := r.discovery.contexts
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.byPID[pid]; p != nil {
		return p.times
	}
	return 0
}

// publisher maps a process context as SDKs do once it has read a line, then waits for the end of its
// input. What the context holds is left out.
const publisher = `#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void) {
	char line[64];
	if (read(0, line, sizeof line) <= 0)
		return 1;
	int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, 4096))
		return 1;
	char *context = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (context == MAP_FAILED)
		return 1;
	close(fd);
	memcpy(context, "OTEL_CTX", 8);
	while (read(0, line, sizeof line) > 0)
		;
	return 0;
}
`

// Every event but that of a compiler has a process looked at, those that are too many are counted.
func TestContextEvents(t *testing.T) {
	r := run(t, sweepOnce)
	r.sweeps(1)
	c := r.discovery.contexts
	const first = 1 << 30 // there are no such processes
	waiting := func(pid int) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.byPID[pid] != nil
	}
	c.mu.Lock()
	c.after[0] = deadline * 100
	c.mu.Unlock()
	for kind, want := range map[watch.EventKind]bool{
		watch.EventExec: true, watch.EventFile: true, watch.EventLibrary: true, watch.EventMapping: false,
	} {
		pid := first + int(kind)
		r.handleEvent(watch.Event{Kind: kind, PID: pid})
		assert.Check(t, waiting(pid) == want, "event of kind %d: looked at: %v", kind, !want)
	}
	for i := range 2 * maxContextLooks {
		r.handleEvent(watch.Event{Kind: watch.EventExec, PID: first + 100 + i})
	}
	n := r.counters.ContextLooksSkipped.Load()
	assert.Check(t, n >= maxContextLooks, "%d were skipped", n)
}

// So is one whose owner is found to hold too many.
func TestProbeOfOwnerWithoutRoom(t *testing.T) {
	for _, all := range []bool{true, false} {
		m := &Manager{processes: attach.NewColumn[*Process](attach.NewTable()), counters: new(Counters)}
		m.options.Filter.All, m.options.ProcRoot = all, "/proc"
		m.admission.init(1, m.counters, nil)
		assert.NilError(t, m.initDiscovery())
		c, now := m.discovery.contexts, time.Now().Add(time.Second)
		c.now = func() time.Time { return now }
		c.owner = func(int) worker.User { return "one" }
		c.look = func(int) (bool, error) { return false, nil }
		const first = 1 << 30 // there are no such processes
		for i := range maxContextLooks/2 + 1 {
			m.handleEvent(watch.Event{Kind: watch.EventExec, PID: first + i})
		}
		now = now.Add(time.Second)
		for range maxContextLooks/2/contextBatch + 1 {
			c.step(now)
		}
		if all {
			testenv.Poll(t, deadline, "a probe", func() bool { return m.counters.LiveProbes.Load() == 1 })
		}
		m.discovery.probes.close()
		assert.Check(t, m.counters.ContextLooksSkipped.Load() == 1 && (m.counters.LiveProbes.Load() == 1) == all)
	}
}
