package live

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/dots/client"
	"correlator/dots/system"
	"correlator/dots/value"
	"correlator/internal/lab/testenv"
	"correlator/internal/out/agent"
	"correlator/internal/out/live/types"
	"correlator/procscan"
	"correlator/profile"
)

// feedStack feeds a sample of which the stack is collected.
func feedStack(t *Tracker, sample *profile.Sample) {
	none := *sample
	none.Count = 0
	t.Sampled(&none)
	_, collecting := t.busiest()
	t.collect(collecting, sample.At)
	if t.Sampled(sample) {
		t.Named(sample)
	}
}

// stackSample is a sample of one of many stacks, of frames whose names have a length.
func stackSample(owner string, transaction byte, stack, depth, nameBytes int) *profile.Sample {
	var all []profile.Frame
	for i := range depth {
		name := fmt.Sprintf("%d.%d.%s", stack, i, strings.Repeat("x", nameBytes))[:nameBytes]
		all = append(all, profile.NewJVMFrame(profile.NewFunction(name, ""), uint32(i+1)))
	}
	s := newSample(1000, 1, transaction, 1, noon)
	s.Resource.Owner = owner
	s.Stack = &profile.Stack{ID: profile.StackTraceID{transaction, byte(stack), byte(stack >> 8), byte(stack >> 16)},
		Frames: all}
	return s
}

// wantNoStacks checks that nothing is kept of stacks.
func wantNoStacks(t *testing.T, tracker *Tracker) {
	t.Helper()
	c := &tracker.stacks
	tracker.nameStacks(testNamer)
	if c.bytes.Used() != 0 || len(c.byKey)+len(c.byNames)+len(c.unnamed)+len(c.collecting)+len(c.profiles) != 0 {
		t.Errorf("%d bytes, %d stacks, %d by names, %d without, of %d transactions", c.bytes.Used(), len(c.byKey),
			len(c.byNames), len(c.unnamed), len(c.collecting))
	}
}

// Stacks are collected, named and published of those transactions that somebody has selected, from then on.
func TestStacksOnDemand(t *testing.T) {
	now := time.Now()
	p, c := newPublisher(newSource(0))
	asked := 0
	p.name = func(_ *profile.Resource, f profile.Frame) (string, bool) { asked++; return f.Name(), true }
	c.want, c.only = wantTransactions|wantStacks, "0000000000000002"
	feed := func() (taken int) {
		for tx := range byte(3) {
			s := newSample(1000, 1, tx+1, 1, now)
			s.Stack = frames(fmt.Sprint("in ", tx+1), "main")
			if p.tracker.Sampled(s) {
				taken++
			}
			p.tracker.Named(s)
		}
		return taken
	}
	p.publish(now)
	assert.Check(t, feed() == 0, "stacks are taken before anything is known of the transactions")
	p.publish(now.Add(time.Second))
	n := feed()
	assert.Check(t, n == 1, "stacks of %d transactions are taken", n)
	p.publish(now.Add(2 * time.Second))
	if len(c.last.stacks) != 1 || c.last.stacks[0].Frames.Value()[0] != "in 2" || asked != 2 ||
		len(c.last.transactionStacks) != 1 || c.last.transactionStacks[0].TransactionID.Value() != c.only {
		t.Errorf("%+v, %+v; asked for %d names", c.last.stacks, c.last.transactionStacks, asked)
	}
	for _, x := range c.last.transactions {
		if since, ok := x.StacksSince.Get(); ok != (x.TransactionID.Value() == c.only) ||
			ok && since != value.TimepointOf(now.Add(time.Second)) {
			t.Errorf("%s: stacks since %v", x.TransactionID.Value(), since.Time())
		}
	}
	c.only = "none"
	p.publish(now.Add(3 * time.Second))
	if feed() != 0 || len(c.last.stacks)+len(c.last.transactionStacks) != 0 || len(c.last.transactions) != 3 {
		t.Error("stacks that nobody selects are kept")
	}
	wantNoStacks(t, p.tracker)
}

