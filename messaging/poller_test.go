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

	"correlator/internal/testenv"
)

// stillPoller is one without a goroutine: it wakes nobody but when the test calls poll.
func stillPoller(t *testing.T) *Poller {
	t.Helper()
	p, err := openPoller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// expectTold says for how many sockets the kernel has room to tell of, now.
func expectTold(t *testing.T, p *Poller, want int) {
	t.Helper()
	if got := p.poll(); got != want {
		t.Fatalf("told of %d sockets, want %d", got, want)
	}
}

// waiting is a connected bench that waits for room.
func waiting(t *testing.T, p *Poller) (b *bench, fits int) {
	t.Helper()
	b = connectedWith(t, p)
	fits = b.receiver.fill()
	b.add(1, 1, 0)
	b.settled()
	b.expectParked(true)
	return b, fits
}

func (b *bench) expectParked(want bool) {
	b.Helper()
	if b.parked() != want {
		b.Fatalf("waits for room: %v", !want)
	}
}

// What a receiver reads is told to nobody, unless somebody waits: then it is told once.
func TestNobodyIsWokenWithoutWaiting(t *testing.T) {
	p := stillPoller(t)
	p.last = 1 << 40 // tokens have 64 bits
	b := connectedWith(t, p)
	exchange := func() {
		t.Helper()
		for n := range 50 {
			b.add(n, 1, 0)
			b.receiver.expect(correlationOf(n, 1))
			expectTold(t, p, 0)
		}
		b.settled()
	}
	exchange()
	if watched := b.watched(); len(watched) != 0 {
		t.Errorf("a socket for whose room nobody waits is watched: %q", watched)
	}
	for range 3 {
		fits := b.receiver.fill()
		b.add(1, 1, 0)
		b.settled()
		b.expectParked(true)
		expectTold(t, p, 0)
		b.receiver.expectFillers(fits)
		expectTold(t, p, 1)
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
		t.Errorf("%d attempts in vain, want 3", waits)
	}
}

// watched is for which events (in hex) the sender's socket is in an epoll instance of this process,
// the Go runtime's included: as /proc/PID/fdinfo tells it.
func (b *bench) watched() (masks []string) {
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

// Room that is made after an attempt in vain, but before the socket is armed, is told of all the same.
func TestRoomBeforeArming(t *testing.T) {
	p := stillPoller(t)
	b := connectedWith(t, p)
	for n := range 3 { // by ADD, then by MOD
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
			t.Fatal("does not wait to be told")
		}
		expectTold(t, p, 1)
		b.receiver.expect(correlationOf(2, 1))
		b.settled()
	}
}

// A wait that has ended is not confused with the next one, nor a socket with one that has got its
// descriptor's number: also when the kernel still watches the first, because a child that is about to
// exec holds it.
func TestDescriptorUsedAgain(t *testing.T) {
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

	// The first sender waits as well, with a socket of its own.
	stale := first.sender.token
	old := first.receiver
	first.receiver = listen(t)
	fitsNext := first.receiver.fill()
	first.connect()
	first.settled()

	old.expectFillers(fits)
	expectTold(t, p, 1)
	first.sender.wake(stale) // as if it had been told of just before the socket was closed
	first.settled()
	second.settled()
	first.expectParked(true)
	second.expectParked(true)
	if first, second := first.counters.Waits.Load(), second.counters.Waits.Load(); first != 2 || second != 1 {
		t.Errorf("%d and %d attempts in vain, want 2 and 1", first, second)
	}
	first.receiver.expectFillers(fitsNext)
	expectTold(t, p, 1)
	first.receiver.expect(testRegistration, correlationOf(1, 1))
	second.expectParked(true)
}

// renumber gives the sender's idle socket a descriptor with that number, which is free.
func (b *bench) renumber(number int) {
	b.Helper()
	socket := b.sender.socket
	if err := unix.Dup3(socket.fd, number, unix.O_CLOEXEC); err != nil {
		b.Fatal(err)
	}
	unix.Close(socket.fd)
	socket.fd = number
}

// However a wait ends without room, the poller holds nothing of the sender afterwards, and tells
// nothing.
func TestWaitEndsWithoutRoom(t *testing.T) {
	for name, end := range map[string]func(*bench){
		"disconnected": func(b *bench) { b.sender.Disconnect() },
		"closed":       func(b *bench) { b.sender.Close() },
		"replaced":     func(b *bench) { b.receiver = listen(t); b.connect(); b.settled() },
	} {
		p := stillPoller(t)
		b, fits := waiting(t, p)
		old := b.receiver
		end(b)
		b.expectParked(false)
		old.expectFillers(fits)
		if told := p.poll(); told != 0 || len(p.waiting) != 0 {
			t.Errorf("%s: told of %d sockets, %d waits left", name, told, len(p.waiting))
		}
	}
}

// When all that waited is late the wait ends, and the next sample finds out how the receiver is: it
// may have shut down, of which the kernel tells nobody who waits.
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
	expectTold(t, p, 1)
	b.receiver.expect(correlationOf(2, 1))
	b.settled()

	b.receiver.fill()
	b.add(3, 1, 0)
	b.settled()
	if err := unix.Shutdown(b.receiver.fd, unix.SHUT_RD); err != nil {
		t.Fatal(err)
	}
	expectTold(t, p, 0)
	b.clock.advance(testDelay)
	b.add(4, 1, 0)
	b.expectDown(unix.EPIPE)
	b.expectStats(1, 1, map[DropReason]uint64{DropLate: 2})
}

