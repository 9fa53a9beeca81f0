package live

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/client"
	"correlator/dots/value"
	"correlator/internal/lab/testenv"
	"correlator/internal/out/agent"
	"correlator/internal/out/live/types"
	"correlator/procscan"
	"correlator/profile"
)

const ms = time.Millisecond

// newAccount returns what the thread of a sample did until it was taken.
func newAccount(s *profile.Sample, times map[profile.ThreadState]time.Duration) *profile.Account {
	a := &profile.Account{Resource: s.Resource, TraceID: s.TraceID, TransactionID: s.TransactionID, TID: s.TID,
		Context: s.Context, First: s.At.Add(-time.Second), Last: s.At}
	for state, d := range times {
		a.Times[state] = profile.StateTimes{Sum: d, Longest: d, Count: 1}
	}
	return a
}

// newWait returns a wait of the thread of a sample.
func newWait(s *profile.Sample, state profile.ThreadState, d time.Duration, names ...string) *profile.Sample {
	w := *s
	w.Stack, w.Count = frames(names...), 1
	w.Wait = &profile.Wait{State: state, Sum: d, Longest: d}
	return &w
}

// waitsOf returns what is published of the waits of a transaction, in the order of its states.
func waitsOf(s *snapshot, transaction string) (lines []string) {
	for i := range s.waits {
		if x := &s.waits[i]; x.TransactionID.Value() == transaction {
			lines = append(lines, fmt.Sprintf("%s|%s|%s|%v|%d|%v|%s|%v", x.State.Value(), x.Place.Value(),
				x.Text.Value(),
				x.Time.Value().Duration(), x.Times.Value(), x.Longest.Value().Duration(), x.EndedBy.Value(),
				x.WholeTrace.Value()))
		}
	}
	return lines
}

// Of a transaction that somebody has chosen it is published what its threads did: states exactly, and places of those
// with stacks, as shares that are never more; nothing is kept of others, nor of any that was chosen before.
func TestWaitsOfTransaction(t *testing.T) {
	now := time.Now()
	p, c := newPublisher(newSource(0))
	l := &Live{tracker: p.tracker, names: nil}
	l.names = l.namer.NewConsumer(l.named)
	sample := func(tx byte) *profile.Sample { return newSample(1000, int(tx), tx, 1, now) }
	feed := func() {
		for tx := range byte(3) {
			s := sample(tx)
			l.Accounted(newAccount(s, map[profile.ThreadState]time.Duration{profile.OnCPU: 3 * ms,
				profile.Futex: 90 * ms,
				profile.Net:   40 * ms}))
			for _, w := range []*profile.Sample{newWait(s, profile.Futex, 100*ms, "java.util.Lock.lock",
				"Shop.reserve"),
				newWait(s, profile.Futex, 20*ms, "java.lang.Thread.sleep", "Shop.rest"),
				newWait(s, profile.Net, 30*ms, "Shop.ask"), newWait(s, profile.Disk, 30*ms, "Shop.log")} {
				if w.Wait.Waker.Kind = profile.TimerWaker; w.Wait.State == profile.Net {
					w.Wait.Peer, w.Wait.Waker = "10.0.0.7:5432", profile.Waker{Kind: profile.ThreadWaker, Thread: "w", TID: 7}
				}
				l.Waited(w)
			}
		}
	}
	feed()
	assert.Check(t, !l.TakesAccounts() && len(p.tracker.transactions) == 0, "something is kept that nobody wants")
	c.want, c.only = wantTransactions|wantWaits, "0000000000000001"
	p.publish(now)
	feed()
	assert.Check(t, l.TakesAccounts() && len(p.tracker.transactions) == 0, "nobody has chosen them")
	for tx := range byte(2) {
		l.Sampled(sample(tx + 1))
	}
	now = now.Add(time.Second)
	p.publish(now)
	assert.Check(t, c.last.waits == nil && len(c.last.transactions) == 2, "%+v", c.last)
	feed()
	p.publish(now.Add(time.Second))
	assert.DeepEqual(t, waitsOf(c.last, c.only), []string{
		"on_cpu||on a CPU|3ms|1|3ms||false",
		"futex||lock, queue or sleep (futex)|90ms|1|90ms||false",
		"futex|Lock.lock < Shop.reserve|Lock.lock < Shop.reserve|75ms|1|75ms|timer|false",
		"futex|sleep: Thread.sleep < Shop.rest|sleep: Thread.sleep < Shop.rest|15ms|1|15ms|timer|false",
		"net||network|40ms|1|40ms||false",
		"net|Shop.ask  10.0.0.7:5432|Shop.ask  10.0.0.7:5432|30ms|1|30ms|w|false",
		"net|[no stack]|[no stack]|10ms|0|0s||false",
	})
	assert.Check(t, len(c.last.waits) == 7 && c.last.stacks == nil, "%+v", c.last.waits)
	c.only = "0000000000000002"
	p.publish(now.Add(2 * time.Second))
	assert.Check(t, len(waitsOf(c.last, "0000000000000001")) == 0 && p.tracker.stacks.bytes.Used() == 0, "%+v", c.last)
	feed()
	c.want = 0
	p.publish(now.Add(time.Minute))
	assert.Check(t, !l.TakesAccounts())
	wantNoStacks(t, p.tracker)
}

