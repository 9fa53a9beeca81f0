package mempoll

import (
	"errors"
	"time"

	"correlator/internal/worker"
	"correlator/internal/worker/access"
)

// reading is one read of one process.
type reading struct {
	*Entry
	words  watchedWords
	starts uint64
	from   int // of the reads of its words
	to     int // behind them
}

// run has processes read when they are due, until the poller is closed.
func (m *Poller) run() {
	defer m.timer.Close()
	turn := time.NewTimer(turnTime)
	defer turn.Stop()
	for last := time.Since(m.began); ; {
		now, due, ok := m.collect(last)
		if !ok {
			return
		}
		last = now
		for user, readings := range due {
			read := make(chan struct{})
			go func() {
				defer close(read)
				m.read(user, readings)
			}()
			turn.Reset(turnTime)
			select {
			case <-read:
			case <-turn.C:
			}
		}
	}
}

// collect waits until some processes are due, and returns them by user, without those of users whose
// processes are still being read. It returns false when the poller is closed.
func (m *Poller) collect(last time.Duration) (now time.Duration, due map[worker.User][]reading, ok bool) {
	for {
		m.mu.Lock()
		if m.closed {
			m.mu.Unlock()
			return 0, nil, false
		}
		now = time.Since(m.began)
		for i, period := range pollPeriods {
			if now/period == last/period {
				continue
			}
			for _, p := range m.periods[i] {
				if _, busy := m.reading[p.user]; busy {
					continue
				}
				if due == nil {
					due = make(map[worker.User][]reading)
				}
				due[p.user] = append(due[p.user], reading{Entry: p, words: p.words, starts: p.starts})
			}
		}
		for user := range due {
			m.reading[user] = struct{}{}
		}
		if len(due) == 0 {
			period := pollPeriods[m.shortest()]
			m.timer.Set((now/period+1)*period - now) // under mu: start sets it, too
		}
		m.mu.Unlock()
		if len(due) > 0 {
			return now, due, true
		}
		last = now
		_ = m.timer.Wait() // with an error when the poller is closed
	}
}

// read reads processes of one user: together, and if that takes too long, one after the other, as long
// as the user is a suspect.
func (m *Poller) read(user worker.User, readings []reading) {
	m.mu.Lock()
	reads := m.spare[:0]
	m.spare = nil
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.reading, user)
		if cap(reads) > cap(m.spare) {
			m.spare = reads
		}
	}()
	for i := range readings {
		r := &readings[i]
		r.from = len(reads)
		reads = r.words.AppendReads(reads, r.pid)
		r.to = len(reads)
	}
	together := len(readings) == 1 || !m.memory.IsSuspect(user)
	var err error
	if together {
		err = m.memory.Read(user, readTimeout, reads)
		if errors.Is(err, access.ErrTimeout) && len(readings) > 1 {
			together = false
		}
	}
	for i := range readings {
		r := &readings[i]
		if !together {
			m.finish(r, reads[r.from:r.to], m.memory.Read(user, readTimeout, reads[r.from:r.to]))
		} else {
			m.finish(r, reads[r.from:r.to], err)
		}
	}
}

// finish does what follows from a read of one process, which ended with err.
func (m *Poller) finish(r *reading, reads []access.MemoryRead, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	p := r.Entry
	if p.period < 0 || p.starts != r.starts { // what was found is of no interest any more
		return
	}
	now := time.Now()
	// Refused because of itself: it hangs a worker still.
	hangs := errors.Is(err, access.ErrTimeout) || errors.Is(err, access.ErrHung)
	if hangs {
		m.hangs.Add(1)
		if now.Sub(p.last) > hangTime {
			p.hangs = 0
		}
		p.hangs++
		p.last = now
	}
	switch {
	case hangs, err == nil && !r.words.Hold(reads):
		m.remove(p)
		p.changed() // its own goroutine finds out
	default: // it holds, or that is not known; it may be time for another period
		if p.active.Swap(false) {
			p.lastUse = now
		}
		m.remove(p)
		m.insert(p, now)
	}
}
