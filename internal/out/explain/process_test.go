package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/host/terminal"
	"correlator/internal/out/flamegraph"
	"correlator/internal/out/keep"
	"correlator/internal/out/record"
	"correlator/internal/out/report"
	"correlator/profile"
)

// threadsRecording has a process with a thread that works and waits, one that only waits, with a stack for half of the
// time, and one whose account was lost.
func threadsRecording() *record.Recording {
	shop := &record.Process{PID: 11, Service: "shop\x1b[31m", ContainerID: strings.Repeat("ab", 32)}
	frame := func(name string) profile.Frame {
		return profile.NewRuntimeFrame(profile.PythonFrame, profile.NewFunction(name, "shop.py"), 7)
	}
	main, price, wait := frame("main"), frame("price"), frame("wait")
	r := &record.Recording{Start: at, Duration: 2 * time.Second, SamplesPerSecond: 100,
		Processes: []*record.Process{shop},
		Samples:   make(map[record.Key]uint64), Waits: make(map[record.WaitKey]profile.StateTimes),
		Stacks: map[profile.StackTraceID][]profile.Frame{{1}: {price, main}, {2}: {wait, main}}}
	key := func(tid int, name string, stack byte) record.Key {
		return record.Key{Process: shop, TID: tid, Thread: name, Stack: profile.StackTraceID{stack}}
	}
	traced := key(21, "worker", 1)
	traced.TraceID, traced.TransactionID = [16]byte{1}, [8]byte{2} // its account is the thread's, too
	r.Samples[key(21, "worker", 1)], r.Samples[traced], r.Samples[key(23, "", 1)] = 30, 10, 1
	waker := profile.Waker{Kind: profile.ThreadWaker, PID: 12, TID: 120, Thread: "holder", TraceID: [16]byte{0xab},
		TransactionID: [8]byte{0xcd}}
	r.Waits[record.WaitKey{Key: key(21, "worker", 2), State: profile.Futex, Waker: waker}] = profile.StateTimes{
		Sum: 700 * ms, Longest: 400 * ms, Count: 2} // 100 ms more than the account
	r.Waits[record.WaitKey{Key: key(22, "poller", 2), State: profile.Poll,
		Waker: profile.Waker{Kind: profile.TimerWaker}}] =
		profile.StateTimes{Sum: 1000 * ms, Longest: 10 * ms, Count: 100}
	account := func(tid int, name string, observed time.Duration) *profile.Times {
		r.Accounts = append(r.Accounts, record.ThreadAccount{Process: shop, TID: tid, Thread: name, First: at,
			Last: at.Add(2 * time.Second), Observed: observed})
		return &r.Accounts[len(r.Accounts)-1].Times
	}
	times := account(21, "worker", 1100*ms)
	times[profile.OnCPU] = profile.StateTimes{Sum: 400 * ms, Longest: 100 * ms, Count: 4}
	times[profile.Runnable] = profile.StateTimes{Sum: 100 * ms, Longest: 50 * ms, Count: 3}
	times[profile.Futex] = profile.StateTimes{Sum: 600 * ms, Longest: 400 * ms, Count: 2}
	times = account(22, "poller", 2000*ms)
	times[profile.Poll] = profile.StateTimes{Sum: 2000 * ms, Longest: 10 * ms, Count: 200}
	return r
}

