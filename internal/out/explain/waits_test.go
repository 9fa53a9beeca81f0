package explain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/out/keep"
	"correlator/internal/out/report"
	"correlator/profile"
)

const ms = time.Millisecond

// waited is an answer with stacks of waits: those of the lock have more than the account, and of the network less.
func waited() *keep.Answer {
	a := accounted()
	frame := func(kind profile.Kind, name, file string, line uint32) uint32 {
		a.Frames = append(a.Frames, keep.Frame{Kind: kind, Function: name, Source: file, Line: line,
			Address: uint64(line)})
		return uint32(len(a.Frames) - 1)
	}
	a.Frames[2].Function = "futex_wait" // of libc
	park := frame(profile.JVMFrame, "jdk.internal.misc.Unsafe.park", "Unsafe.java", 1)
	lock := frame(profile.JVMFrame, "java.util.concurrent.locks.ReentrantLock.lock", "ReentrantLock.java", 2)
	sleep := frame(profile.JVMFrame, "java.lang.Thread.sleep0", "Thread.java", 3)
	reserve := frame(profile.JVMFrame, "Shop.reserve", "Shop.java", 58)
	stack := func(frames ...uint32) int {
		a.Stacks = append(a.Stacks, frames)
		return len(a.Stacks) - 1
	}
	locked, slept := stack(2, park, lock, reserve, 1), stack(2, sleep, reserve)
	holder := &keep.Waker{Source: profile.ThreadWaker, PID: 12, TID: 120, Thread: "java-7\x1b[2J", Service: "cart",
		Trace: "4bf92f3577b34da6a3ce929d0e0e4736", ID: "9d1f000011112222"}
	wait := func(state profile.ThreadState, stack int, sum, longest time.Duration, waker *keep.Waker) *keep.Wait {
		a.Waits = append(a.Waits, keep.Wait{Stack: stack, TID: 21, Thread: "http-1", State: state, Waker: waker,
			StateTimes: profile.StateTimes{Sum: sum, Longest: longest, Count: 1}})
		return &a.Waits[len(a.Waits)-1]
	}
	wait(profile.Futex, locked, 180*ms, 90*ms, holder).Futex = 0xabc
	wait(profile.Futex, locked, 30*ms, 5*ms, &keep.Waker{Source: profile.TimerWaker})
	wait(profile.Futex, slept, 90*ms, 10*ms, nil)
	wait(profile.Net, 1, 100*ms, 80*ms, &keep.Waker{Source: profile.NetworkWaker}).Peer = "10.0.0.7:5432"
	wait(profile.Runnable, 0, 20*ms, 20*ms, nil)
	return a
}

