package messaging

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

const (
	pollTime = 20 * time.Millisecond // how often the Java agent empties its socket

	driveTime = 4 * time.Second // how long the tests below run, on their fake clock
)

// reportIntervals are how often a sampler adds its counts: that of the kernel's counts, with the
// time of the first sample of each key, and one shorter than the receiver's interval.
var reportIntervals = []time.Duration{100 * time.Millisecond, 10 * time.Millisecond}

// drive is a connected fixture whose receiver reads as the Java agent does.
type drive struct {
	*fixture
	fits int           // messages that the receiver's queue holds
	got  []correlation // what was read
}

func newDrive(t *testing.T, p *Poller) *drive {
	b := connected(t, p)
	d := &drive{fixture: b, fits: b.receiver.fill()}
	b.receiver.expectFillers(d.fits)
	return d
}

// poll reads what is in the socket, but no more than fits into it once: messages that are sent
// meanwhile are for the next poll.
func (d *drive) poll() {
	d.Helper()
	for range d.fits {
		m, ok := d.receiver.read()
		if !ok {
			break
		}
		d.got = append(d.got, m.(correlation))
	}
	d.pump()
}

// run advances the clock, polls when the agent does, and calls report when the sampler adds its
// counts: as late after a poll as possible.
func (d *drive) run(interval time.Duration, report func(now time.Time)) {
	d.Helper()
	const step = 10 * time.Millisecond
	for at := step; at <= driveTime; at += step {
		d.advance(step)
		d.pump()
		if at%pollTime == 0 {
			d.poll()
		}
		if at%interval == 0 {
			report(time.Now())
			d.pump()
		}
	}
}

func TestDelivery(t *testing.T) {
	for _, interval := range reportIntervals {
		t.Run(interval.String(), func(t *testing.T) {
			inBubbles(t, newDrive, map[string]func(*drive){
				"overload": func(d *drive) { d.overload(interval) },
				"busy":     func(d *drive) { d.busyTransactions(interval) },
			})
		})
	}
}

// With twice as many messages as the receiver reads, each of its polls finds a full socket, the
// oldest messages first. Late samples are dropped and counted.
func (d *drive) overload(interval time.Duration) {
	perReport := 2 * d.fits * int(interval) / int(pollTime)
	var sampledAt []time.Time // of each key
	last := time.Now()
	d.run(interval, func(now time.Time) {
		for range perReport {
			d.sender.Add(keyOf(len(sampledAt)), 1, last)
			sampledAt = append(sampledAt, last)
		}
		last = now
	})
	stats := d.sender.Stats()
	polls := int((driveTime - interval) / pollTime) // since the first report
	assert.Check(d, len(d.got) >= d.fits*polls, "%d messages in %d polls, %d fit at once", len(d.got), polls, d.fits)
	dropped := uint64(len(sampledAt)) - stats.Sent - stats.Queued
	d.expectStats(stats.Sent, stats.Queued, map[DropReason]uint64{DropLate: dropped})
	for i := 1; i < len(d.got); i++ {
		key, before := number(d.got[i].Key), number(d.got[i-1].Key)
		assert.Assert(d, !sampledAt[key].Before(sampledAt[before]), "message %d is older than the one before", i)
	}
	timing := d.counters.Timing()
	assert.Check(d, timing.Overdue == 0 && timing.Lost == 0, "%d overdue, %d lost", timing.Overdue, timing.Lost)
	d.expectNoSpinning()
}

// number returns the number that keyOf made a key of.
func number(key Key) int { return int(key.TraceID[0]) | int(key.TraceID[1])<<8 }

// expectNoSpinning checks that no more attempts found the queue full than it was read from.
func (d *drive) expectNoSpinning() {
	d.Helper()
	waits := d.counters.SendWaits.Load()
	assert.Check(d, waits <= uint64(len(d.got)+1), "%d waits, %d messages read", waits, len(d.got))
}

// 997 samples per second on each of two CPUs, in transactions of 500 ms: everything arrives.
func (d *drive) busyTransactions(interval time.Duration) {
	load := newLoad(2, 20)
	d.run(interval, func(now time.Time) { load.report(d.sender, now) })
	for len(d.got) < int(d.sender.Stats().Messages) {
		d.poll()
	}
	d.expectStats(load.total(), 0, nil)
	received := make(map[Key]uint64)
	for _, c := range d.got {
		received[c.Key] += uint64(c.Count)
	}
	assert.Check(d, maps.Equal(received, load.added), "what arrived is not what was sampled")
	timing := d.counters.Timing()
	assert.Check(d, timing.Sent == load.total() && timing.Missed() == 0)
	d.expectNoSpinning()
}

