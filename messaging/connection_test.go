package messaging

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// What a sender does without a connection, and what connections and their ends do to it.
func TestConnections(t *testing.T) {
	inBubbles(t, unconnected, map[string]func(*fixture){
		"registration first": registrationGoesFirst,
		"without":            withoutConnection,
		"no room":            registrationWaitsForRoom,
		"errors":             connectErrors,
	})
	inBubbles(t, connected, map[string]func(*fixture){
		"receiver gone":       receiverGone,
		"receiver stops":      receiverStopsReading,
		"receiver elsewhere":  receiverConnectsElsewhere,
		"late when it comes":  lateWhenConnectionChanges,
		"replaced":            connectReplaces,
		"replaced in sending": connectReplacesWhileSending,
		"down discarded":      connectDiscardsDown,
		"disconnected":        disconnected,
		"rare errors":         rareErrors,
	})
}

func registrationGoesFirst(b *fixture) {
	b.add(1, 2, 0)
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(1, 2))
	b.add(2, 1, 0)
	b.receiver.expect(correlationOf(2, 1))
	b.expectStats(3, 0, nil)
	stats := b.sender.Stats()
	assert.Check(b, stats.Connected && stats.Registered, "%+v", stats)
	assert.Check(b, stats.Registrations == 1 && stats.Messages == 2, "%+v", stats)
}

func withoutConnection(b *fixture) {
	b.add(1, 1, time.Hour) // no delay is promised yet
	b.add(2, 1, 0)
	b.expectStats(0, 2, nil)
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(2, 1))
	b.expectStats(1, 0, map[DropReason]uint64{DropSocketGone: 1})
}

func receiverGone(b *fixture) {
	socket := b.sender.socket
	b.receiver.close()
	b.add(1, 2, 0)
	b.add(2, 1, 100*time.Millisecond)
	b.expectDown(unix.ECONNREFUSED)
	assert.ErrorIs(b, socket.Close(), os.ErrClosed) // it was not left open
	b.expectStats(0, 3, nil)
	stats := b.sender.Stats()
	assert.Check(b, !stats.Connected && !stats.Registered, "%+v", stats)

	// Samples that wait too long for another connection are dropped for that reason.
	b.advance(200 * time.Millisecond)
	b.expectStats(0, 2, map[DropReason]uint64{DropSocketGone: 1})

	// Another socket gets the samples that are not late, once.
	b.relisten()
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(1, 2))
	b.settled()
	b.receiver.expectNothing()
	b.expectStats(2, 0, map[DropReason]uint64{DropSocketGone: 1})
}

func (b *fixture) expectDown(want error) {
	b.Helper()
	b.pump()
	select {
	case err := <-b.sender.Down():
		assert.Check(b, errors.Is(err, errSocketGone) && errors.Is(err, want), "down: %v, want %v", err, want)
	default:
		b.Fatal("Down reports nothing")
	}
}

func (b *fixture) expectNotDown() {
	b.Helper()
	b.settled()
	select {
	case err := <-b.sender.Down():
		b.Errorf("reported about a socket that is not used any more: %v", err)
	default:
	}
}

func receiverStopsReading(b *fixture) {
	assert.NilError(b, unix.Shutdown(b.receiver.fd, unix.SHUT_RD))
	b.add(1, 1, 0)
	b.expectDown(unix.EPIPE)
}

// A receiver may connect its socket, and then takes messages from that peer only.
func receiverConnectsElsewhere(b *fixture) {
	assert.NilError(b, unix.Connect(b.receiver.fd, &unix.SockaddrUnix{Name: listen(b.T).path}))
	b.add(1, 1, 0)
	b.expectDown(unix.EPERM)
	_, err := Dial("/proc", openRoot(b, "/"), b.receiver.path, ourCredentials(b))
	assert.Check(b, errors.Is(err, ErrPermission), "dialing it: %v", err)
}

func registrationWaitsForRoom(b *fixture) {
	fits := b.receiver.fill()
	b.connect()
	b.add(1, 1, 0)
	b.settled()
	b.advance(testDelay)
	b.expectStats(0, 0, map[DropReason]uint64{DropLate: 1})
	b.expectParked(true)
	b.add(1, 2, 0)
	b.receiver.expectFillers(fits)
	b.receiver.expect(testRegistration, correlationOf(1, 2))
}

// Late samples count for the reason at the time when they became late, even if they expire only
// when the connection is made or ended.
func lateWhenConnectionChanges(b *fixture) {
	b.receiver.fill()
	b.add(1, 1, 0)
	b.settled()
	b.jump(testDelay / 2)
	b.add(2, 2, 0)
	b.jump(testDelay / 2)
	b.sender.Disconnect()
	b.expectStats(0, 2, map[DropReason]uint64{DropLate: 1})
	b.jump(testDelay)
	b.relisten()
	b.connect()
	b.receiver.expect(testRegistration)
	b.expectStats(0, 0, map[DropReason]uint64{DropLate: 1, DropSocketGone: 2})
}

// Another connection is used at once, even while the sender waits for room on the former one.
func connectReplaces(b *fixture) {
	old := b.receiver
	fits := old.fill()
	b.add(1, 1, 0)
	b.settled()
	b.relisten()
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(1, 1))
	old.expectFillers(fits)
	old.expectNothing()
	b.expectStats(1, 0, nil)
	b.expectNotDown()
}

