package agent

import (
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/profile"
)

// working asks an agent what threads work on. For the agent, every call comes a second after the one
// before.
type working struct {
	*running
	t      *testing.T
	clock  *time.Time
	last   map[int]ProcessWork // by pid
	readAt map[int]time.Time   // when they were read last
}

func (r *running) working() *working {
	clock := time.Now()
	w := &working{running: r, t: r.t, clock: &clock, last: make(map[int]ProcessWork)}
	r.work.now = func() time.Time { return clock }
	return w
}

func (w *working) step() {
	w.t.Helper()
	*w.clock = w.clock.Add(time.Second)
	found, readAt, err := w.Work()
	assert.NilError(w.t, err)
	w.readAt = make(map[int]time.Time)
	for id, at := range readAt {
		w.readAt[id.PID] = at
	}
	for _, p := range found {
		w.last[p.Process.PID] = p
	}
}

// await waits until the threads of a process work on what a function accepts.
func (w *working) await(pid int, what string, is func([]ThreadWork) bool) ProcessWork {
	w.t.Helper()
	testenv.Poll(w.t, deadline, what, func() bool {
		w.step()
		return is(w.last[pid].Threads)
	})
	return w.last[pid]
}

func nothing(threads []ThreadWork) bool { return len(threads) == 0 }

func only(want ThreadWork) func([]ThreadWork) bool {
	return func(threads []ThreadWork) bool {
		if len(threads) != 1 {
			return false
		}
		got := threads[0]
		got.Name = want.Name
		return got == want
	}
}

func elasticWork(c demo.Context) ThreadWork {
	return ThreadWork{TID: c.Thread.TID, Known: true, TraceID: c.TraceID, SpanID: c.SpanID,
		TransactionID: c.TransactionID}
}

// What the threads of processes work on is told by one agent, process after process.
func TestWork(t *testing.T) {
	r := runWith(t, new(keeper), atRate(97), contextAttributes)
	w := r.working()
	for name, part := range map[string]func(*working){
		"sleeping threads": (*working).sleeping, "records": (*working).records, "both contexts": (*working).both,
		"unsampled": (*working).unsampled, "resting": (*working).resting, "ends": (*working).ends,
		"ended": (*working).ended, "one hangs": (*working).oneHangs,
	} {
		t.Run(name, func(t *testing.T) { part(w.in(t)) })
	}
	w.in(t).afterPause() // which ends the agent
}

// in is working for a part of the test.
func (w *working) in(t *testing.T) *working {
	return &working{running: w.running.in(t), t: t, clock: w.clock, last: make(map[int]ProcessWork)}
}

// Threads that sleep work on what their slots say, wherever these are.
func (w *working) sleeping() {
	for _, flavor := range demo.Flavors() {
		w.t.Run(flavor.String(), func(t *testing.T) {
			w := w.in(t)
			p := demo.Start(t, demo.Options{Flavor: flavor, Manual: true, Idle: 3, Untouched: 1})
			p.Registration(1)
			testenv.Poll(t, deadline, "a process that works on nothing to be read", func() bool {
				w.step()
				return !w.readAt[p.PID].IsZero()
			})
			first := p.Begin(1)
			w.await(p.PID, "the first thread", only(elasticWork(first)))
			p.Begin(2)
			got := w.await(p.PID, "another thread", func(threads []ThreadWork) bool { return len(threads) == 2 })
			if got.Partial || got.Process.PID != p.PID || got.ReadAt.IsZero() || got.Threads[0].Name == "" {
				t.Errorf("%+v", got)
			}
			p.End(1)
			p.End(2)
			w.await(p.PID, "nothing", nothing)
		})
	}
}

func otelWork(tid, n int) ThreadWork {
	record := newRecord(n, "")
	w := ThreadWork{TID: tid, Known: true, Context: profile.OTelContext, TraceID: record.TraceID, SpanID: record.SpanID}
	root, err := hex.DecodeString(fmt.Sprintf("%016x", n))
	if err != nil {
		panic(err)
	}
	w.TransactionID = [8]byte(root)
	return w
}

