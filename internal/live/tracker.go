package live

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"correlator/profile"
)

const (
	// forget is after what time without a sample a thread or a transaction is no longer shown.
	forget = 10 * time.Second

	// maxProcesses, maxThreads and maxTransactions bound what is tracked: some 300 bytes each.
	maxProcesses    = 1 << 14
	maxThreads      = 1 << 14
	maxTransactions = 1 << 14

	// maxStacks bounds the stacks of a transaction, maxAllStacks those of all. A request has some
	// hundred; a batch job in one transaction may have any number. With its names, one takes some kB.
	maxStacks    = 2048
	maxAllStacks = 1 << 13
)

type threadID struct{ pid, tid int }

type transactionID struct {
	trace       [16]byte
	transaction [8]byte
}

type thread struct {
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
	pid     int
	service string
	context profile.ContextKind
	since   time.Time
	lastRun time.Time
	cpu     rate
	total   time.Duration
	threads map[threadID]struct{}
	stacks  map[profile.StackTraceID]*stackTime
	shown   bool // it is one of the busiest
}

type stackTime struct {
	resource *profile.Resource
	stack    *profile.Stack
	used     time.Duration
	names    stackNames // of the publisher's goroutine
}

// Tracker keeps what samples tell of processes, threads and transactions, while it is wanted. It is safe
// for concurrent use.
type Tracker struct {
	perSample time.Duration // the CPU time that one sample stands for
	wanted    atomic.Uint32 // a want

	mu           sync.Mutex
	processes    map[int]*rate // the CPU that is used in transactions, by pid
	threads      map[threadID]*thread
	transactions map[transactionID]*transaction
	stacks       int // of all transactions
	ticked       time.Time
	untracked    [numUntracked]uint64 // samples
	unshown      uint64               // readings of threads that wait that there was no room for
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
	t := &Tracker{processes: make(map[int]*rate), threads: make(map[threadID]*thread),
		transactions: make(map[transactionID]*transaction)}
	if samplesPerSecond > 0 {
		t.perSample = time.Second / time.Duration(samplesPerSecond)
	}
	return t
}

// Want sets what is wanted from now on, and forgets the rest.
func (t *Tracker) Want(w want) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w&wantStacks != 0 {
		w |= wantTransactions
	}
	w &= wantOfSamples
	if w == want(t.wanted.Load()) {
		return
	}
	t.wanted.Store(uint32(w))
	// New maps: those that were large once stay so.
	if w&wantProcesses == 0 {
		t.processes = make(map[int]*rate)
	}
	if w&wantThreads == 0 {
		t.threads = make(map[threadID]*thread)
	}
	if w&wantTransactions == 0 {
		t.transactions = make(map[transactionID]*transaction)
		t.stacks = 0
	}
	if w&wantStacks == 0 {
		for _, tx := range t.transactions {
			tx.stacks = nil
		}
		t.stacks = 0
	}
}

