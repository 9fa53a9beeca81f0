package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/dots/client"
	"correlator/dots/value"
	"correlator/internal/host/terminal"
	"correlator/internal/lab/testenv"
	"correlator/internal/operate/dotstool"
	"correlator/internal/out/live/types"
)

func TestViews(t *testing.T) {
	uri := endpoint(t)
	b := serve(t, uri)
	publishAll(t, b)
	w := open(t, uri, 100, 24)
	lines := w.shows("web-1: 1.50 of 4 CPUs in 3 processes, the agent 1.2%, 20 samples/s",
		"[1 Processes 3]  2 Threads 2   3 Transactions 2", `ca\x1b[2Jrt`, "registered")
	assert.Check(t, len(lines) == 24 && strings.HasPrefix(lines[3], "0.50    0.25   11  shop") &&
		strings.HasPrefix(lines[5], "0.00"),
		"%q", lines)

	// A process changes, and one goes.
	publish(t, b, &types.CorrelatorProcess{Host: some("h1"), Pid: value.Some[uint32](13), CPU: value.Some(2.25)})
	assert.NilError(t, b.Remove(process(11, "", 0)))
	lines = w.shows("[1 Processes 2]", "2.25")
	assert.Check(t, strings.HasPrefix(lines[3], "2.25"), "%q", lines)

	w.press("\x1b[B\r") // the second process is chosen
	lines = w.shows("[2 Threads of process 12: 1]", "http-102", second)
	assert.Check(t, !strings.Contains(strings.Join(lines, "\n"), "http-101"), "%q", lines)
	w.press("\x1b") // back
	w.shows("[1 Processes 2]", "2 Threads 2")
	w.press("\t")
	w.shows("[2 Threads 2]", "http-101", "http-102", "25.0%")
	w.press("\t")
	w.shows("[3 Transactions 2]", first, "2.5 s")
	w.press("\x1b[Z")
	w.shows("[2 Threads 2]")
	w.press("q")
	w.ends()
}

// Stacks are subscribed to while they are shown, those of one transaction, and grow.
func TestStacks(t *testing.T) {
	t.Parallel()
	uri := endpoint(t)
	b := serve(t, uri)
	publishAll(t, b)
	members := func(want int) {
		t.Helper()
		testenv.Poll(t, deadline, fmt.Sprintf("%d members", want), func() bool {
			return (b.Members("CorrelatorStack") > 0) == (want > 0) && b.Members("CorrelatorTransactionStack") == want
		})
	}
	w := open(t, uri, 100, 24)
	w.press("3")
	w.shows("[3 Transactions 2]")
	members(0)
	w.press("\r")
	sum := "4.0 s of CPU time in 2 stacks since " + stacksSince.Format(time.TimeOnly)
	lines := w.shows(sum+": shop, "+first, "report")
	want := []string{
		" SHARE   SELF  FRAME", "100.0%      -  main", " 75.0%      -  ├ handle", " 75.0%  75.0%  │ compute",
		" 25.0%  25.0%  └ report", "",
	}
	got := lines[2 : 2+len(want)]
	assert.Check(t, strings.Join(got, "\n") == strings.Join(want, "\n"), "%q, want %q", got, want)
	members(1)

	publish(t, b, stackOf(first, "s4", 4, "compress", "handle", "main")...)
	w.shows("8.0 s of CPU time in 3 stacks", " 87.5%      -  ├ handle", " 50.0%  50.0%  │ ├ compress")
	w.press("j\r") // folds what handle calls
	lines = w.shows("├ handle [+]")
	assert.Check(t, !strings.Contains(strings.Join(lines, "\n"), "compress"), "%q", lines)
	w.press("\r")
	w.shows("compress")

	// It ends: what is known of it stays.
	assert.NilError(t, b.Remove(transaction(first, 0)))
	for _, x := range stackOf(first, "s4", 4) {
		assert.NilError(t, b.Remove(x))
	}
	w.shows("it runs no more: 8.0 s of CPU time in 3 stacks", "compress")
	w.press("\x7f")
	w.shows("[3 Transactions 1]")
	members(0)
	w.press("2\r") // of the first thread
	w.shows("not among the busiest: 0 ms of CPU time in 0 stacks: "+first, "no stacks yet: ")
	w.press("\x1b")
	w.shows("[2 Threads 2]")
	w.press("j\r") // of the second one
	w.shows("1.0 s of CPU time in 1 stack since "+stacksSince.Format(time.TimeOnly)+": shop, "+second, "of another")
	members(1)
	w.press("\x03")
	w.ends()
	members(0)
}

var chosenFirst = &subject{transactionKey: transactionKey{Host: "h1", TraceID: traceOf(first), TransactionID: first}}