// Threads that sleep work on what their records say, wherever these are. What is no record, or not
// valid, is nothing.
func (w *working) records() {
	for _, o := range []demo.OTelOptions{
		{}, {Dynamic: true, InPlace: true}, {Musl: true}, {Form: demo.OTelGD}, {Program: demo.OTelStatic, Musl: true},
	} {
		w.t.Run(fmt.Sprintf("%s%s musl=%v", o.Program, o.Form, o.Musl), func(t *testing.T) {
			w := w.in(t)
			o.Threads = 2
			p := demo.StartOTel(t, o)
			thread := p.Begin(1, newRecord(7, "/pay"))
			w.await(p.PID, "a record", only(otelWork(thread.TID, 7)))
			p.Begin(1, newRecord(8, "/pay"))
			w.await(p.PID, "another record", only(otelWork(thread.TID, 8)))

			valid := newRecord(9, "/a").Bytes()
			for _, spoil := range []func([]byte){
				func(b []byte) { b[24] = 2 }, func(b []byte) { clear(b[:16]) }, func(b []byte) { clear(b[16:24]) },
			} {
				record := slices.Clone(valid)
				spoil(record)
				p.SetRecord(1, record)
				w.await(p.PID, "nothing", nothing)
				p.SetRecord(1, valid)
				w.await(p.PID, "a valid one", only(otelWork(thread.TID, 9)))
			}
			p.SetPointer(1, 8) // where nothing is mapped
			w.await(p.PID, "something that cannot be read", only(ThreadWork{TID: thread.TID}))
			p.SetPointer(1, 0)
			w.await(p.PID, "nothing", nothing)
			p.Begin(2, newRecord(1, "/"))
			w.await(p.PID, "the other thread", func(threads []ThreadWork) bool { return len(threads) == 1 })
			p.Withdraw()
			w.await(p.PID, "nothing", nothing)
		})
	}
}

// Without the attribute that says what the transaction is, there is none: as of samples. Traces that are not
// sampled are told of as samples of them are: if that is configured.
func TestWorkAsConfigured(t *testing.T) {
	r := runWith(t, new(keeper), atRate(97), func(c *Config) { c.Unsampled = true })
	w := r.working()
	p := demo.StartOTel(t, demo.OTelOptions{Threads: 1})
	want := otelWork(p.Begin(1, newRecord(7, "/pay")).TID, 7)
	want.TransactionID = [8]byte{}
	w.await(p.PID, "a record", only(want))
	unsampled := demo.Start(t, demo.Options{Manual: true, Idle: 1, Unsampled: true})
	unsampled.Registration(1)
	w.await(unsampled.PID, "a trace", only(elasticWork(unsampled.Begin(1))))
}

// Of a thread with both, its slot counts while that has a trace.
func (w *working) both() {
	p := demo.Start(w.t, demo.Options{Manual: true, Idle: 1, OTel: true})
	p.Registration(1)
	record := newRecord(3, "/a")
	p.SetOTelRecord(1, &record)
	tid := p.Threads()[1].TID
	w.await(p.PID, "the record", only(otelWork(tid, 3)))
	c := p.Begin(1)
	w.await(p.PID, "the slot", only(elasticWork(c)))
	p.End(1)
	w.await(p.PID, "the record", only(otelWork(tid, 3)))
}

// Traces that are not sampled are not told of unless that is configured.
func (w *working) unsampled() {
	p := demo.Start(w.t, demo.Options{Manual: true, Idle: 1, Unsampled: true})
	p.Registration(1)
	p.Begin(1)
	for range 3 {
		p.Report() // it runs
		w.read(p.PID)
	}
	got := w.last[p.PID]
	assert.Check(w.t, len(got.Threads) == 0, "%+v", got)
}

// A process that has not run is not read again: its threads cannot have begun anything.
func (w *working) resting() {
	t := w.t
	resting, other := demo.Start(t, demo.Options{Manual: true, Idle: 1, ReadAtOnce: true}),
		demo.Start(t, demo.Options{Manual: true, Idle: 1})
	resting.Registration(1)
	w.await(resting.PID, "a transaction", only(elasticWork(resting.Begin(1))))
	testenv.Poll(t, deadline, "rest", func() bool { w.step(); return w.known(resting.PID).rests })
	before := w.known(resting.PID).readAt
	for range 5 {
		other.Report()
		w.read(other.PID)
	}
	assert.Check(t, w.known(resting.PID).readAt.Equal(before), "it was read again")
	resting.End(1)
	w.await(resting.PID, "nothing", nothing)
}

// read waits until a process has been read once more.
func (w *working) read(pid int) {
	w.t.Helper()
	before := w.known(pid).readAt
	testenv.Poll(w.t, deadline, "a read", func() bool { w.step(); return w.known(pid).readAt.After(before) })
}

// known returns what the reader knows of a process.
func (w *working) known(pid int) (known workedOn) {
	w.work.mu.Lock()
	defer w.work.mu.Unlock()
	if r := w.registrations.Find(pid); r != nil && !r.work.ended {
		known = r.work
	}
	return known
}

// Where a process ends, its threads work on nothing; nor when it executes another program, or withdraws
// what it has published.
func (w *working) ends() {
	for name, end := range map[string]func(*demo.Process){
		"killed":    (*demo.Process).Kill,
		"exec":      func(p *demo.Process) { p.Exec("/bin/sleep", "1000") },
		"withdrawn": func(p *demo.Process) { p.Withdraw() },
		"threads":   (*demo.Process).StopThreads,
	} {
		w.t.Run(name, func(t *testing.T) {
			w := w.in(t)
			p := demo.Start(t, demo.Options{Manual: true, Idle: 2})
			p.Registration(1)
			w.await(p.PID, "a transaction", only(elasticWork(p.Begin(1))))
			end(p)
			w.await(p.PID, "nothing", nothing)
			if name == "exec" { // what it executes knows no commands
				p.Kill()
			}
		})
	}
}

