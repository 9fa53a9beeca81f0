package watch

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/value"
	"correlator/internal/host/terminal"
	"correlator/internal/out/live/types"
)

// example is what two agents publish.
func example() *snapshot {
	at := time.Unix(1_700_000_000, 0)
	ago := func(d time.Duration) value.Opt[value.Timepoint] { return value.Some(value.TimepointOf(at.Add(-d))) }
	s := &snapshot{
		at: at, hosts: map[hostKey]*types.CorrelatorHost{}, processes: map[processKey]*types.CorrelatorProcess{},
		threads:      map[threadKey]*types.CorrelatorThread{},
		transactions: map[transactionKey]*types.CorrelatorTransaction{},
		stacks:       seq(stack{"compute handle main", 1500}, stack{"report main", 500}),
	}
	one := host()
	s.hosts[one.Key()] = one
	for _, p := range []*types.CorrelatorProcess{process(11, "shop", 0.5), process(12, "ca\x1b[2Jrt", 1.25)} {
		s.processes[p.Key()] = p
	}
	failed := process(13, "", 0)
	failed.State, failed.LastError = some("error"), some("socket: no such file\nor directory")
	failed.TracedCPU.Unset()
	failed.Environment.Unset()
	failed.ContainerID.Unset()
	s.processes[failed.Key()] = failed
	for i, id := range []string{first, second} {
		th := thread(uint32(11+i), uint32(101+i), id)
		th.CPU, th.Since, th.LastRun = value.Some(0.25+float64(i)/2), ago(90*time.Second), ago(40*time.Millisecond)
		s.threads[th.Key()] = th
		x := transaction(id, 0.25+float64(i))
		x.Since, x.LastRun = ago(3*time.Second), ago(time.Second)
		s.transactions[x.Key()] = x
	}
	return s
}

// expect compares the lines of a drawing, but for empty ones.
func expect(t *testing.T, got []string, want string) {
	t.Helper()
	text := strings.Join(got, "\n")
	for strings.Contains(text, "\n\n") {
		text = strings.ReplaceAll(text, "\n\n", "\n")
	}
	want = strings.TrimPrefix(want, "\n")
	assert.Check(t, text == want, "\n%s\nwant\n%s", text, want)
}

func TestDraw(t *testing.T) {
	var v view
	draw := func(keys string, columns, mark int, want string) {
		t.Helper()
		for _, key := range keys {
			assert.Check(t, !v.press(terminal.Key(key)), "%q ends it", key)
		}
		lines, marked := v.draw(example(), nil, columns, 24)
		assert.Check(t, len(lines) == 24 && marked == mark, "%d lines, %d is marked, not %d", len(lines), marked, mark)
		expect(t, lines, want)
	}
	draw("", 80, 3, `
web-1: 1.50 of 4 CPUs in 3 processes, the agent 1.2%, 20 samples/s
[1 Processes 3]  2 Threads 2   3 Transactions 2
 CPU  TRACED  PID  SERVICE      ENVIRONMENT  STATE       ERROR
1.25    0.62   12  ca\x1b[2Jrt  prod         registered  -
0.50    0.25   11  shop         prod         registered  -
0.00       -   13  -            -            error       socket: no such…
1 2 3 Tab: view   ↑ ↓: choose   Enter: threads, stacks   s: stacks   q: quit`)
	draw("2j", 80, 4, `
web-1: 1.50 of 4 CPUs in 3 processes, the agent 1.2%, 20 samples/s
 1 Processes 3  [2 Threads 2]  3 Transactions 2
  CPU  TID  NAME      PID  SERVICE      TRANSACTION       SPAN  SINCE    RAN
75.0%  102  http-102   12  ca\x1b[2Jrt  2222222222222222  -     1 min  40 ms
25.0%  101  http-101   11  shop         1111111111111111  -     1 min  40 ms
1 2 3 Tab: view   ↑ ↓: choose   Enter: threads, stacks   s: stacks   q: quit`)
	draw("3", 130, 3, `
web-1: 1.50 of 4 CPUs in 3 processes, the agent 1.2%, 20 samples/s
 1 Processes 3   2 Threads 2  [3 Transactions 2]
 CPU  CPU TIME  SERVICE  TRANSACTION       TRACE                             THREADS  PID  SINCE    RAN
1.25     2.5 s  shop     2222222222222222  22222222222222222222222222222222        2   11  3.0 s  1.0 s
0.25     2.5 s  shop     1111111111111111  11111111111111111111111111111111        2   11  3.0 s  1.0 s
1 2 3 Tab: view   ↑ ↓: choose   Enter: threads, stacks   s: stacks   q: quit`)
	draw("\r", 130, 3, `
web-1: 1.50 of 4 CPUs in 3 processes, the agent 1.2%, 20 samples/s
2.0 s of CPU time in 2 stacks since 12:03:05: shop, 2222222222222222 in trace 2222222222222222`+
		`2222222222222222, since 3.0 s
 SHARE   SELF  FRAME
100.0%      -  main
 75.0%      -  ├ handle
 75.0%  75.0%  │ compute
 25.0%  25.0%  └ report
↑ ↓: choose   Enter: fold   Esc: back   1 2 3: view   q: quit`)
}