// A filter of a guest of the embedded broker decides whose stacks are collected.
func TestFilterSelectsStacks(t *testing.T) {
	uri := newSocket(t)
	l := openLive(t, Config{Listen: []string{uri}})
	l.Start(newSource(0))
	c := dial(t, uri, "")
	const idTag = 3
	leaf := system.DotsPredicateLeaf{PropertyTag: value.Some[uint32](idTag), Op: value.Some(system.DotsCompareOpEq),
		Value: value.Some(system.DotsPredicateValue{StringValue: value.Some("0000000000000002")})}
	chosen, err := client.SubscribeFiltered[*types.CorrelatorTransactionStack](c, &system.DotsFilter{
		Predicate: value.Some(system.DotsPredicate{Nodes: value.Some([]system.DotsPredicateNode{
			{Kind: value.Some(system.DotsPredicateKindLeaf), Leaf: value.Some(leaf)}})})}, nil)
	assert.Assert(t, err == nil, err)
	names, err := client.Subscribe[*types.CorrelatorStack](c, nil)
	assert.Assert(t, err == nil, err)
	testenv.Poll(t, patience, "the stack of the transaction", func() bool {
		for tx := range byte(3) {
			s := newSample(1000, 1, tx+1, 1, time.Now())
			s.Stack = frames(fmt.Sprint("in ", tx+1))
			l.Sampled(s)
		}
		return names.Len() > 0 && chosen.Len() > 0
	})
	for _, x := range names.All() {
		got := strings.Join(x.Frames.Value(), " ")
		assert.Check(t, got == "in 2", "stack %q of another transaction", got)
	}
}

// A transaction whose stacks are collected is followed when it is no longer among the busiest.
func TestStacksOfTransactionThatIsNoLongerShown(t *testing.T) {
	tracker := newTracker(wantStacks)
	s := stackSample("", 1, 1, 2, 10)
	feedStack(tracker, s)
	for tx := range byte(maxShown) {
		tracker.Sampled(newSample(1000, 1, tx+100, 10, noon))
	}
	snapshotAt(tracker, wantStacks, time.Second)
	got := snapshotAt(tracker, wantStacks, 2*time.Second)
	for _, x := range got.transactions {
		assert.Assert(t, x.TransactionID.Value() != "0000000000000001", "it is shown")
	}
	assert.Check(t, len(got.transactionStacks) == 1 && len(got.stacks) == 1,
		"%d times, %d stacks", len(got.transactionStacks), len(got.stacks))
}

// A name that comes later is published; what will not come is not asked for forever.
func TestNamesThatComeLater(t *testing.T) {
	asked, known := 0, false
	name := func(_ *profile.Resource, f profile.Frame) (string, bool) {
		asked++
		if known {
			return f.Name(), true
		}
		return "libc.so+0x10", false
	}
	var tracker *Tracker
	next := func() []string {
		tracker.nameStacks(name)
		return snapshotAt(tracker, wantStacks, 0).stacks[0].Frames.Value()
	}
	start := func() {
		tracker = newTracker(wantStacks)
		sample := newSample(1000, 1, 1, 1, noon)
		sample.Stack = frames("memcpy\x00")
		feedStack(tracker, sample)
	}
	start()
	tracker.nameStacks(name)
	_, stacks, _ := testObjects.stackObjects(tracker.collected())
	assert.Check(t, stacks[0].Frames.Value()[0] == "libc.so+0x10", "%+v", stacks)
	known = true
	assert.Check(t, next()[0] == "memcpy\ufffd", "the name is not published")
	before := asked
	next()
	assert.Check(t, asked == before, "names that are known are asked for")
	start()
	known, asked = false, 0
	for range 2 * maxTries {
		tracker.nameStacks(name)
	}
	assert.Check(t, asked == maxTries, "asked %d times", asked)
}

// collected returns the transactions whose stacks are collected.
func (t *Tracker) collected() (all []shownTransaction) {
	for id, tx := range t.stacks.collecting {
		all = append(all, shownTransaction{id, tx})
	}
	return all
}

