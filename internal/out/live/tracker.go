package live

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"correlator/internal/host/share"
	"correlator/profile"
)

const (
	// forget is after what time without a sample a thread or a transaction is no longer shown.
	forget = 10 * time.Second

	// Bounds of what is tracked: some 300 bytes each. Half of it is for one owner of processes, if there is
	// no other. Threads that run, and those that wait, have bounds of their own: none of the former, which
	// are few, is kept out by any number of the latter.
	maxProcesses    = 1 << 14
	maxRunning      = 1 << 13
	maxWaiting      = 1 << 13
	maxTransactions = 1 << 15 // also threads that have worked on one, but for its first
)

type threadID struct{ pid, tid int }

type transactionID struct {
	trace       [16]byte
	transaction [8]byte
}

// tracedProcess is the CPU time that is used in transactions.
type tracedProcess struct {
	owner string
	rate
}

type thread struct {
	owner       string
	counted     *budget // that it counts against
	name        string
	transaction transactionID
	span        [8]byte
	context     profile.ContextKind
	since       time.Time // in this transaction
	lastRun     time.Time // zero: it was not seen running
	cpu         rate
	reading     // of what it works on
}

type transaction struct {
	collection
	pid     int
	service string
	name    string // of what it does, as its threads publish it
	routed  bool   // the name is a route
	context profile.ContextKind
	since   time.Time
	lastRun time.Time
	cpu     rate
	total   time.Duration
	threads map[threadID]struct{}
	shown   bool      // it is one of the busiest
	waited  time.Time // the tick when a thread waited in it
	did     *activity // of its threads, since stacksSince; nil: it is not collected
}

// budget divides something among the owners of processes, users and containers.
type budget = share.Budget[string]

func newBudget(capacity int) *budget { return share.NewBudget[string](capacity) }

// Tracker keeps what samples tell of processes, threads and transactions, while it is wanted. It is safe
// for concurrent use.
type Tracker struct {
	perSample time.Duration // the CPU time that one sample stands for
	forget    time.Duration // see the constant
	wanted    atomic.Uint32 // a want
	untraced  bool          // what runs in no transaction is shown, too

	mu           sync.Mutex
	processes    map[int]*tracedProcess
	threads      map[threadID]*thread
	transactions map[transactionID]*transaction
	stacks       stacks
	ticked       time.Time
	untracked    [numUntracked]uint64 // samples
	unaccounted  uint64               // transactions in which a thread waits that there was no room for, at each tick
	unwaited     uint64               // waits that there was no room for
	unshown      uint64               // readings of threads that wait that there was no room for

	// Whose they are.
	ofProcesses, ofRunning, ofWaiting, ofTransactions *budget
}

// What there is no room for.
const (
	untrackedProcess = iota
	untrackedThread
	untrackedTransaction
	untrackedStack
	numUntracked
)

var untrackedNames = [numUntracked]string{
	untrackedProcess: "process", untrackedThread: "thread", untrackedTransaction: "transaction",
	untrackedStack: "stack",
}

// NewTracker returns a Tracker of samples that are taken with a frequency on every CPU.
func NewTracker(samplesPerSecond int) *Tracker {
	t := &Tracker{stacks: newStacks(), forget: forget}
	t.forgetProcesses()
	t.forgetThreads()
	t.forgetTransactions()
	if samplesPerSecond > 0 {
		t.perSample = time.Second / time.Duration(samplesPerSecond)
	}
	return t
}

// Want sets what is wanted from now on, and forgets the rest.
func (t *Tracker) Want(w want) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w&wantCollected != 0 {
		w |= wantTransactions
	}
	w &= wantOfSamples
	if w == want(t.wanted.Load()) {
		return
	}
	t.wanted.Store(uint32(w))
	if w&wantProcesses == 0 {
		t.forgetProcesses()
	}
	if w&wantThreads == 0 {
		t.forgetThreads()
	}
	if w&wantCollected == 0 {
		for id, tx := range t.stacks.collecting {
			t.stacks.forget(id, tx)
		}
	}
	if w&wantProfiles == 0 {
		for id, of := range t.stacks.profiles {
			t.stacks.forgetProfile(id, of)
		}
	}
	if w&(wantCollected|wantProfiles) == 0 {
		t.forgetStacks()
	}
	if w&wantTransactions == 0 {
		t.forgetTransactions()
	}
}

// What forgets all makes new maps: those that were large once stay so.

func (t *Tracker) forgetProcesses() {
	t.processes, t.ofProcesses = make(map[int]*tracedProcess), newBudget(maxProcesses)
}

