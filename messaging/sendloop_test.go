package messaging

import (
	"testing"

	"correlator/internal/testenv"
)

// A sender with many messages stops at the limit, so that others get their turn, and continues when
// it is called again.
func TestSendStopsAtLimit(t *testing.T) {
	b := connectedWith(t, stillPoller(t))
	b.take()
	for n := range 5 {
		b.add(n, 1, 0)
	}
	for _, want := range []struct {
		messages uint64
		ended    bool
	}{{3, false}, {5, true}} {
		if ended := b.sender.send(3); ended != want.ended {
			t.Errorf("ended: %v, want %v", ended, want.ended)
		}
		if sent := b.sender.Stats().Messages; sent != want.messages {
			t.Errorf("%d messages sent, want %d", sent, want.messages)
		}
	}
}

// A sender with more messages than it may send in its turn sends all of them.
func TestMoreThanOneTurn(t *testing.T) {
	b := connectedWith(t, newTestPoller(t))
	const messages = 3 * maxInTurn
	b.take() // so that all are queued before it starts
	for n := range messages {
		b.add(n, 1, 0)
	}
	b.sender.mu.Lock()
	b.sender.running = false
	b.sender.start()
	b.sender.mu.Unlock()
	received := make(map[Message]bool)
	testenv.Poll(t, patience, "all messages", func() bool {
		for m, ok := b.receiver.read(); ok; m, ok = b.receiver.read() {
			received[m] = true
		}
		return len(received) == messages
	})
	b.settled()
	b.expectStats(messages, 0, nil)
}