// The table says of the process and of its threads, those that used most of the CPU first, what they did, where, and
// who ended it. The methods with CPU time come first, however long others wait.
func TestProcessTable(t *testing.T) {
	defer func(local *time.Location) { time.Local = local }(time.Local)
	time.Local = time.UTC
	r := threadsRecording()
	p, _ := explainProcesses(r)
	p.addNotes(r, []string{"a note\x1b[31m"})
	const want = `shop\x1b[31m, pid 11, container abababababab
2.00 s, 12:00:00.000 to 12:00:02.000: 410.0 ms of CPU time (20 %), 3 threads, 2 of them ran
a note\x1b[31m

THREAD  TID    SEEN    ON CPU  WAIT CPU      LOCK    POLL
all 3     -  3.10 s  410.0 ms  100.0 ms  600.0 ms  2.00 s
worker   21  1.10 s  400.0 ms  100.0 ms  600.0 ms       -
-        23       -   10.0 ms         -         -       -
poller   22  2.00 s         -         -         -  2.00 s

STATE OF THREADS                  TIME  OF SEEN  TIMES   LONGEST  ENDED BY
poll                            2.00 s     65 %    200   10.0 ms
  wait  shop.py:7               1.00 s     32 %    100   10.0 ms  timer
  no stack                      1.00 s     32 %    100
lock, queue or sleep (futex)  600.0 ms     19 %      2  400.0 ms
  wait  shop.py:7             600.0 ms     19 %      2  400.0 ms  holder in transaction cd000000
on a CPU                      400.0 ms     13 %      4  100.0 ms
waiting for a CPU             100.0 ms      3 %      3   50.0 ms

   CPU    SHARE    SELF    WAIT  METHOD
410 ms  100.0 %       -  1.60 s  main  shop.py:7
410 ms  100.0 %  410 ms       -   price  shop.py:7
     -        -       -  1.60 s   wait  shop.py:7`
	got := strings.Join(p.lines(0), "\n")
	assert.Check(t, strings.Contains(got, want), "%s\nwant\n%s", got, want)
}

// In JSON the sums prove each other: a thread's states are how long it was seen, and its waits what it was blocked,
// also where more was walked than that; the process is the sum of its threads.
func TestProcessJSON(t *testing.T) {
	r := threadsRecording()
	p, shown := explainProcesses(r)
	content, err := p.encode(shown, ProcessOptions{Format: JSON}, nil)
	assert.NilError(t, err)
	var got ProcessExplanation
	assert.NilError(t, json.Unmarshal(content, &got))
	sum := func(a *Account) time.Duration {
		return a.OnCPU + a.Runnable + a.Throttled + a.Blocked + a.Unaccounted
	}
	all := time.Duration(0)
	for _, th := range got.Threads[:1:1] {
		assert.Check(t, th.Name == "worker" && th.PID == 11 && th.TID == 21 && th.Samples == 40 && th.CPU == 400*ms,
			"%+v", th)
	}
	for _, th := range got.Threads {
		if th.Account == nil {
			assert.Check(t, th.TID == 23 && th.Samples == 1, "%+v", th)
			continue
		}
		all += sum(th.Account)
		blocked := time.Duration(0)
		for _, w := range th.Waits {
			blocked += w.Sum
		}
		assert.Check(t, sum(th.Account) == th.Account.Wall && blocked == th.Account.Blocked, "%+v", th)
	}
	assert.Check(t, all == 3100*ms && sum(got.Account) == all && got.Account.Wall == all && !got.Account.Partial &&
		got.Samples == 41 && got.Duration == 2*time.Second && got.Processes[0].PID == 11, "%+v", got)
	lock := got.Threads[0].Waits[0]
	assert.Check(t, lock.Sum == 600*ms && lock.Waker.Thread == "holder" && lock.Waker.ID == "cd00000000000000" &&
		len(lock.Frames) == 2, "%+v", lock)
	waited := time.Duration(0)
	for _, m := range got.Methods {
		if m.Caller < 0 {
			waited += m.Wait
		}
	}
	assert.Check(t, waited == 1600*ms, "%v", waited)
}

