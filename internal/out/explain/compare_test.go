package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/out/keep"
	"correlator/internal/out/report"
	"correlator/profile"
)

// pair answers for the id "aaaa" and for others.
type pair struct{ a, b *keep.Answer }

func (p pair) Samples(_ context.Context, q keep.Query) (*keep.Answer, error) {
	if q.ID == "aaaa" || q.Order == keep.Slowest {
		return p.a, nil
	}
	return p.b, nil
}

// demoAnswer is the recorded transaction.
func demoAnswer(t *testing.T) *keep.Answer {
	t.Helper()
	a, err := Demo{}.Samples(t.Context(), keep.Query{})
	assert.NilError(t, err)
	return a
}

func compared(t *testing.T, p pair, format report.Format, a, b keep.Query) string {
	t.Helper()
	var out bytes.Buffer
	assert.NilError(t, Run(t.Context(), p, &out, io.Discard, Options{Query: a, Against: &b, Format: format}))
	return out.String()
}

var idA, idB = keep.Query{ID: "aaaa"}, keep.Query{ID: "bbbb"}

// The recorded transaction, against itself without its waits for a lock: these are all of the difference, by state, by
// place with who ended it, and by method.
func TestCompareDemo(t *testing.T) {
	b := demoAnswer(t)
	delete(b.Transactions[0].Account.Times, profile.Futex)
	b.Waits = slices.DeleteFunc(b.Waits, func(w keep.Wait) bool { return w.State == profile.Futex })
	b.Transactions[0].Account.Last = b.Transactions[0].Account.Last.Add(-80 * ms)
	out := compared(t, pair{demoAnswer(t), b}, Table, idA, idB)
	for _, want := range []string{
		"A: transaction 0177f5fba03d4642 of trace 5fe67a10660942b9a4238e0483d8adb3 in billing (demo), " +
			"pid 28494\n   286.8 ms",
		"1 of the transactions are in both\n", `
STATE OF THREADS                               A         B  DIFFERENCE  TIMES A  TIMES B  ENDED BY
wall                                    286.8 ms  206.8 ms    +80.0 ms
lock, queue or sleep (futex)             81.4 ms      0 µs    +81.4 ms        1        0
  pthread_mutex_lock < waiting_once      81.4 ms      0 µs    +81.4 ms        1        0  holder in transaction ` +
			`1616e7c9 of billing
on a CPU                                 65.2 ms   65.2 ms           -       41       41
`, `
DIFFERENCE         A         B  CPU      WAIT  SELF CPU  SELF WAIT  METHOD
  +81.4 ms  300.2 ms  218.8 ms    -  +81.4 ms         -          -  clone3
`, `
  +81.4 ms   81.4 ms      0 µs    -  +81.4 ms         -   +81.4 ms    __lll_lock_wait
`} {
		assert.Check(t, strings.Contains(out, want), "no %q in\n%s", want, out)
	}
	var c Comparison
	assert.NilError(t, json.Unmarshal([]byte(compared(t, pair{b, demoAnswer(t)}, JSON, idA, idB)), &c))
	least := c.States[len(c.States)-1]
	assert.Check(t, least.Name == "futex" && *least.Difference == -81398899, "%+v", least)
}

// several is an answer for transactions of which each took longer than the one before, by so much.
func several(wall time.Duration, n int, peer func(i int) string) *keep.Answer {
	a := accounted()
	tx := a.Transactions[0]
	a.Transactions, a.Samples, a.Waits = nil, nil, nil
	for i := range n {
		one := tx
		one.ID = fmt.Sprintf("%016x", int(wall)+i+1)
		took := wall * time.Duration(i+1)
		one.Account = &keep.Account{First: at, Last: at.Add(took), Times: map[profile.ThreadState]profile.StateTimes{
			profile.OnCPU: {Sum: took / 4, Count: 2}, profile.Net: {Sum: took * 3 / 4, Longest: took / 2, Count: 3}}}
		one.First, one.Last, one.Samples = at, at.Add(took), 2
		a.Transactions = append(a.Transactions, one)
		a.Samples = append(a.Samples, keep.Sample{Transaction: i, Stack: 0, TID: 21, Count: 2})
		a.Waits = append(a.Waits, keep.Wait{Transaction: i, Stack: 1, TID: 21, State: profile.Net, Peer: peer(i),
			StateTimes: profile.StateTimes{Sum: took / 2, Longest: took / 2, Count: 1}})
	}
	return a
}