// The table has where threads waited, for what and for whom; times with a stack are never more than the account, and
// what has none is said.
func TestWaitTable(t *testing.T) {
	defer func(local *time.Location) { time.Local = local }(time.Local)
	time.Local = time.UTC
	out, _, err := run(t, waited(), Options{Format: Table})
	assert.NilError(t, err)
	const want = `
STATE OF THREADS                                         TIME  OF WALL  TIMES   LONGEST  ENDED BY
network                                              400.0 ms     40 %      9  300.0 ms
  Shop.checkout  Shop.java:26  10.0.0.7:5432         100.0 ms     10 %      1   80.0 ms  network
  no stack                                           300.0 ms     30 %      8
on a CPU                                             340.0 ms     34 %     12   80.0 ms
lock, queue or sleep (futex)                         150.0 ms     15 %      3   90.0 ms
  ReentrantLock.lock < Shop.reserve  Shop.java:58    105.0 ms     10 %      2   90.0 ms  java-7\x1b[2J in ` +
		`transaction 9d1f0000 of cart (90.0 ms)
  sleep: Thread.sleep0 < Shop.reserve  Shop.java:58   45.0 ms      4 %      1   10.0 ms
waiting for a CPU                                     60.0 ms      6 %     14   20.0 ms
  Shop.price  Shop.java:43                            20.0 ms      2 %      1   20.0 ms
  no stack                                            40.0 ms      4 %     13
throttled (cgroup quota)                              50.0 ms      5 %      1   50.0 ms
on a CPU, in this or another                           1.5 ms      0 %      2    1.0 ms

`
	assert.Check(t, strings.Contains(out, want), "%s\nwant\n%s", out, want)
	const tree = `
   CPU    SHARE    SELF      WAIT  METHOD
350 ms  100.0 %       -  270.0 ms  shop\x1b[31m (11)
350 ms  100.0 %  100 ms  225.0 ms   Shop.checkout  Shop.java:24,26
250 ms   71.4 %  250 ms   20.0 ms    Shop.price  Shop.java:43
     -        -       -  105.0 ms    Shop.reserve  Shop.java:58
     -        -       -  105.0 ms    java.util.concurrent.locks.ReentrantLock.lock  ReentrantLock.java:2
     -        -       -  105.0 ms    jdk.internal.misc.Unsafe.park  Unsafe.java:1
     -        -       -  105.0 ms    futex_wait
     -        -       -   45.0 ms   Shop.reserve  Shop.java:58
`
	assert.Check(t, strings.Contains(out, tree), "%s\nwant\n%s", out, tree)
}

// In JSON, blocked waits of a transaction add up to its account, with stacks and without.
func TestWaitsJSON(t *testing.T) {
	out, _, err := run(t, waited(), Options{Format: JSON})
	assert.NilError(t, err)
	var got struct {
		Transactions []struct {
			Account Account
			Waits   []Wait
		}
		Methods []Method
	}
	assert.NilError(t, json.Unmarshal([]byte(out), &got))
	tx := got.Transactions[0]
	sums, counts := make(map[profile.WaitKind]time.Duration), uint64(0)
	for _, w := range tx.Waits {
		sums[w.Kind] += w.Sum
		if w.Kind != "runnable" {
			counts += w.Count
		}
	}
	assert.DeepEqual(t, sums, map[profile.WaitKind]time.Duration{"net": 400 * ms, "lock": 105 * ms, "sleep": 45 * ms,
		"runnable": 20 * ms})
	assert.Check(t, sums["net"]+sums["lock"]+sums["sleep"] == tx.Account.Blocked && counts == 9+3, "%+v", tx)
	rest, network, lock := tx.Waits[0], tx.Waits[1], tx.Waits[2]
	assert.Check(t, rest.Kind == "net" && rest.Frames == nil && rest.Longest == 300*ms, "%+v", rest)
	assert.Check(t, network.Peer == "10.0.0.7:5432" && network.Waker.Source == profile.NetworkWaker, "%+v", network)
	assert.DeepEqual(t, lock.Frames[3], Frame{"Shop.reserve", "Shop.java", 58})
	assert.Check(t, lock.Futex == "0xabc" && lock.Longest == 90*ms, "%+v", lock)
	for _, want := range []string{`"source": "thread"`, `"pid": 12`, `"transaction_id": "9d1f000011112222"`,
		`"service": "cart"`, `"thread": "java-7\u001b[2J"`} {
		assert.Check(t, strings.Contains(out, want), "no %s in %s", want, out)
	}
	waits := time.Duration(0)
	for _, m := range got.Methods {
		if m.Caller < 0 {
			waits += m.Wait
		}
	}
	assert.Check(t, waits == 270*ms, "methods have %v of waits", waits) // all with a stack
}

