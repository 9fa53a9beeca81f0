package messaging

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

const testDelay = 300 * time.Millisecond

var testRegistration = Registration{SamplesDelay: testDelay, HostID: "host"}

// fixture is a sender and a receiver for it, on the fake clock of a bubble (testing/synctest). The
// poller has no goroutine: it wakes senders only when the test calls poll.
type fixture struct {
	*testing.T
	poller   *Poller
	counters *Counters
	sender   *Sender
	receiver *receiver
}

// stillPoller returns a poller without a goroutine.
func stillPoller(t *testing.T) *Poller {
	t.Helper()
	p, err := openPoller()
	assert.NilError(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// unconnected returns a fixture whose sender has no connection.
func unconnected(t *testing.T, p *Poller) *fixture {
	b := &fixture{T: t, poller: p, counters: new(Counters), receiver: listen(t)}
	b.receiver.pump = b.pump
	b.sender = NewSender(b.counters, p)
	t.Cleanup(b.sender.Close)
	return b
}

// connected returns a fixture whose registration was sent and read.
func connected(t *testing.T, p *Poller) *fixture {
	b := unconnected(t, p)
	b.connect()
	b.receiver.expect(testRegistration)
	b.settled()
	return b
}

func (b *fixture) connect() {
	b.Helper()
	assert.NilError(b, b.sender.Connect(b.receiver.dial(), testRegistration))
}

// relisten gives the fixture another receiver.
func (b *fixture) relisten() {
	b.Helper()
	b.receiver = listen(b.T)
	b.receiver.pump = b.pump
}

// add adds samples that are as old as age.
func (b *fixture) add(key int, count uint64, age time.Duration) {
	b.sender.Add(keyOf(key), count, time.Now().Add(-age))
}

// settled waits until the sender has sent what it can send now, and so has no goroutine.
func (b *fixture) settled() { synctest.Wait() }

// pump has senders send until there is no more room.
func (b *fixture) pump() {
	for synctest.Wait(); b.poller.poll() > 0; {
		synctest.Wait()
	}
}

// advance advances the time: timers that are due have then run.
func (b *fixture) advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// jump advances the time as if the sender's timer was late.
func (b *fixture) jump(d time.Duration) {
	b.sender.mu.Lock()
	if b.sender.timer != nil {
		b.sender.timer.Stop()
		b.sender.timerNs = never
	}
	b.sender.mu.Unlock()
	time.Sleep(d)
}

func (b *fixture) parked() bool {
	b.sender.mu.Lock()
	defer b.sender.mu.Unlock()
	return b.sender.parked
}

func (b *fixture) expectParked(want bool) {
	b.Helper()
	assert.Assert(b, b.parked() == want, "waits for room: %v", !want)
}

// expectStats checks the counts of the sender, and the shared counters.
func (b *fixture) expectStats(sent, queued uint64, dropped map[DropReason]uint64) {
	b.Helper()
	stats := b.sender.Stats()
	for reason := range NumDropReasons {
		assert.Check(b, stats.Dropped[reason] == dropped[reason], "dropped as %v: %+v", reason, stats)
		assert.Check(b, b.counters.SamplesDropped[reason].Load() == dropped[reason],
			"counted as %v: %+v", reason, stats)
	}
	added := sent + queued + sum(stats.Dropped)
	assert.Check(b, stats.Sent == sent && stats.Queued == queued && stats.Added == added,
		"%+v, want %d sent, %d queued, %d added", stats, sent, queued, added)
	assert.Check(b, b.counters.SamplesQueued.Load() == added && b.counters.SamplesSent.Load() == sent,
		"not the sender's: %+v", stats)
}

func sum(counts [NumDropReasons]uint64) (total uint64) {
	for _, count := range counts {
		total += count
	}
	return total
}

func correlationOf(key int, count uint16) correlation {
	return correlation{Key: keyOf(key), Count: count}
}

// inBubbles runs each test in a bubble.
func inBubbles[F any](t *testing.T, open func(*testing.T, *Poller) F, tests map[string]func(F)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(open(t, stillPoller(t))) })
		})
	}
}

