// Package mempoll reads words in the memory of many processes again and again, and reports those
// whose words have changed.
package mempoll

import (
	"sync"
	"sync/atomic"
	"time"

	"correlator/internal/process"
	"correlator/internal/timerfd"
	"correlator/memread"
)

const (
	// A candidate's words are read in intervals of about 1/128 of its age: the read that finds the
	// storage comes within 1 % of the time that the process took to publish it.
	pollFraction = 128

	// crowdInterval is what each candidate that is read often adds to the shortest interval. A read
	// takes 1 to 2 µs, so together they take 4 % of a CPU at most, however many there are.
	crowdInterval = 50 * time.Microsecond
	// crowded is the interval below which a candidate is one of them.
	crowded = 100 * time.Millisecond

	// pollTimeout is how long one read may take before another worker takes over, up to twice.
	pollTimeout = 50 * time.Millisecond
	// slowRead is what counts as hanging, too. Memory that was paged out to a slow disk takes
	// longer, but not again and again.
	slowRead = 20 * time.Millisecond
	// maxHangs is how often a process may make a worker hang within hangTime. Then its own
	// goroutine probes it for so long, once a second.
	maxHangs = 3
	hangTime = 10 * time.Minute
	// pollShare bounds what one process takes of the worker's time: the next read comes after so
	// many times what the last one took.
	pollShare = 50
	// maxAbandoned is how many reads may hang at the same time, each with a thread. When there are
	// more, all processes are probed by their own goroutines, until one returns.
	maxAbandoned = 256
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

// Poller reads words in the memory of many processes on one goroutine. A thousand timers of as many
// goroutines would take ten times as long.
//
// A process can block its reader for as long as it likes. Then the goroutine is abandoned to it,
// and another takes over.
type Poller struct {
	began    time.Time
	timer    *timerfd.Timer // fires when the next processes are due, or a shorter period has come into use
	watchdog *timerfd.Timer // fires when reads take too long
	hangs    *atomic.Uint64 // counts reads that took too long
	mu       sync.Mutex
	current  *worker // nil while too many hang
	reading  *Entry  // whose memory it is reading
	closed   bool
	periods  [len(pollPeriods)][]*Entry
	crowd    int // candidates that are read often

	reads     uint64 // of processes
	abandoned int    // reads that hang, or did and have not been noticed to be back
}

// A holdFunc reports whether words in the memory of a process hold what they did
// (process.Words.Hold).
type holdFunc func(*process.WordReader, *memread.Process) bool

// Entry is a process that a Poller reads; all fields but Active are the poller's.
type Entry struct {
	Active atomic.Bool // set by anybody: the process does something

	open    func() *memread.Process
	changed func() // must not block

	memory  *memread.Process
	hold    holdFunc
	since   time.Time // candidates: when they became one; else zero
	starts  uint64    // how often polling was started
	lastUse time.Time // attached ones: when it was last known to do something
	period  int       // index of pollPeriods, -1 when it is not polled
	place   int       // in its period
	crowded bool      // it is counted in crowd
	dropped bool

	took    time.Duration // the last read
	hangs   int           // the last one less than hangTime after the one before
	last    time.Time     // when it hung last
	hanging bool          // a read of it was abandoned, and has not returned
}

// countHang counts that a read took too long.
func (m *Poller) countHang(p *Entry) {
	m.hangs.Add(1)
	now := time.Now()
	if now.Sub(p.last) > hangTime {
		p.hangs = 0
	}
	p.hangs++
	p.last = now
}

// New starts a Poller that counts in hangs the reads that took too long. The caller must close it.
func New(hangs *atomic.Uint64) (*Poller, error) {
	m := &Poller{began: time.Now(), hangs: hangs}
	var err error
	if m.timer, err = timerfd.New(); err != nil {
		return nil, err
	}
	if m.watchdog, err = timerfd.New(); err != nil {
		m.timer.Close()
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.startWorker()
	go m.watch()
	return m, nil
}

// Close ends the goroutine. One that hangs is left behind.
func (m *Poller) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.watchdog.Stop()
	m.timer.Stop()
	if m.current == nil { // else the worker closes it
		m.timer.Close()
	}
}

// Add adds a process, which is not polled yet. open opens its memory; changed is called when words
// have changed. Every process must be dropped again.
func (m *Poller) Add(open func() *memread.Process, changed func()) *Entry {
	return &Entry{open: open, changed: changed, memory: open(), period: -1}
}

// Start has the words read until they change, which is reported once: of a candidate (since is when
// it became one) often at first, and seldom when it waits for long; of others as seldom as that. It
// returns false when the process, or many others, make workers hang: then its words must be read
// otherwise.
func (m *Poller) Start(p *Entry, hold holdFunc, since time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(p)
	now := time.Now()
	if now.Sub(p.last) >= hangTime {
		p.hangs = 0
	}
	if m.current == nil || p.hanging || p.hangs >= maxHangs {
		return false
	}
	if p.starts == 0 || !p.since.IsZero() { // else it was attached before
		p.lastUse = now
	}
	p.hold, p.since = hold, since
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

// Drop undoes Add.
func (m *Poller) Drop(p *Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(p)
	p.dropped = true
	if m.reading != p { // else it is closed when it was read
		p.memory.Close()
	}
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
	interval = max(interval, pollShare*p.took)
	p.period = 0
	for p.period < len(pollPeriods)-1 && pollPeriods[p.period+1] <= interval {
		p.period++
	}
	p.place = len(m.periods[p.period])
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
	list[p.place] = list[last]
	list[p.place].place = p.place
	list[last] = nil
	m.periods[p.period] = list[:last]
	p.period = -1
}
