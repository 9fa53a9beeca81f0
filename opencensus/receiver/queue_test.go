package receiver

import (
	"fmt"
	"math"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/opencensus/wire"
)

// fill adds messages of a user until there is no memory for more, and returns how many there are.
func fill(l *fairQueue, s *sender, m *wire.Message) (n int) {
	for l.add(s, m, time.Now()) {
		n++
	}
	return n
}

// A user whose share is full has others wait for a batch of it, not for all.
func TestUsersTakeTurns(t *testing.T) {
	budget := newBudget(minBufferBytes)
	hog, other := &sender{account: budget.account(1)}, &sender{account: budget.account(2)}
	for queue := range numQueues {
		l := newFairQueue(queue)
		m := wire.Message{Header: wire.Header{Type: wire.StatsRecord}, Payload: make([]byte, 50)}
		sent := fill(l, hog, &m)
		for range 3 {
			assert.Assert(t, l.add(other, &m, time.Now()), "no memory for another user")
		}
		var turns []uint32
		messages := map[uint32]int{}
		for l.length() > 0 {
			b := l.take()
			turns = append(turns, b.account.uid)
			messages[b.account.uid] += len(b.entries)
			l.giveBack(b)
			if len(turns) == 1 { // more of it comes all the time
				sent += fill(l, hog, &m)
			}
		}
		assert.Check(t, len(turns) >= 4 && turns[0] == 1 && turns[1] == 2,
			"queue %d: the turns of users: %v", queue, turns)
		if messages[1] != sent || messages[2] != 3 || budget.used() != 0 {
			t.Errorf("queue %d: %v messages of %d, %d bytes held", queue, messages, sent, budget.used())
		}
	}
}

// A user's messages are taken in the order in which they were added, whatever their size.
func TestOrder(t *testing.T) {
	budget := newBudget(DefaultBufferBytes)
	s, l := &sender{account: budget.account(1)}, newFairQueue(statsQueue)
	const n = 3 * batchMessages
	size := func(i int) int {
		switch {
		case i%1000 == 999:
			return 2 * batchBytes
		case i%100 == 99:
			return ownBatchBytes
		default:
			return i % 7
		}
	}
	for i := range n {
		m := wire.Message{Header: wire.Header{Type: wire.StatsRecord, Sent: time.Unix(int64(i)+1, 0)},
			Payload: make([]byte, size(i))}
		for k := range m.Payload {
			m.Payload[k] = byte(i)
		}
		assert.Assert(t, l.add(s, &m, time.Now()), "no memory for message %d", i)
	}
	l.close()
	next := 0
	for b := l.take(); b != nil; b = l.take() {
		for i := range b.entries {
			e := &b.entries[i]
			p := b.payload(e)
			if e.sent().Unix() != int64(next)+1 || len(p) != size(next) || len(p) > 0 && p[len(p)-1] != byte(next) {
				t.Fatalf("message %d: sent at %v, %d bytes", next, e.sent(), len(p))
			}
			next++
		}
		l.giveBack(b)
	}
	if next != n || budget.used() != 0 {
		t.Errorf("%d messages of %d, %d bytes held", next, n, budget.used())
	}
}

// What comes after a batch was taken is in another one.
func TestTakenBatchIsClosed(t *testing.T) {
	s, l := &sender{account: newBudget(DefaultBufferBytes).account(1)}, newFairQueue(statsQueue)
	m := wire.Message{Header: wire.Header{Type: wire.StatsRecord}, Payload: []byte("one")}
	l.add(s, &m, time.Now())
	first := l.take()
	l.add(s, &m, time.Now())
	second := l.take()
	assert.Check(t, first != second && len(first.entries) == 1 && len(second.entries) == 1,
		"%d and %d messages", len(first.entries), len(second.entries))
}