// A process that works on no transaction has a name, threads, and stacks, in a tree: by a key, or by a thread's row;
// they stay when it has ended. Of an agent that knows those of transactions alone, that is said.
func TestStacksOfProcess(t *testing.T) {
	uri := endpoint(t)
	b := serve(t, uri)
	one, all := process(21, "", 2), host()
	one.Service.Unset()
	one.Command, one.StacksSince = some("ca\x1b[2Jt"), value.Some(value.TimepointOf(stacksSince))
	one.StacksLost = value.Some(value.Duration(1.5))
	th := thread(21, 22, first)
	th.TraceID.Unset()
	th.TransactionID.Unset()
	all.AllProcesses = value.Some(true)
	publish(t, b, all, one, process(11, "shop", 0.5), th)
	for i, pid := range []uint32{21, 11} {
		publish(t, b, &types.CorrelatorStack{Host: some("h1"), ID: some(fmt.Sprint(pid)),
			Frames: value.Some([]string{"read", fmt.Sprint("main", i)})}, &types.CorrelatorProcessStack{Host: some("h1"),
			Pid: value.Some(pid), StackID: some(fmt.Sprint(pid)), CPUTime: value.Some(value.Duration(2))})
	}
	w := open(t, uri, 120, 24)
	w.shows("[1 Processes 2]", "  21  ca\\x1b[2Jt")
	w.press("s")
	w.shows("2.0 s of CPU time in 1 stack since "+stacksSince.Format(time.TimeOnly)+": ca\\x1b[2Jt, process 21, "+
		"1.5 s more without stacks", "main0\n100.0%")
	lines := w.lines()
	assert.Check(t, !strings.Contains(strings.Join(lines, "\n"), "main1"), "%q", lines)
	w.press("\x1b\r")
	w.shows("Threads of process 21: 1]", "  22  http-22")
	w.press("\r")
	w.shows("process 21", "main0")
	assert.NilError(t, b.Remove(one))
	w.shows("it has ended: 2.0 s of CPU time", ": ca\\x1b[2Jt, process 21", "main0")
	one.StacksSince.Unset()
	publish(t, b, one)
	w.shows("not counted: the hundred busiest that are wanted are: 2.0 s of CPU time")
	assert.NilError(t, b.Remove(one))
	w.shows("it has ended: ")
	all.AllProcesses = value.Some(false)
	publish(t, b, all)
	w.press("1s")
	w.shows("stacks are those of transactions there (--processes all): ", "process 11")
	w.press("q")
	w.ends()
	testenv.Poll(t, deadline, "no members", func() bool { return b.Members("CorrelatorProcessStack") == 0 })
}

// Only the names of the chosen transaction's stacks are sent, as they come; those that came long ago stay.
func TestStacksOfOneTransaction(t *testing.T) {
	uri := endpoint(t)
	broker := serve(t, uri)
	publishAll(t, broker)
	b, err := openBus(t.Context(), uri, "")
	assert.NilError(t, err)
	defer b.close()
	assert.NilError(t, b.choose(chosenFirst))
	for batch := range maxNames + 2 {
		id := fmt.Sprint("new-", batch)
		publish(t, broker, stackOf(first, id, 1, "in "+id, "main")...)
		testenv.Poll(t, deadline, "the frames of "+id, func() bool {
			assert.NilError(t, b.meet())
			return strings.Join(b.frames[id], " ") == "in "+id+" main"
		})
	}
	assert.Check(t, len(b.names) <= maxNames, "%d subscriptions to names", len(b.names))
	testenv.Poll(t, deadline, "the end of the older subscriptions at the broker", func() bool {
		return broker.Members("CorrelatorStack") <= maxNames
	})
	arrived := make(map[string]bool)
	for _, names := range b.names {
		for key := range names.All() {
			arrived[key.ID] = true
		}
	}
	assert.Check(t, !arrived["s3"], "names of another transaction's stack were sent")
	if got := strings.Join(b.frames["s1"], " "); got != "compute handle main" || len(b.frames) != 2+maxNames+2 {
		t.Errorf("s1: %q; %d stacks", got, len(b.frames))
	}
}

// Of a broker that knows no filters all stacks arrive.
func TestStacksUnfiltered(t *testing.T) {
	uri := endpoint(t)
	publishAll(t, serve(t, uri))
	b, err := openBus(t.Context(), uri, "")
	assert.NilError(t, err)
	defer b.close()
	b.chosen, b.all, b.frames = chosenFirst, true, make(map[string][]string)
	b.times, err = client.Subscribe[*types.CorrelatorTransactionStack](b.client, nil)
	assert.NilError(t, err)
	assert.NilError(t, b.subscribeNames(nil))
	for _, wait := range []func(context.Context) error{b.times.Wait, b.names[0].Wait} {
		assert.NilError(t, wait(t.Context()))
	}
	assert.NilError(t, b.meet())
	assert.Check(t, len(b.frames) == 2 && len(b.names) == 1, "frames %v, %d subscriptions", b.frames, len(b.names))
	var tree tree
	tree.update(b.stacks())
	assert.Check(t, b.times.Len() == 3 && tree.stacks == 2 && tree.root.total == 4*time.Second,
		"%d of %d stacks, %v", tree.stacks, b.times.Len(), tree.root.total)
}