// Nothing of a process is kept that has ended, even if nobody asks any more.
func (w *working) ended() {
	p := demo.Start(w.t, demo.Options{Manual: true, Idle: 1})
	p.Registration(1)
	w.await(p.PID, "a transaction", only(elasticWork(p.Begin(1))))
	p.Kill()
	testenv.Poll(w.t, deadline, "nothing to be known", func() bool { return w.known(p.PID).registration == nil })
	w.await(p.PID, "nothing", nothing)
}

// A process that hangs is not waited for: others are read.
func (w *working) oneHangs() {
	options := demo.Options{Manual: true, Idle: 1}
	hanging, other := demo.Start(w.t, options), demo.Start(w.t, options)
	hanging.Registration(1)
	other.Registration(1)
	w.await(hanging.PID, "a transaction", only(elasticWork(hanging.Begin(1))))
	hanging.Hostile("storage-hangs", "")
	w.state(hanging, process.StateError, process.ReasonTimeout.String())
	w.await(other.PID, "a transaction", only(elasticWork(other.Begin(1))))
	other.End(1)
	w.await(other.PID, "nothing", nothing)
	hanging.Kill()
	w.await(hanging.PID, "nothing", nothing)
}

// While nobody asks, nothing is read; after a pause, everything is told again.
func (w *working) afterPause() {
	p := demo.Start(w.t, demo.Options{Manual: true, Idle: 1})
	p.Registration(1)
	c := p.Begin(1)
	w.await(p.PID, "a transaction", only(elasticWork(c)))
	clear(w.last)
	*w.clock = w.clock.Add(2 * workPause)
	w.await(p.PID, "the transaction again", only(elasticWork(c)))
	w.end()
	work, _, err := w.Work()
	assert.Check(w.t, len(work) == 0 && err == nil, "an agent that has ended: %v, %v", work, err)
}

// All processes have their turn, those that work on something more often; and not more are read than
// there is time for, whatever they cost.
func TestWorkTurns(t *testing.T) {
	const cost = workCredit / 5
	const rounds = 350 // more than twice as many as between two turns of a process
	for _, c := range []struct{ active, others, activeEvery, othersEvery int }{
		{0, 5, 0, 1},
		{0, 500, 0, 100},
		{5, 0, 1, 0},
		{500, 0, 100, 0},
		{3, 500, 2, 167},
		{100, 500, 50, 167},
		{100, 2, 34, 1},
	} {
		t.Run(fmt.Sprintf("%d active, %d others", c.active, c.others), func(t *testing.T) {
			var w workReader
			every := map[bool]int{true: c.activeEvery, false: c.othersEvery}
			processes := make(map[bool][]*workedOn)
			for active, n := range map[bool]int{true: c.active, false: c.others} {
				for range n {
					processes[active] = append(processes[active], &workedOn{cost: cost})
				}
			}
			now := time.Now()
			w.earn(now)
			total, longest, last := 0, map[bool]int{}, map[*workedOn]int{}
			for round := 1; round <= rounds; round++ {
				now = now.Add(time.Second)
				w.earn(now)
				w.spend(slices.Clone(processes[true]), slices.Clone(processes[false]), func(p *workedOn) bool {
					total++
					active := slices.Contains(processes[true], p)
					longest[active] = max(longest[active], round-last[p])
					last[p], p.readAt = round, now
					return true
				})
				for _, list := range processes {
					for _, p := range list {
						p.posted = false
					}
				}
			}
			for active, list := range processes {
				for _, p := range list {
					longest[active] = max(longest[active], rounds-last[p])
				}
				assert.Check(t, longest[active] <= every[active]+1 && (len(list) == 0 || longest[active] != 0),
					"active %v: read every %d seconds, want %d", active, longest[active], every[active])
			}
			limit := rounds * 5
			assert.Check(t, total <= limit+1, "%d reads, limit %d", total, limit)
		})
	}
}

// A process that takes longer than there is time for is paid for later, and one that cannot be posted
// costs nothing.
func TestWorkCosts(t *testing.T) {
	var w workReader
	now := time.Now()
	w.earn(now)
	large := &workedOn{cost: 3 * workCredit}
	all := []*workedOn{large}
	reads := 0
	for range 30 {
		now = now.Add(time.Second)
		w.earn(now)
		w.spend(all, nil, func(*workedOn) bool { return false })
		w.spend(all, nil, func(*workedOn) bool { reads++; return true })
		large.posted = false
	}
	assert.Check(t, reads == 10, "%d reads in 30 seconds, each of which takes what there is in 3", reads)
}
