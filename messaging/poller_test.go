package messaging

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/lab/testenv"
)

// stillPoller returns a poller without a goroutine: it wakes senders only when the test calls poll.
func stillPoller(t *testing.T) *Poller {
	t.Helper()
	p, err := openPoller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// expectReported checks how many sockets the kernel reports now.
func expectReported(t *testing.T, p *Poller, want int) {
	t.Helper()
	if got := p.poll(); got != want {
		t.Fatalf("reported %d sockets, want %d", got, want)
	}
}

// waiting returns a connected fixture whose sender waits for room.
func waiting(t *testing.T, p *Poller) (b *fixture, fits int) {
	t.Helper()
	b = connectedWith(t, p)
	fits = b.receiver.fill()
	b.add(1, 1, 0)
	b.settled()
	b.expectParked(true)
	return b, fits
}

func (b *fixture) expectParked(want bool) {
	b.Helper()
	if b.parked() != want {
		b.Fatalf("waits for room: %v", !want)
	}
}

// A receiver that reads causes no event unless the sender waits for room, and then one.
func TestNoEventWithoutWait(t *testing.T) {
	p := stillPoller(t)
	p.last = 1 << 40 // tokens have 64 bits
	b := connectedWith(t, p)
	exchange := func() {
		t.Helper()
		for n := range 50 {
			b.add(n, 1, 0)
			b.receiver.expect(correlationOf(n, 1))
			expectReported(t, p, 0)
		}
		b.settled()
	}
	exchange()
	if watched := b.watched(); len(watched) != 0 {
		t.Errorf("a socket is watched though its sender does not wait: %q", watched)
	}
	for range 3 {
		fits := b.receiver.fill()
		b.add(1, 1, 0)
		b.settled()
		b.expectParked(true)
		expectReported(t, p, 0)
		b.receiver.expectFillers(fits)
		expectReported(t, p, 1)
		b.receiver.expect(correlationOf(1, 1))
		b.settled()
		exchange()
		for _, mask := range b.watched() {
			if mask != "40000000" { // EPOLLONESHOT alone: disarmed
				t.Errorf("a socket is watched for %s after the wait", mask)
			}
		}
	}
	if waits := b.counters.Waits.Load(); waits != 3 {
		t.Errorf("%d failed attempts, want 3", waits)
	}
}

// watched returns the events (in hex) for which the sender's socket is in epoll instances of this
// process, including that of the Go runtime, from /proc/PID/fdinfo.
func (b *fixture) watched() (masks []string) {
	b.Helper()
	b.sender.mu.Lock()
	socket := b.sender.socket
	b.sender.mu.Unlock()
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		b.Fatal(err)
	}
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
				if fd == socket.fd {
					masks = append(masks, mask)
				}
			}
		}
	}
	if watches == 0 { // the poller itself is watched by the runtime
		b.Fatal("no epoll instance found")
	}
	return masks
}

// Room that is made after a failed attempt, but before the socket is armed, is reported too.
func TestRoomBeforeArming(t *testing.T) {
	p := stillPoller(t)
	b := connectedWith(t, p)
	for n := range 3 { // EPOLL_CTL_ADD, then EPOLL_CTL_MOD
		b.add(1, 1, 0)
		b.settled()
		b.receiver.expect(correlationOf(1, 1))
		b.take()
		fits := b.receiver.fill()
		b.add(2, 1, 0)
		if err := b.sender.current.send(b.sender.next()); b.sender.complete(err) != full {
			t.Fatalf("round %d: %v, want a full queue", n, err)
		}
		b.receiver.expectFillers(fits)
		b.sender.await()
		if b.sender.next() != nil {
			t.Fatal("does not wait")
		}
		expectReported(t, p, 1)
		b.receiver.expect(correlationOf(2, 1))
		b.settled()
	}
}

