package demo

import (
	"fmt"
	"strconv"
	"testing"

	"correlator/internal/testenv"
)

// Crowd is many processes: each is one of its own, with its own mapping of the library, its own storage
// and its own socket, at Process.Socket with a number appended. A member is one thread, takes about
// 0.5 MB, starts in half a millisecond and costs no CPU while it is sent nothing.
type Crowd struct {
	parent *Process // has forked them, and waits for their end
	n      int
}

// StartMany starts n members and waits until they have done what the options say. They read their sockets
// at once, have no threads with transactions and know no commands. They end with the test, or with Quit.
func StartMany(t testing.TB, n int, o Options) *Crowd {
	t.Helper()
	if o.Busy != 0 || o.Idle != 0 {
		t.Fatal("a crowd has no transactions")
	}
	o.ReadAtOnce = !o.NeverRead
	files := o.Files
	if files == nil {
		files = makeFiles(t, o.Flavor, o.Library, o.Placement)
	}
	c := &Crowd{n: n}
	c.parent = files.start(t, files.newSocket(), append(o.arguments(), "--processes", strconv.Itoa(n)))
	c.parent.await("ready", n, nil)
	return c
}

// each hands over the events of this name, until now.
func (c *Crowd) each(name string, f func(e event)) {
	c.parent.mu.Lock()
	defer c.parent.mu.Unlock()
	for _, e := range c.parent.seen {
		if e.Event == name {
			f(e)
		}
	}
}

// PIDs are those of the members.
func (c *Crowd) PIDs() (pids []int) {
	c.each("ready", func(e event) { pids = append(pids, e.PID) })
	return pids
}

// Registered waits until each member has been registered with at least once. It returns when each was
// first, by CLOCK_MONOTONIC in nanoseconds.
func (c *Crowd) Registered() map[int]uint64 {
	c.parent.t.Helper()
	sent := make(map[int]uint64)
	seen := 0
	testenv.Poll(c.parent.t, deadline, fmt.Sprintf("registration with %d processes", c.n), func() bool {
		var events []event
		c.each("registered", func(e event) { events = append(events, e) })
		for _, e := range events[seen:] {
			var registration Registration
			c.parent.decode(e, &registration)
			if _, known := sent[e.PID]; !known {
				sent[e.PID] = registration.SentNs
			}
		}
		seen = len(events)
		return len(sent) == c.n
	})
	return sent
}

// Quit ends all members in good order, and returns their final reports by pid.
func (c *Crowd) Quit() map[int]Report {
	c.parent.t.Helper()
	c.parent.stdin.Close()
	c.parent.await("bye", c.n, nil)
	reports := make(map[int]Report)
	var events []event
	c.each("report", func(e event) { events = append(events, e) })
	for _, e := range events {
		var report Report
		c.parent.decode(e, &report)
		reports[e.PID] = report
	}
	return reports
}