// Sampled takes account of samples, but for their stacks, and reports whether these are wanted, too.
// Nothing is done while nothing is wanted.
func (t *Tracker) Sampled(sample *profile.Sample) (stacks bool) {
	if t.wanted.Load() == 0 || sample.Resource == nil || !sample.HasTrace() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := want(t.wanted.Load())
	at := earlier(sample.At, time.Now()) // what is ahead of the clock would never be forgotten
	id := threadID{sample.Resource.PID, sample.TID}
	if w&wantProcesses != 0 {
		t.addProcess(sample)
	}
	if w&wantThreads != 0 && id.tid != 0 {
		t.addThread(id, sample, at)
	}
	if w&wantTransactions != 0 {
		t.addTransaction(id, sample, at)
	}
	return w&wantStacks != 0
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Named takes account of the stack of samples that Sampled knows, now that its frames have the names
// that they will have.
func (t *Tracker) Named(sample *profile.Sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tx := t.transactions[transactionID{sample.TraceID, sample.TransactionID}]
	if tx == nil || want(t.wanted.Load())&wantStacks == 0 {
		return // it is forgotten
	}
	t.addStack(tx, sample)
}

// used returns the CPU time that samples stand for.
func (t *Tracker) used(sample *profile.Sample) time.Duration {
	return t.perSample * time.Duration(min(sample.Count, math.MaxInt32))
}

func (t *Tracker) addProcess(sample *profile.Sample) {
	pid := sample.Resource.PID
	r := t.processes[pid]
	if r == nil {
		if len(t.processes) >= maxProcesses {
			t.untracked[untrackedProcess] += sample.Count
			return
		}
		r = &rate{}
		t.processes[pid] = r
	}
	r.used += t.used(sample)
}

func (t *Tracker) addThread(id threadID, sample *profile.Sample, at time.Time) {
	th := t.threads[id]
	if th == nil {
		if len(t.threads) >= maxThreads {
			t.untracked[untrackedThread] += sample.Count
			return
		}
		th = &thread{}
		t.threads[id] = th
	}
	if sample.Thread != "" {
		th.name = sample.Thread
	}
	th.cpu.used += t.used(sample)
	th.sampled(sample, at)
}

func (t *Tracker) addTransaction(id threadID, sample *profile.Sample, at time.Time) {
	key := transactionID{sample.TraceID, sample.TransactionID}
	tx := t.transactions[key]
	if tx == nil {
		if len(t.transactions) >= maxTransactions {
			t.untracked[untrackedTransaction] += sample.Count
			return
		}
		tx = &transaction{pid: id.pid, service: sample.Resource.Name, context: sample.Context, since: at,
			threads: make(map[threadID]struct{})}
		t.transactions[key] = tx
	}
	tx.cpu.used += t.used(sample)
	tx.total += t.used(sample)
	tx.since = earlier(tx.since, at)
	if at.After(tx.lastRun) {
		tx.lastRun = at
	}
	if len(tx.threads) < maxThreads {
		tx.threads[id] = struct{}{}
	}
}

func (t *Tracker) addStack(tx *transaction, sample *profile.Sample) {
	stack := sample.Stack
	if stack == nil || len(stack.Frames) == 0 {
		return // its time is the transaction's
	}
	s := tx.stacks[stack.ID]
	if s == nil {
		if len(tx.stacks) >= maxStacks || t.stacks >= maxAllStacks {
			t.untracked[untrackedStack] += sample.Count
			return
		}
		if tx.stacks == nil {
			tx.stacks = make(map[profile.StackTraceID]*stackTime)
		}
		s = &stackTime{resource: sample.Resource, stack: stack}
		tx.stacks[stack.ID] = s
		t.stacks++
	}
	s.used += t.used(sample)
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
	for pid, r := range t.processes {
		if r.tick(passed); r.average() < 0.0005 {
			delete(t.processes, pid)
		}
	}
	for id, th := range t.threads {
		if th.cpu.tick(passed); !th.waits && now.Sub(th.lastRun) > forget {
			delete(t.threads, id)
		}
	}
	for id, tx := range t.transactions {
		if tx.cpu.tick(passed); now.Sub(tx.lastRun) > forget {
			t.stacks -= len(tx.stacks)
			delete(t.transactions, id)
		}
	}
}

// snapshot ends an interval, and adds to a snapshot what is wanted and made of samples but for the names
// of stacks. It returns how much CPU processes use in transactions, and the stacks.
func (t *Tracker) snapshot(s *snapshot, o *objectsOf, w want, now time.Time) (
	traced map[int]float64, stacks map[profile.StackTraceID]*stackTime,
) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tick(now)
	traced = make(map[int]float64, len(t.processes))
	for pid, r := range t.processes {
		traced[pid] = r.average()
	}
	if w&wantThreads != 0 {
		s.threads = o.threads(t)
	}
	if w&(wantTransactions|wantStacks) == 0 {
		return traced, nil
	}
	shown := t.busiest()
	s.transactions = o.transactions(shown)
	if w&wantStacks != 0 {
		s.transactionStacks, stacks = o.shares(shown)
	}
	return traced, stacks
}