// Stacks of one process whose frames have the same names are one.
func TestStacksWithTheSameNames(t *testing.T) {
	tracker := newTracker(wantStacks)
	for round := range 3 {
		for i := range 10 {
			for tx := range byte(2) {
				s := newSample(1000, 1, tx+1, 1, noon)
				s.Stack = frames("leaf", "main")
				s.Stack.ID = profile.StackTraceID{byte(i)}
				feedStack(tracker, s)
			}
		}
		got := snapshotAt(tracker, wantStacks, 0)
		assert.Assert(t, len(got.stacks) == 1 && len(got.transactionStacks) == 2 && len(tracker.stacks.byKey) == 10,
			"%d stacks, %d times", len(got.stacks), len(got.transactionStacks))
		for _, x := range got.transactionStacks {
			want := time.Duration(round+1) * 10 * 50 * time.Millisecond
			assert.Check(t, x.CPUTime.Value().Duration() == want && x.StackID.Value() == got.stacks[0].ID.Value(),
				"%+v, not %v", x, want)
		}
	}
	snapshotAt(tracker, wantStacks, 2*forget)
	wantNoStacks(t, tracker)
}

// Whatever the files of a process call the frames of a stack, in another process they have the names that
// its own files say.
func TestNamesOfAnotherProcess(t *testing.T) {
	tracker := newTracker(wantStacks)
	for tx := range byte(2) {
		s := stackSample("", tx+1, 0, 1, 10)
		s.Resource.PID += int(tx)
		s.Stack.ID = profile.StackTraceID{1}
		feedStack(tracker, s)
	}
	s := &snapshot{}
	now := noon.Add(time.Second)
	_, shown, collecting := tracker.snapshot(s, &testObjects, wantStacks, now)
	tracker.nameStacks(func(r *profile.Resource, _ profile.Frame) (string, bool) {
		return fmt.Sprint("of ", r.PID), true
	})
	tracker.addTransactions(s, &testObjects, wantStacks, shown, collecting)
	names := map[string]string{}
	for _, x := range s.stacks {
		names[x.ID.Value()] = x.Frames.Value()[0]
	}
	for _, x := range s.transactionStacks {
		want := map[string]string{"0000000000000001": "of 1000", "0000000000000002": "of 1001"}[x.TransactionID.Value()]
		if got := names[x.StackID.Value()]; got != want {
			t.Errorf("transaction %s: %q, not %q", x.TransactionID.Value(), got, want)
		}
	}
}

// fillStacks feeds many stacks of one owner and one of another, as a broker for guests takes them, and
// returns what is published then. Nothing is refused.
func fillStacks(t *testing.T, tracker *Tracker, out *output, count, depth, nameBytes int) *snapshot {
	t.Helper()
	sync := func(after time.Duration) *snapshot {
		s := snapshotAt(tracker, wantOfSamples, after)
		refused, err := out.sync(s, wantOfSamples)
		assert.Check(t, refused <= 0, "%d refused: %v", refused, err)
		return s
	}
	for i := range count {
		feedStack(tracker, stackSample("hostile", 1, i, depth, nameBytes))
		if i%(count/10) == 0 {
			sync(0)
		}
	}
	feedStack(tracker, stackSample("other", 2, 0, depth, nameBytes))
	return sync(time.Second)
}

