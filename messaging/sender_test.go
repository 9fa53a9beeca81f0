package messaging

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/lab/testenv"
)

const testDelay = 300 * time.Millisecond

var testRegistration = Registration{SamplesDelay: testDelay, HostID: "host"}

// fixture is a sender with a manual clock, and a receiver for it.
type fixture struct {
	*testing.T
	clock    *manualClock
	counters *Counters
	sender   *Sender
	receiver *receiver
}

func newFixture(t *testing.T) *fixture {
	return newFixtureWith(t, newTestPoller(t))
}

func newFixtureWith(t *testing.T, p *Poller) *fixture {
	clock, counters := newManualClock(), &Counters{}
	b := &fixture{T: t, clock: clock, counters: counters, sender: newSender(counters, p, clock), receiver: listen(t)}
	t.Cleanup(b.sender.Close)
	return b
}

func (b *fixture) connect() {
	b.Helper()
	if err := b.sender.Connect(b.receiver.dial(), testRegistration); err != nil {
		b.Fatal(err)
	}
}

// connected returns a fixture whose registration was sent and read.
func connected(t *testing.T) *fixture { return connectedWith(t, newTestPoller(t)) }

func connectedWith(t *testing.T, p *Poller) *fixture {
	b := newFixtureWith(t, p)
	b.connect()
	b.receiver.expect(testRegistration)
	b.settled()
	return b
}

// add adds samples that are as old as age.
func (b *fixture) add(key int, count uint64, age time.Duration) {
	b.sender.Add(keyOf(key), count, b.clock.Now().Add(-age))
}

// settled waits until the sender has sent what it can send now, and so has no goroutine.
func (b *fixture) settled() {
	b.Helper()
	testenv.Poll(b, patience, "the sender to settle", func() bool {
		b.sender.mu.Lock()
		defer b.sender.mu.Unlock()
		return !b.sender.running
	})
}

func (b *fixture) parked() bool {
	b.sender.mu.Lock()
	defer b.sender.mu.Unlock()
	return b.sender.parked
}

// expectStats checks the counts of the sender, and the shared counters.
func (b *fixture) expectStats(sent, queued uint64, dropped map[DropReason]uint64) {
	b.Helper()
	stats := b.sender.Stats()
	var total uint64
	for reason := range NumDropReasons {
		total += stats.Dropped[reason]
		if stats.Dropped[reason] != dropped[reason] {
			b.Errorf("dropped %d as %v, want %d", stats.Dropped[reason], reason, dropped[reason])
		}
		if got := b.counters.Dropped[reason].Load(); got != stats.Dropped[reason] {
			b.Errorf("counted %d as %v, the sender %d", got, reason, stats.Dropped[reason])
		}
	}
	if stats.Sent != sent || stats.Queued != queued || stats.Added != sent+queued+total {
		b.Errorf("%+v, want %d sent, %d queued, %d added", stats, sent, queued, sent+queued+total)
	}
	if b.counters.Added.Load() != stats.Added || b.counters.Sent.Load() != stats.Sent {
		b.Errorf("counted %d added, %d sent; the sender %+v", b.counters.Added.Load(), b.counters.Sent.Load(), stats)
	}
}

func correlationOf(key int, count uint16) correlation {
	return correlation{Key: keyOf(key), Count: count}
}

// While the receiver's queue is full the samples of a key are aggregated, also those added after
// the first attempt to send it, and the oldest key is sent first. Adding causes no further attempt.
func TestFullQueueAggregatesOldestFirst(t *testing.T) {
	b := connected(t)
	fits := b.receiver.fill()
	b.add(1, 1, 100*time.Millisecond)
	b.settled()
	if !b.parked() {
		t.Fatal("the sender does not wait for room")
	}
	b.add(2, 1, 200*time.Millisecond)
	b.add(1, 3, 0)
	b.add(3, 1, 250*time.Millisecond)
	b.expectStats(0, 6, nil)
	if got := b.counters.Waits.Load(); got != 1 {
		t.Errorf("tried %d times with a full queue, want once", got)
	}
	b.receiver.expectFillers(fits)
	b.receiver.expect(correlationOf(3, 1), correlationOf(2, 1), correlationOf(1, 4))
	b.settled()
	b.expectStats(6, 0, nil)
}