// The context of OpenTelemetry does not tell the transaction: the account of the trace in the process is that of each.
func TestWaitsOfTrace(t *testing.T) {
	now := time.Now()
	p, c := newPublisher(newSource(0))
	c.want = wantWaits
	p.publish(now)
	s := newSample(1000, 1, 1, 1, now)
	s.Context = profile.OTelContext
	p.tracker.Sampled(s)
	p.publish(now.Add(time.Second))
	for _, change := range []func(*profile.Account){func(*profile.Account) {},
		func(a *profile.Account) { a.TraceID[0]++ },
		func(a *profile.Account) { a.Resource = &profile.Resource{PID: 1} },
		func(a *profile.Account) { a.TraceID = [16]byte{} }, func(a *profile.Account) { a.Resource = nil }} {
		a := newAccount(s, map[profile.ThreadState]time.Duration{profile.Net: 40 * ms})
		a.TransactionID = [8]byte{}
		change(a)
		p.tracker.Accounted(a)
	}
	p.publish(now.Add(2 * time.Second))
	assert.DeepEqual(t, waitsOf(c.last, "0000000000000001"), []string{"net||network|40ms|1|40ms||true"})
	assert.Check(t, len(p.tracker.transactions) == 1, "%v", p.tracker.transactions)
}

// A transaction can be chosen in which a thread only waits, though no sample of it was taken: it has the whole wait
// when that is over.
func TestWaitingTransactionIsChosen(t *testing.T) {
	now := time.Now()
	source := newSource(1)
	work := agent.ProcessWork{Process: procscan.ProcessID{PID: 1000}, ReadAt: now}
	for i := range byte(2) {
		work.Threads = append(work.Threads, agent.ThreadWork{TID: 7 + int(i), Known: true,
			TraceID: [16]byte{15: 1 + i}, TransactionID: [8]byte{7: 1 + i}})
	}
	source.work = []agent.ProcessWork{work}
	p, c := newPublisher(source)
	c.want = wantThreads | wantTransactions | wantStacks
	p.publish(now)
	p.publish(now.Add(time.Second))
	assert.Check(t, len(c.last.threads) == 2 && len(c.last.transactions) == 0, "%+v", c.last)
	c.want |= wantWaits
	p.publish(now.Add(2 * time.Second))
	p.publish(now.Add(3 * time.Second))
	assert.Check(t, len(c.last.transactions) == 2, "%+v", c.last)
	s := newSample(1000, 7, 1, 1, now.Add(3*time.Second))
	p.tracker.Accounted(newAccount(s, map[profile.ThreadState]time.Duration{profile.Futex: 3 * time.Second}))
	p.publish(now.Add(4 * time.Second))
	assert.DeepEqual(t, waitsOf(c.last, "0000000000000001"),
		[]string{"futex||lock, queue or sleep (futex)|3s|1|3s||false"})
	assert.Check(t, c.last.transactions[0].Service.Value() == "shop-0", "%+v", c.last.transactions)
	source.work = []agent.ProcessWork{{Process: work.Process, ReadAt: now.Add(time.Minute)}} // they have ended
	p.publish(now.Add(time.Minute))
	used := p.tracker.ofTransactions.Used()
	assert.Check(t, len(c.last.transactions) == 0 && used == 0, "%d of the room, %+v", used, c.last)
}