// What stacks take is bounded, whatever they are like; what is lost is told; and the other objects and the
// stacks of others' processes have room still, here and on the bus. What is counted is what the heap has:
// see TestSoakStacksMemory.
func TestStacksBound(t *testing.T) {
	for _, c := range []struct{ count, depth, nameBytes int }{{1000, 80, 60}, {300, 250, 500}} {
		tracker := newTracker(wantOfSamples)
		out := &output{bus: embedded{broker.New(broker.Options{
			Limits: broker.Limits{Frame: maxFrameBytes, Cache: maxCacheBytes}})}}
		s := fillStacks(t, tracker, out, c.count, c.depth, c.nameBytes)
		used, least := tracker.stacks.bytes.Used(), 0 // names are here, and encoded in the cache
		for _, x := range s.stacks {
			for _, name := range x.Frames.Value() {
				least += int(unsafe.Sizeof(name)) + 2*len(name)
			}
		}
		assert.Check(t, least > maxStackBytes/8 && used >= max(least, maxStackBytes/4) && used <= maxStackBytes,
			"%d bytes are counted of %d stacks, which have %d", used, len(s.stacks), least)
		for _, x := range s.transactions {
			var all time.Duration
			for _, share := range s.transactionStacks {
				if share.TransactionID == x.TransactionID {
					all += share.CPUTime.Value().Duration()
				}
			}
			lost := x.StacksLost.Value().Duration()
			hostile := x.TransactionID.Value() == "0000000000000001"
			if all+lost != x.CPUTime.Value().Duration() || (lost > 0) != hostile {
				t.Errorf("transaction %s: %v in stacks, %v lost of %v", x.TransactionID.Value(), all, lost,
					x.CPUTime.Value().Duration())
			}
		}
		s.threads = make([]types.CorrelatorThread, maxRunning+maxWaiting)
		for i := range s.threads {
			s.threads[i] = newThread(uint32(i), strings.Repeat("n", 15), 0)
			s.threads[i].TraceID = text(strings.Repeat("0", 32))
			s.threads[i].TransactionID = text(strings.Repeat("0", 16))
		}
		refused, err := out.sync(s, wantOfSamples)
		assert.Check(t, refused <= 0, "%d threads refused: %v", refused, err)
	}
}

// The stack of a sample whose name came late is not added to the transaction of another owner who uses the
// same ids, nor is that of one whose transaction has ended.
func TestStacksOfAnotherOwner(t *testing.T) {
	tracker := newTracker(wantStacks)
	own := stackSample("", 1, 0, 2, 10)
	feedStack(tracker, own)
	other, ended := stackSample("other", 1, 1, 2, 10), stackSample("", 2, 2, 2, 10)
	assert.Check(t, !tracker.Sampled(other), "the stack of another owner is wanted")
	tracker.Named(other)
	tracker.Named(ended)
	got := snapshotAt(tracker, wantStacks, time.Second)
	if len(got.transactionStacks) != 1 || len(got.stacks) != 1 || len(tracker.stacks.byKey) != 1 ||
		got.transactionStacks[0].CPUTime.Value().Duration() != 50*time.Millisecond {
		t.Errorf("%+v of %+v", got.transactionStacks, got.stacks)
	}
}

// Names that there is no room for are cut, the longest ones first.
func TestCutNames(t *testing.T) {
	names := []string{"short", strings.Repeat("日", 100), strings.Repeat("b", 50)}
	cut(names, 120)
	assert.Check(t, names[0] == "short" && names[2] == strings.Repeat("b", 50) && len(names[1]) <= 65 &&
		strings.HasSuffix(names[1], "日…"),
		"%q", names)
	before := slices.Clone(names)
	cut(names, 1000)
	assert.Check(t, slices.Equal(names, before), "names are cut without need")
}

// A transaction is there while a thread waits in it, and what is known of it stays.
func TestTransactionWithThreadThatWaits(t *testing.T) {
	const w = wantThreads | wantTransactions | wantStacks
	tracker := newTracker(w)
	s := stackSample("", 1, 0, 2, 10)
	feedStack(tracker, s)
	waits := func(second int, threads ...agent.ThreadWork) *snapshot {
		tracker.Waiting([]agent.ProcessWork{{Process: procscan.ProcessID{PID: 1000},
			ReadAt: noon.Add(time.Duration(second) * time.Second), Threads: threads}})
		return snapshotAt(tracker, w, time.Duration(second)*time.Second)
	}
	work := agent.ThreadWork{TID: 1, Known: true, TraceID: s.TraceID, TransactionID: s.TransactionID}
	for second := 1; second < 60; second++ {
		got := waits(second, work)
		if len(got.transactions) != 1 || !got.transactions[0].Since.Value().Time().Equal(noon) ||
			got.transactions[0].CPUTime.Value().Duration() != 50*time.Millisecond || len(got.transactionStacks) != 1 {
			t.Fatalf("second %d: %+v", second, got.transactions)
		}
	}
	got := waits(60)
	assert.Check(t, len(got.transactions) == 0, "when it waits no more: %+v", got.transactions)
	wantNoStacks(t, tracker)
}