// What a sender does with samples while it is connected.
func TestSender(t *testing.T) {
	inBubbles(t, connected, map[string]func(*fixture){
		"full queue":           fullQueueAggregatesOldestFirst,
		"no futile wake-ups":   noPauseWithoutFutileWakeUps,
		"late":                 lateWhileWaiting,
		"older sample":         olderSampleWhileWaiting,
		"all room is used":     allRoomIsUsed,
		"late part of a key":   latePartOfAKey,
		"late is never sent":   lateIsNeverSent,
		"added late":           addedLate,
		"count is split":       countIsSplit,
		"closed":               closed,
		"drained":              drained,
		"drained without":      drainedWithoutConnection,
		"idle":                 idleSenderFreesItsQueue,
		"ages of each part":    ageOfEachPart,
		"ages of what missed":  agesOfWhatMissed,
		"stats while sending":  statsWhileSending,
		"futile wake-ups":      futileWakeUpsPause,
		"connect ends a pause": connectEndsPause,
		"flushed":              flushed,
		"flushed while slow":   flushedWhileSlow,
		"late at a tick":       lateAtTick,
	})
}

// While the receiver's queue is full the samples of a key are aggregated, also those added after
// the first attempt to send it, and the oldest key is sent first. Adding causes no further attempt.
func fullQueueAggregatesOldestFirst(b *fixture) {
	fits := b.receiver.fill()
	b.add(1, 1, 100*time.Millisecond)
	b.settled()
	b.expectParked(true)
	b.add(2, 1, 200*time.Millisecond)
	b.add(1, 3, 0)
	b.add(3, 1, 250*time.Millisecond)
	b.expectStats(0, 6, nil)
	assert.Check(b, b.counters.SendWaits.Load() == 1, "tried more than once with a full queue")
	b.receiver.expectFillers(fits)
	b.receiver.expect(correlationOf(3, 1), correlationOf(2, 1), correlationOf(1, 4))
	b.expectStats(6, 0, nil)
}

// Only wake-ups that find no room count towards a pause, and sending a message resets their number.
func noPauseWithoutFutileWakeUps(b *fixture) {
	for range maxFutileWakeups + 1 {
		fits := b.receiver.fill()
		b.add(1, 1, 0)
		b.settled()
		b.sender.wake(b.sender.token)
		b.settled()
		b.receiver.expectFillers(fits)
		b.receiver.expect(correlationOf(1, 1))
	}
	b.receiver.fill()
	b.add(1, 1, 0)
	b.settled()
	b.sender.wake(b.sender.token)
	for range maxFutileWakeups + 1 {
		b.settled()
		b.advance(testDelay)
		b.add(1, 1, 0)
	}
	b.settled()
	assert.Check(b, b.counters.SendPauses.Load() == 0)
}

func lateWhileWaiting(b *fixture) {
	fits := b.receiver.fill()
	b.add(1, 5, 0)
	b.settled()
	b.advance(testDelay - 1)
	b.expectStats(0, 5, nil)
	b.advance(1)
	b.expectStats(0, 0, map[DropReason]uint64{DropLate: 5})
	b.receiver.expectFillers(fits)
	b.receiver.expectNothing()

	b.add(1, 1, 0) // there is room again
	b.receiver.expect(correlationOf(1, 1))
}

// A sample added during a wait may be late before those that are queued.
func olderSampleWhileWaiting(b *fixture) {
	b.receiver.fill()
	b.add(1, 1, 0)
	b.settled()
	b.add(2, 1, 250*time.Millisecond)
	b.advance(50 * time.Millisecond)
	b.expectStats(0, 1, map[DropReason]uint64{DropLate: 1})
	b.advance(250 * time.Millisecond)
	b.expectStats(0, 0, map[DropReason]uint64{DropLate: 2})
}

// With more messages than the receiver holds, its queue is filled again each time it is read.
func allRoomIsUsed(b *fixture) {
	const total = 500
	fits := b.receiver.fill()
	for n := range total {
		b.add(n, 1, 0)
	}
	b.settled()
	b.receiver.expectFillers(fits)
	for received := 0; received < total; received += int(b.receiver.readAll()) {
		b.pump()
		sent := int(b.sender.Stats().Sent)
		assert.Assert(b, sent == total || sent-received == fits, "%d sent, %d received, %d fit", sent, received, fits)
	}
	b.expectStats(total, 0, nil)
}