// However many others wait, and have run later: a chosen transaction keeps what was collected of it, and one can be
// chosen among them. Accounts of others take no room.
func TestChosenAmongMany(t *testing.T) {
	now := time.Now()
	source := newSource(1)
	work := agent.ProcessWork{Process: procscan.ProcessID{PID: 1000}}
	id := func(i int) [8]byte { return [8]byte{6: byte(i >> 8), 7: byte(i)} }
	const many = 300
	for i := range many {
		work.Threads = append(work.Threads, agent.ThreadWork{TID: i + 1, Known: true, TraceID: [16]byte{15: 1},
			TransactionID: id(i + 1)})
	}
	p, c := newPublisher(source)
	c.want, c.only = wantThreads|wantTransactions|wantStacks|wantWaits, "0000000000000001"
	account := func(i int) {
		s := newSample(1000, i, 1, 1, now)
		s.TransactionID = id(i)
		p.tracker.Accounted(newAccount(s, map[profile.ThreadState]time.Duration{profile.Futex: ms}))
	}
	tick := func() {
		now = now.Add(time.Second)
		work.ReadAt = now
		source.work = []agent.ProcessWork{work}
		p.publish(now)
	}
	tick()
	tick()
	account(1)
	var since time.Time
	for range 5 {
		tick()
		for i := range many {
			s := newSample(1000, i+2, 1, 1, now)
			s.TransactionID = id(i + 2)
			p.tracker.Sampled(s)
			account(i + 2)
		}
		tx := p.tracker.transactions[transactionID{[16]byte{15: 1}, id(1)}]
		assert.Assert(t, tx.did != nil && tx.did.states[profile.Futex].Count == 1, "%+v", tx)
		assert.Check(t, since.IsZero() || tx.stacksSince.Equal(since), "it was begun anew")
		since = tx.stacksSince
		assert.Check(t, len(p.tracker.stacks.collecting) == 1, "%d are collected", len(p.tracker.stacks.collecting))
	}
	c.only = "000000000000012c" // the last that waits
	tick()
	account(many)
	tick()
	assert.Check(t, len(waitsOf(c.last, c.only)) == 1 && len(p.tracker.transactions) == many+1, "%d transactions, %+v",
		len(p.tracker.transactions), c.last.waits)
	before := len(p.tracker.transactions)
	for i := range 1000 {
		account(1000 + i)
	}
	assert.Check(t, len(p.tracker.transactions) == before, "accounts that nobody looks at take room")
}

// A transaction of a thread that waits for which there is no room is counted.
func TestNoRoomForWaiting(t *testing.T) {
	tracker := NewTracker(20)
	tracker.Want(wantThreads | wantWaits)
	work := agent.ProcessWork{Process: procscan.ProcessID{PID: 1000}, ReadAt: time.Now(), Threads: []agent.ThreadWork{
		{TID: 7, Known: true, TraceID: [16]byte{15: 1}, TransactionID: [8]byte{7: 1}}}}
	assert.Check(t, tracker.ofTransactions.Take("another", maxTransactions/2))
	for tracker.ofTransactions.Take("", 1) {
	}
	tracker.Waiting([]agent.ProcessWork{work})
	tracker.tick(time.Now())
	assert.Check(t, tracker.lost().accounts == 1 && len(tracker.transactions) == 0, "%+v", tracker.lost())
}

