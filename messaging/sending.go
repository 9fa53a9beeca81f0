package messaging

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// This file is the goroutine of a Sender, and its timer.

// run sends until there is nothing left to do, or nothing that can be done.
func (s *Sender) run() {
	for {
		socket := s.begin()
		if socket == nil {
			return
		}
		err := socket.raw.Write(s.attempt)
		if s.end(err) {
			socket.Close()
		}
	}
}

// begin chooses the socket to send to, or nil: then the goroutine must end.
func (s *Sender) begin() *Socket {
	s.mu.Lock()
	defer s.mu.Unlock()
	nowNs := s.nowNs()
	s.expire(nowNs)
	if s.sendable() {
		s.current = s.socket
		return s.current
	}
	s.running, s.current = false, nil
	if s.exited != nil {
		close(s.exited)
		return nil
	}
	s.schedule(nowNs)
	return nil
}

// end looks at why the goroutine came back from current, and says whether it is to be closed.
func (s *Sender) end(err error) (died bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parked = false
	if s.failure != nil {
		err, s.failure = s.failure, nil
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		s.current.resume()
		err = nil
	}
	if err == nil || s.socket != s.current { // whoever replaced it closes it
		return false
	}
	s.disconnect() // and so there is room for news
	s.counters.SocketsGone.Add(1)
	s.down <- fmt.Errorf("%w: %w", ErrSocketGone, err)
	return true
}

// sendWaiting sends what waits. It answers false when the receiver's queue is full, and is then
// called again as soon as there may be room. The runtime takes note of room from before it is
// called on, so none is missed. A message is made anew for each attempt: what is added while we
// wait for room goes with it.
func (s *Sender) sendWaiting(fd uintptr) (done bool) {
	for {
		message := s.next()
		if message == nil {
			return true
		}
		err := s.current.send(fd, message)
		switch s.settle(err) {
		case full:
			return false
		case sent, again, refused:
		default:
			return true
		}
	}
}

// next takes the message to be sent now; nil when there is none.
func (s *Sender) next() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.woken, s.parked = s.parked, false
	if s.socket != s.current {
		return nil
	}
	if s.registering = s.registration != nil; s.registering {
		return s.registration
	}
	s.expire(s.nowNs())
	if s.queue == nil || !s.queue.waiting() {
		return nil
	}
	s.queue.take(MaxCount)
	taken := &s.queue.taken
	return AppendCorrelation(s.message[:0], Correlation{Key: taken.key, Count: uint16(taken.count())})
}

// settle records what became of the message that next gave, and says how to go on: full waits
// for room, busy and gone leave. Whatever was not sent is queued again, unless it can never be.
func (s *Sender) settle(err error) verdict {
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
		s.drop(ReasonRefused, s.queue.settle())
		s.tellDrained()
	default:
		s.queue.giveBack(s.windowNs())
	}

	switch v {
	case sent:
		s.futile = 0
	case full:
		return s.wait()
	case busy:
		s.pause()
	case gone:
		s.failure = err
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
	samples := s.queue.settle()
	s.stats.Sent += samples
	s.stats.Messages++
	s.counters.Sent.Add(samples)
	s.counters.Messages.Add(1)
	s.tellDrained()
}

func (s *Sender) registered() {
	s.stats.Registrations++
	s.counters.Registrations.Add(1)
	if s.socket == s.current {
		s.registration = nil
		s.stats.Registered = true
	}
}

// wait answers full when the goroutine is to wait for room, and busy when it was woken in vain
// too often.
func (s *Sender) wait() verdict {
	s.counters.Waits.Add(1)
	if s.woken {
		s.futile++
	}
	if s.futile > maxFutile {
		s.pause()
		return busy
	}
	s.parked = true
	s.schedule(s.nowNs())
	return full
}

func (s *Sender) pause() {
	s.counters.Pauses.Add(1)
	s.pausedUntilNs = s.nowNs() + int64(pauseTime)
}

// tick does what time brings about: samples become late, a pause ends, memory is given back.
func (s *Sender) tick() {
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
	s.start()
	if s.parked && !s.sendable() {
		s.current.interrupt() // nothing is left to wait for
	}
	if s.running && !s.parked {
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