// Above its stacks there is what the threads of a transaction did, the longest state first and its places behind it,
// in half of the screen at most; it stays when the transaction is no longer published.
func TestDrawWaits(t *testing.T) {
	s := example()
	for _, x := range []*types.CorrelatorTransactionWait{waitOf(second, "net", "", "network", 0.4),
		waitOf(second, "futex", "b < B.b", "b < B.b", 0.1), waitOf(second, "futex", "a < A.a", "a < A.a", 0.25),
		waitOf(second, "on_cpu", "", "on a CPU", 0.000012), waitOf(second, "futex", "", "lock", 0.5)} {
		s.waits = append(s.waits, *x)
	}
	s.waits[2].Longest.Unset()
	s.waits[3].EndedBy.Unset()
	v := view{stacks: &stackView{subject: subject{transactionKey: transactionKey{Host: "h1", TraceID: traceOf(second),
		TransactionID: second}}}}
	const head = `
web-1: 1.50 of 4 CPUs in 3 processes, the agent 1.2%, 20 samples/s
2.0 s of CPU time in 2 stacks since 12:03:05: shop, 2222222222222222 in trace 2222222222222222` +
		`2222222222222222, since 3.0 s
`
	const tree = `
 SHARE   SELF  FRAME
100.0%      -  main
 75.0%      -  ├ handle
 75.0%  75.0%  │ compute
 25.0%  25.0%  └ report
↑ ↓: choose   Enter: fold   Esc: back   1 2 3: view   q: quit`
	lines, marked := v.draw(s, nil, 130, 24)
	expect(t, lines, head+`STATE OF THREADS      TIME  TIMES   LONGEST  ENDED BY
lock              500.0 ms      3  500.0 ms  holder\x1b[2J
  a < A.a         250.0 ms      3         -  holder\x1b[2J
  b < B.b         100.0 ms      3  100.0 ms  holder\x1b[2J
network           400.0 ms      3  400.0 ms  holder\x1b[2J
on a CPU             12 µs      3     12 µs`+tree)
	assert.Check(t, marked == 9 && len(lines) == 24, "%d of %d", marked, len(lines))
	delete(s.transactions, transactionKey{Host: "h1", TraceID: traceOf(second), TransactionID: second})
	s.waits = s.waits[:1]
	for _, rows := range []int{24, 10, 8, 7, 6, 5, 4, 2} {
		lines, marked = v.draw(s, nil, 130, rows)
		assert.Check(t, len(lines) >= rows && marked < len(lines) &&
			(rows >= 8) == strings.Contains(strings.Join(lines, "\n"), "STATE OF THREADS"), "%d: %q", rows, lines)
	}
	lines, _ = v.draw(s, nil, 130, 24)
	assert.Check(t, strings.Contains(strings.Join(lines, "\n"), "b < B.b"), "%q", lines)
}

// With several agents, each row says of whose host it is.
func TestDrawHosts(t *testing.T) {
	s := example()
	other := &types.CorrelatorHost{Host: some("h2")}
	s.hosts[other.Key()] = other
	x := transaction(first, 2)
	x.Host = some("h2")
	s.transactions[x.Key()] = x
	v := view{tab: transactionTab}
	lines, _ := v.draw(s, errors.New("lost\x1b"), 80, 24)
	if lines[0] != `trying again: lost\x1b` || !strings.HasSuffix(lines[3], "  h2") || !strings.HasSuffix(lines[4], "  web-1") {
		t.Errorf("%q", lines)
	}
	v.tab = processTab
	lines, _ = v.draw(s, nil, 80, 24)
	want := "web-1: 1.50 of 4 CPUs in 3 processes, the agent 1.2%, 20 samples/s; h2"
	assert.Check(t, lines[0] == want, "%q, want %q", lines[0], want)
	assert.Check(t, strings.HasSuffix(lines[3], "  web-1"), "%q", lines)
}

func TestDrawNothing(t *testing.T) {
	for tab := range tabs {
		v := view{tab: tab}
		lines, marked := v.draw(&snapshot{}, nil, 80, 24)
		assert.Check(t, lines[0] == "no agent publishes to this broker" && marked == -1 && len(lines) == 24,
			"%q, %d", lines, marked)
		for _, key := range "\r\x1bjG" {
			v.press(terminal.Key(key))
		}
	}
}

// The chosen row is on the screen, whatever its size.
func TestDrawChosen(t *testing.T) {
	s := example()
	for i := range uint32(100) {
		p := process(1000+i, fmt.Sprint("service-", i), 0.125)
		s.processes[p.Key()] = p
	}
	var v view
	v.draw(s, nil, 80, 24)
	v.press(terminal.KeyEnd)
	v.press(terminal.KeyUp)
	for _, rows := range []int{24, 60, 5, 200, 6, 24} {
		lines, marked := v.draw(s, nil, 80, rows)
		if len(lines) != rows || !strings.Contains(lines[marked], "service-99 ") {
			t.Errorf("%d lines on %d, %q", len(lines), rows, lines[marked])
		}
	}
	for _, rows := range []int{4, 3, 2, 1} {
		_, marked := v.draw(s, nil, 80, rows)
		assert.Check(t, marked == -1, "row %d of %d is marked", marked, rows)
	}
}