// Only the late samples of a key are dropped.
func latePartOfAKey(b *fixture) {
	fits := b.receiver.fill()
	b.add(1, 3, 0)
	b.settled()
	b.advance(200 * time.Millisecond)
	b.add(1, 2, 0)
	b.advance(100 * time.Millisecond)
	b.expectStats(0, 2, map[DropReason]uint64{DropLate: 3})
	b.receiver.expectFillers(fits)
	b.receiver.expect(correlationOf(1, 2))
	b.expectStats(2, 0, map[DropReason]uint64{DropLate: 3})
}

// Late samples are dropped even if the receiver has room again before the timer fires.
func lateIsNeverSent(b *fixture) {
	fits := b.receiver.fill()
	b.add(1, 3, 0)
	b.add(2, 1, -time.Hour) // a time in the future counts as now
	b.settled()
	b.jump(testDelay)
	b.add(3, 1, 0)
	b.receiver.expectFillers(fits)
	b.receiver.expect(correlationOf(3, 1))
	b.settled()
	b.expectStats(1, 0, map[DropReason]uint64{DropLate: 4})
	b.receiver.expectNothing()
}

func addedLate(b *fixture) {
	b.add(1, 7, testDelay)
	b.add(1, 1, testDelay-1)
	b.receiver.expect(correlationOf(1, 1))
	b.expectStats(1, 0, map[DropReason]uint64{DropAddedLate: 7})
	b.sender.Disconnect() // the reason stays the same
	b.add(1, 1, testDelay)
	b.expectStats(1, 0, map[DropReason]uint64{DropAddedLate: 8})
}

func countIsSplit(b *fixture) {
	b.add(1, 2*maxCount+3, 0)
	b.receiver.expect(correlationOf(1, maxCount), correlationOf(1, maxCount), correlationOf(1, 3))
	b.expectStats(2*maxCount+3, 0, nil)
	b.add(1, 0, 0)
	b.settled()
	b.receiver.expectNothing()
}

func closed(b *fixture) {
	b.receiver.fill()
	b.add(1, 2, 0)
	b.settled()
	b.add(2, 3, 0)
	b.sender.Close()
	b.expectStats(0, 0, map[DropReason]uint64{DropClosed: 5})
	b.add(3, 1, 0)
	b.expectStats(0, 0, map[DropReason]uint64{DropClosed: 6})
	b.sender.Close()
}

func drained(b *fixture) {
	assert.NilError(b, b.sender.Drain(context.Background())) // with nothing queued
	fits := b.receiver.fill()
	b.add(1, 2, 0)
	b.settled()
	assert.ErrorIs(b, b.sender.Drain(testenv.Ended()), context.Canceled)
	drained := b.drain()
	b.receiver.expectFillers(fits)
	b.receiver.expect(correlationOf(1, 2))
	assert.NilError(b, <-drained)
}

// drain begins to drain, and returns when that waits.
func (b *fixture) drain() <-chan error {
	drained := make(chan error, 1)
	go func() { drained <- b.sender.Drain(context.Background()) }()
	b.settled()
	assert.Check(b, len(drained) == 0, "it does not wait")
	return drained
}

// Without a connection, draining ends when all samples are late.
func drainedWithoutConnection(b *fixture) {
	b.receiver.close()
	b.add(1, 2, 0)
	b.expectDown(unix.ECONNREFUSED)
	drained := b.drain()
	b.advance(testDelay)
	assert.NilError(b, <-drained)
	b.expectStats(0, 0, map[DropReason]uint64{DropSocketGone: 2})
}

// An idle sender frees its queue, but not between two samples.
func idleSenderFreesItsQueue(b *fixture) {
	held := func() bool {
		b.sender.mu.Lock()
		defer b.sender.mu.Unlock()
		return b.sender.queue != nil
	}
	for range 10 {
		b.add(1, 1, 0)
		b.receiver.expect(correlationOf(1, 1))
		b.advance(idleTime - 1)
		assert.Assert(b, held(), "freed in use")
	}
	b.advance(3 * idleTime)
	assert.Check(b, !held(), "an idle sender keeps its queue")
}