// A receiver that has gone is told of like room, to all that wait for it.
func TestReceiverOfManyGoneWhileWaiting(t *testing.T) {
	p := stillPoller(t)
	first, _ := waiting(t, p)
	second := newBenchWith(t, p)
	second.receiver = first.receiver
	second.connect()
	second.settled()
	second.expectParked(true)
	expectTold(t, p, 0)
	first.receiver.close()
	expectTold(t, p, 2)
	first.expectDown(unix.ECONNREFUSED)
	second.expectDown(unix.ECONNREFUSED)
	expectTold(t, p, 0)
}

// More senders than one call of epoll_wait tells of wait at once. They need no goroutine for it, and
// each goes on when its own receiver has made room.
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
	for i := 0; i < senders; i += 2 { // the others go on waiting
		receivers[i].expectFillers(fits)
	}
	for i := 0; i < senders; i += 2 {
		receivers[i].expect(longRegistration, correlationOf(i, 1))
	}
	if waits := counters.Waits.Load(); waits < senders || waits > senders+uint64(senders/2+1) {
		t.Errorf("%d attempts in vain of %d senders", waits, senders)
	}
	for i := 1; i < senders; i += 2 {
		if stats := all[i].Stats(); stats.Queued != 1 || stats.Registered {
			t.Errorf("sender %d: %+v", i, stats)
		}
		receivers[i].expectFillers(fits)
		receivers[i].expect(longRegistration, correlationOf(i, 1))
	}
}

// All that are told of at once are woken at once.
func TestManyAreTold(t *testing.T) {
	const senders = 2*pollBatch + 1
	p := stillPoller(t)
	var all []*bench
	for range senders {
		b, fits := waiting(t, p)
		b.receiver.expectFillers(fits)
		all = append(all, b)
	}
	expectTold(t, p, senders)
	for _, b := range all {
		b.receiver.expect(correlationOf(1, 1))
	}
}

// A kernel that watches no more sockets (memory, fs.epoll.max_user_watches) leaves the sender to try
// again every now and then.
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
	expectTold(t, p, 1)
	b.receiver.expect(correlationOf(1, 1))
	b.expectStats(1, 0, nil)
}

// Close waits for the goroutine, and gives the descriptor back.
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
