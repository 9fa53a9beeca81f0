package live

import (
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/out/agent"
	"correlator/internal/out/bootclock"
	"correlator/internal/out/live/types"
	"correlator/procscan"
	"correlator/profile"
)

// noon is when the tests of the tracker begin. It has passed.
var noon = time.Now().Add(-time.Hour).Truncate(time.Second)

// testObjects has times as they are, however the machine's clock is adjusted meanwhile.
var testObjects = objectsOf{"h", bootclock.New(func() bpf.Instant {
	now := bpf.ReadInstant()
	now.Time = now.Time.Round(0)
	return now
})}

func testNamer(_ *profile.Resource, f profile.Frame) (name string, known bool) { return f.Name(), true }

// snapshotAt returns what a tracker knows at noon and some time, with the stacks of all transactions that
// may be.
func snapshotAt(t *Tracker, w want, after time.Duration) *snapshot {
	s := &snapshot{}
	now := noon.Add(after)
	_, shown, collecting := t.snapshot(s, &testObjects, w, now)
	if w&wantStacks != 0 {
		t.collect(collecting, now)
		t.nameStacks(testNamer)
	}
	t.addTransactions(s, &testObjects, w, shown, collecting)
	return s
}

func newTracker(w want) *Tracker {
	t := NewTracker(20)
	t.Want(w)
	snapshotAt(t, w, 0)
	return t
}

// A transaction has the first route that its samples tell, or else the first name of a span, a short one.
func TestNamesOfTransactions(t *testing.T) {
	tracker := newTracker(wantTransactions)
	long := strings.Repeat("é", maxNameBytes)
	for i, list := range [][]profile.Attribute{
		{{Key: "http.route", Value: "/orders"}, {Key: "span_name", Value: "GET"}},
		{{Key: "http.route", Value: "/other"}}, nil, {{Key: "span_name", Value: "handle"}},
		{{Key: "other", Value: "x"}}, {{Key: "http.route", Value: long}},
		{{Key: "span_name", Value: "GET"}}, {{Key: "http.route", Value: ""}}, {{Key: "span_name", Value: "POST"}},
		{{Key: "http.route", Value: "/late"}, {Key: "span_name", Value: "PUT"}}, {{Key: "http.route", Value: "/later"}},
		{{Key: "span_name", Value: "GET"}}, {{Key: "http.route", Value: ""}}, {{Key: "span_name", Value: "POST"}},
	} {
		s := newSample(1000, 1, []byte{1, 1, 2, 3, 4, 5, 6, 6, 6, 6, 6, 7, 7, 7}[i], 1, noon)
		s.Attributes = profile.NewAttributes(list)
		tracker.Sampled(s)
	}
	names := make(map[string]string)
	for _, x := range snapshotAt(tracker, wantTransactions, time.Second).transactions {
		names[strings.TrimLeft(x.TransactionID.Value(), "0")] = x.Name.Value()
	}
	assert.DeepEqual(t, names, map[string]string{"1": "/orders", "2": "", "3": "handle", "4": "",
		"5": strings.Repeat("é", maxNameBytes/2) + "…", "6": "/late", "7": "GET"})
}

func TestShares(t *testing.T) {
	const w = wantThreads | wantTransactions | wantProcesses
	tracker := newTracker(w)
	for second := range 10 {
		at := noon.Add(time.Duration(second) * time.Second)
		tracker.Sampled(newSample(1000, 1, 1, 20, at.Add(500*time.Millisecond))) // all the time
		tracker.Sampled(newSample(1000, 2, 1, 5, at.Add(600*time.Millisecond)))
		s := snapshotAt(tracker, w, time.Duration(second+1)*time.Second)
		assert.Assert(t, len(s.threads) == 2 && len(s.transactions) == 1,
			"%d threads, %d transactions", len(s.threads), len(s.transactions))
		for _, th := range s.threads {
			want := map[uint32]float64{1: 1, 2: 0.25}[th.Tid.Value()]
			if got := th.CPU.Value(); math.Abs(got-want) > 0.0011 { // from the first second on
				t.Errorf("second %d, thread %d: uses %v of a CPU, not %v", second, th.Tid.Value(), got, want)
			}
		}
		tx := s.transactions[0]
		if got := tx.CPU.Value(); math.Abs(got-1.25) > 0.0011 || tx.Threads.Value() != 2 {
			t.Errorf("transaction: %v CPUs, %d threads", got, tx.Threads.Value())
		}
		got, want := tx.CPUTime.Value().Duration(), time.Duration(second+1)*1250*time.Millisecond
		assert.Check(t, got == want, "CPU time %v, not %v", got, want)
	}
	traced, _, _ := tracker.snapshot(&snapshot{}, &testObjects, w, noon.Add(10*time.Second))
	got := traced[1000]
	assert.Check(t, math.Abs(got-1.25) <= 0.0011, "the process uses %v CPUs in transactions", got)
	s := snapshotAt(tracker, w, 14*time.Second) // twice the time constant later
	got = s.transactions[0].CPU.Value()
	assert.Check(t, got >= 0.05 && got <= 0.25, "after 4 s without samples: %v CPUs", got)
}