func (r *receiver) expectFillers(n int) {
	r.t.Helper()
	for range n {
		r.expect(filler)
	}
}

// Only wake-ups that find no room count towards a pause, and sending a message resets their number.
func TestNoPauseWithoutFutileWakeUps(t *testing.T) {
	p := stillPoller(t)
	b, fits := waiting(t, p)
	b.receiver.expectFillers(fits)
	expectReported(t, p, 1)
	b.receiver.expect(correlationOf(1, 1))
	for range maxFutileWakeups + 1 {
		b.receiver.fill()
		b.add(1, 1, 0)
		b.settled()
		b.sender.wake(b.sender.token)
		b.settled()
		b.receiver.expectFillers(fits)
		expectReported(t, p, 1)
		b.receiver.expect(correlationOf(1, 1))
		b.settled()
	}
	b.receiver.fill()
	b.add(1, 1, 0)
	b.settled()
	b.sender.wake(b.sender.token)
	for range maxFutileWakeups + 1 {
		b.settled()
		b.clock.advance(testDelay)
		b.add(1, 1, 0)
	}
	b.settled()
	if pauses := b.counters.Pauses.Load(); pauses != 0 {
		t.Errorf("%d pauses", pauses)
	}
}

func TestLateWhileWaiting(t *testing.T) {
	b := connected(t)
	fits := b.receiver.fill()
	b.add(1, 5, 0)
	b.settled()
	b.clock.advance(testDelay - 1)
	b.expectStats(0, 5, nil)
	b.clock.advance(1)
	b.expectStats(0, 0, map[DropReason]uint64{DropLate: 5})
	b.settled()
	b.receiver.expectFillers(fits)
	b.receiver.expectNothing()

	b.add(1, 1, 0) // there is room again
	b.receiver.expect(correlationOf(1, 1))
}

// A sample added during a wait may be late before those that are queued.
func TestOlderSampleWhileWaiting(t *testing.T) {
	b := connected(t)
	b.receiver.fill()
	b.add(1, 1, 0)
	b.settled()
	b.add(2, 1, 250*time.Millisecond)
	b.clock.advance(50 * time.Millisecond)
	b.expectStats(0, 1, map[DropReason]uint64{DropLate: 1})
	b.clock.advance(250 * time.Millisecond)
	b.expectStats(0, 0, map[DropReason]uint64{DropLate: 2})
}

// With more messages than the receiver holds, its queue is filled again each time it is read.
func TestAllRoomIsUsed(t *testing.T) {
	const total = 500
	b := connected(t)
	fits := b.receiver.fill()
	for n := range total {
		b.add(n, 1, 0)
	}
	b.settled()
	b.receiver.expectFillers(fits)
	for received := 0; received < total; {
		testenv.Poll(t, patience, "a full queue", func() bool {
			sent := int(b.sender.Stats().Sent)
			return sent == total || sent-received == fits
		})
		received += int(b.receiver.readAll())
	}
	b.settled()
	b.expectStats(total, 0, nil)
}

// Only the late samples of a key are dropped.
func TestLatePartOfAKey(t *testing.T) {
	b := connected(t)
	fits := b.receiver.fill()
	b.add(1, 3, 0)
	b.settled()
	b.clock.advance(200 * time.Millisecond)
	b.add(1, 2, 0)
	b.clock.advance(100 * time.Millisecond)
	b.expectStats(0, 2, map[DropReason]uint64{DropLate: 3})
	b.receiver.expectFillers(fits)
	b.receiver.expect(correlationOf(1, 2))
	b.settled()
	b.expectStats(2, 0, map[DropReason]uint64{DropLate: 3})
}

// Late samples are dropped even if the receiver has room again before the timer fires.
func TestLateIsNeverSent(t *testing.T) {
	b := connected(t)
	fits := b.receiver.fill()
	b.add(1, 3, 0)
	b.add(2, 1, -time.Hour) // a time in the future counts as now
	b.settled()
	b.clock.jump(testDelay)
	b.add(3, 1, 0)
	b.receiver.expectFillers(fits)
	b.receiver.expect(correlationOf(3, 1))
	b.settled()
	b.expectStats(1, 0, map[DropReason]uint64{DropLate: 4})
	b.receiver.expectNothing()
}

