package agent

import (
	"sync"
	"sync/atomic"
	"time"

	"correlator/internal/process"
	"correlator/memread"
)

const (
	// A candidate's words are looked at in intervals of about 1/128 of its age: the look that finds the
	// storage comes within 1 % of the time that the process took to publish it.
	pollFraction = 128

	// crowdInterval is what each candidate that is looked at often adds to the shortest interval. A look
	// takes 1 to 2 µs, so together they take 4 % of a CPU at most, however many there are.
	crowdInterval = 50 * time.Microsecond
	// crowded is the interval below which a candidate is one of them.
	crowded = 100 * time.Millisecond

	// lookoutHang is how long one look may take before another goroutine takes over, up to twice.
	lookoutHang = 50 * time.Millisecond
	// lookoutSlow is what counts as hanging, too. Memory that was paged out to a slow disk takes longer, but
	// not again and again.
	lookoutSlow = 20 * time.Millisecond
	// maxHangs is how often a process may make the lookout hang within hangTime. Then its own goroutine
	// looks at it for so long, once a second.
	maxHangs = 3
	hangTime = 10 * time.Minute
	// lookoutShare bounds what one process takes of the lookout's time: the next look comes after so many
	// times what the last one took.
	lookoutShare = 50
	// maxAbandoned is how many looks may hang at the same time, each with a thread. When there are more, all
	// processes are looked at by their own goroutines, until one returns.
	maxAbandoned = 256
)

// pollPeriods are the periods in which words are looked at. Those of one period are looked at together,
// and each period's moments are also those of the shorter ones: to wake up costs more than to look.
var pollPeriods = [...]time.Duration{
	1 * time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 10 * time.Second,
}

const (
	// candidatePeriod is the longest of a candidate, and that of a registered process until activeTime
	// after it was registered or sampled. One that does nothing has nothing new to publish either: it is
	// looked at in the longest of all.
	candidatePeriod = time.Second
	activeTime      = 10 * time.Second
)

// lookout looks, on one goroutine, at words in the memory of many processes, and tells those of which
// they have changed. A thousand timers of as many goroutines would take ten times as long.
//
// A process can make its reader wait for as long as it likes. Then the goroutine is left to it, and
// another takes over.
type lookout struct {
	began   time.Time
	wake    chan struct{}  // has a token when a shorter period has come into use
	hangs   *atomic.Uint64 // counts looks that took too long
	mu      sync.Mutex
	shift   *shift   // on duty; nil while too many hang
	at      *watched // whose memory it is reading
	closed  bool
	periods [len(pollPeriods)][]*watched
	young   int // candidates that are looked at often

	looks     uint64 // at processes
	abandoned int    // looks that hang, or did and have not been noticed to be back
}

// holding says whether words in the memory of a process hold what they did (process.Words.Hold).
type holding func(*process.WordReader, *memread.Process) bool

// watched is a process on the lookout, which owns its fields.
type watched struct {
	sampled atomic.Bool // set by anybody: the process does something

	open    func() *memread.Process
	changed func() // must not block

	memory  *memread.Process
	hold    holding
	since   time.Time // candidates: when they became one; else zero
	watches uint64    // how often it was watched
	active  time.Time // registered ones: when it was last known to do something
	period  int       // index of pollPeriods, -1 when it is not watched
	place   int       // in its period
	crowd   bool      // it is counted as young
	dropped bool

	took    time.Duration // the last look
	hangs   int           // the last one less than hangTime after the one before
	last    time.Time     // when it hung last
	hanging bool          // a look at it was abandoned, and has not returned
}

// hung counts that a look took too long.
func (l *lookout) hung(w *watched) {
	l.hangs.Add(1)
	now := time.Now()
	if now.Sub(w.last) > hangTime {
		w.hangs = 0
	}
	w.hangs++
	w.last = now
}

// newLookout starts looking, and counts in hangs the looks that took too long. The caller must close it.
func newLookout(hangs *atomic.Uint64) *lookout {
	l := &lookout{began: time.Now(), wake: make(chan struct{}, 1), hangs: hangs}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takeOver()
	return l
}

// close ends the goroutine. One that hangs is left behind.
func (l *lookout) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stir()
}

func (l *lookout) stir() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// add takes up a process, which is not watched yet. open opens its memory, changed tells it that words
// have changed. Every process must be dropped again.
func (l *lookout) add(open func() *memread.Process, changed func()) *watched {
	return &watched{open: open, changed: changed, memory: open(), period: -1}
}

// watch has the words looked at until they change, which is told once: of a candidate often at first,
// and seldom when it waits for long; of others as seldom as that. It answers false when the process, or
// many others, make the lookout hang: then its words must be looked at otherwise.
func (l *lookout) watch(w *watched, hold holding, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(w)
	now := time.Now()
	if now.Sub(w.last) >= hangTime {
		w.hangs = 0
	}
	if l.shift == nil || w.hanging || w.hangs >= maxHangs {
		return false
	}
	if w.watches == 0 || !w.since.IsZero() { // else it was registered before
		w.active = now
	}
	w.hold, w.since = hold, since
	w.watches++
	l.place(w, now)
	if l.shortest() == w.period && len(l.periods[w.period]) == 1 {
		l.stir()
	}
	return true
}

// unwatch leaves a process alone. A change may still be told.
func (l *lookout) unwatch(w *watched) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(w)
}

// drop is the end of a process on the lookout.
func (l *lookout) drop(w *watched) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(w)
	w.dropped = true
	if l.at != w { // else it is closed when it was read
		w.memory.Close()
	}
}

