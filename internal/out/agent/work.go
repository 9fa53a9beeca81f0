package agent

import (
	"slices"
	"sync"
	"time"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/stacks/sampling"
	"correlator/internal/worker/access"
	"correlator/procscan"
	"correlator/profile"
)

// This file is what threads work on that do not run, and of which there are therefore no samples:
// while somebody wants to know, it is read from the processes' memory, of a few processes at a time.

const (
	// workShare is which part of a core reading may take, in the long run: 0.4 %. A process of some
	// threads takes 0.2 ms, so that is some 20 processes a second.
	workShare = 250

	// workCredit is how much of the time that was not used before may be used at once: that of a
	// second.
	workCredit = time.Second / workShare

	// othersShare is which part of that is for processes that are not known to work on anything, if they
	// need it: they may have begun to.
	othersShare = 2

	// restAge is when a process is read again that has not run since: what the agent knows of where its
	// threads publish may have become better.
	restAge = 5 * time.Minute

	// workPause is after what time without a call what was read is of no use.
	workPause = 5 * time.Second

	// firstCost is what reading a process is taken for until it has been read, or if it cannot be.
	firstCost = 200 * time.Microsecond
)

// ThreadWork is what a thread works on.
type ThreadWork struct {
	TID int
	// Known is false when that could not be read; then there is nothing else.
	Known bool
	Name  string // of the thread: any bytes

	Context               profile.ContextKind
	TraceID               [16]byte
	SpanID, TransactionID [8]byte // as in profile.Sample
}

// ProcessWork is what the threads of a process work on.
type ProcessWork struct {
	Process procscan.ProcessID
	Owner   string    // as in profile.Resource; empty without threads
	ReadAt  time.Time // when reading began
	Threads []ThreadWork
	// Partial: the process has more threads than were looked at. Else the threads that are not there
	// work on nothing.
	Partial bool
}

// workReader is what reads. Its methods are called with mu held, but for read.
type workReader struct {
	agent *Agent
	now   func() time.Time // by which the time that may be used is counted

	mu      sync.Mutex
	threads *bpf.Threads // nil: not opened yet
	closed  bool
	looked  []*registration // at the last call
	found   []ProcessWork
	credit  time.Duration
	asked   time.Time // when somebody wanted to know last
}

// workedOn is what is known of a process. It is a part of its registration, guarded by the workReader.
type workedOn struct {
	registration *registration

	ended    bool // nobody may call it any more
	attached bool // at the last look
	posted   bool // is to be read by its goroutine, or is being read
	active   bool // it had samples in transactions since it was read, or threads that worked on something then
	told     bool // of such threads
	readAt   time.Time
	knownAt  time.Time     // as readAt, of when that told what its threads work on
	used     time.Duration // CPU time of the process when reading began; -1: not known
	rests    bool          // it has used none since, so its threads work on what they did
	cost     time.Duration
	samples  uint64 // in transactions, so far
}

// Work returns what the threads of processes were found to work on since the last call, and has those
// processes read whose turn it is: of those that have run since they were read, those that were read
// longest ago, both of those known to work on something and of the others, as many as the time allows
// that passed since the last call. It waits for none of them. For a caller that wants to know it once a
// second; while nobody calls it, it costs nothing, and after a pause of some seconds it begins anew.
//
// Of a process that has ended, or was detached, it returns that no thread works on anything, if it had
// returned such threads. readAt is when each process was read last, also one of whose threads none works on anything:
// that is not returned each time. The error is a bpf.MissingError when threads cannot be found.
func (a *Agent) Work() (found []ProcessWork, readAt map[procscan.ProcessID]time.Time, err error) {
	w := &a.work
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, nil, nil
	}
	if err := w.open(); err != nil {
		return nil, nil, err
	}
	if w.earn(w.now()) {
		w.forget()
	}
	w.look()
	readAt = make(map[procscan.ProcessID]time.Time, len(w.looked))
	for _, r := range w.looked {
		if r.work.attached && !r.work.knownAt.IsZero() {
			readAt[r.process.Identity()] = r.work.knownAt
		}
	}
	active, others := w.choose()
	w.spend(active, others, func(p *workedOn) bool {
		r := p.registration
		return r.process.Post(func() { w.read(r) })
	})
	found, w.found = w.found, nil
	return found, readAt, nil
}

func (w *workReader) open() (err error) {
	if w.threads == nil {
		w.threads, err = bpf.OpenThreads()
	}
	return err
}

// close is called when no process is read any more.
func (w *workReader) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed = true; w.threads != nil {
		w.threads.Close()
	}
}

// earn adds the time that may be used since the last call. It reports whether that is so long ago that what
// was read then is of no use.
func (w *workReader) earn(now time.Time) (late bool) {
	passed := now.Sub(w.asked)
	if w.asked = now; passed > workPause || passed < 0 {
		w.credit = workCredit
		return true
	}
	w.credit = min(w.credit+passed/workShare, workCredit)
	return false
}

// forget forgets all but which processes are being read.
func (w *workReader) forget() {
	for _, r := range w.agent.registrations.All() {
		r.work = workedOn{registration: r, ended: r.work.ended, posted: r.work.posted, cost: firstCost}
	}
	w.found = nil
}