// A snapshot at once after another, as when a guest joins, does not make a sample a whole CPU.
func TestShortInterval(t *testing.T) {
	tracker := newTracker(wantThreads)
	tracker.Sampled(newSample(1000, 1, 1, 1, noon))
	if s := snapshotAt(tracker, wantThreads, time.Millisecond); len(s.threads) != 1 || s.threads[0].CPU.Value() != 0 {
		t.Errorf("%+v", s.threads)
	}
	if s := snapshotAt(tracker, wantThreads, time.Second); s.threads[0].CPU.Value() != 0.05 {
		t.Errorf("%v of a CPU", s.threads[0].CPU.Value())
	}
}

// A clock that is set back does not stop what is shown.
func TestClockSetBack(t *testing.T) {
	tracker := NewTracker(20)
	for _, at := range []time.Time{noon, noon.Add(-time.Hour)} {
		tracker.tick(at)
		assert.Check(t, tracker.ticked.Equal(at), "%v", tracker.ticked)
	}
}

func TestForgetting(t *testing.T) {
	const w = wantOfSamples
	tracker := newTracker(w)
	for tid := range 2 {
		sample := newSample(1000, tid+1, byte(tid+1), 1, noon.Add(time.Duration(tid)*5*time.Second))
		sample.Stack = frames("main")
		feedStack(tracker, sample)
	}
	for _, c := range []struct {
		after time.Duration
		left  int
	}{{9 * time.Second, 2}, {11 * time.Second, 1}, {16 * time.Second, 0}} {
		s := snapshotAt(tracker, w, c.after)
		assert.Check(t, len(s.threads) == c.left && len(s.transactions) == c.left &&
			len(s.transactionStacks) == c.left && len(s.stacks) == min(1, c.left),
			"after %v: %d threads, %d transactions, %d stacks; not %d", c.after, len(s.threads), len(s.transactions),
			len(s.transactionStacks), c.left)
	}
	for i := range 60 {
		snapshotAt(tracker, w, time.Duration(17+i)*time.Second)
	}
	assert.Check(t, len(tracker.processes) == 0, "the process is not forgotten")
	wantNoStacks(t, tracker)
}

// A clock that is ahead, as samples of other samplers may have, does not make what they are of stay.
func TestSampleAhead(t *testing.T) {
	tracker := newTracker(wantThreads)
	before := time.Now()
	tracker.Sampled(newSample(1000, 1, 1, 1, before.Add(24*time.Hour)))
	assert.Check(t, !snapshotAt(tracker, wantThreads, 0).threads[0].LastRun.Value().Time().After(time.Now()),
		"it has run in the future")
}

func TestLateSample(t *testing.T) {
	tracker := newTracker(wantThreads | wantTransactions)
	tracker.Sampled(newSample(1000, 1, 1, 1, noon.Add(1*time.Second)))
	tracker.Sampled(newSample(1000, 1, 2, 1, noon.Add(3*time.Second)))
	tracker.Sampled(newSample(1000, 1, 1, 1, noon.Add(2*time.Second)))
	s := snapshotAt(tracker, wantThreads|wantTransactions, 4*time.Second)
	th := s.threads[0]
	if th.TransactionID.Value() != "0000000000000002" || !th.Since.Value().Time().Equal(noon.Add(3*time.Second)) ||
		!th.LastRun.Value().Time().Equal(noon.Add(3*time.Second)) {
		t.Errorf("%+v", th)
	}
	for _, tx := range s.transactions {
		if tx.TransactionID.Value() == "0000000000000001" && (tx.CPUTime.Value().Duration() != 100*time.Millisecond ||
			!tx.Since.Value().Time().Equal(noon.Add(time.Second)) ||
			!tx.LastRun.Value().Time().Equal(noon.Add(2*time.Second))) {
			t.Errorf("%+v", tx)
		}
	}
}