// shortest is the shortest period in use, as an index, or the longest of all.
func (l *lookout) shortest() int {
	for i := range l.periods {
		if len(l.periods[i]) > 0 {
			return i
		}
	}
	return len(l.periods) - 1
}

// place puts a process where it belongs by its age.
func (l *lookout) place(w *watched, now time.Time) {
	interval := pollPeriods[len(pollPeriods)-1]
	switch {
	case !w.since.IsZero():
		interval = min(now.Sub(w.since)/pollFraction, candidatePeriod)
	case now.Sub(w.active) < activeTime:
		interval = candidatePeriod
	}
	if w.crowd = interval < crowded; w.crowd {
		l.young++
		interval = max(interval, time.Duration(l.young)*crowdInterval)
	}
	interval = max(interval, lookoutShare*w.took)
	w.period = 0
	for w.period < len(pollPeriods)-1 && pollPeriods[w.period+1] <= interval {
		w.period++
	}
	w.place = len(l.periods[w.period])
	l.periods[w.period] = append(l.periods[w.period], w)
}

func (l *lookout) remove(w *watched) {
	if w.period < 0 {
		return
	}
	if w.crowd {
		l.young--
	}
	list := l.periods[w.period]
	last := len(list) - 1
	list[w.place] = list[last]
	list[w.place].place = w.place
	list[last] = nil
	l.periods[w.period] = list[:last]
	w.period = -1
}

// takeOver starts a goroutine that looks from now on. l.mu must be held.
func (l *lookout) takeOver() {
	s := &shift{lookout: l, timer: time.NewTimer(time.Hour)}
	s.watchdog = time.AfterFunc(time.Hour, s.bark)
	l.shift = s
	go s.run()
}

// shift is one goroutine of the lookout.
type shift struct {
	*lookout
	timer    *time.Timer
	reader   process.WordReader
	due      []*watched
	watchdog *time.Timer
	onRound  bool   // looks are under way, and the watchdog is awake; under mu
	number   uint64 // of the look that is under way, or was last; under mu
	barked   uint64 // what it was when the watchdog barked; under mu
}

// run looks until the lookout is closed, or another goroutine has taken over.
func (s *shift) run() {
	defer s.watchdog.Stop()
	for last := time.Since(s.began); ; {
		now, ok := s.collect(last)
		if !ok {
			return
		}
		last = now
		s.watchdog.Reset(lookoutHang)
		for _, w := range s.due {
			if !s.look(w) {
				return
			}
		}
		s.mu.Lock()
		s.onRound = false
		s.watchdog.Stop()
		s.mu.Unlock()
	}
}

// collect waits until some processes are due. It answers false when somebody else is on duty.
func (s *shift) collect(last time.Duration) (now time.Duration, onDuty bool) {
	for {
		s.mu.Lock()
		if s.shift != s || s.closed {
			s.mu.Unlock()
			return 0, false
		}
		now = time.Since(s.began)
		clear(s.due)
		s.due = s.due[:0]
		for i, period := range pollPeriods {
			if now/period > last/period {
				s.due = append(s.due, s.periods[i]...)
			}
		}
		period := pollPeriods[s.shortest()]
		s.onRound = len(s.due) > 0
		s.mu.Unlock()
		if len(s.due) > 0 {
			return now, true
		}
		last = now
		s.timer.Reset((now/period+1)*period - now)
		select {
		case <-s.timer.C:
		case <-s.wake:
		}
	}
}

// look looks at one process. It answers false when that took so long that another goroutine took over.
func (s *shift) look(w *watched) bool {
	s.mu.Lock()
	if w.period < 0 { // not watched any more
		s.mu.Unlock()
		return true
	}
	s.at = w
	memory, hold, watches := w.memory, w.hold, w.watches
	s.number++
	s.mu.Unlock()

	began := time.Now()
	holds := hold(&s.reader, memory)
	took := time.Since(began)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	if s.shift != s { // the process is read by way of another memory by now
		memory.Close()
		w.hanging = false
		s.abandoned--
		if s.shift == nil {
			s.takeOver()
		}
		return false
	}
	s.at = nil
	if w.took = took; took > lookoutSlow {
		s.hung(w)
	}
	switch {
	case w.dropped:
		memory.Close()
	case w.period < 0 || w.watches != watches: // what was found out is of no interest any more
	case !holds:
		s.remove(w)
		w.changed()
	case w.hangs >= maxHangs:
		s.remove(w)
		w.changed() // its own goroutine has to look from now on
	default: // it may be time for another period
		now := time.Now()
		if w.sampled.Swap(false) {
			w.active = now
		}
		s.remove(w)
		s.place(w, now)
	}
	return true
}

// bark is called while processes are looked at. When the same look is still under way at the second time,
// the goroutine is left to it.
func (s *shift) bark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shift != s || s.closed || !s.onRound {
		return
	}
	w := s.at
	if w == nil || s.number != s.barked {
		s.barked = s.number
		s.watchdog.Reset(lookoutHang)
		return
	}
	s.at = nil
	s.remove(w)
	s.hung(w)
	w.hanging = true
	s.abandoned++
	w.memory = w.open()
	w.changed() // its own goroutine finds out
	if s.abandoned <= maxAbandoned {
		s.takeOver()
		return
	}
	s.shift = nil
	for i := range s.periods {
		for len(s.periods[i]) > 0 {
			other := s.periods[i][0]
			s.remove(other)
			other.changed()
		}
	}
}
