package agent

import (
	"math/bits"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/messaging"
)

// stalls watches how long this process had to wait for any of the CPUs at worst. A machine that did not
// let it run has made samples late that were taken meanwhile.
type stalls struct {
	stop  chan struct{}
	worst []chan time.Duration // by CPU
}

// stallStep is how long the watch sleeps at a time.
const stallStep = 5 * time.Millisecond

func watchStalls(t *testing.T) *stalls {
	s := &stalls{stop: make(chan struct{})}
	var all unix.CPUSet
	assert.NilError(t, unix.SchedGetaffinity(0, &all))
	for cpu := range len(all) * bits.UintSize {
		if all.IsSet(cpu) {
			worst := make(chan time.Duration, 1)
			s.worst = append(s.worst, worst)
			go s.watch(cpu, worst)
		}
	}
	return s
}

func (s *stalls) watch(cpu int, result chan<- time.Duration) {
	runtime.LockOSThread() // asleep in the kernel, as what waits for messages is; it ends with us
	var own unix.CPUSet
	own.Set(cpu)
	_ = unix.SchedSetaffinity(0, &own) // a CPU that has gone offline is watched no more
	var worst time.Duration
	sleep := unix.NsecToTimespec(stallStep.Nanoseconds())
	for last := time.Now(); ; {
		select {
		case <-s.stop:
			result <- worst
			return
		default:
		}
		unix.Nanosleep(&sleep, nil)
		now := time.Now()
		worst, last = max(worst, now.Sub(last)-stallStep), now
	}
}

// end returns the longest wait.
func (s *stalls) end() (longest time.Duration) {
	close(s.stop)
	for _, worst := range s.worst {
		longest = max(longest, <-worst)
	}
	return longest
}

// dropped is how many samples were dropped, for whatever reason.
func dropped(c *messaging.Counters) (sum uint64) {
	for i := range c.Dropped {
		sum += c.Dropped[i].Load()
	}
	return sum
}

// What is sampled at 997 Hz on all CPUs arrives, all of it and in time, at the default delay.
func TestDeliveryUnderLoad(t *testing.T) {
	const tries = 10
	for _, interval := range []time.Duration{100 * time.Millisecond, MinReportInterval} {
		t.Run(interval.String(), func(t *testing.T) {
			for range tries {
				if everythingArrives(t, interval) || t.Failed() {
					return
				}
			}
			testenv.Missing(t, "this machine stopped for longer than the agent has to spare, each time")
		})
	}
}

// everythingArrives returns false when the machine was at fault.
func everythingArrives(t *testing.T, interval time.Duration) bool {
	p := demo.Start(t, demo.Options{Busy: 2, Transaction: 500 * time.Millisecond})
	r := run(t, atRate(997), func(c *Config) { c.ReportInterval = interval })
	watch := watchStalls(t)
	samples := uint64(3000)
	if *long {
		samples *= 20
	}
	r.sampledReport(p, samples)
	p.StopThreads() // nothing more is sampled
	r.end()
	stalled := watch.end()
	report := p.Quit()
	r.alone(p)
	r.sampledAdded()
	clean(t, report)

	c := &r.Counters().Messages
	timing := c.Timing()
	t.Logf("%d samples sent in %d messages, oldest %v; dropped %d, overdue %d, late by the agent's clock %d; arrived %d, late %d; stalled for %v",
		c.Sent.Load(), c.Messages.Load(), timing.Quantile(1), dropped(c), timing.Overdue, timing.Lost, report.Samples,
		report.LateSamples, stalled)
	if sent := c.Sent.Load(); sent != report.Samples+report.LateSamples {
		t.Errorf("%d samples sent, %d arrived", sent, report.Samples+report.LateSamples)
	}
	if dropped(c)+timing.Overdue+timing.Lost+report.LateSamples == 0 {
		return true
	}
	// Drained after an interval, a sample has the rest of the delay until its message is sent. Half
	// of that is far more than the agent, or the receiver, needs when they may run.
	if spare := (r.config.SamplesDelay - interval) / 2; stalled < spare {
		t.Errorf("%d samples dropped, %d overdue, %d late, though nothing stalled for more than %v", dropped(c),
			timing.Overdue,
			report.LateSamples, stalled)
	}
	return false
}
