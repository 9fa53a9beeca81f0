package explain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/out/keep"
	"correlator/profile"
)

// accounted is an example whose first transaction waited.
func accounted() *keep.Answer {
	a := example()
	a.Transactions, a.Samples = a.Transactions[:1], a.Samples[:2]
	account := &keep.Account{First: at.Add(-10 * time.Millisecond), Last: at.Add(990 * time.Millisecond),
		Times: make(map[profile.ThreadState]profile.StateTimes)}
	set := func(state profile.ThreadState, count uint64, sum, longest time.Duration) {
		account.Times[state] = profile.StateTimes{Sum: sum, Longest: longest, Count: count}
	}
	set(profile.OnCPU, 12, 340*time.Millisecond, 80*time.Millisecond)
	set(profile.Unknown, 2, 1500*time.Microsecond, time.Millisecond)
	set(profile.Runnable, 14, 60*time.Millisecond, 20*time.Millisecond)
	set(profile.Throttled, 1, 50*time.Millisecond, 50*time.Millisecond)
	set(profile.Net, 9, 400*time.Millisecond, 300*time.Millisecond)
	set(profile.Futex, 3, 150*time.Millisecond, 90*time.Millisecond)
	a.Transactions[0].Account = account
	return a
}

// The table says what the threads did: what took longest first, what is not certain last.
func TestAccountTable(t *testing.T) {
	defer func(local *time.Location) { time.Local = local }(time.Local)
	time.Local = time.UTC
	out, _, err := run(t, accounted(), Options{Format: Table})
	assert.NilError(t, err)
	const want = `1.00 s from the first switch to the last, 11:59:59.990 to 12:00:00.990: ` +
		`on a CPU 34 %, waiting for one 11 %, blocked 55 %

STATE OF THREADS                  TIME  OF WALL  TIMES   LONGEST
network                       400.0 ms     40 %      9  300.0 ms
on a CPU                      340.0 ms     34 %     12   80.0 ms
lock, queue or sleep (futex)  150.0 ms     15 %      3   90.0 ms
waiting for a CPU              60.0 ms      6 %     14   20.0 ms
throttled (cgroup quota)       50.0 ms      5 %      1   50.0 ms
on a CPU, in this or another    1.5 ms      0 %      2    1.0 ms

THREAD `
	assert.Check(t, strings.Contains(out, want), "%s\nwant\n%s", out, want)
	a := accounted()
	a.Transactions = append(a.Transactions, example().Transactions[1])
	a.Samples = append(a.Samples, example().Samples[2])
	out, _, err = run(t, a, Options{Format: Table})
	assert.Check(t, err == nil && strings.Contains(out, "of 1 of the 2 transactions; what"), "%s, %v", out, err)
	// Two transactions of a trace have one account; what is no longer kept of it is said.
	a.Transactions[0].Account.WholeTrace, a.Transactions[0].Account.Partial = true, true
	own := *a.Transactions[0].Account // of the one without an id, it is its own
	own.WholeTrace = false
	a.Transactions[1].Account, a.Transactions[1].Process = &own, a.Transactions[0].Process
	out, _, err = run(t, a, Options{Format: Table})
	assert.Check(t, err == nil && strings.Contains(out, "network                       400.0 ms     40 %      9") &&
		strings.Contains(out, "of 2 of them, what their threads did earlier"), "%s, %v", out, err)
	assert.Check(t, strings.Contains(out, "350 ms     35 %"), "the threads are compared with another time: %s", out)
}

// The sums of JSON prove each other: of one thread, its states are the time from the first switch to the last.
func TestAccountJSON(t *testing.T) {
	a := accounted()
	a.Transactions[0].Account.WholeTrace = true
	out, _, err := run(t, a, Options{Format: JSON})
	assert.NilError(t, err)
	var got struct{ Transactions []map[string]any }
	assert.NilError(t, json.Unmarshal([]byte(out), &got))
	tx := got.Transactions[0]
	assert.DeepEqual(t, tx["account"], map[string]any{"wall_ns": 1e9, "on_cpu_ns": 340e6, "runnable_ns": 60e6,
		"throttled_ns": 50e6, "blocked_ns": 550e6, "unaccounted_ns": 1.5e6, "whole_trace": true,
		"wall_source": "switches"})
	assert.DeepEqual(t, tx["waits"], []any{
		map[string]any{"kind": "net", "ns": 400e6, "count": 9.0, "longest_ns": 300e6},
		map[string]any{"kind": "lock", "ns": 150e6, "count": 3.0, "longest_ns": 90e6},
	})
	assert.Check(t, tx["wall_ns"] == 1e9 && tx["cpu_ns"] == 350e6, "%v", tx)
}