func TestThreadProperties(t *testing.T) {
	tracker := newTracker(wantThreads)
	sample := newSample(1000, 7, 0xab, 1, noon)
	sample.Context, sample.Thread = profile.OTelContext, "evil\x1b[2J\xff"
	tracker.Sampled(sample)
	sample = newSample(1000, 7, 0xab, 1, noon.Add(time.Second))
	sample.Context, sample.Thread, sample.SpanID = profile.OTelContext, "", [8]byte{}
	tracker.Sampled(sample)
	x := snapshotAt(tracker, wantThreads, time.Second).threads[0]
	assert.Check(t, x.Host.Value() == "h" && x.Pid.Value() == 1000 && x.Name.Value() == "evil\ufffd[2J\ufffd" &&
		x.TraceID.Value() == "000000000000000000000000000000ab" && x.TransactionID.Value() == "00000000000000ab" &&
		x.Context.Value() == types.CorrelatorContextOpentelemetry && x.Since.Value().Time().Equal(noon),
		"%+v", x)
	_, ok := x.SpanID.Get()
	assert.Check(t, !ok, "it has a span still")
}

func TestBounds(t *testing.T) {
	const w = wantOfSamples
	tracker := newTracker(w)
	sample := func(pid, tid, transaction int) *profile.Sample {
		s := newSample(pid, tid, 1, 3, noon)
		s.TransactionID = [8]byte{1, byte(transaction >> 16), byte(transaction >> 8), byte(transaction)}
		return s
	}
	for i := range maxTransactions/2 + 1 { // one owner has half of what there is
		tracker.Sampled(sample(i+1, i+1, i))
	}
	want := [numUntracked]uint64{untrackedTransaction: 3,
		untrackedProcess: 3 * (maxTransactions/2 + 1 - maxProcesses/2),
		untrackedThread:  3 * (maxTransactions/2 + 1 - maxRunning/2)}
	got := tracker.lost().samples
	assert.Check(t, got == want, "untracked: %v, not %v", got, want)
	for tid := range 5 { // there is room for no more threads of it
		tracker.addTransaction(threadID{1, tid}, sample(1, tid, 0), noon, noon)
	}
	first := sample(1, 1, 0)
	n := len(tracker.transactions[transactionID{first.TraceID, first.TransactionID}].threads)
	assert.Check(t, n == 1, "%d threads of a transaction", n)
	tracker.Sampled(sample(1, 1, 0)) // what is known still counts
	if s := snapshotAt(tracker, w, time.Second); len(s.transactions) != maxShown || len(s.threads) != maxRunning/2 {
		t.Errorf("%d transactions, %d threads", len(s.transactions), len(s.threads))
	}
	tracker.Want(0)
	assert.Check(t, len(tracker.threads)+len(tracker.transactions)+len(tracker.processes) == 0 &&
		tracker.ofProcesses.Used()+tracker.ofRunning.Used()+tracker.ofTransactions.Used() == 0,
		"what is not wanted is kept")
	tracker.Sampled(sample(1, 1, 0))
	assert.Check(t, len(tracker.threads) == 0, "what is not wanted is taken")
}