// A message keeps its type and its times: when it was sent only if the client's clock is usable.
func TestEntries(t *testing.T) {
	s, l := &sender{account: newBudget(DefaultBufferBytes).account(1)}, newFairQueue(statsQueue)
	sent, received := time.Unix(1, 2).UTC(), time.Unix(3, 4).UTC()
	for _, size := range []int{1, ownBatchBytes} {
		for _, padded := range []bool{false, true} {
			l.add(s, &wire.Message{Header: wire.Header{Type: wire.StatsRecord, Sent: sent, Padded: padded},
				Payload: make([]byte, size)}, received)
		}
	}
	for l.length() > 0 {
		b := l.take()
		for i := range b.entries {
			e := &b.entries[i]
			want := sent
			if e.padded {
				want = time.Time{}
			}
			assert.Check(t, e.sent() == want && e.received() == received && e.kind == wire.StatsRecord && e.from == s,
				"padded: %v, sent %v, received %v", e.padded, e.sent(), e.received())
		}
		l.giveBack(b)
	}
}

// What waits is counted with all that it holds: the room of batches, whether it is used or not, and
// senders once a batch.
func TestMemoryIsCounted(t *testing.T) {
	small := func(int) int { return 2 }
	for name, c := range map[string]struct {
		bytes   func(i int) int
		senders int  // messages of one process
		init    bool // each process has a version of its own
	}{
		"empty exports":              {small, math.MaxInt, false},
		"empty exports of processes": {small, 1, false},
		"with a version each":        {small, 1, true},
		"records":                    {func(int) int { return 50 }, 100, true},
		"the largest of a batch":     {func(int) int { return ownBatchBytes - 1 }, 1, true},
		"small and large ones":       {func(i int) int { return i % 2 * ownBatchBytes }, 1, true},
		"large ones":                 {func(i int) int { return i%7<<10 + ownBatchBytes }, 1, true},
	} {
		budget := newBudget(minBufferBytes)
		s, l := senders{account: budget.account(1)}, newFairQueue(traceQueue)
		from, _ := s.see(&wire.Header{})
		messages := 0
		for ; ; messages++ {
			if messages%c.senders == 0 {
				from, _ = s.see(&wire.Header{PID: uint32(messages)})
				if c.init {
					s.setPHP(from, fmt.Sprintf("%*d", maxVersionBytes, messages))
				}
			}
			m := wire.Message{Header: wire.Header{Type: wire.TraceExport}, Payload: make([]byte, c.bytes(messages))}
			if !l.add(from.from, &m, time.Now()) {
				break
			}
		}
		used, sum := budget.used(), 0
		for l.length() > 0 {
			b := l.take()
			want, known := headBytes+cap(b.data)+cap(b.entries)*entryBytes, make(map[*sender]bool)
			for i := range b.entries {
				if from := b.entries[i].from; !known[from] {
					known[from] = true
					want += int(unsafe.Sizeof(*from)) + len(from.php)
				}
			}
			assert.Assert(t, b.taken == want,
				"%s: %d bytes are counted for a batch of %d messages, not %d", name, b.taken, len(b.entries), want)
			sum += want
			l.giveBack(b)
		}
		if used != sum || used < minBufferBytes/2-2*batchBytes || budget.used() != 0 {
			t.Errorf("%s: %d bytes of %d messages are counted, %d used, %d in the end", name, sum, messages, used, budget.used())
		}
	}
}

// A large message is copied before the queue is locked, so that others do not wait for that.
func TestLargeMessageDoesNotLock(t *testing.T) {
	budget := newBudget(minBufferBytes)
	s, l := &sender{account: budget.account(1)}, newFairQueue(traceQueue)
	m := wire.Message{Header: wire.Header{Type: wire.TraceExport}, Payload: make([]byte, minBufferBytes/4)}
	l.mu.Lock()
	added := make(chan bool)
	go func() { added <- l.add(s, &m, time.Now()) }()
	testenv.Poll(t, patience, "memory for the message", func() bool { return budget.used() > 0 })
	l.mu.Unlock()
	if !<-added || l.length() != 1 {
		t.Errorf("%d messages wait", l.length())
	}
}