// The result of an attempt on the former connection does not affect the new one.
func connectReplacesWhileSending(b *fixture) {
	for n, err := range []error{unix.EAGAIN, unix.ENOBUFS, unix.ECONNREFUSED, os.ErrClosed} {
		b.take()
		b.add(1, 1, 0)
		b.sender.next()
		b.relisten()
		b.connect()
		b.sender.complete(err)
		b.expectParked(false)
		go b.sender.run()
		b.receiver.expect(testRegistration, correlationOf(1, 1))
		b.expectStats(uint64(n+1), 0, nil)
	}
}

func connectDiscardsDown(b *fixture) {
	b.receiver.close()
	b.add(1, 1, 0)
	b.settled()
	b.relisten()
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(1, 1))
	b.expectNotDown()
}

// Disconnect also ends a wait for room; queued samples wait for another socket.
func disconnected(b *fixture) {
	old := b.receiver
	fits := old.fill()
	b.add(1, 1, 100*time.Millisecond)
	b.add(2, 1, 0)
	b.settled()
	b.sender.Disconnect()
	b.sender.Disconnect()
	b.expectStats(0, 2, nil)
	stats := b.sender.Stats()
	assert.Check(b, !stats.Connected && !stats.Registered, "%+v", stats)
	b.advance(200 * time.Millisecond)
	b.expectStats(0, 1, map[DropReason]uint64{DropSocketGone: 1})
	b.relisten()
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(2, 1))
	old.expectFillers(fits)
	old.expectNothing()
	b.expectNotDown()
}

func connectErrors(b *fixture) {
	connect := func(r Registration, want error) {
		b.Helper()
		socket := b.receiver.dial()
		assert.ErrorIs(b, b.sender.Connect(socket, r), want)
		assert.ErrorIs(b, socket.Close(), os.ErrClosed) // it was not left open
	}
	connect(Registration{}, errSamplesDelay)
	connect(Registration{SamplesDelay: -1}, errSamplesDelay)
	connect(Registration{SamplesDelay: 1, HostID: "\xff"}, errHostID)
	b.sender.Close()
	connect(testRegistration, errClosed)
}

// take makes the test the sending goroutine.
func (b *fixture) take() {
	b.Helper()
	b.settled()
	b.sender.mu.Lock()
	defer b.sender.mu.Unlock()
	b.sender.running, b.sender.current = true, b.sender.socket
}

// attempt makes one attempt that ends with err. If the previous one found no room, the poller
// reports some.
func (b *fixture) attempt(err error) sendResult {
	b.Helper()
	b.pump()
	assert.Assert(b, b.sender.next() != nil, "nothing to send")
	v := b.sender.complete(err)
	if v == full {
		b.sender.await()
	}
	return v
}

// After an error that no receiver can cause at will, the sample is still queued, or counted.
func rareErrors(b *fixture) {
	var sent, refusals uint64
	for _, test := range []struct {
		err  error
		want sendResult
	}{{unix.EINTR, again}, {unix.ENOBUFS, busy}, {unix.EMSGSIZE, refused}} {
		b.take()
		b.add(1, 2, 0)
		got := b.attempt(test.err)
		assert.Check(b, got == test.want, "%v: %d, want %d", test.err, got, test.want)
		left := uint64(2)
		if test.want == refused {
			left, refusals = 0, 2
		}
		b.expectStats(sent, left, map[DropReason]uint64{DropRefused: refusals})
		b.add(1, 1, 0)
		if test.want == busy {
			b.expectPause()
		} else {
			go b.sender.run()
		}
		b.receiver.expect(correlationOf(1, uint16(left+1)))
		sent += left + 1
		b.expectStats(sent, 0, map[DropReason]uint64{DropRefused: refusals})
	}
}

// expectPause checks that the goroutine ends, and starts again after pauseTime.
func (b *fixture) expectPause() {
	b.Helper()
	assert.Check(b, b.sender.next() == nil, "no pause")
	b.advance(pauseTime - 1)
	b.receiver.expectNothing()
	b.advance(1)
}

// Samples that are being sent count as queued.
func statsWhileSending(b *fixture) {
	b.take()
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
func futileWakeUpsPause(b *fixture) {
	b.take()
	b.add(1, 1, 0)
	for n := range maxFutileWakeups + 1 { // the first follows no wake-up
		assert.Assert(b, b.attempt(unix.EAGAIN) == full, "attempt %d does not wait", n)
	}
	assert.Check(b, b.attempt(unix.EAGAIN) == busy, "no pause")
	b.expectStats(0, 1, nil)
	b.expectPause()
	b.receiver.expect(correlationOf(1, 1))
	b.expectStats(1, 0, nil)
}

// A pause is of one socket: another one is used at once.
func connectEndsPause(b *fixture) {
	b.take()
	b.add(1, 1, 0)
	assert.Assert(b, b.attempt(unix.ENOBUFS) == busy && b.sender.next() == nil, "no pause")
	b.relisten()
	b.connect()
	b.receiver.expect(testRegistration, correlationOf(1, 1))
}

func TestClassify(t *testing.T) {
	for want, errs := range map[sendResult][]error{
		sent:    {nil},
		full:    {unix.EAGAIN},
		again:   {unix.EINTR},
		busy:    {unix.ENOBUFS, unix.ENOMEM},
		refused: {unix.EMSGSIZE},
		gone: {unix.ECONNREFUSED, unix.ENOTCONN, unix.ECONNRESET, unix.EPIPE, unix.EPERM, unix.EACCES, unix.EBADF,
			unix.EIO, os.ErrClosed},
	} {
		for _, err := range errs {
			got := classify(err)
			assert.Check(t, got == want, "%v: %d, want %d", err, got, want)
		}
	}
}