func (t *Tracker) forgetThreads() {
	t.threads, t.ofRunning, t.ofWaiting = make(map[threadID]*thread), newBudget(maxRunning), newBudget(maxWaiting)
}

func (t *Tracker) forgetTransactions() {
	t.transactions, t.ofTransactions = make(map[transactionID]*transaction), newBudget(maxTransactions)
}

func (t *Tracker) forgetStacks() {
	version := t.stacks.version
	t.stacks = newStacks()
	t.stacks.version = version
}

// Sampled takes account of samples, but for their stacks, and reports whether these are wanted, too.
// Nothing is done while nothing is wanted.
func (t *Tracker) Sampled(sample *profile.Sample) (stacks bool) {
	traced := sample.HasTrace()
	if t.wanted.Load() == 0 || sample.Resource == nil || !traced && !t.untraced {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := want(t.wanted.Load())
	now := time.Now() // what is ahead of the clock would never be forgotten
	first, last := earlier(sample.At, now), earlier(later(sample.At, sample.Last), now)
	id := threadID{sample.Resource.PID, sample.TID}
	if w&wantProcesses != 0 && traced {
		t.addProcess(sample)
	}
	if w&wantThreads != 0 && id.tid != 0 {
		t.addThread(id, sample, last)
	}
	if w&wantTransactions != 0 && traced {
		stacks = t.addTransaction(id, sample, first, last)
	}
	return stacks || t.stacks.profile(sample) != nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Named takes account of the stack of samples that Sampled knows, now that its frames have the names
// that they will have.
func (t *Tracker) Named(sample *profile.Sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	room := true
	tx := t.transactions[transactionID{sample.TraceID, sample.TransactionID}]
	if tx != nil && tx.owner == sample.Resource.Owner { // else it is forgotten, or another's, or there is none
		room = t.addStack(&tx.collection, sample)
	}
	if p := t.stacks.profile(sample); p != nil {
		if len(p.stacks) == 0 {
			p.owner = sample.Resource.Owner
		}
		room = t.addStack(p, sample) && room
	}
	if !room { // once, though it lacks in both
		t.untracked[untrackedStack] += sample.Count
	}
}

// used returns the CPU time that samples stand for.
func (t *Tracker) used(sample *profile.Sample) time.Duration {
	return t.perSample * time.Duration(min(sample.Count, math.MaxInt32))
}

func (t *Tracker) addProcess(sample *profile.Sample) {
	pid, owner := sample.Resource.PID, sample.Resource.Owner
	p := t.processes[pid]
	if p == nil {
		if !t.ofProcesses.Take(owner, 1) {
			t.untracked[untrackedProcess] += sample.Count
			return
		}
		p = &tracedProcess{owner: owner}
		t.processes[pid] = p
	}
	p.used += t.used(sample)
}

func (t *Tracker) addThread(id threadID, sample *profile.Sample, at time.Time) {
	th := t.threads[id]
	if th == nil {
		th = &thread{owner: sample.Resource.Owner}
	}
	if !th.count(t.ofRunning) {
		t.untracked[untrackedThread] += sample.Count
		return
	}
	t.threads[id] = th
	if sample.Thread != "" {
		th.name = sample.Thread
	}
	th.cpu.used += t.used(sample)
	th.sampled(sample, at)
}

// count has a thread count against a budget, in place of another one, and reports whether that is possible.
func (th *thread) count(b *budget) bool {
	if th.counted == b {
		return true
	}
	if !b.Take(th.owner, 1) {
		return false
	}
	if th.counted != nil {
		th.counted.Give(th.owner, 1)
	}
	th.counted = b
	return true
}

func (t *Tracker) forgetThread(id threadID, th *thread) {
	th.counted.Give(th.owner, 1)
	delete(t.threads, id)
}

// addTransaction takes account of samples, and reports whether the transaction's stacks are collected.
func (t *Tracker) addTransaction(id threadID, sample *profile.Sample, first, last time.Time) (stacks bool) {
	tx := t.transaction(transactionID{sample.TraceID, sample.TransactionID}, sample.Resource, sample.Context, first)
	if tx == nil {
		t.untracked[untrackedTransaction] += sample.Count
		return false
	}
	if !tx.routed {
		name, route := nameOf(&sample.Attributes)
		if route || tx.name == "" {
			tx.name, tx.routed = strings.Clone(shorten(name, maxNameBytes)), route // not with all of the attributes
		}
	}
	tx.cpu.used += t.used(sample)
	tx.total += t.used(sample)
	t.ran(tx, id, first, last)
	return tx.stacks != nil
}

// nameOf returns a name for what a thread works on; empty: it publishes none. route: nothing names it better.
func nameOf(attributes *profile.Attributes) (name string, route bool) {
	for key, value := range attributes.All() {
		switch {
		case key == "http.route" && value != "":
			return value, true
		case key == "span_name":
			name = value
		}
	}
	return name, false
}

// transaction returns the one with an id, of a process; nil if there is no room for it, or it is another's, who has
// it in a process.
func (t *Tracker) transaction(id transactionID, of *profile.Resource, context profile.ContextKind, at time.Time,
) *transaction {
	tx := t.transactions[id]
	if tx == nil && t.ofTransactions.Take(of.Owner, 1) {
		tx = &transaction{collection: collection{owner: of.Owner}, pid: of.PID, context: context, since: at,
			threads: make(map[threadID]struct{})}
		t.transactions[id] = tx
	}
	if tx == nil || tx.owner != of.Owner {
		return nil
	}
	if tx.service == "" {
		tx.service = of.Name
	}
	return tx
}

// ran takes account of a thread that has run in a transaction.
func (t *Tracker) ran(tx *transaction, id threadID, first, last time.Time) {
	tx.since, tx.lastRun = earlier(tx.since, first), later(tx.lastRun, last)
	if _, known := tx.threads[id]; !known && (len(tx.threads) == 0 || t.ofTransactions.Take(tx.owner, 1)) {
		tx.threads[id] = struct{}{}
	}
}

// tick ends an interval: what was used in it enters the averages, and what has not run for long is
// forgotten. It is called with mu held.
func (t *Tracker) tick(now time.Time) {
	passed := now.Sub(t.ticked)
	if t.ticked.IsZero() || passed < 0 {
		passed = interval
	}
	if passed < interval/2 {
		return // a sample would count as many CPUs
	}
	t.ticked = now
	for pid, p := range t.processes {
		if p.tick(passed); p.average() < 0.0005 {
			t.ofProcesses.Give(p.owner, 1)
			delete(t.processes, pid)
		}
	}
	for id, th := range t.threads {
		if th.cpu.tick(passed); now.Sub(th.lastRun) > t.forget && (!th.waits || !th.count(t.ofWaiting)) {
			t.forgetThread(id, th)
		} else if th.waits {
			t.waits(id, th, now)
		}
	}
	for id, tx := range t.transactions {
		if tx.cpu.tick(passed); now.Sub(tx.lastRun) > t.forget && !tx.waited.Equal(now) {
			t.stacks.forget(id, tx)
			t.ofTransactions.Give(tx.owner, max(1, len(tx.threads)))
			delete(t.transactions, id)
		}
	}
}

// waits takes account of a thread that waits in its transaction, which has not run, perhaps, since somebody looks.
func (t *Tracker) waits(id threadID, th *thread, now time.Time) {
	tx := t.transactions[th.transaction]
	if tx == nil && want(t.wanted.Load())&wantWaits != 0 {
		tx = t.transaction(th.transaction, &profile.Resource{PID: id.pid, Owner: th.owner}, th.context, th.since)
		if tx == nil {
			t.unaccounted++
		}
	}
	if tx != nil && tx.owner == th.owner {
		tx.waited = now
	}
}

// snapshot ends an interval, and adds to a snapshot what is wanted and made of samples but for transactions.
// It returns how much CPU processes use in transactions, and the busiest of these.
func (t *Tracker) snapshot(s *snapshot, o *objectsOf, w want, now time.Time) (
	traced map[int]float64, shown, collecting []shownTransaction,
) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tick(now)
	traced = make(map[int]float64, len(t.processes))
	for pid, p := range t.processes {
		traced[pid] = p.average()
	}
	if w&wantThreads != 0 {
		s.threads = o.threads(t)
		s.waiting = make(map[int]float64)
		for id, th := range t.threads {
			if th.waits {
				s.waiting[id.pid] += max(0, 1-th.cpu.average())
			}
		}
	}
	if w&(wantTransactions|wantCollected) != 0 {
		shown, collecting = t.busiest()
	}
	return traced, shown, collecting
}

// addTransactions adds transactions to a snapshot, and the stacks of those of which they are collected.
func (t *Tracker) addTransactions(s *snapshot, o *objectsOf, w want, shown, collecting []shownTransaction) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.transactions = o.transactions(shown)
	if w&wantStacks != 0 {
		s.transactionStacks, s.stacks, s.stackVersions = o.stackObjects(collecting)
	}
	if w&wantWaits != 0 {
		s.waits = o.waitObjects(collecting)
	}
	if w&wantProfiles != 0 {
		o.profileObjects(s, t.stacks.profiles)
	}
}
