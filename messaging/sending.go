package messaging

import (
	"fmt"
)

// This file is the sending half of a Sender, and what starts it: the poller and a timer.

// run is send on a goroutine of its own.
func (s *Sender) run() { s.send(false) }

// send sends until nothing is left to be sent, or nothing can be sent. sendmsg runs what the receiver attached to its
// socket, a filter and the callbacks of all epoll instances that watch it, which can take many milliseconds. So every
// sender can have a goroutine for that. Quick is without: a goroutine that others wait for sends, which is less work by
// far, as long as no message takes long.
func (s *Sender) send(quick bool) {
	var spent stopwatch
	if quick {
		spent = newStopwatch()
	}
	for {
		message := s.next()
		if message == nil {
			return
		}
		result := s.complete(s.current.send(message, quick))
		slow := quick && s.poller.isSlow(spent.time())
		switch result {
		case full:
			s.await()
		case gone:
			s.current.Close()
		}
		if slow {
			go s.work()
			return
		}
	}
}

// next returns the message to send now, and sets s.current to the socket to send it to; nil when
// there is none, and then the caller must stop. A message is encoded again for each attempt, so
// that it includes what was added while the sender waited for room.
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
			s.schedule()
		}
		return nil
	}
	s.current = s.socket
	if s.registering = s.registration != nil; s.registering {
		return s.registration
	}
	s.queue.take(maxCount)
	taken := &s.queue.taken
	return appendCorrelation(s.message[:0], correlation{Key: taken.key, Count: uint16(taken.count())})
}

// complete records the result of sending the message that next returned, and returns what to do
// with the socket: arm it when full, close it when gone. What was not sent is queued again, unless
// the kernel will never take it.
func (s *Sender) complete(err error) sendResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := classify(err)
	switch {
	case s.registering && v == refused:
		v = gone // without a registration there are no correlations
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
	if s.socket != s.current { // it was replaced, and is closed by who did that
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
		s.disconnect() // makes room in s.down
		s.counters.ConnectionsGone.Add(1)
		s.down <- fmt.Errorf("%w: %w", errSocketGone, err)
	}
	return v
}

// delivered counts the message that the kernel has taken, each part with its own age.
func (s *Sender) delivered() {
	nowNs := s.nowNs()
	taken := &s.queue.taken
	for _, p := range taken.parts[:taken.n] {
		s.counters.timings.add(nowNs-p.sampledNs, p.count, s.delay)
	}
	samples := s.queue.finishTaken()
	s.stats.Sent += samples
	s.stats.Messages++
	s.counters.SamplesSent.Add(samples)
	s.counters.MessagesSent.Add(1)
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

// wait returns full when the sender must wait for room, and busy when it was woken too often
// without finding any.
func (s *Sender) wait(woken bool) sendResult {
	s.counters.SendWaits.Add(1)
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

// await arms the socket, after wait. The poller may report room before it returns.
func (s *Sender) await() {
	err := s.current.arm(s.poller.epoll, s.token)
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parked { // out of memory or epoll watches; else the socket was replaced
		s.unpark()
		s.pause()
	}
}

// wake is called by the poller when there may be room, or the receiver has gone. The token
// distinguishes a wait that has ended since from the next one.
func (s *Sender) wake(token uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parked && s.token == token {
		s.parked, s.woken = false, true
		s.start()
	}
}

func (s *Sender) pause() {
	s.counters.SendPauses.Add(1)
	s.pausedUntilNs = s.nowNs() + int64(pauseTime)
}

func (s *Sender) onTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timerNs = never
	s.maintain()
}

func (s *Sender) onTick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticking = false
	s.maintain()
}

// maintain drops late samples, ends a pause, and frees the memory of an idle queue. It is called with s.mu held.
func (s *Sender) maintain() {
	if s.closed {
		return
	}
	nowNs := s.nowNs()
	if nowNs >= s.pausedUntilNs {
		s.pausedUntilNs = 0
	}
	s.expireWaiting(nowNs)
	s.start()
	if s.running {
		return // it schedules what is next when it stops
	}
	if s.queue != nil && s.queue.total == 0 {
		if s.idle {
			s.queue = nil
		}
		s.idle = true
	}
	s.schedule()
}
