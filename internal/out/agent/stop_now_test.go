package agent

import (
	"testing"
	"time"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/messaging"
)

// After StopNow the end does not wait for a process that reads nothing, however long the
// samples-delay is; what is dropped is counted.
func TestStopNow(t *testing.T) {
	unread := demo.Start(t, demo.Options{Manual: true, Idle: 1, NeverRead: true})
	r := run(t, func(c *Config) { c.SamplesDelay = time.Minute }) // twice the deadline
	context := unread.Begin(1)
	testenv.Poll(t, deadline, "registration", func() bool { return r.Counters().Connected.Load() > 0 })
	const stacks = 100 // a message each, of which the socket has room for eleven
	r.feedContext(unread, context, stacks)
	testenv.Poll(t, deadline, "a full socket", func() bool {
		stats := r.sender(unread).Stats()
		return stats.Added == stacks && stats.Sent > 0
	})
	sender := r.sender(unread)
	r.StopNow()
	r.end()
	stats := sender.Stats()
	if stats.Sent+stats.Dropped[messaging.DropClosed] != stacks || stats.Dropped[messaging.DropClosed] == 0 {
		t.Errorf("of %d samples %d were sent, %d dropped by reason", stacks, stats.Sent, stats.Dropped)
	}
	r.added()
}