// load is the samples of threads that work on transactions without a pause.
type load struct {
	threads, stacks int
	rng             *rand.Rand
	began           time.Time // zero before the first report
	samples         int       // taken of each thread
	added           map[Key]uint64
}

const (
	sampleTime      = time.Second / 997
	transactionTime = 500 * time.Millisecond
)

func newLoad(threads, stacks int) *load {
	return &load{threads: threads, stacks: stacks, rng: rand.New(rand.NewPCG(1, 2)), added: make(map[Key]uint64)}
}

// report adds what was sampled since the last report, each key with the time of its first sample.
func (l *load) report(s *Sender, now time.Time) {
	if l.began.IsZero() {
		l.began = now
	}
	counts, first := make(map[Key]uint64), make(map[Key]time.Time)
	for {
		after := time.Duration(l.samples) * sampleTime
		at := l.began.Add(after)
		if at.After(now) {
			break
		}
		l.samples++
		for thread := range l.threads {
			key := keyOf(l.threads*int(after/transactionTime) + thread)
			key.StackTraceID[0] = byte(l.rng.IntN(l.stacks))
			if counts[key]++; counts[key] == 1 {
				first[key] = at
			}
		}
	}
	for key, count := range counts {
		s.Add(key, count, first[key])
		l.added[key] += count
	}
}

func (l *load) total() (samples uint64) {
	for _, count := range l.added {
		samples += count
	}
	return samples
}

// agent reads a receiver as the Java agent does, on the real clock, until stop is closed.
func (r *receiver) agent(stop <-chan struct{}) (polls, messages, samples int) {
	ticker := time.NewTicker(pollTime)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-stop:
			return polls, messages, samples
		}
		polls++
		for {
			m, ok := r.read()
			if !ok {
				break
			}
			if c, ok := m.(correlation); ok {
				messages++
				samples += int(c.Count)
			}
		}
	}
}

// BenchmarkDelivery reports which samples of one process arrive, and how soon, in seconds of real
// time.
func BenchmarkDelivery(b *testing.B) {
	for _, interval := range reportIntervals {
		b.Run(fmt.Sprintf("997 Hz, report every %v", interval), func(b *testing.B) {
			load := newLoad(2, 20)
			sender, arrived := benchmarkDelivery(b, interval, load.report)
			b.ReportMetric(100*float64(arrived.samples)/float64(load.total()), "%arrived")
			timing := sender.counters.Timing()
			b.ReportMetric(timing.Quantile(0.5).Seconds()*1000, "p50-ms")
			b.ReportMetric(timing.Quantile(0.99).Seconds()*1000, "p99-ms")
			b.ReportMetric(timing.Quantile(1).Seconds()*1000, "max-ms")
		})
	}
	for _, interval := range reportIntervals {
		b.Run(fmt.Sprintf("overload, report every %v", interval), func(b *testing.B) {
			n, last := 0, time.Now()
			sender, arrived := benchmarkDelivery(b, interval, func(s *Sender, now time.Time) {
				for range 22 * int(interval) / int(pollTime) {
					s.Add(keyOf(n), 1, last)
					n++
				}
				last = now
			})
			b.ReportMetric(100*float64(arrived.messages)/float64(arrived.fits*arrived.polls), "%capacity")
			b.ReportMetric(100*float64(sender.Stats().Dropped[DropLate])/float64(n), "%late")
		})
	}
}

// arrivals is what one receiver has read. Each poll also reads messages that are sent during it, so
// more than fit at once.
type arrivals struct{ fits, polls, messages, samples int }

func benchmarkDelivery(b *testing.B, interval time.Duration, report func(*Sender, time.Time)) (*Sender, arrivals) {
	b.Helper()
	s, r := NewSender(&Counters{}, newTestPoller(b)), listen(b)
	defer s.Close()
	fits := r.fill()
	r.readAll()
	assert.NilError(b, s.Connect(r.dial(), testRegistration))
	r.expect(testRegistration)
	stop, ended := make(chan struct{}), make(chan arrivals)
	go func() {
		polls, messages, samples := r.agent(stop)
		ended <- arrivals{fits, polls, messages, samples}
	}()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for b.Loop() {
		for range 2 * time.Second / interval {
			report(s, <-ticker.C)
		}
	}
	assert.NilError(b, s.Drain(b.Context()))
	close(stop)
	all := <-ended
	all.samples += int(r.readAll()) // sent after the last poll
	return s, all
}