// Of several transactions, times are means of one: of those with an account, whose number is said, as is that of those
// of which an earlier part is missing. A peer that only one side has is no other place.
func TestCompareMeans(t *testing.T) {
	client := func(i int) string { return fmt.Sprintf("10.0.0.9:%d", 40000+i) }
	a := several(100*ms, 4, client) // 100 ms to 400 ms
	b := several(10*ms, 2, func(i int) string { return client(i + 100) })
	slow, fast := keep.Query{Order: keep.Slowest, Most: 4}, keep.Query{Order: keep.Fastest, Most: 2}
	out := compared(t, pair{a, b}, Table, slow, fast)
	const methods = `
DIFFERENCE         A         B  CPU       WAIT  SELF CPU  SELF WAIT  METHOD
 +117.5 ms  225.0 ms  107.5 ms    -  +117.5 ms         -          -  shop\x1b[31m
 +117.5 ms  225.0 ms  107.5 ms    -  +117.5 ms         -  +117.5 ms  Shop.checkout  Shop.java
         -  100.0 ms  100.0 ms    -          -         -          -   ... 1 more
`
	assert.Check(t, strings.Contains(out, methods), "no %q in\n%s", methods, out)
	assert.Check(t, strings.Contains(compared(t, pair{a, b}, report.HTML, slow, fast), "[net"))
	a.Transactions[3].Account = nil
	a.Transactions[2].Account.Partial = true
	out = compared(t, pair{a, b}, Table, slow, fast)
	for _, want := range []string{"A: the 4 slowest transactions, of which times are the mean of one\n" +
		"   100.0 ms to 450.0 ms, 1 from the first sample to the last, 3 from the first switch to the last\n" +
		"   8 samples, each of 50.0 ms of CPU time\n" +
		"   states: of 3 of the 4 transactions; what the threads of the others did is not kept\n" +
		"   states: of 1 of them, what their threads did earlier is not kept any more\n" +
		"B: the 2 fastest transactions", "\n   2 of them may go on: without a span it is not known when they end\n" +
		"waits of methods are not compared: not each transaction has an account of its own\n", `
STATE OF THREADS                                                A        B  DIFFERENCE  TIMES A  TIMES B  ENDED BY
wall                                                     200.0 ms  15.0 ms   +185.0 ms
network                                                  150.0 ms  11.2 ms   +138.8 ms        3        3
  Shop.checkout  Shop.java:26  A: 3 others, B: 2 others  100.0 ms   7.5 ms    +92.5 ms        1        1
  no stack                                                50.0 ms   3.8 ms    +46.2 ms        2        2
on a CPU                                                  50.0 ms   3.8 ms    +46.2 ms        2        2
`, `
DIFFERENCE         A         B  CPU  WAIT  SELF CPU  SELF WAIT  METHOD
         -  100.0 ms  100.0 ms    -     -         -          -  ... 1 more
`} {
		assert.Check(t, strings.Contains(out, want), "no %q in\n%s", want, out)
	}
	// Nor are waits of methods shown in the flame graph. The one wall time is that of switches, the other of samples.
	assert.Check(t, !strings.Contains(compared(t, pair{a, b}, report.HTML, slow, fast), "[net"))
	// Where no account is known, nothing is 0.
	for i := range b.Transactions {
		b.Transactions[i].Account = nil
	}
	b.Waits = nil
	out = compared(t, pair{a, b}, Table, slow, fast)
	for _, want := range []string{"\n   what threads did is not known\n", `
wall                                        200.0 ms  65.0 ms           ?
`, `
network                                     150.0 ms        ?           -        3
  Shop.checkout  Shop.java:26  A: 3 others  100.0 ms        ?           -        1
`, `
         -  100.0 ms  100.0 ms    -     -         -          -  ... 1 more
`} {
		assert.Check(t, strings.Contains(out, want), "no %q in\n%s", want, out)
	}
	var c Comparison
	assert.NilError(t, json.Unmarshal([]byte(compared(t, pair{a, b}, JSON, slow, fast)), &c))
	assert.Check(t, c.A.Accounts == 3 && c.A.Partial == 1 && c.B.Known == 0 && c.States[1].B == nil &&
		c.States[1].Difference == nil && c.InBoth == 0, "%+v", c)
}

// Accounts of whole traces are means of one trace, which is said; waits of methods would be of one transaction.
func TestCompareWholeTrace(t *testing.T) {
	a, b := several(100*ms, 2, func(int) string { return "" }), several(100*ms, 1, func(int) string { return "" })
	a.Transactions[0].Account.WholeTrace = true
	b.Transactions[0].Account.WholeTrace = true
	a.Transactions[1].Account = a.Transactions[0].Account
	out := compared(t, pair{a, b}, Table, keep.Query{Order: keep.Slowest}, keep.Query{Order: keep.Fastest})
	for _, want := range []string{"\n   states: of 2 transactions in 1 accounts, each of a whole trace\n",
		"\nwaits of methods are not compared"} {
		assert.Check(t, strings.Contains(out, want), "no %q in\n%s", want, out)
	}
}

// Methods of single samples among many are chance, and no difference.
func TestCompareFew(t *testing.T) {
	of := func(name string) *keep.Answer {
		a := several(100*ms, 1, func(int) string { return "" })
		for i := range fewOf {
			a.Frames = append(a.Frames, keep.Frame{Function: fmt.Sprint(name, i)})
			a.Stacks = append(a.Stacks, []uint32{uint32(len(a.Frames) - 1)})
			a.Samples = append(a.Samples, keep.Sample{Stack: len(a.Stacks) - 1, TID: 21, Count: 1})
		}
		return a
	}
	out := compared(t, pair{of("one"), of("other")}, Table, idA, idB)
	want := fmt.Sprintf("... %d more", 2*fewOf+1) // and one in which there is no difference
	assert.Check(t, strings.Contains(out, want) && !strings.Contains(out, "one3"), "no %q in\n%s", want, out)
}