// Transactions of a trace that have one account have its time once, also what has no stack; without an account, waits
// are as they were walked.
func TestWaitsOfTrace(t *testing.T) {
	a := waited()
	second := a.Transactions[0]
	second.ID = "0000000000000001"
	a.Transactions = append(a.Transactions, second)
	a.Transactions[0].Account.WholeTrace = true
	a.Waits[0].Transaction = 1
	for _, accounts := range []bool{true, false} {
		out, _, err := run(t, a, Options{Format: JSON})
		var e Explanation
		assert.NilError(t, err)
		assert.NilError(t, json.Unmarshal([]byte(out), &e))
		sums := make(map[profile.WaitKind]time.Duration)
		for _, tx := range e.Transactions {
			for _, w := range tx.Waits {
				sums[w.Kind] += w.Sum
			}
		}
		want := map[profile.WaitKind]time.Duration{"net": 400 * ms, "lock": 105 * ms, "sleep": 45 * ms,
			"runnable": 20 * ms}
		if !accounts {
			want = map[profile.WaitKind]time.Duration{"net": 100 * ms, "lock": 210 * ms, "sleep": 90 * ms,
				"runnable": 20 * ms}
		}
		assert.DeepEqual(t, sums, want)
		a.Transactions[0].Account, a.Transactions[1].Account = nil, nil
	}
}

// Waits are not scaled down to an account that lacks some: one that comes later, or of which a part was forgotten.
func TestScaleOfLateAccounts(t *testing.T) {
	for what, c := range map[string]struct {
		change func(of *keep.Account, w *keep.Wait)
		want   time.Duration
	}{
		"whole":   {func(of *keep.Account, w *keep.Wait) { w.Last = of.Last.Add(lateness) }, 90 * ms},
		"late":    {func(of *keep.Account, w *keep.Wait) { w.Last = of.Last.Add(lateness + 1) }, 180 * ms},
		"partial": {func(of *keep.Account, _ *keep.Wait) { of.Partial = true }, 180 * ms},
		"another state": {func(of *keep.Account, w *keep.Wait) {
			w.State, w.Last = profile.Net, of.Last.Add(time.Hour)
		}, 180 * ms},
	} {
		a := waited()
		c.change(a.Transactions[0].Account, &a.Waits[0])
		s := newShares(a)
		rest := s.rest[accountOf(&a.Transactions[0])]
		assert.Check(t, s.sums[0] == c.want && rest[profile.Futex].Sum >= 0 && rest[profile.Net].Sum >= 0,
			"%s: %v, rest %v", what, s.sums[0], rest)
	}
}

// Times of any size are shared out without an overflow, to the nanosecond.
func TestScale(t *testing.T) {
	a := waited()
	const account = 1<<62 + 12345
	a.Transactions[0].Account.Times[profile.Futex] = profile.StateTimes{Sum: account, Count: 1}
	a.Waits = a.Waits[:3]
	for i := range a.Waits {
		a.Waits[i].Sum = 1<<61 - time.Duration(i)*77 - 1
	}
	a.Waits[0].Sum = 1<<61 - 1 + 1<<60
	s := newShares(a)
	sum := s.sums[0] + s.sums[1] + s.sums[2]
	rest := s.rest[accountOf(&a.Transactions[0])][profile.Futex].Sum
	assert.Check(t, sum == account && rest == 0, "%d of %d, %d are left", sum, account, rest)
}

// What there is no room for is said; every format has the waits.
func TestWaitsInFormats(t *testing.T) {
	a := waited()
	a.LeftOutWaits, a.UnknownWaits = 7, "not known: \x1b"
	for format, want := range map[report.Format][2]string{
		Table: {"the stacks of 7 waits are left out", `not known: \x1b`},
		JSON:  {`"left_out_waits": 7`, `"unknown_waits": "not known: \u001b"`}} {
		out, _, err := run(t, a, Options{Format: format})
		assert.Check(t, err == nil && strings.Contains(out, want[0]) && strings.Contains(out, want[1]), "%s: %s, %v",
			format, out, err)
	}
	a.Samples, a.Transactions[0].Samples = nil, 0
	out, _, err := run(t, a, Options{Format: Table})
	assert.Check(t, err == nil && strings.Contains(out, "no CPU sample was taken") &&
		strings.Contains(out, "WAIT  METHOD"), "%s, %v", out, err)
}