func TestAddedLate(t *testing.T) {
	b := connected(t)
	b.add(1, 7, testDelay)
	b.add(1, 1, testDelay-1)
	b.receiver.expect(correlationOf(1, 1))
	b.settled()
	b.expectStats(1, 0, map[DropReason]uint64{DropAddedLate: 7})
	b.sender.Disconnect() // the reason stays the same
	b.add(1, 1, testDelay)
	b.expectStats(1, 0, map[DropReason]uint64{DropAddedLate: 8})
}

func TestCountIsSplit(t *testing.T) {
	b := connected(t)
	b.add(1, 2*maxCount+3, 0)
	b.receiver.expect(correlationOf(1, maxCount), correlationOf(1, maxCount), correlationOf(1, 3))
	b.settled()
	b.expectStats(2*maxCount+3, 0, nil)
	b.add(1, 0, 0)
	b.settled()
	b.receiver.expectNothing()
}

func TestQueueFull(t *testing.T) {
	b := newFixture(t)
	for n := range maxQueued {
		b.add(n, 1, 0)
	}
	b.add(maxQueued, 5, 0)
	b.add(0, 1, 0)
	b.expectStats(0, maxQueued+1, map[DropReason]uint64{DropQueueFull: 5})
}

func TestClose(t *testing.T) {
	b := connected(t)
	b.receiver.fill()
	b.add(1, 2, 0)
	b.settled()
	b.add(2, 3, 0)
	b.sender.Close()
	b.expectStats(0, 0, map[DropReason]uint64{DropClosed: 5})
	b.add(3, 1, 0)
	b.expectStats(0, 0, map[DropReason]uint64{DropClosed: 6})
	b.sender.Close()
	b.settled()
}

func TestDrain(t *testing.T) {
	b := connected(t)
	if err := b.sender.Drain(context.Background()); err != nil {
		t.Errorf("with nothing queued: %v", err)
	}
	fits := b.receiver.fill()
	b.add(1, 2, 0)
	b.settled()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.sender.Drain(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with no time left: %v", err)
	}
	drained := make(chan error, 1)
	go func() { drained <- b.sender.Drain(context.Background()) }()
	b.receiver.expectFillers(fits)
	b.receiver.expect(correlationOf(1, 2))
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// Without a connection, draining ends when all samples are late.
func TestDrainWithoutConnection(t *testing.T) {
	b := connected(t)
	b.receiver.close()
	b.add(1, 2, 0)
	b.expectDown(unix.ECONNREFUSED)
	drained := make(chan error, 1)
	go func() { drained <- b.sender.Drain(context.Background()) }()
	testenv.Poll(t, patience, "Drain to wait", func() bool {
		b.sender.mu.Lock()
		defer b.sender.mu.Unlock()
		return b.sender.drained != nil
	})
	b.clock.advance(testDelay)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	b.expectStats(0, 0, map[DropReason]uint64{DropSocketGone: 2})
}

// An idle sender frees its queue, but not between two samples.
func TestIdleSenderFreesItsQueue(t *testing.T) {
	b := connected(t)
	held := func() bool {
		b.sender.mu.Lock()
		defer b.sender.mu.Unlock()
		return b.sender.queue != nil
	}
	for range 10 {
		b.add(1, 1, 0)
		b.receiver.expect(correlationOf(1, 1))
		b.settled()
		b.clock.advance(idleTime - 1)
		if !held() {
			t.Fatal("freed in use")
		}
	}
	b.clock.advance(2 * idleTime)
	b.clock.advance(2 * idleTime)
	if held() {
		t.Error("an idle sender keeps its queue")
	}
}

// While the kernel keeps the message to one receiver, the others get theirs.
func TestSlowReceiverDelaysNobody(t *testing.T) {
	p := newTestPoller(t)
	slow, other := connectedWith(t, p), connectedWith(t, p)
	socket := slow.sender.socket
	socket.mu.Lock() // as sendmsg has it
	slow.add(1, 1, 0)
	other.add(2, 1, 0)
	other.settled()
	other.expectStats(1, 0, nil)
	if sent := slow.sender.Stats().Sent; sent != 0 {
		t.Errorf("%d samples sent to the slow receiver", sent)
	}
	socket.mu.Unlock()
	slow.settled()
	slow.expectStats(1, 0, nil)
}