// What is queued is sent when it is flushed, by the caller and in the order of its age, as far as there is room.
func flushed(b *fixture) {
	queue := func(key int, count uint64, age time.Duration) {
		b.sender.Queue(keyOf(key), count, time.Now().Add(-age))
	}
	b.sender.Flush()
	queue(1, 2, 0)
	queue(2, 1, 10*time.Millisecond)
	queue(1, 3, 0)
	b.settled()
	b.receiver.expectNothing()
	b.expectStats(0, 6, nil)
	b.sender.Flush()
	b.expectStats(6, 0, nil) // without a goroutine, for which it would have to be waited
	b.receiver.expect(correlationOf(2, 1), correlationOf(1, 5))
	fits := b.receiver.fill()
	queue(3, 1, 0)
	b.sender.Flush()
	b.expectParked(true)
	queue(4, 1, 0)
	b.sender.Flush()
	assert.Check(b, b.counters.SendWaits.Load() == 1, "tried more than once with a full queue")
	b.receiver.expectFillers(fits)
	b.receiver.expect(correlationOf(3, 1), correlationOf(4, 1))
	b.sender.Close()
	queue(5, 1, 0)
	b.sender.Flush()
	b.expectStats(8, 0, map[DropReason]uint64{DropClosed: 1})
}

// After a message that took the kernel long, of whichever sender, nobody who flushes waits for the kernel: for a
// hundred times as long.
func flushedWhileSlow(b *fixture) {
	assert.Check(b, !b.poller.isSlow(slowTime) && b.poller.isQuick())
	assert.Check(b, b.poller.isSlow(2*slowTime))
	b.advance(200*slowTime - 1)
	assert.Check(b, !b.poller.isQuick())
	socket := b.sender.socket
	socket.mu.Lock() // as sendmsg has it
	b.sender.Queue(keyOf(1), 1, time.Now())
	b.sender.Flush()
	assert.Check(b, b.sender.Stats().Sent == 0)
	socket.mu.Unlock()
	b.receiver.expect(correlationOf(1, 1))
	b.advance(1)
	assert.Check(b, b.poller.isQuick())
}

// What becomes late while nothing is added, and nobody asks, is dropped at the second tick at the latest.
func lateAtTick(b *fixture) {
	b.receiver.fill()
	b.add(1, 5, 0)
	b.settled()
	b.advance(2 * idleTime)
	assert.Check(b, b.counters.SamplesDropped[DropLate].Load() == 5)
	b.expectParked(false)
}

// At most maxQueued keys wait; more samples of one that waits are no more keys.
func TestQueueFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := unconnected(t, stillPoller(t))
		for n := range maxQueued {
			b.add(n, 1, 0)
		}
		b.add(maxQueued, 5, 0)
		b.add(0, 1, 0)
		b.expectStats(0, maxQueued+1, map[DropReason]uint64{DropQueueFull: 5})
	})
}

// While the kernel keeps the message to one receiver, the others get theirs.
func TestSlowReceiverDelaysNobody(t *testing.T) {
	p := newTestPoller(t)
	slow, other := NewSender(new(Counters), p), NewSender(new(Counters), p)
	receivers := make(map[*Sender]*receiver)
	for _, s := range []*Sender{slow, other} {
		t.Cleanup(s.Close)
		receivers[s] = listen(t)
		assert.NilError(t, s.Connect(receivers[s].dial(), longRegistration))
		receivers[s].expect(longRegistration)
	}
	socket := slow.socket
	socket.mu.Lock() // as sendmsg has it
	slow.Add(keyOf(1), 1, time.Now())
	other.Add(keyOf(2), 1, time.Now())
	receivers[other].expect(correlationOf(2, 1))
	assert.Check(t, slow.Stats().Sent == 0)
	socket.mu.Unlock()
	receivers[slow].expect(correlationOf(1, 1))
}
