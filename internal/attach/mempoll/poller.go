// Package mempoll reads words in the memory of many processes again and again, and reports those
// whose words have changed.
package mempoll

import (
	"sync"
	"sync/atomic"
	"time"

	"correlator/internal/attach/process"
	"correlator/internal/host/timerfd"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
)

const (
	// A candidate's words are read in intervals of about 1/128 of its age: the read that finds the
	// storage comes within 1 % of the time that the process took to publish it.
	pollFraction = 128

	// crowdInterval is what each candidate that is read often adds to the shortest interval. Read
	// together, one takes 1 to 2 µs, so all take 4 % of a CPU at most, however many there are.
	crowdInterval = 50 * time.Microsecond
	// crowded is the interval below which a candidate is one of them.
	crowded = 100 * time.Millisecond

	// readTimeout is how long reading the processes of one user may take, before each is read by
	// itself, and then how long one may take: more than a busy machine needs. Memory that was paged
	// out to a slow disk may take longer, but not again and again.
	readTimeout = 200 * time.Millisecond
	// maxHangs is how often a process may take longer within hangTime. Then its own goroutine
	// probes it for so long, once a second.
	maxHangs = 3
	// turnTime is how long the processes of others wait for those of one user: users are read one
	// after the other, as long as that is quick, so that one worker suffices.
	turnTime = 5 * time.Millisecond
	hangTime = 10 * time.Minute
)

// pollPeriods are the periods in which words are read. Those of one period are read together, and
// each period's moments are also those of the shorter ones: to wake up costs more than to read.
var pollPeriods = [...]time.Duration{
	1 * time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 10 * time.Second,
}

const (
	// candidatePeriod is the longest of a candidate, and that of an attached process until
	// activeTime after it was attached or sampled. One that does nothing has nothing new to publish
	// either: it is read in the longest of all.
	candidatePeriod = time.Second
	activeTime      = 10 * time.Second
)

// A reader reads memory; it is an *access.Client.
type reader interface {
	Read(user worker.User, timeout time.Duration, reads []access.MemoryRead) error
	IsSuspect(user worker.User) bool
}

// Poller reads words in the memory of many processes, those of one user that are due at a time
// together: a request for each would take ten times as long. Users whose processes make their
// reader wait do not hold up others.
type Poller struct {
	memory reader
	began  time.Time
	timer  *timerfd.Timer // fires when the next processes are due, or a shorter period has come into use
	hangs  *atomic.Uint64 // counts reads that took too long

	mu      sync.Mutex
	closed  bool
	periods [len(pollPeriods)][]*Entry
	crowd   int                      // candidates that are read often
	reading map[worker.User]struct{} // users whose processes are being read
	spare   []access.MemoryRead      // with buffers, for the next read

	reads uint64 // of processes
}

// watchedWords are what is read of a process; *process.Words are such.
type watchedWords interface {
	AppendReads(reads []access.MemoryRead, pid int) []access.MemoryRead
	Hold(reads []access.MemoryRead) bool
}

// Entry is a process that a Poller reads.
type Entry struct {
	pid     int
	user    worker.User
	active  *atomic.Bool
	changed func()

	words   watchedWords
	since   time.Time // candidates: when they became one; else zero
	starts  uint64    // how often polling was started
	lastUse time.Time // attached ones: when it was last known to do something
	period  int       // index of pollPeriods, -1 when it is not polled
	index   int       // in its period
	crowded bool      // it is counted in crowd

	hangs int       // the last one less than hangTime after the one before
	last  time.Time // when it hung last
}

// New starts a Poller that counts in hangs the reads that took too long. The caller must close it.
func New(memory *access.Client, hangs *atomic.Uint64) (*Poller, error) {
	return newPoller(memory, hangs)
}

func newPoller(memory reader, hangs *atomic.Uint64) (*Poller, error) {
	// So that what is read once a second is read when the sampler's timer fires, too.
	began := timerfd.LastTick(pollPeriods[len(pollPeriods)-1])
	m := &Poller{memory: memory, began: began, hangs: hangs, reading: make(map[worker.User]struct{})}
	var err error
	if m.timer, err = timerfd.New(); err != nil {
		return nil, err
	}
	go m.run()
	return m, nil
}

// Close ends polling. Reads that are under way end by themselves.
func (m *Poller) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.timer.Stop() // run closes it
}

// NewEntry returns the Entry of a process of a user, which is not polled yet. active is set by anybody when the
// process does something. changed is called when words have changed, and must not block.
func NewEntry(pid int, user worker.User, active *atomic.Bool, changed func()) *Entry {
	return &Entry{pid: pid, user: user, active: active, changed: changed, period: -1}
}

// Start has the words read until they change, which is reported once: of a candidate (since is when
// it became one) often at first, and seldom when it waits for long; of others as seldom as that. It
// returns false when the process has made its readers wait: then its words must be read otherwise.
func (m *Poller) Start(p *Entry, w *process.Words, since time.Time) bool { return m.start(p, w, since) }

func (m *Poller) start(p *Entry, w watchedWords, since time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(p)
	now := time.Now()
	if now.Sub(p.last) >= hangTime {
		p.hangs = 0
	}
	if p.hangs >= maxHangs {
		return false
	}
	if p.starts == 0 || !p.since.IsZero() { // else it was attached before
		p.lastUse = now
	}
	p.words, p.since = w, since
	p.starts++
	m.insert(p, now)
	if m.shortest() == p.period && len(m.periods[p.period]) == 1 {
		m.timer.Set(0)
	}
	return true
}

// Stop leaves a process alone. A change may still be reported.
func (m *Poller) Stop(p *Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(p)
}

// IsPolled reports whether a process's words are read.
func (m *Poller) IsPolled(p *Entry) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.period >= 0
}

// Len returns how many processes are polled.
func (m *Poller) Len() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.periods {
		n += len(m.periods[i])
	}
	return n
}

// shortest returns the shortest period in use, as an index, or the longest of all.
func (m *Poller) shortest() int {
	for i := range m.periods {
		if len(m.periods[i]) > 0 {
			return i
		}
	}
	return len(m.periods) - 1
}

// insert puts a process into the period that its age asks for.
func (m *Poller) insert(p *Entry, now time.Time) {
	interval := pollPeriods[len(pollPeriods)-1]
	switch {
	case !p.since.IsZero():
		interval = min(now.Sub(p.since)/pollFraction, candidatePeriod)
	case now.Sub(p.lastUse) < activeTime:
		interval = candidatePeriod
	}
	if p.crowded = interval < crowded; p.crowded {
		m.crowd++
		interval = max(interval, time.Duration(m.crowd)*crowdInterval)
	}
	p.period = 0
	for p.period < len(pollPeriods)-1 && pollPeriods[p.period+1] <= interval {
		p.period++
	}
	p.index = len(m.periods[p.period])
	m.periods[p.period] = append(m.periods[p.period], p)
}

func (m *Poller) remove(p *Entry) {
	if p.period < 0 {
		return
	}
	if p.crowded {
		m.crowd--
	}
	list := m.periods[p.period]
	last := len(list) - 1
	list[p.index] = list[last]
	list[p.index].index = p.index
	list[last] = nil
	m.periods[p.period] = list[:last]
	p.period = -1
}
