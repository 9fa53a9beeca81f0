package messaging

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// What the poller wakes senders for.
func TestPoller(t *testing.T) {
	inBubbles(t, connected, map[string]func(*fixture){
		"no event without wait":  noEventWithoutWait,
		"room before arming":     roomBeforeArming,
		"late ends wait":         lateEndsWait,
		"cannot be armed":        socketCannotBeArmed,
		"descriptor reused":      descriptorReused,
		"gone while waiting":     receiverGoneWhileWaiting,
		"disconnected, no room":  func(b *fixture) { b.endsWaitWithoutRoom(b.sender.Disconnect) },
		"closed, no room":        func(b *fixture) { b.endsWaitWithoutRoom(b.sender.Close) },
		"replaced, without room": func(b *fixture) { b.endsWaitWithoutRoom(func() { b.relisten(); b.connect() }) },
	})
}

// expectReported checks how many sockets the kernel reports now.
func (b *fixture) expectReported(want int) {
	b.Helper()
	got := b.poller.poll()
	assert.Assert(b, got == want, "reported %d sockets, want %d", got, want)
	b.settled()
}

// block fills the receiver's queue and has the sender wait for room. It returns how many fillers fit.
func (b *fixture) block(key int) (fits int) {
	b.Helper()
	fits = b.receiver.fill()
	b.add(key, 1, 0)
	b.settled()
	b.expectParked(true)
	return fits
}

// expectOnly checks that a message has arrived without the poller's help.
func (b *fixture) expectOnly(want Message) {
	b.Helper()
	b.settled()
	got, _ := b.receiver.read()
	assert.Assert(b, got == want, "received %+v, want %+v", got, want)
}

// A receiver that reads causes no event unless the sender waits for room, and then one.
func noEventWithoutWait(b *fixture) {
	b.poller.last = 1 << 40 // tokens have 64 bits
	exchange := func() {
		b.Helper()
		for n := range 50 {
			b.add(n, 1, 0)
			b.expectOnly(correlationOf(n, 1))
			b.expectReported(0)
		}
	}
	exchange()
	assert.Check(b, len(b.watched()) == 0, "a socket is watched though its sender does not wait")
	for range 3 {
		fits := b.block(1)
		b.expectReported(0)
		b.receiver.expectFillers(fits)
		b.expectReported(1)
		b.expectOnly(correlationOf(1, 1))
		exchange()
		for _, mask := range b.watched() {
			assert.Check(b, mask == "40000000", "watched after the wait") // EPOLLONESHOT alone: disarmed
		}
	}
	assert.Check(b, b.counters.SendWaits.Load() == 3)
}

// watched returns the events (in hex) for which the sender's socket is in epoll instances of this
// process, including that of the Go runtime, from /proc/PID/fdinfo.
func (b *fixture) watched() (masks []string) {
	b.Helper()
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	assert.NilError(b, err)
	watches := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // closed meanwhile
		}
		for line := range strings.Lines(string(text)) {
			var fd int
			var mask string
			if n, _ := fmt.Sscanf(line, "tfd: %d events: %s", &fd, &mask); n == 2 {
				watches++
				if fd == b.sender.socket.fd {
					masks = append(masks, mask)
				}
			}
		}
	}
	assert.Assert(b, watches > 0, "no epoll instance found") // the poller itself is watched by the runtime
	return masks
}

// Room that is made after a failed attempt, but before the socket is armed, is reported too.
func roomBeforeArming(b *fixture) {
	for range 3 { // EPOLL_CTL_ADD, then EPOLL_CTL_MOD
		b.take()
		fits := b.receiver.fill()
		b.add(2, 1, 0)
		err := b.sender.current.send(b.sender.next(), false)
		assert.Assert(b, b.sender.complete(err) == full, "%v, want a full queue", err)
		b.receiver.expectFillers(fits)
		b.sender.await()
		assert.Assert(b, b.sender.next() == nil, "does not wait")
		b.expectReported(1)
		b.expectOnly(correlationOf(2, 1))
	}
}

// A wait that has ended is not confused with the next one, nor a socket with another one with the
// same descriptor number, even while the kernel still watches the former one because a child that
// is about to exec holds it.
func descriptorReused(second *fixture) {
	first := connected(second.T, second.poller)
	fits := first.block(1)
	number := first.sender.socket.fd
	held, err := unix.FcntlInt(uintptr(number), unix.F_DUPFD_CLOEXEC, 0)
	assert.NilError(first, err)
	defer unix.Close(held)
	first.sender.Disconnect()
	first.expectParked(false)
	second.renumber(number)
	second.block(1)

	// The first sender also waits, with another socket.
	stale := first.sender.token
	old := first.receiver
	first.relisten()
	fitsNext := first.receiver.fill()
	first.connect()
	first.settled()

	old.expectFillers(fits)
	first.expectReported(1)
	first.sender.wake(stale) // as if it was reported just before the socket was closed
	first.settled()
	first.expectParked(true)
	second.expectParked(true)
	assert.Check(first, first.counters.SendWaits.Load() == 2 && second.counters.SendWaits.Load() == 1)
	first.receiver.expectFillers(fitsNext)
	first.expectReported(1)
	first.expectOnly(testRegistration)
	first.expectOnly(correlationOf(1, 1))
	second.expectParked(true)
}