// With its span, a transaction has the time of that: what no thread had its context in is said, and with that the sums
// of JSON are the whole span. Where an earlier part was forgotten, or threads were in it together, that is not known.
func TestAccountOfSpan(t *testing.T) {
	defer func(local *time.Location) { time.Local = local }(time.Local)
	time.Local = time.UTC
	a := accounted()
	first := a.Transactions[0].Account.First
	a.Transactions[0].Span = &keep.Interval{Start: first.Add(-100 * ms), End: first.Add(1900 * ms)}
	out, _, err := run(t, a, Options{Format: Table})
	assert.NilError(t, err)
	for _, want := range []string{"2.00 s by its span, 11:59:59.890 to 12:00:01.890: on a CPU 17 %, " +
		"waiting for one 6 %, blocked 28 %, on no known thread 50 %\n",
		"\nnetwork                       400.0 ms     20 %      9  300.0 ms\n",
		"\non no known thread            998.5 ms     50 %\n"} {
		assert.Check(t, strings.Contains(out, want), "no %q in\n%s", want, out)
	}
	account := func() (tx map[string]any, of Account) {
		out, _, err := run(t, a, Options{Format: JSON})
		assert.NilError(t, err)
		var got struct{ Transactions []struct{ Account Account } }
		var raw struct{ Transactions []map[string]any }
		assert.Check(t, json.Unmarshal([]byte(out), &got) == nil && json.Unmarshal([]byte(out), &raw) == nil)
		return raw.Transactions[0], got.Transactions[0].Account
	}
	tx, of := account()
	assert.Check(t, of.Wall == 2*time.Second && of.WallSource == "span" && tx["wall_ns"] == 2e9 &&
		tx["wall_source"] == "span" &&
		of.Wall == of.OnCPU+of.Runnable+of.Throttled+of.Blocked+of.Unaccounted+of.NoThread, "%+v, %v", of, tx)
	a.Transactions[0].Account.Partial = true
	_, of = account()
	assert.Check(t, of.NoThread == 0, "%+v", of)
	a.Transactions[0].Account.Partial = false
	a.Transactions[0].Span.End = first.Add(time.Millisecond)
	_, of = account()
	assert.Check(t, of.NoThread == 0 && of.Wall == 101*time.Millisecond, "%+v", of)
	a.Transactions[0].Account, a.Transactions[0].Span.End = nil, first.Add(1900*time.Millisecond)
	out, _, err = run(t, a, Options{Format: Table})
	const want = "350 ms of CPU time in 2.00 s by its span, 11:59:59.890 to 12:00:01.890"
	assert.Check(t, err == nil && strings.Contains(out, want), "%s, %v", out, err)
}

// A transaction without samples is explained by what its threads did.
func TestOnlyWaits(t *testing.T) {
	a := accounted()
	a.Samples, a.Transactions[0].Samples = nil, 0
	a.Transactions[0].First, a.Transactions[0].Last = a.Transactions[0].Account.First, a.Transactions[0].Account.Last
	for _, format := range Formats() {
		_, _, err := run(t, a, Options{Format: format})
		assert.NilError(t, err, string(format))
	}
	out, _, err := run(t, a, Options{Format: Table})
	assert.Check(t, err == nil && strings.Contains(out, "network ") &&
		strings.HasSuffix(out, "no CPU sample was taken: one is for every 50ms of CPU time\n"), "%s, %v", out, err)
}

// A span says how long its transaction took, but nothing of the time of an account that is of the whole trace.
func TestSpanOfWholeTrace(t *testing.T) {
	at := time.Unix(1000, 0)
	kept := keep.Account{First: at, Last: at.Add(time.Second)}
	kept.Times = map[profile.ThreadState]profile.StateTimes{profile.OnCPU: {Sum: 300 * time.Millisecond}}
	span := keep.Interval{Start: at, End: at.Add(400 * time.Millisecond)}
	own := newAccount(&kept, &span)
	assert.Check(t, own.Wall == 400*time.Millisecond && own.WallSource == "span" &&
		own.NoThread == 100*time.Millisecond, "%+v", own)
	kept.WholeTrace = true
	shared := newAccount(&kept, &span)
	assert.Check(t, shared.Wall == time.Second && shared.WallSource == "switches" &&
		shared.NoThread == 700*time.Millisecond, "%+v", shared)
	kept.Partial = true
	assert.Check(t, newAccount(&kept, nil).NoThread == 0)
	for sampled, want := range map[time.Duration]time.Duration{0: 300, 350 * time.Millisecond: 350, time.Second: 390} {
		kept.Times[profile.Unknown] = profile.StateTimes{Sum: 90 * time.Millisecond, Count: 1}
		kept.WholeTrace = false
		tx := Transaction{CPU: sampled, Account: newAccount(&kept, nil), Wall: time.Second, WallSource: "switches"}
		assert.Check(t, tx.onCPU() == want*time.Millisecond && strings.HasSuffix(tx.times(),
			"blocked 0 %, on a CPU in this or another 9 %"), "%v: %v, %s", sampled, tx.onCPU(), tx.times())
	}
	tx := Transaction{Wall: 400 * time.Millisecond, WallSource: "span", Account: shared}
	assert.Check(t, strings.Contains(tx.times(), "400.0 ms by its span") &&
		strings.Contains(tx.times(), "on a CPU 30 %"), tx.times())
}
