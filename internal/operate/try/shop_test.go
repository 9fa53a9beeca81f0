package try

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/out/record"
	"correlator/profile"
)

// The shop serves its orders, and what it has measured is at least what it does in them. It ends with its input.
func TestShop(t *testing.T) {
	in, ask := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Shop(in, out) }()
	lines := bufio.NewReader(answers)
	line, err := lines.ReadString('\n')
	assert.NilError(t, err)
	assert.Check(t, line == "ready\n", line)
	_, err = io.WriteString(ask, "serve\n")
	assert.NilError(t, err)
	answer, err := lines.ReadBytes('\n')
	assert.NilError(t, err)
	var m Measured
	assert.NilError(t, json.Unmarshal(answer, &m))
	assert.Check(t, m.TID != 0 && len(m.Threads) == 4 && m.Orders >= 1 && m.Orders <= orders, "%+v", m)
	served := time.Duration(m.Orders)
	assert.Check(t, m.CPU >= served*(priceTime+packTime), "%+v", m)
	assert.Check(t, m.Nap >= served*retryTime*9/10 && m.Lock >= served*stockTime*9/10, "%+v", m)
	assert.NilError(t, ask.Close())
	assert.NilError(t, <-ended)
}

// Where orders take long, as the CPU is busy with others, fewer are served.
func TestTakesOrder(t *testing.T) {
	assert.Check(t, takesOrder(0, time.Hour) && takesOrder(orders-1, lastOrder))
	assert.Check(t, !takesOrder(1, lastOrder+1) && !takesOrder(orders, 0))
}

// That the start is interrupted is no failure of the shop.
func TestInterruptedStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, io.Discard, io.Discard, Options{Shop: []string{"/bin/sleep", "600"},
		File: filepath.Join(t.TempDir(), "shop.html")})
	assert.Check(t, err == context.Canceled, "%v", err)
}

// What is compared is of the thread that serves orders, and threads of Go's runtime are in nothing.
func TestCompare(t *testing.T) {
	account := func(tid int, state profile.ThreadState, sum time.Duration) record.ThreadAccount {
		a := record.ThreadAccount{TID: tid}
		a.Times[state].Sum = sum
		return a
	}
	r := &record.Recording{
		Accounts: []record.ThreadAccount{account(1, profile.Futex, time.Hour), account(2, profile.Futex, 3*time.Second),
			account(3, profile.Net, time.Second)},
		Samples: map[record.Key]uint64{{TID: 1}: 1, {TID: 2, TraceID: [16]byte{1}}: 1,
			{TID: 2, TraceID: [16]byte{2}}: 3, {TID: 2}: 9, {TID: 3, TraceID: [16]byte{3}}: 9},
		SamplesPerSecond: 20,
		Waits: map[record.WaitKey]profile.StateTimes{
			{Key: record.Key{TID: 1}}: {}, {Key: record.Key{TID: 3}}: {},
		},
	}
	keepThreads(r, []int{2, 3})
	assert.Check(t, len(r.Accounts) == 2 && len(r.Samples) == 4 && len(r.Waits) == 1, "%+v", r)
	lines := compare(r, &Measured{TID: 2, Lock: 2 * time.Second, Net: time.Millisecond})
	assert.DeepEqual(t, lines, []string{
		"CHECKOUT                 BY ITS OWN CLOCKS  BY THE CORRELATOR",
		"on a CPU                              0 µs               0 µs",
		"waiting for a CPU                     0 µs               0 µs",
		"lock                                2.00 s             3.00 s",
		"network                             1.0 ms               0 µs",
		"sleep                                 0 µs               0 µs",
		"CPU samples of 2 traces               0 µs           200.0 ms",
	})
}
