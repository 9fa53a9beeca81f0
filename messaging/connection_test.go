package messaging

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/lab/testenv"
)

func TestRegistrationGoesFirst(t *testing.T) {
	b := newFixture(t)
	b.add(1, 2, 0)
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(1, 2))
	b.add(2, 1, 0)
	b.receiver.expect(correlationOf(2, 1))
	b.settled()
	b.expectStats(3, 0, nil)
	stats := b.sender.Stats()
	if !stats.Connected || !stats.Registered || stats.Registrations != 1 || stats.Messages != 2 {
		t.Errorf("%+v", stats)
	}
}

func TestWithoutConnection(t *testing.T) {
	b := newFixture(t)
	b.add(1, 1, time.Hour) // no delay is promised yet
	b.add(2, 1, 0)
	b.expectStats(0, 2, nil)
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(2, 1))
	b.settled()
	b.expectStats(1, 0, map[DropReason]uint64{DropSocketGone: 1})
}

func TestReceiverGone(t *testing.T) {
	b := connected(t)
	socket := b.sender.socket
	b.receiver.close()
	b.add(1, 2, 0)
	b.add(2, 1, 100*time.Millisecond)
	b.expectDown(unix.ECONNREFUSED)
	if err := socket.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the socket was left open: %v", err)
	}
	b.expectStats(0, 3, nil)
	if stats := b.sender.Stats(); stats.Connected || stats.Registered {
		t.Errorf("%+v", stats)
	}

	// Samples that wait too long for another connection are dropped for that reason.
	b.clock.advance(200 * time.Millisecond)
	b.expectStats(0, 2, map[DropReason]uint64{DropSocketGone: 1})

	// Another socket gets the samples that are not late, once.
	os.Remove(b.receiver.path)
	b.receiver = listenAt(t, b.receiver.path)
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(1, 2))
	b.settled()
	b.receiver.expectNothing()
	b.expectStats(2, 0, map[DropReason]uint64{DropSocketGone: 1})
}

func (b *fixture) expectDown(want error) {
	b.Helper()
	select {
	case err := <-b.sender.Down():
		if !errors.Is(err, errSocketGone) || !errors.Is(err, want) {
			b.Errorf("down: %v, want %v", err, want)
		}
	case <-time.After(patience):
		b.Fatal("Down reports nothing")
	}
	b.settled()
}

func (b *fixture) expectNotDown() {
	b.Helper()
	select {
	case err := <-b.sender.Down():
		b.Errorf("reported about a socket that is not used any more: %v", err)
	default:
	}
}

func TestReceiverStopsReading(t *testing.T) {
	b := connected(t)
	if err := unix.Shutdown(b.receiver.fd, unix.SHUT_RD); err != nil {
		t.Fatal(err)
	}
	b.add(1, 1, 0)
	b.expectDown(unix.EPIPE)
}

// A receiver may connect its socket, and then takes messages from that peer only.
func TestReceiverConnectsElsewhere(t *testing.T) {
	b := connected(t)
	other := listen(t)
	if err := unix.Connect(b.receiver.fd, &unix.SockaddrUnix{Name: other.path}); err != nil {
		t.Fatal(err)
	}
	b.add(1, 1, 0)
	b.expectDown(unix.EPERM)
	if _, err := Dial("/proc", openRoot(t, "/"), b.receiver.path, ourCredentials(t)); !errors.Is(err, ErrPermission) {
		t.Errorf("dialing it: %v, want ErrPermission", err)
	}
}

func TestRegistrationWaitsForRoom(t *testing.T) {
	b := newFixture(t)
	fits := b.receiver.fill()
	b.connect()
	b.add(1, 1, 0)
	b.settled()
	b.clock.advance(testDelay)
	b.expectStats(0, 0, map[DropReason]uint64{DropLate: 1})
	if !b.parked() {
		t.Fatal("the registration does not wait for room")
	}
	b.add(1, 2, 0)
	b.receiver.expectFillers(fits)
	b.receiver.expect(testRegistration, correlationOf(1, 2))
}