// Whatever processes wait for, and whoever wakes them: what is kept has bounds, for a transaction and for an owner,
// and what is left out is counted. Texts can be published. A transaction of another owner gets nothing.
func TestHostileWaits(t *testing.T) {
	tracker := NewTracker(20)
	tracker.Want(wantWaits)
	bare, untraced := newSample(1000, 1, 1, 1, noon), newSample(1000, 1, 1, 1, noon)
	bare.Resource, untraced.TraceID = nil, [16]byte{}
	assert.Check(t, !tracker.Waited(bare) && !tracker.Waited(untraced), "of no process, or in no transaction")
	wait := func(owner string, transaction byte, place int) *profile.Sample {
		s := newSample(1000, 1, transaction, 1, noon)
		s.Resource.Owner = owner
		name := fmt.Sprint(place, strings.Repeat("\x1b\xff\u202e", 2000))
		w := newWait(s, profile.Net, ms, name)
		w.Wait.Waker = profile.Waker{Kind: profile.ThreadWaker, Thread: name, Service: name}
		return w
	}
	add := func(w *profile.Sample) {
		if tracker.Waited(w) {
			tracker.NamedWait(w, w.Stack.Frames)
		}
	}
	choose := func() {
		_, collecting := tracker.busiest()
		tracker.collect(collecting, noon)
	}
	sampled := func(owner string, transaction byte) {
		s := *wait(owner, transaction, 0)
		s.Wait = nil
		tracker.Sampled(&s)
	}
	account := newAccount(wait("a", 1, 0), map[profile.ThreadState]time.Duration{profile.Net: time.Second})
	sampled("a", 1)
	choose()
	tracker.Accounted(account)
	for place := range 2 * maxPlaces {
		add(wait("a", 1, place))
		add(wait("b", 1, place)) // which has it not
	}
	tx := tracker.transactions[transactionID{account.TraceID, account.TransactionID}]
	assert.Check(t, len(tx.did.places) == maxPlaces && tracker.lost().waits == maxPlaces &&
		tracker.stacks.bytes.Used() == maxPlaces*placeBytes, "%d places, %d lost", len(tx.did.places),
		tracker.lost().waits)
	o := testObjects
	_, collecting := tracker.busiest()
	objects := o.waitObjects(collecting)
	assert.Check(t, len(objects) == 1+maxShownPlaces+1, "%d objects", len(objects))
	for i := range objects {
		x := &objects[i]
		text := x.Place.Value() + x.Text.Value() + x.EndedBy.Value()
		assert.Check(t, strings.ToValidUTF8(text, "") == text && !strings.ContainsAny(text, "\x1b\n") &&
			len(text) <= 2*maxPlaceText+maxWakerText+len("……… (1.0 ms)"), "%q", text)
	}
	for transaction := byte(2); tracker.lost().waits == maxPlaces; transaction++ {
		sampled("a", transaction)
		choose()
		for place := range maxPlaces {
			add(wait("a", transaction, place))
		}
	}
	assert.Check(t, tracker.stacks.bytes.Used() <= maxStackBytes, "%d bytes", tracker.stacks.bytes.Used())
	other := newAccount(wait("b", 1, 0), map[profile.ThreadState]time.Duration{profile.Net: time.Second})
	tracker.Accounted(other)
	other.Context, other.TransactionID = profile.OTelContext, [8]byte{} // that of the trace
	tracker.Accounted(other)
	assert.Check(t, tx.did.states[profile.Net].Count == 1, "%+v", tx.did.states)
	tracker.Want(wantTransactions)
	wantNoStacks(t, tracker)
}

// While a guest has joined waits, accounts are taken; when it has gone, they are not any more.
func TestGuestTurnsWaitsOn(t *testing.T) {
	socket := newSocket(t)
	l := openLive(t, Config{Listen: []string{socket}})
	l.Start(newSource(1))
	c := dial(t, socket, "")
	threads, err := client.Subscribe(c, func(*client.Event[*types.CorrelatorThread]) {})
	assert.NilError(t, err)
	testenv.Poll(t, patience, "samples", l.TakesSamples)
	assert.Check(t, !l.TakesAccounts(), "accounts are taken for who wants threads")
	waits, err := client.Subscribe(c, func(*client.Event[*types.CorrelatorTransactionWait]) {})
	assert.NilError(t, err)
	testenv.Poll(t, patience, "accounts", l.TakesAccounts)
	testenv.Poll(t, patience, "a wait", func() bool {
		l.Sampled(newSample(1000, 7, 1, 1, time.Now()))
		l.Accounted(newAccount(newSample(1000, 7, 1, 1, time.Now()),
			map[profile.ThreadState]time.Duration{profile.Futex: time.Second}))
		return waits.Len() > 0
	})
	for key, x := range waits.All() {
		assert.Check(t, key.State == "futex" && key.Place == "" && x.Time.Value() >= value.DurationOf(time.Second), "%+v", x)
	}
	assert.NilError(t, waits.Close())
	testenv.Poll(t, patience, "the end of accounts", func() bool { return !l.TakesAccounts() })
	assert.NilError(t, threads.Close())
}