// What was lost is said, and makes accounts partial; where there is no sample, that is said; all forms can be written.
func TestProcessForms(t *testing.T) {
	r := threadsRecording()
	clear(r.Samples)
	r.LostAccounts, r.LostWaits, r.Unaccounted = 5, 7, 9
	p, shown := explainProcesses(r)
	p.addNotes(r, nil)
	for format, want := range map[report.Format]string{Table: "no CPU sample was taken: one is for every 10ms",
		JSON: "5 parts of the accounts", report.Folded: "main (shop.py);wait (shop.py);[poll] 1000000",
		report.HTML: "400.0 ms of CPU time", report.PProf: "\x1f\x8b"} {
		content, err := p.encode(shown, ProcessOptions{Format: format, File: "some"}, nil)
		assert.Check(t, err == nil && strings.Contains(string(content), want), "%s: %v\n%s", format, err,
			terminal.Escape(string(content)))
	}
	assert.Check(t, p.Account.Partial && len(p.Notes) == 3 && strings.Contains(p.Notes[1], "9 switches") &&
		strings.Contains(p.Notes[2], "7 waits"), "%+v", p)
	clear(r.Waits)
	p, _ = explainProcesses(r)
	p.addNotes(r, nil)
	assert.Check(t, len(p.Notes) == 4 && strings.Contains(p.Notes[3], "of 1 thread that did not run"), "%+v", p)
	for i := range p.Threads {
		p.Threads[i].Account = nil // lost: whether they ran is not known
	}
	p.Notes = nil
	p.addNotes(r, nil)
	assert.Check(t, len(p.Notes) == 3, "%+v", p.Notes)
}

// A page shows when threads did what, since the recording began, and which thread ended the waits of another, whatever
// either worked on.
func TestProcessTimeline(t *testing.T) {
	r := threadsRecording()
	moment := func(first, last time.Duration, sum int64) []keep.Moment {
		return []keep.Moment{{First: at.Add(first).UnixNano(), Last: at.Add(last).UnixNano(), Count: 1, Sum: sum}}
	}
	r.Moments = make(map[record.WaitKey][]keep.Moment)
	for key := range r.Samples {
		if key.TID == 21 {
			r.Moments[record.WaitKey{Key: key}] = moment(1500*ms, 1500*ms, 0)
		}
	}
	for key, times := range r.Waits {
		first := 100 * ms
		if key.State == profile.Futex { // ended by the other thread, and begun before that was seen
			delete(r.Waits, key)
			first, key.Waker.PID, key.Waker.TID = -3*time.Second, 11, 22
			r.Waits[key] = times
		}
		r.Moments[key] = moment(first, 700*ms, int64(700*ms))
	}
	p, shown := explainProcesses(r)
	var made *flamegraph.Timeline
	_, err := report.Encode(report.HTML, shown, report.About{Timeline: func(of report.Shown) *flamegraph.Timeline {
		made = newTimeline(p.answer, shown, p.of, of)
		return made
	}})
	assert.NilError(t, err)
	var got []string
	for _, lane := range made.Lanes {
		for _, e := range lane.Events {
			got = append(got, fmt.Sprintf("%s: %s %v to %v, from %d", lane.Name, e.Kind, e.First, e.Last, e.Waker))
		}
	}
	slices.Sort(got)
	assert.DeepEqual(t, got, []string{"poller 22: poll 100ms to 700ms, from -1", "worker 21: CPU 1.5s to 1.5s, from -1",
		"worker 21: CPU 1.5s to 1.5s, from -1", "worker 21: lock 0s to 700ms, from 1"})
	assert.Check(t, made.Start.Equal(at) && made.Lanes[0].Rest["CPU"].Count == 38, "%+v", made)
}

// Threads of several processes have the pids of these.
func TestProcessesTable(t *testing.T) {
	r := threadsRecording()
	other := *r.Processes[0]
	other.PID = 12
	r.Processes = append(r.Processes, &other)
	r.Accounts[1].Process, r.Accounts[1].TID = &other, 21 // in another pid namespace than ours, numbers are not unique
	p, _ := explainProcesses(r)
	got := strings.Join(p.lines(0), "\n")
	for _, want := range []string{"2 processes\n", "THREAD  PID  TID ", "worker   11   21", "poller   12   21"} {
		assert.Check(t, strings.Contains(got, want), "no %q in\n%s", want, got)
	}
}