// renumber moves the sender's idle socket to a descriptor number that is free.
func (b *fixture) renumber(number int) {
	b.Helper()
	socket := b.sender.socket
	assert.NilError(b, unix.Dup3(socket.fd, number, unix.O_CLOEXEC))
	unix.Close(socket.fd)
	socket.fd = number
}

// However a wait ends without room, the poller then has no record of it, and reports nothing.
func (b *fixture) endsWaitWithoutRoom(end func()) {
	fits := b.block(1)
	old := b.receiver
	end()
	b.settled()
	b.expectParked(false)
	old.expectFillers(fits)
	b.expectReported(0)
	assert.Check(b, len(b.poller.waiting) == 0)
}

// When all queued samples are late the wait ends, and the next sample is tried: the receiver may
// have shut down, which epoll does not report.
func lateEndsWait(b *fixture) {
	fits := b.block(1)
	b.advance(testDelay + idleTime) // with a tick
	b.expectParked(false)
	assert.Check(b, len(b.poller.waiting) == 0)
	b.add(2, 1, 0) // still no room
	b.settled()
	b.expectParked(true)
	b.receiver.expectFillers(fits)
	b.expectReported(1)
	b.expectOnly(correlationOf(2, 1))

	b.block(3)
	assert.NilError(b, unix.Shutdown(b.receiver.fd, unix.SHUT_RD))
	b.expectReported(0)
	b.advance(testDelay)
	b.add(4, 1, 0)
	b.expectDown(unix.EPIPE)
	b.expectStats(1, 1, map[DropReason]uint64{DropLate: 2})
}

// A receiver that closes its socket wakes all senders that wait for room, as room does.
func receiverGoneWhileWaiting(first *fixture) {
	first.block(1)
	second := unconnected(first.T, first.poller)
	second.receiver = first.receiver
	second.connect()
	second.settled()
	second.expectParked(true)
	first.expectReported(0)
	first.receiver.close()
	first.expectReported(2)
	first.expectDown(unix.ECONNREFUSED)
	first.expectStats(0, 1, nil)
	second.expectDown(unix.ECONNREFUSED)
	first.expectReported(0)
}

// More senders than one call of epoll_wait reports wait at once, without goroutines, for which the
// bubble would wait. One poll wakes those whose own receiver has room, and no others.
func TestManyWait(t *testing.T) {
	const senders = 3*pollBatch + 1
	synctest.Test(t, func(t *testing.T) {
		p := stillPoller(t)
		var all []*fixture
		var fits int
		for range senders {
			b := connected(t, p)
			fits = b.block(1)
			all = append(all, b)
		}
		assert.Check(t, len(p.waiting) == senders)
		for from := range 2 {
			for i := from; i < senders; i += 2 {
				all[i].receiver.expectFillers(fits)
			}
			all[0].expectReported((senders + 1 - from) / 2)
			for i := from; i < senders; i += 2 {
				all[i].expectOnly(correlationOf(1, 1))
			}
			for i := 1; from == 0 && i < senders; i += 2 {
				all[i].expectParked(true)
			}
		}
	})
}

// If the kernel watches no more sockets (memory, fs.epoll.max_user_watches), the sender tries again
// after each pause.
func socketCannotBeArmed(b *fixture) {
	epoll := b.poller.epoll
	b.poller.epoll = -1
	fits := b.receiver.fill()
	b.add(1, 1, 0)
	b.settled()
	for n := range 3 {
		b.expectParked(false)
		b.poller.mu.Lock()
		waiting := len(b.poller.waiting)
		b.poller.mu.Unlock()
		got := b.counters.SendPauses.Load()
		assert.Assert(b, got == uint64(n+1) && waiting == 0, "%d pauses, want %d", got, n+1)
		if n == 2 {
			b.sender.mu.Lock() // which its timer locks before it reads the descriptor
			b.poller.epoll = epoll
			b.sender.mu.Unlock()
		}
		b.advance(pauseTime)
	}
	b.expectParked(true)
	b.receiver.expectFillers(fits)
	b.expectReported(1)
	b.expectOnly(correlationOf(1, 1))
	b.expectStats(1, 0, nil)
}

// Close waits for the goroutine, and closes the descriptor.
func TestPollerClose(t *testing.T) {
	p, err := NewPoller()
	assert.NilError(t, err)
	assert.NilError(t, p.Close())
	_, err = unix.EpollWait(p.epoll, p.events[:], 0)
	assert.Check(t, err == unix.EBADF || err == unix.EINVAL, "waiting on a closed poller: %v", err)
}