// After the end of an agent the next one is shown, with the stacks that were.
func TestReconnect(t *testing.T) {
	t.Parallel()
	uri := endpoint(t)
	b := serve(t, uri)
	publishAll(t, b)
	w := open(t, uri, 100, 24)
	w.press("3\r")
	w.shows("4.0 s of CPU time in 2 stacks")
	shutdown(t, b)
	w.shows("trying again: ", "4.0 s of CPU time in 2 stacks")
	b = serve(t, uri)
	publishAll(t, b)
	publish(t, b, stackOf(first, "s5", 5, "later", "main")...)
	w.shows("web-1: 1.50", "9.0 s of CPU time in 3 stacks", "later")
	w.cancel()
	w.ends()
}

// Nothing wraps on a small screen, and more is shown on a larger one.
func TestSizes(t *testing.T) {
	uri := endpoint(t)
	b := serve(t, uri)
	publishAll(t, b)
	for pid := range uint32(100) {
		publish(t, b, process(1000+pid, "決済サービス", 0.125))
	}
	w := open(t, uri, 80, 24)
	for _, size := range []struct{ columns, rows int }{{80, 24}, {200, 60}, {40, 10}, {20, 5}, {9, 3}, {1, 1}} {
		winsize := unix.Winsize{Col: uint16(size.columns), Row: uint16(size.rows)}
		assert.NilError(t, unix.IoctlSetWinsize(int(w.master.Fd()), unix.TIOCSWINSZ, &winsize))
		for _, keys := range []string{"1", "1G", "2", "3", "3\r"} {
			w.press(keys)
			assert.NilError(t, unix.Kill(os.Getpid(), unix.SIGWINCH))
			var lines []string
			testenv.Poll(t, deadline, fmt.Sprint(size), func() bool {
				lines = w.lines()
				return len(lines) == size.rows
			})
			for _, line := range lines {
				assert.Check(t, terminal.Width(line) <= size.columns, "%v: %q", size, line)
			}
		}
	}
}

// Without a terminal everything is written, again and again.
func TestPlain(t *testing.T) {
	t.Parallel()
	uri := endpoint(t)
	publishAll(t, serve(t, uri))
	ctx, cancel := context.WithCancel(t.Context())
	out := &enough{writes: 2, cancel: cancel}
	watch := Watch{Guest: dotstool.Guest{Endpoint: uri}}
	assert.Check(t, watch.Table(ctx, strings.NewReader("q"), out))
	for _, text := range []string{"web-1: ", "Processes: 3\n", "Threads: 2\n", "Transactions: 2\n", first, "http-102"} {
		if strings.Count(out.String(), text) < 2 || strings.Contains(out.String(), "\x1b") {
			t.Errorf("no %q in\n%s", text, &out.Builder)
		}
	}
}

// enough cancels a context after some writes.
type enough struct {
	strings.Builder
	writes int
	cancel func()
}

func (e *enough) Write(text []byte) (int, error) {
	if e.writes--; e.writes == 0 {
		e.cancel()
	}
	return e.Builder.Write(text)
}

func TestNoBroker(t *testing.T) {
	watch := Watch{Guest: dotstool.Guest{Endpoint: endpoint(t)}}
	assert.Check(t, watch.Table(t.Context(), nil, &bytes.Buffer{}) != nil, "no error")
	assert.Check(t, watch.Table(testenv.Ended(), nil, &bytes.Buffer{}))
}

// Each change is a line of JSON.
func TestJSON(t *testing.T) {
	uri := endpoint(t)
	b := serve(t, uri)
	publishAll(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write, err := os.Pipe()
	assert.NilError(t, err)
	defer read.Close()
	defer write.Close()
	done := make(chan error, 1)
	watch := Watch{Guest: dotstool.Guest{Endpoint: uri}, Notes: &bytes.Buffer{}}
	go func() { done <- watch.JSON(ctx, write) }()
	lines := json.NewDecoder(read)
	seen := make(map[string]int)
	next := func() string {
		var line struct {
			Operation, Type string
			Instance        map[string]any
		}
		assert.NilError(t, lines.Decode(&line))
		seen[line.Operation+" "+line.Type]++
		return line.Operation + " " + line.Type
	}
	for range 14 {
		next()
	}
	want := map[string]int{
		"create CorrelatorHost": 1, "create CorrelatorProcess": 3, "create CorrelatorThread": 2,
		"create CorrelatorTransaction": 2, "create CorrelatorTransactionStack": 3, "create CorrelatorStack": 3,
	}
	assert.Check(t, fmt.Sprint(seen) == fmt.Sprint(want), "%v, want %v", seen, want)
	publish(t, b, transaction(first, 0.75))
	got := next()
	assert.Check(t, got == "update CorrelatorTransaction", got)
	assert.NilError(t, b.Remove(transaction(first, 0)))
	got = next()
	assert.Check(t, got == "remove CorrelatorTransaction", got)
	cancel()
	err = <-done
	assert.Check(t, err)
}