// look takes account of which processes there are, and which of them have samples.
func (w *workReader) look() {
	w.looked = w.looked[:0]
	for _, r := range w.agent.registrations.All() {
		p := &r.work
		if p.ended {
			continue
		}
		w.looked = append(w.looked, r)
		if p.look(); !p.attached && !p.posted {
			w.reportIdle(p)
		}
	}
}

// ended reports that a process has ended. When it returns, nothing is posted to it any more.
func (w *workReader) ended(r *registration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reportIdle(&r.work)
	r.work.ended = true
}

// reportIdle reports once that no thread of a process works on anything, after it was reported that some do.
func (w *workReader) reportIdle(p *workedOn) {
	if p.told {
		p.told = false
		w.found = append(w.found, ProcessWork{Process: p.registration.process.Identity(), ReadAt: time.Now()})
	}
}

// look takes account of the state of a process, and of whether it has run, and has samples.
func (p *workedOn) look() {
	r := p.registration
	if p.rests = time.Since(p.readAt) < restAge; p.rests {
		used, err := procscan.CPUTime(r.pid)
		p.rests = err == nil && used == p.used
	}
	state, _ := r.process.State()
	p.attached = state == process.StateRegistered || state == process.StateAttached && len(r.process.Contexts()) > 0
	if samples := r.sender.Stats().Added + r.exported.Load() - r.untraced.Load(); samples != p.samples {
		p.samples, p.active = samples, true
	}
}

// choose returns whose turn it may be, of those that have run: processes known to work on something, and
// others.
func (w *workReader) choose() (active, others []*workedOn) {
	for _, r := range w.looked {
		p := &r.work
		switch {
		case p.posted || !p.attached || p.rests:
		case p.active:
			active = append(active, p)
		default:
			others = append(others, p)
		}
	}
	return active, others
}

// spend posts the processes whose turn it is, as long as there is time for them.
func (w *workReader) spend(active, others []*workedOn, post func(*workedOn) bool) {
	for _, list := range [][]*workedOn{active, others} {
		slices.SortFunc(list, func(a, b *workedOn) int { return a.readAt.Compare(b.readAt) })
	}
	until := func(left time.Duration, list []*workedOn) {
		for _, p := range list {
			if w.credit <= left {
				return
			}
			if !p.posted && post(p) {
				p.posted = true
				w.credit -= p.cost
			}
		}
	}
	until(w.credit-w.credit/othersShare, others)
	until(0, active)
	until(0, others)
}

// read reads a process, on its goroutine.
func (w *workReader) read(r *registration) {
	began := time.Now()
	used, err := procscan.CPUTime(r.pid)
	if err != nil {
		used = -1
	}
	work, took, ok := r.readWork(w.threads)
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &r.work
	if p.ended {
		return
	}
	if !ok { // a worker that hangs uses next to no CPU time, and keeps the process's goroutine waiting
		took = max(took, firstCost)
	}
	w.credit += p.cost - took
	p.posted, p.readAt, p.used, p.cost = false, began, used, took
	if !ok || slices.ContainsFunc(work.Threads, func(t ThreadWork) bool { return !t.Known }) {
		p.used = -1
	}
	if !ok {
		return
	}
	work.ReadAt, p.knownAt = began, began
	p.active = len(work.Threads) > 0
	if p.active || p.told {
		w.found = append(w.found, work)
	}
	p.told = p.active
}

// readWork reads what the threads of the process work on, and how much CPU time that has taken. ok is
// false when that is not known: the process, or others of its user, made the worker wait.
func (r *registration) readWork(threads *bpf.Threads) (work ProcessWork, took time.Duration, ok bool) {
	work.Process = r.process.Identity()
	target := r.process.Target()
	work.Owner = string(target.Owner())
	if r.closed || target.Filtered() || !r.process.IsAttached() {
		return work, firstCost, true
	}
	stop := target.MeterCPU()
	defer func() { took = stop() }()
	_ = target.ResolveElastic() // without a rule, nothing is read
	keep := process.Keep{Unsampled: r.agent.config.Unsampled}
	read, more, err := r.contexts.ReadWork(target, threads, keep)
	if err != nil && !process.IsGone(err) {
		r.process.RecordError(err)
	}
	if access.TellsNothing(err) {
		return work, 0, false
	}
	for i := range read {
		if t, lives := r.threadWork(&read[i]); lives {
			work.Threads = append(work.Threads, t)
		}
	}
	work.Partial = more > 0
	return work, 0, true
}

// threadWork completes what a thread works on, if it lives.
func (r *registration) threadWork(read *process.Work) (t ThreadWork, lives bool) {
	target := r.process.Target()
	t = ThreadWork{TID: read.TID, Known: read.Known}
	if !t.Known {
		return t, target.HasThread(t.TID)
	}
	var err error
	if t.Name, err = target.Handle().ThreadName(t.TID); err != nil {
		return t, false
	}
	t.Context, t.TraceID, t.SpanID, t.TransactionID = read.Context, read.TraceID, read.SpanID, read.TransactionID
	if t.Context == profile.OTelContext {
		t.TransactionID = sampling.TransactionID(read.Attributes, target.Context().Keys, r.agent.config.Attributes)
	}
	return t, true
}
