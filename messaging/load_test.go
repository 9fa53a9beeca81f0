package messaging

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// longRegistration is for tests in which nothing may be late, however slow the machine.
var longRegistration = Registration{SamplesDelay: time.Hour}

// waitReadable blocks until the receiver has a message.
func (r *receiver) waitReadable() {
	r.t.Helper()
	fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(patience/time.Millisecond))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 {
			r.t.Fatalf("no message: a wake-up was lost (%v)", err)
		}
		return
	}
}

// A receiver that reads one message at a time makes the kernel wake us for each: after a single
// lost wake-up the sender would wait forever.
func TestNoWakeUpIsLost(t *testing.T) {
	const rounds = 5000
	counters := &Counters{}
	s, r := NewSender(counters, newTestPoller(t)), listen(t)
	defer s.Close()
	assert.NilError(t, s.Connect(r.dial(), longRegistration))
	r.expect(longRegistration)
	rng := rand.New(rand.NewPCG(1, 2))
	received, added, reads := 0, 0, 0
	for received < rounds {
		for added-received < 200 && added < rounds {
			s.Add(keyOf(added%4000), 1, time.Now())
			added++
		}
		r.waitReadable()
		for range 1 + rng.IntN(3) {
			m, ok := r.read()
			if !ok {
				break
			}
			reads++
			received += int(m.(correlation).Count)
		}
	}
	// so that the last message is counted
	assert.Check(t, s.Drain(context.Background()))
	if received != added || s.Stats().Sent != uint64(added) {
		t.Errorf("added %d, received %d, %+v", added, received, s.Stats())
	}
	// Each failed attempt but the first of a wait follows a read.
	waits := counters.SendWaits.Load()
	assert.Check(t, waits != 0 && waits <= uint64(reads+1), "%d attempts found the queue full, %d reads", waits, reads)
}

// With everything at once, each sample that is added is sent, dropped with a reason, or queued, and
// each that is sent is received once.
func TestAllSamplesAreAccounted(t *testing.T) {
	counters, poller := &Counters{}, newTestPoller(t)
	var everyone sync.WaitGroup
	var added atomic.Uint64
	for range 4 {
		everyone.Go(func() { added.Add(stress(t, counters, poller)) })
	}
	everyone.Wait()
	var dropped [NumDropReasons]uint64
	for reason := range dropped {
		dropped[reason] = counters.SamplesDropped[reason].Load()
	}
	queued, sent := counters.SamplesQueued.Load(), counters.SamplesSent.Load()
	if queued != added.Load() || sent+sum(dropped) != added.Load() {
		t.Errorf("added %d (counted %d), sent or dropped %d", added.Load(),
			counters.SamplesQueued.Load(), sent+sum(dropped))
	}
	t.Logf("added %d, sent %d in %d messages; dropped %v; %d sockets gone", added.Load(),
		counters.SamplesSent.Load(), counters.MessagesSent.Load(), dropped, counters.ConnectionsGone.Load())
}

// stress runs one sender whose receiver is replaced and closed all the time, while other goroutines
// add, read the statistics and drain, until it is closed concurrently. Each pass of the loop hands
// the others their next turn, which they take while it reads. It returns how many samples were
// added.
func stress(t *testing.T, counters *Counters, poller *Poller) uint64 {
	const generations, burst = 80, 20
	s := NewSender(counters, poller)
	dir := t.TempDir()
	var added, received atomic.Uint64
	var others sync.WaitGroup
	adding, reading := make(chan struct{}), make(chan struct{})
	for n := range 3 {
		others.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 7))
			for range adding {
				for range burst {
					s.Add(keyOf(rng.IntN(30)), 1, time.Now().Add(-time.Duration(rng.IntN(1000))*time.Microsecond))
				}
				added.Add(burst)
			}
		})
	}
	others.Go(func() {
		for range reading {
			stats := s.Stats()
			assert.Check(t, stats.Sent+stats.Queued+sum(stats.Dropped) == stats.Added, "does not add up: %+v", stats)
			select {
			case <-s.Down():
			default:
			}
			ctx, cancel := context.WithCancel(context.Background())
			go cancel()
			s.Drain(ctx)
		}
	})
	current := listenAt(t, filepath.Join(dir, "first"))
	for generation := range generations {
		r := listenAt(t, filepath.Join(dir, strconv.Itoa(generation)))
		err := s.Connect(r.dial(), Registration{SamplesDelay: 20 * time.Millisecond})
		// The socket that was connected before gets nothing more.
		received.Add(current.readAll())
		current.close()
		current = r
		assert.Check(t, err == nil || errors.Is(err, errClosed), err)
		for range rand.IntN(10) {
			received.Add(r.readAll())
			adding <- struct{}{}
			reading <- struct{}{}
		}
		switch {
		case generation == generations*3/4:
			others.Go(s.Close)
		case generation%3 == 0: // it receives no more, but its queue can still be read
			unix.Shutdown(r.fd, unix.SHUT_RD)
			testenv.Poll(t, patience, "the sender to disconnect", func() bool {
				s.Add(keyOf(0), 1, time.Now())
				added.Add(1)
				received.Add(r.readAll()) // epoll does not report the shutdown to a sender that waits
				return !s.Stats().Connected
			})
		case generation%3 == 1:
			s.Disconnect()
		}
	}
	close(adding)
	close(reading)
	others.Wait()
	received.Add(current.readAll())
	if got := s.Stats(); got.Sent != received.Load() || got.Queued != 0 {
		t.Errorf("received %d, %+v", received.Load(), got)
	}
	return added.Load()
}

// BenchmarkIdleSender reports the memory of a connected sender with nothing to send.
func BenchmarkIdleSender(b *testing.B) {
	var each int64
	for b.Loop() {
		each = idleSenderBytes(b, 300)
	}
	b.ReportMetric(float64(each), "bytes/sender")
}

// idleSenderBytes connects that many senders, sends a sample through each, waits until they are
// idle, and returns the memory of one: with socket, poller and timer, without the kernel's share.
func idleSenderBytes(t testing.TB, senders int) int64 {
	t.Helper()
	r := listen(t)
	counters, poller := &Counters{}, newTestPoller(t)
	root, creds := openRoot(t, "/"), ourCredentials(t)
	kept := make([]*Sender, senders)
	before := heapInUse()
	for i := range kept {
		socket, err := Dial("/proc", root, r.path, creds)
		assert.NilError(t, err)
		kept[i] = NewSender(counters, poller)
		assert.NilError(t, kept[i].Connect(socket, testRegistration))
		kept[i].Add(keyOf(i), 1, time.Now())
		r.expect(testRegistration, correlationOf(i, 1))
	}
	for _, s := range kept {
		testenv.Poll(t, patience, "senders to be idle", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.running && s.queue == nil
		})
	}
	each := (heapInUse() - before) / int64(senders)
	for _, s := range kept {
		s.Close()
	}
	return each
}

func heapInUse() int64 {
	var stats runtime.MemStats
	for range 3 { // what finalizers hold is freed by the second
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