// A wait that has ended is not confused with the next one, nor a socket with another one with the
// same descriptor number, even while the kernel still watches the former one because a child that
// is about to exec holds it.
func TestDescriptorReused(t *testing.T) {
	p := stillPoller(t)
	second := connectedWith(t, p)
	first, fits := waiting(t, p)
	number := first.sender.socket.fd
	held, err := unix.FcntlInt(uintptr(number), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	first.sender.Disconnect()
	first.expectParked(false)
	second.renumber(number)
	second.receiver.fill()
	second.add(1, 1, 0)
	second.settled()

	// The first sender also waits, with another socket.
	stale := first.sender.token
	old := first.receiver
	first.receiver = listen(t)
	fitsNext := first.receiver.fill()
	first.connect()
	first.settled()

	old.expectFillers(fits)
	expectReported(t, p, 1)
	first.sender.wake(stale) // as if it was reported just before the socket was closed
	first.settled()
	second.settled()
	first.expectParked(true)
	second.expectParked(true)
	if first, second := first.counters.Waits.Load(), second.counters.Waits.Load(); first != 2 || second != 1 {
		t.Errorf("%d and %d failed attempts, want 2 and 1", first, second)
	}
	first.receiver.expectFillers(fitsNext)
	expectReported(t, p, 1)
	first.receiver.expect(testRegistration, correlationOf(1, 1))
	second.expectParked(true)
}

// renumber moves the sender's idle socket to a descriptor number that is free.
func (b *fixture) renumber(number int) {
	b.Helper()
	socket := b.sender.socket
	if err := unix.Dup3(socket.fd, number, unix.O_CLOEXEC); err != nil {
		b.Fatal(err)
	}
	unix.Close(socket.fd)
	socket.fd = number
}

// However a wait ends without room, the poller then has no record of it, and reports nothing.
func TestWaitEndsWithoutRoom(t *testing.T) {
	for name, end := range map[string]func(*fixture){
		"disconnected": func(b *fixture) { b.sender.Disconnect() },
		"closed":       func(b *fixture) { b.sender.Close() },
		"replaced":     func(b *fixture) { b.receiver = listen(t); b.connect(); b.settled() },
	} {
		p := stillPoller(t)
		b, fits := waiting(t, p)
		old := b.receiver
		end(b)
		b.expectParked(false)
		old.expectFillers(fits)
		if got := p.poll(); got != 0 || len(p.waiting) != 0 {
			t.Errorf("%s: reported %d sockets, %d waits left", name, got, len(p.waiting))
		}
	}
}

// When all queued samples are late the wait ends, and the next sample is tried: the receiver may
// have shut down, which epoll does not report.
func TestLateEndsWait(t *testing.T) {
	p := stillPoller(t)
	b, fits := waiting(t, p)
	b.clock.advance(testDelay)
	b.expectParked(false)
	if len(p.waiting) != 0 {
		t.Errorf("%d waits left", len(p.waiting))
	}
	b.add(2, 1, 0) // still no room
	b.settled()
	b.expectParked(true)
	b.receiver.expectFillers(fits)
	expectReported(t, p, 1)
	b.receiver.expect(correlationOf(2, 1))
	b.settled()

	b.receiver.fill()
	b.add(3, 1, 0)
	b.settled()
	if err := unix.Shutdown(b.receiver.fd, unix.SHUT_RD); err != nil {
		t.Fatal(err)
	}
	expectReported(t, p, 0)
	b.clock.advance(testDelay)
	b.add(4, 1, 0)
	b.expectDown(unix.EPIPE)
	b.expectStats(1, 1, map[DropReason]uint64{DropLate: 2})
}

// A receiver that closes its socket wakes all senders that wait for room, as room does.
func TestReceiverGoneWhileWaiting(t *testing.T) {
	p := stillPoller(t)
	first, _ := waiting(t, p)
	second := newFixtureWith(t, p)
	second.receiver = first.receiver
	second.connect()
	second.settled()
	second.expectParked(true)
	expectReported(t, p, 0)
	first.receiver.close()
	expectReported(t, p, 2)
	first.expectDown(unix.ECONNREFUSED)
	first.expectStats(0, 1, nil)
	second.expectDown(unix.ECONNREFUSED)
	expectReported(t, p, 0)
}

// More senders than one call of epoll_wait reports wait at once, without goroutines. Each sends
// when its own receiver has room.
func TestManyWait(t *testing.T) {
	const senders = 3*pollBatch + 1
	counters, poller := &Counters{}, newTestPoller(t)
	goroutines := runtime.NumGoroutine()
	all := make([]*Sender, senders)
	receivers := make([]*receiver, senders)
	var fits int
	for i := range all {
		all[i], receivers[i] = NewSender(counters, poller), listen(t)
		t.Cleanup(all[i].Close)
		fits = receivers[i].fill()
		if err := all[i].Connect(receivers[i].dial(), longRegistration); err != nil {
			t.Fatal(err)
		}
		all[i].Add(keyOf(i), 1, time.Now())
	}
	testenv.Poll(t, patience, "all to wait", func() bool {
		poller.mu.Lock()
		defer poller.mu.Unlock()
		return len(poller.waiting) == senders
	})
	testenv.Poll(t, patience, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
	for i := 0; i < senders; i += 2 { // the others keep waiting
		receivers[i].expectFillers(fits)
	}
	for i := 0; i < senders; i += 2 {
		receivers[i].expect(longRegistration, correlationOf(i, 1))
	}
	if waits := counters.Waits.Load(); waits < senders || waits > senders+uint64(senders/2+1) {
		t.Errorf("%d failed attempts of %d senders", waits, senders)
	}
	for i := 1; i < senders; i += 2 {
		if stats := all[i].Stats(); stats.Queued != 1 || stats.Registered {
			t.Errorf("sender %d: %+v", i, stats)
		}
		receivers[i].expectFillers(fits)
		receivers[i].expect(longRegistration, correlationOf(i, 1))
	}
}

// One poll wakes all senders that have room, even more than one call of epoll_wait reports.
func TestPollWakesMany(t *testing.T) {
	const senders = 2*pollBatch + 1
	p := stillPoller(t)
	var all []*fixture
	for range senders {
		b, fits := waiting(t, p)
		b.receiver.expectFillers(fits)
		all = append(all, b)
	}
	expectReported(t, p, senders)
	for _, b := range all {
		b.receiver.expect(correlationOf(1, 1))
	}
}

// If the kernel watches no more sockets (memory, fs.epoll.max_user_watches), the sender tries again
// after each pause.
func TestSocketCannotBeArmed(t *testing.T) {
	p := stillPoller(t)
	epoll := p.epoll
	p.epoll = -1
	b := connectedWith(t, p)
	fits := b.receiver.fill()
	b.add(1, 1, 0)
	b.settled()
	for n := range 3 {
		b.expectParked(false)
		if got := b.counters.Pauses.Load(); got != uint64(n+1) || len(p.waiting) != 0 {
			t.Fatalf("%d pauses, %d waits, want %d and none", got, len(p.waiting), n+1)
		}
		if n == 2 {
			p.epoll = epoll
		}
		b.clock.advance(pauseTime)
		b.settled()
	}
	b.expectParked(true)
	b.receiver.expectFillers(fits)
	expectReported(t, p, 1)
	b.receiver.expect(correlationOf(1, 1))
	b.expectStats(1, 0, nil)
}

// Close waits for the goroutine, and closes the descriptor.
func TestPollerClose(t *testing.T) {
	p, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := unix.EpollWait(p.epoll, p.events[:], 0); err != unix.EBADF && err != unix.EINVAL {
		t.Errorf("waiting on a closed poller: %v", err)
	}
}