// Late samples count for the reason at the time when they became late, even if they expire only
// when the connection is made or ended.
func TestLateWhenConnectionChanges(t *testing.T) {
	b := connected(t)
	b.receiver.fill()
	b.add(1, 1, 0)
	b.settled()
	b.clock.jump(testDelay / 2)
	b.add(2, 2, 0)
	b.clock.jump(testDelay / 2)
	b.sender.Disconnect()
	b.expectStats(0, 2, map[DropReason]uint64{DropLate: 1})
	b.clock.jump(testDelay)
	b.receiver = listen(t)
	b.connect()
	b.receiver.expect(testRegistration)
	b.expectStats(0, 0, map[DropReason]uint64{DropLate: 1, DropSocketGone: 2})
}

// Another connection is used at once, even while the sender waits for room on the former one.
func TestConnectReplaces(t *testing.T) {
	b := connected(t)
	old := b.receiver
	fits := old.fill()
	b.add(1, 1, 0)
	b.settled()
	b.receiver = listen(t)
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(1, 1))
	b.settled()
	old.expectFillers(fits)
	old.expectNothing()
	b.expectStats(1, 0, nil)
	b.expectNotDown()
}

// The result of an attempt on the former connection does not affect the new one.
func TestConnectReplacesWhileSending(t *testing.T) {
	for _, err := range []error{unix.EAGAIN, unix.ENOBUFS, unix.ECONNREFUSED, os.ErrClosed} {
		b := driven(t)
		b.add(1, 1, 0)
		b.sender.next()
		b.receiver = listen(t)
		b.connect()
		b.sender.complete(err)
		b.expectParked(false)
		go b.sender.run()
		b.receiver.expect(testRegistration, correlationOf(1, 1))
		b.settled()
		b.expectStats(1, 0, nil)
	}
}

func TestConnectDiscardsDown(t *testing.T) {
	b := connected(t)
	b.receiver.close()
	b.add(1, 1, 0)
	b.settled()
	b.receiver = listen(t)
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(1, 1))
	b.expectNotDown()
}

// Disconnect also ends a wait for room; queued samples wait for another socket.
func TestDisconnect(t *testing.T) {
	b := connected(t)
	old := b.receiver
	fits := old.fill()
	b.add(1, 1, 100*time.Millisecond)
	b.add(2, 1, 0)
	b.settled()
	b.sender.Disconnect()
	b.sender.Disconnect()
	b.settled()
	b.expectStats(0, 2, nil)
	if stats := b.sender.Stats(); stats.Connected || stats.Registered {
		t.Errorf("%+v", stats)
	}
	b.clock.advance(200 * time.Millisecond)
	b.expectStats(0, 1, map[DropReason]uint64{DropSocketGone: 1})
	b.receiver = listen(t)
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(2, 1))
	old.expectFillers(fits)
	old.expectNothing()
	b.expectNotDown()
}

func TestConnectErrors(t *testing.T) {
	b := newFixture(t)
	for _, r := range []Registration{{}, {SamplesDelay: -1}, {SamplesDelay: 1, HostID: "\xff"}} {
		socket := b.receiver.dial()
		err := b.sender.Connect(socket, r)
		if !errors.Is(err, errSamplesDelay) && !errors.Is(err, errHostID) {
			t.Errorf("%+v: %v", r, err)
		}
		if err := socket.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("the socket was left open: %v", err)
		}
	}
	b.sender.Close()
	socket := b.receiver.dial()
	if err := b.sender.Connect(socket, testRegistration); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := socket.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the socket was left open: %v", err)
	}
}

// driven returns a connected fixture for which the test is the sending goroutine.
func driven(t *testing.T) *fixture {
	b := connected(t)
	b.take()
	return b
}

// take makes the test the sending goroutine.
func (b *fixture) take() {
	b.Helper()
	b.settled()
	b.sender.mu.Lock()
	defer b.sender.mu.Unlock()
	b.sender.running, b.sender.current = true, b.sender.socket
}

