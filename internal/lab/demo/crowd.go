package demo

import (
	"fmt"
	"strconv"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Crowd is a set of many processes, each with its own mapping of the library, its own storage and
// its own socket, at Process.Socket with a number appended. A member has one thread, takes about
// 0.1 MB, starts in half a millisecond and costs no CPU while it receives nothing.
type Crowd struct {
	parent *Process // has forked them and waits for their end
	n      int
}

// StartMany starts n members and waits until they have done what the options say. They read their
// sockets at once, have no threads with transactions and know no commands. They end with the test,
// or with Quit.
func StartMany(t testing.TB, n int, o Options) *Crowd {
	t.Helper()
	assert.Assert(t, o.Busy == 0 && o.Idle == 0, "a crowd has no transactions")
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

func (c *Crowd) events(name string) (found []event) {
	c.parent.mu.Lock()
	defer c.parent.mu.Unlock()
	for _, e := range c.parent.seen {
		if e.Event == name {
			found = append(found, e)
		}
	}
	return found
}

// Published waits until each member has published and returns the publications by pid.
func (c *Crowd) Published() map[int]Publication {
	c.parent.t.Helper()
	c.parent.await("published", c.n, nil)
	published := make(map[int]Publication)
	for _, e := range c.events("published") {
		var publication Publication
		c.parent.decode(e, &publication)
		published[e.PID] = publication
	}
	return published
}

// Registered waits until each member has been registered at least once. It returns the time of the
// first registration by pid, by CLOCK_MONOTONIC in nanoseconds.
func (c *Crowd) Registered() map[int]uint64 {
	c.parent.t.Helper()
	sent := make(map[int]uint64)
	seen := 0
	testenv.Poll(c.parent.t, deadline, fmt.Sprintf("registration with %d processes", c.n), func() bool {
		events := c.events("registered")
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

// Quit ends all members regularly and returns their final reports by pid.
func (c *Crowd) Quit() map[int]Report {
	c.parent.t.Helper()
	c.parent.stdin.Close()
	c.parent.await("bye", c.n, nil)
	reports := make(map[int]Report)
	for _, e := range c.events("report") {
		var report Report
		c.parent.decode(e, &report)
		reports[e.PID] = report
	}
	return reports
}