// Whatever the processes of one owner do, those of another one are shown, and what has been forgotten
// counts no more.
func TestSharesOfOwners(t *testing.T) {
	const w = wantThreads | wantTransactions | wantProcesses
	tracker := newTracker(w)
	sampleOf := func(owner string, pid int, transaction int) *profile.Sample {
		s := newSample(pid, 1, 1, 1, noon)
		s.Resource.Owner = owner
		s.TransactionID = [8]byte{1, byte(transaction >> 16), byte(transaction >> 8), byte(transaction)}
		return s
	}
	var waiting []agent.ThreadWork
	for tid := range 2 * maxWaiting {
		waiting = append(waiting, works(tid+2, 1))
	}
	for pid := range 4 {
		tracker.Waiting([]agent.ProcessWork{{Process: procscan.ProcessID{PID: pid + 1}, Owner: "hostile",
			ReadAt: noon, Threads: waiting}})
	}
	for i := range maxTransactions {
		tracker.Sampled(sampleOf("hostile", i+1, i))
	}
	own, other := sampleOf("hostile", 1, 0), sampleOf("other", 1<<20, 1<<20)
	before := tracker.lost().samples
	tracker.Sampled(own)
	tracker.Sampled(other)
	tracker.Waiting([]agent.ProcessWork{{Process: procscan.ProcessID{PID: 1 << 20}, Owner: "other",
		ReadAt: noon.Add(-time.Second), Threads: waiting[:1]}})
	after := tracker.lost().samples
	assert.Check(t, after == before, "untracked: %v, then %v", before, after)
	threads := map[uint32]bool{}
	for _, x := range testObjects.threads(tracker) {
		if x.Pid.Value() == 1<<20 {
			threads[x.Tid.Value()] = true
		}
	}
	assert.Check(t, maps.Equal(threads, map[uint32]bool{1: true, 2: true}), "threads of another owner: %v", threads)
	// Who knows the ids of another's transaction has no part in it.
	other.Resource = sampleOf("hostile", 2, 1).Resource
	before = tracker.lost().samples
	tracker.Sampled(other)
	tx := tracker.transactions[transactionID{other.TraceID, other.TransactionID}]
	assert.Check(t, tx.total == 50*time.Millisecond && len(tx.threads) == 1, "%+v", tx)
	after = tracker.lost().samples
	assert.Check(t, after[untrackedTransaction] == before[untrackedTransaction]+1, "untracked: %v", after)
	tracker.Waiting([]agent.ProcessWork{{Process: procscan.ProcessID{PID: 1}, ReadAt: noon.Add(time.Second)},
		{Process: procscan.ProcessID{PID: 2}, ReadAt: noon.Add(time.Second)},
		{Process: procscan.ProcessID{PID: 1 << 20}, ReadAt: noon.Add(time.Second)}})
	for i := range 60 {
		snapshotAt(tracker, w, forget+time.Duration(i)*time.Second)
	}
	for _, b := range []*budget{tracker.ofProcesses, tracker.ofRunning, tracker.ofWaiting, tracker.ofTransactions} {
		assert.Check(t, b.Used() == 0, "%d of %d are held", b.Used(), b.Capacity())
	}
}

// A transaction that is shown stays so while others are hardly busier.
func TestBusiestStay(t *testing.T) {
	tracker := newTracker(wantTransactions)
	for i := range maxShown {
		tracker.Sampled(newSample(1000, i, byte(i+1), 20, noon))
	}
	snapshotAt(tracker, wantTransactions, time.Second)
	shown := func() map[string]bool {
		ids := make(map[string]bool)
		for _, tx := range snapshotAt(tracker, wantTransactions, time.Second).transactions {
			ids[tx.TransactionID.Value()] = true
		}
		return ids
	}
	add := func(id byte, cpu float64) {
		s := newSample(1000, int(id), id, 0, noon)
		tracker.Sampled(s)
		tracker.transactions[transactionID{s.TraceID, s.TransactionID}].cpu = rate{sum: cpu, weight: 1}
	}
	add(100, 1.1)
	assert.Check(t, !shown()["0000000000000064"], "one that is a little busier replaces another")
	add(101, 2)
	assert.Check(t, shown()["0000000000000065"], "one that is much busier does not replace another")
}

func TestCleanText(t *testing.T) {
	long := make([]byte, 2*maxText)
	for i := range long {
		long[i] = 0x80
	}
	for in, want := range map[string]string{
		"":                      "",
		"größe":                 "größe",
		"a\x00b\nc\u0085":       "a\ufffdb\ufffdc\ufffd",
		"\xff<b>":               "\ufffd<b>",
		string(long[:1]) + "日本": "\ufffd日本",
	} {
		got := clean(in)
		assert.Check(t, got == want, "%q: %q, not %q", in, got, want)
	}
	got := clean(string(long))
	assert.Check(t, len(got) <= 3*maxText+len("…"), "%d bytes", len(got))
	for shift := range 3 {
		in := "xx"[:shift] // starts at each offset of a rune
		for len(in) < 2*maxText {
			in += "日"
		}
		got := clean(in)
		if want := in[:maxText-(maxText-shift)%3] + "…"; got != want {
			t.Errorf("shift %d: ends in %q", shift, got[len(got)-9:])
		}
	}
}
