package mempoll

import (
	"time"

	"correlator/internal/process"
)

// worker is one goroutine of the Poller.
type worker struct {
	*Poller
	reader process.WordReader
	due    []*Entry
	busy   bool   // reads are under way, and the watchdog is set; under mu
	number uint64 // of the read that is under way, or was last; under mu
	warned uint64 // what it was when the watchdog fired; under mu
}

// startWorker starts a worker that reads from now on. m.mu must be held.
func (m *Poller) startWorker() {
	w := &worker{Poller: m}
	m.current = w
	go w.run()
}

// run reads until the poller is closed, or another worker has taken over.
func (w *worker) run() {
	for last := time.Since(w.began); ; {
		now, ok := w.collect(last)
		if !ok {
			return
		}
		last = now
		w.watchdog.Set(pollTimeout)
		for _, p := range w.due {
			if !w.read(p) {
				return
			}
		}
		w.mu.Lock()
		w.busy = false
		w.watchdog.Unset()
		w.mu.Unlock()
	}
}

// collect waits until some processes are due. It returns false when another worker has taken over.
func (w *worker) collect(last time.Duration) (now time.Duration, ok bool) {
	for {
		w.mu.Lock()
		if w.current != w || w.closed {
			if w.current == w {
				w.timer.Close()
			}
			w.mu.Unlock()
			return 0, false
		}
		now = time.Since(w.began)
		clear(w.due)
		w.due = w.due[:0]
		for i, period := range pollPeriods {
			if now/period > last/period {
				w.due = append(w.due, w.periods[i]...)
			}
		}
		w.busy = len(w.due) > 0
		if !w.busy {
			period := pollPeriods[w.shortest()]
			w.timer.Set((now/period+1)*period - now) // under mu: Start sets it, too
		}
		w.mu.Unlock()
		if len(w.due) > 0 {
			return now, true
		}
		last = now
		_ = w.timer.Wait() // with an error when the poller is closed
	}
}

// read reads the words of one process. It returns false when that took so long that another worker
// took over.
func (w *worker) read(p *Entry) bool {
	w.mu.Lock()
	if p.period < 0 { // not polled any more
		w.mu.Unlock()
		return true
	}
	w.reading = p
	memory, hold, starts := p.memory, p.hold, p.starts
	w.number++
	w.mu.Unlock()

	began := time.Now()
	holds := hold(&w.reader, memory)
	took := time.Since(began)

	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if w.current != w { // the process is read by way of another memory meanwhile
		memory.Close()
		p.hanging = false
		w.abandoned--
		if w.current == nil {
			w.startWorker()
		}
		return false
	}
	w.reading = nil
	if p.took = took; took > slowRead {
		w.countHang(p)
	}
	switch {
	case p.dropped:
		memory.Close()
	case p.period < 0 || p.starts != starts: // what was found is of no interest any more
	case !holds:
		w.remove(p)
		p.changed()
	case p.hangs >= maxHangs:
		w.remove(p)
		p.changed() // its own goroutine has to probe from now on
	default: // it may be time for another period
		now := time.Now()
		if p.Active.Swap(false) {
			p.lastUse = now
		}
		w.remove(p)
		w.insert(p, now)
	}
	return true
}

// watch calls onTimeout when the watchdog fires, until the poller is closed.
func (m *Poller) watch() {
	defer m.watchdog.Close()
	for m.watchdog.Wait() == nil {
		m.onTimeout()
	}
}

// onTimeout is called while processes are read. When the same read is still under way at the second
// time, the goroutine is abandoned to it.
func (m *Poller) onTimeout() {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.current
	if w == nil || w.closed || !w.busy {
		return
	}
	p := w.reading
	if p == nil || w.number != w.warned {
		w.warned = w.number
		w.watchdog.Set(pollTimeout)
		return
	}
	w.reading = nil
	w.remove(p)
	w.countHang(p)
	p.hanging = true
	w.abandoned++
	p.memory = p.open()
	p.changed() // its own goroutine finds out
	if w.abandoned <= maxAbandoned {
		w.startWorker()
		return
	}
	w.current = nil
	for i := range w.periods {
		for len(w.periods[i]) > 0 {
			other := w.periods[i][0]
			w.remove(other)
			other.changed()
		}
	}
}