// attempt makes one attempt that ends with err. If the previous one found no room, it waits for the
// poller to report some.
func (b *fixture) attempt(err error) sendResult {
	b.Helper()
	testenv.Poll(b, patience, "room", func() bool { return !b.parked() })
	if b.sender.next() == nil {
		b.Fatal("nothing to send")
	}
	v := b.sender.complete(err)
	if v == full {
		b.sender.await()
	}
	return v
}

// After an error that no receiver can cause at will, the sample is still queued, or counted.
func TestRareErrors(t *testing.T) {
	for err, test := range map[error]struct {
		want    sendResult
		dropped map[DropReason]uint64
	}{
		unix.EINTR:    {want: again},
		unix.ENOBUFS:  {want: busy},
		unix.EMSGSIZE: {want: refused, dropped: map[DropReason]uint64{DropRefused: 2}},
	} {
		b := driven(t)
		b.add(1, 2, 0)
		if got := b.attempt(err); got != test.want {
			t.Errorf("%v: %d, want %d", err, got, test.want)
		}
		left := 2 - test.dropped[DropRefused]
		b.expectStats(0, left, test.dropped)
		b.add(1, 1, 0)
		if test.want == busy {
			b.expectPause()
		} else {
			go b.sender.run()
		}
		b.receiver.expect(correlationOf(1, uint16(left+1)))
		b.settled()
		b.expectStats(left+1, 0, test.dropped)
	}
}

// expectPause checks that the goroutine ends, and starts again after pauseTime.
func (b *fixture) expectPause() {
	b.Helper()
	if b.sender.next() != nil {
		b.Error("no pause")
	}
	b.clock.advance(pauseTime - 1)
	b.receiver.expectNothing()
	b.clock.advance(1)
}

// Samples that are being sent count as queued.
func TestStatsWhileSending(t *testing.T) {
	b := driven(t)
	b.add(1, 2, 0)
	b.sender.next()
	b.add(1, 3, 0)
	b.expectStats(0, 5, nil)
	b.sender.complete(nil)
	b.expectStats(2, 3, nil)
	go b.sender.run()
	b.receiver.expect(correlationOf(1, 3))
}

// A process that fills its own socket whenever it has made room causes futile wake-ups. The sender
// then tries only after each pause, until it can send.
func TestFutileWakeUpsPause(t *testing.T) {
	b := driven(t)
	b.add(1, 1, 0)
	for n := range maxFutileWakeups + 1 { // the first follows no wake-up
		if got := b.attempt(unix.EAGAIN); got != full {
			t.Fatalf("attempt %d: %d, want to wait", n, got)
		}
	}
	if got := b.attempt(unix.EAGAIN); got != busy {
		t.Errorf("attempt %d: %d, want a pause", maxFutileWakeups+1, got)
	}
	b.expectStats(0, 1, nil)
	b.expectPause()
	b.receiver.expect(correlationOf(1, 1))
	b.settled()
	b.expectStats(1, 0, nil)
}

// A pause is of one socket: another one is used at once.
func TestConnectEndsPause(t *testing.T) {
	b := driven(t)
	b.add(1, 1, 0)
	if got := b.attempt(unix.ENOBUFS); got != busy || b.sender.next() != nil {
		t.Fatalf("%d, want a pause", got)
	}
	b.receiver = listen(t)
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(1, 1))
}

func TestClassify(t *testing.T) {
	for err, want := range map[error]sendResult{
		nil:               sent,
		unix.EAGAIN:       full,
		unix.EINTR:        again,
		unix.ENOBUFS:      busy,
		unix.ENOMEM:       busy,
		unix.EMSGSIZE:     refused,
		unix.ECONNREFUSED: gone,
		unix.ENOTCONN:     gone,
		unix.ECONNRESET:   gone,
		unix.EPIPE:        gone,
		unix.EPERM:        gone,
		unix.EACCES:       gone,
		unix.EBADF:        gone,
		unix.EIO:          gone,
		os.ErrClosed:      gone,
	} {
		if got := classify(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}
