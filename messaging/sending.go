package messaging

import (
	"fmt"
	"math"
	"time"
)

// This file is how a Sender sends, on the goroutine of the sendLoop or its own, and what starts that: the
// poller and a timer.

// run sends until nothing is left to be sent, or nothing can be sent.
func (s *Sender) run() {
	for !s.send(math.MaxInt) {
	}
}

// send sends up to limit messages. It reports whether it has ended: nothing is left to be sent, or
// nothing can be sent. Else it must be called again.
func (s *Sender) send(limit int) (ended bool) {
	for range limit {
		message := s.next()
		if message == nil {
			return true
		}
		switch s.complete(s.current.send(message)) {
		case full:
			s.await()
		case gone:
			s.current.Close()
		}
	}
	return false
}

// next takes the message to be sent now, and the socket to send it to; nil when there is none: then
// the goroutine must end. A message is made anew for each attempt: what is added while we wait for
// room goes with it.
func (s *Sender) next() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	nowNs := s.nowNs()
	s.expire(nowNs)
	if !s.canSend() {
		s.running, s.current = false, nil
		if s.exited != nil {
			close(s.exited)
		} else {
			s.schedule(nowNs)
		}
		return nil
	}
	s.current = s.socket
	if s.registering = s.registration != nil; s.registering {
		return s.registration
	}
	s.queue.take(MaxCount)
	taken := &s.queue.taken
	return AppendCorrelation(s.message[:0], Correlation{Key: taken.key, Count: uint16(taken.count())})
}

// complete records what became of the message that next gave, and says what to do with the socket: full
// has it armed, gone closed. Whatever was not sent is queued again, unless it can never be.
func (s *Sender) complete(err error) sendResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := classify(err)
	switch {
	case s.registering && v == refused:
		v = gone // an agent that cannot be told of us is not served
	case s.registering && v == sent:
		s.registered()
	case s.registering:
	case v == sent:
		s.delivered()
	case v == refused:
		s.drop(DropRefused, s.queue.finishTaken())
		s.signalDrained()
	default:
		s.queue.requeue(s.windowNs())
	}
	if s.socket != s.current { // whoever replaced it closes it; the new one is another matter
		return again
	}

	woken := s.woken
	s.woken = false
	switch v {
	case sent:
		s.futileWakeups = 0
	case full:
		return s.wait(woken)
	case busy:
		s.pause()
	case gone:
		s.disconnect() // and so there is room for news
		s.counters.SocketsGone.Add(1)
		s.down <- fmt.Errorf("%w: %w", ErrSocketGone, err)
	}
	return v
}

// delivered accounts for what the kernel has just taken, each part with its own age.
func (s *Sender) delivered() {
	nowNs := s.nowNs()
	taken := &s.queue.taken
	for _, p := range taken.parts[:taken.n] {
		s.counters.timings.add(nowNs-p.sampledNs, p.count, s.delay)
	}
	samples := s.queue.finishTaken()
	s.stats.Sent += samples
	s.stats.Messages++
	s.counters.Sent.Add(samples)
	s.counters.Messages.Add(1)
	s.signalDrained()
}

func (s *Sender) registered() {
	s.stats.Registrations++
	s.counters.Registrations.Add(1)
	if s.socket == s.current {
		s.registration = nil
		s.stats.Registered = true
	}
}

// wait answers full when the sender is to wait for room, and busy when it was woken in vain too
// often.
func (s *Sender) wait(woken bool) sendResult {
	s.counters.Waits.Add(1)
	if woken {
		s.futileWakeups++
	}
	if s.futileWakeups > maxFutileWakeups {
		s.pause()
		return busy
	}
	s.parked, s.token = true, s.poller.add(s)
	return full
}

// await arms the socket, after wait. Room may be told of before it returns.
func (s *Sender) await() {
	err := s.current.arm(s.poller.epoll, s.token)
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parked { // the kernel lacks memory, or lets us watch no more; else the socket was replaced
		s.unpark()
		s.pause()
	}
}

// wake is called by the poller when there may be room, or the receiver has gone. A wait that has
// ended since is not confused with the next one.
func (s *Sender) wake(token uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parked && s.token == token {
		s.parked, s.woken = false, true
		s.start()
	}
}

func (s *Sender) pause() {
	s.counters.Pauses.Add(1)
	s.pausedUntilNs = s.nowNs() + int64(pauseTime)
}

// onTimer does what time brings about: samples become late, a pause ends, memory is given back.
func (s *Sender) onTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timerNs = never
	if s.closed {
		return
	}
	nowNs := s.nowNs()
	if nowNs >= s.pausedUntilNs {
		s.pausedUntilNs = 0
	}
	s.expire(nowNs)
	if !s.waiting() {
		s.unpark() // what comes next finds out anew how the receiver is
	}
	s.start()
	if s.running {
		return // arms the timer when it stops
	}
	if s.queue != nil && s.queue.total == 0 {
		if s.idle {
			s.queue = nil
		}
		s.idle = true
	}
	s.schedule(nowNs)
}

// clock is what deadlines are measured by.
type clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) timer
}

// timer is the part of *time.Timer that a Sender uses.
type timer interface {
	Reset(d time.Duration) bool
	Stop() bool
}

type systemClock struct{}

func (systemClock) Now() time.Time                            { return time.Now() }
func (systemClock) AfterFunc(d time.Duration, f func()) timer { return time.AfterFunc(d, f) }
