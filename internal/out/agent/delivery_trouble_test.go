package agent

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/messaging"
	"correlator/messaging/feed"
)

func signal(t *testing.T, p *demo.Process, number syscall.Signal) {
	t.Helper()
	assert.NilError(t, syscall.Kill(p.PID, number))
}

// sender is that of a process that is served. It can be asked after the end, too.
func (r *running) sender(p *demo.Process) *messaging.Sender {
	r.t.Helper()
	served := r.registrations.Find(p.PID)
	if served == nil {
		r.t.Fatalf("process %d is not served", p.PID)
	}
	return served.sender
}

// feedContext feeds samples of a transaction, of n different stacks.
func (r *running) feedContext(p *demo.Process, context demo.Context, n int) {
	r.t.Helper()
	for i := range n {
		r.send(feed.Record{PID: uint32(p.PID), TID: uint32(context.Thread.TID),
			StackTraceID: [16]byte{7, byte(i), byte(i >> 8)}, Count: 1,
			HasContext: true, TraceID: context.TraceID, TransactionID: context.TransactionID})
	}
}

// healthy checks, after the end, that all that was sampled of a process has arrived.
func healthy(t *testing.T, sender *messaging.Sender, report demo.Report) {
	t.Helper()
	stats := sender.Stats()
	clean(t, report)
	if stats.Added == 0 || stats.Sent != stats.Added || report.Samples != stats.Added || report.LateSamples != 0 {
		t.Errorf("of a healthy process %d samples were queued, %d sent, %d arrived and %d were late; dropped by reason: %d", stats.Added,
			stats.Sent, report.Samples, report.LateSamples, stats.Dropped)
	}
	assert.Check(t, stats.Registrations == 1 && report.Registrations == 1,
		"a healthy process was registered with %d times", report.Registrations)
}

// roomy has samples wait so long that a busy machine makes none late, and is short enough that they
// become late where nobody reads.
func roomy(c *Config) { c.SamplesDelay = 2 * time.Second }

// instead puts something else where a process's socket was.
func instead(t *testing.T, p *demo.Process, put func(path string) error) {
	t.Helper()
	path := p.HostPath(p.Socket)
	assert.NilError(t, os.Remove(path))
	assert.NilError(t, put(path))
}

func putFile(path string) error { return os.WriteFile(path, nil, 0o666) }
func putFIFO(path string) error { return unix.Mkfifo(path, 0o666) }

// Receivers in every kind of trouble cost their neighbor nothing and the agent next to nothing: it
// does not try what cannot work.
func TestDeliveryBesideTrouble(t *testing.T) {
	neighbor := demo.Start(t, demo.Options{Busy: 1, Transaction: 500 * time.Millisecond})
	deaf := demo.Start(t, demo.Options{Busy: 1, NeverRead: true})
	idle := demo.Options{Manual: true, Idle: 1}
	stopped, file, fifo, removed := demo.Start(t, idle), demo.Start(t, idle), demo.Start(t, idle), demo.Start(t, idle)
	r := run(t, atRate(997), roomy)
	all := []*demo.Process{neighbor, deaf, stopped, file, fifo, removed}
	contexts := make(map[*demo.Process]demo.Context)
	for _, p := range all {
		r.state(p, process.StateRegistered, "")
	}
	for _, p := range all[2:] {
		contexts[p] = p.Begin(1)
	}
	signal(t, stopped, syscall.SIGSTOP)
	instead(t, file, putFile)
	instead(t, fifo, putFIFO)
	removed.UnlinkSocket()
	for _, p := range []*demo.Process{file, fifo} {
		r.state(p, process.StateError, process.ReasonNotSocket.String())
	}
	r.state(removed, process.StateError, process.ReasonSocketMissing.String())

	sender := r.sender(neighbor)
	c := r.Counters()
	waits, pauses, drains, feeds := c.Messages.Waits.Load(), c.Messages.Pauses.Load(), c.Sampling.Drains.Load(),
		uint64(0)
	fed := sender.Stats().Sent
	full := func(p *demo.Process) bool {
		return r.logs.FilterField(zap.String("reason", process.ReasonSocketFull.String())).FilterField(zap.Int("pid",
			p.PID)).Len() > 0
	}
	testenv.Poll(t, deadline, "both that do not read to be logged, and load meanwhile", func() bool {
		for _, p := range all[2:] {
			r.feedContext(p, contexts[p], 20)
		}
		feeds++
		time.Sleep(r.config.ReportInterval) // load comes at that pace
		return full(deaf) && full(stopped) && sender.Stats().Sent > fed+1000
	})
	waits = c.Messages.Waits.Load() - waits
	paused := c.Messages.Pauses.Load() - pauses
	drains = c.Sampling.Drains.Load() - drains
	// A receiver without room is asked when something new comes after all was late; a healthy one,
	// when a burst is longer than its queue, once for each time that it makes room.
	t.Logf("%d drains, %d feeds: %d waits for room, %d pauses, %d messages", drains, feeds, waits, paused,
		c.Messages.Messages.Load())
	neighbor.StopThreads()
	r.end()
	signal(t, stopped, syscall.SIGCONT)
	r.alone(all...)
	if most := drains + feeds; waits > most || paused != 0 {
		t.Errorf("%d waits for room, %d pauses: want %d and none at most", waits, paused, most)
	}
	healthy(t, sender, neighbor.Quit())
	r.sampledAdded()
	for _, p := range all {
		logged := r.logs.FilterField(zap.String("reason", process.ReasonSocketFull.String())).FilterField(zap.Int("pid",
			p.PID)).Len()
		if want := p == deaf || p == stopped; want != (logged == 1) || logged > 1 {
			t.Errorf("process %d was logged %d times to be full", p.PID, logged)
		}
	}
}

// A receiver that was in trouble is registered again, and gets what is still in time.
func TestDeliveryAfterTrouble(t *testing.T) {
	elsewhere := func(p *demo.Process) { p.Republish(filepath.Join(p.Dir, "another.socket"), "") }
	cases := []struct {
		name          string
		hurt, heal    func(p *demo.Process)
		state         process.State
		reason        process.Reason
		registrations int
	}{
		{"removed", (*demo.Process).UnlinkSocket, (*demo.Process).RebindSocket, process.StateError,
			process.ReasonSocketMissing, 2},
		{"file", func(p *demo.Process) { instead(t, p, putFile) }, (*demo.Process).RebindSocket, process.StateError,
			process.ReasonNotSocket, 2},
		{"FIFO", func(p *demo.Process) { instead(t, p, putFIFO) }, (*demo.Process).RebindSocket, process.StateError,
			process.ReasonNotSocket, 2},
		{"elsewhere", (*demo.Process).UnlinkSocket, elsewhere, process.StateError, process.ReasonSocketMissing, 2},
		{"withdrawn", func(p *demo.Process) { p.Withdraw() }, elsewhere, process.StateNoStorage, process.ReasonNone, 2},
		{"stopped", func(p *demo.Process) { signal(t, p, syscall.SIGSTOP) },
			func(p *demo.Process) { signal(t, p, syscall.SIGCONT) },
			process.StateRegistered, process.ReasonNone, 1},
	}
	r := run(t, patient, func(c *Config) { c.SamplesDelay = time.Hour }) // they wait for all to be hurt and healed
	processes, contexts := make([]*demo.Process, len(cases)), make([]demo.Context, len(cases))
	for i, c := range cases {
		processes[i] = demo.Start(t, demo.Options{Manual: true, Idle: 1})
		processes[i].Registration(1)
		contexts[i] = processes[i].Begin(1)
		c.hurt(processes[i])
	}
	for i, c := range cases {
		r.state(processes[i], c.state, c.reason.String())
		sender := r.sender(processes[i])
		r.feedContext(processes[i], contexts[i], 30)
		testenv.Poll(t, deadline, "samples to wait", func() bool { return sender.Stats().Added == 30 })
		if stats := sender.Stats(); stats.Queued < 15 {
			t.Errorf("%s: %d samples wait, %d were sent to nobody", c.name, stats.Queued, stats.Sent)
		}
	}
	for i, c := range cases {
		p := processes[i]
		c.heal(p)
		p.Registration(c.registrations)
		report := p.ReportWhen("what waited", func(report demo.Report) bool { return report.Samples >= 30 })
		clean(t, report)
		transaction, _ := report.Transaction(contexts[i].TraceID)
		assert.Check(t, transaction.Samples == 30 && len(transaction.Stacks) == 30,
			"%s: %d samples of %d stacks arrived, want 30 of 30", c.name, transaction.Samples, len(transaction.Stacks))
	}
	r.end()
	r.added()
}

// What waits for room when a socket goes is kept for the next one.
func TestDeliveryQueuedBeforeTrouble(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t, patient)
	p.Registration(1)
	context, sender := p.Begin(1), r.sender(p)
	signal(t, p, syscall.SIGSTOP)
	r.feedContext(p, context, 30)
	testenv.Poll(t, deadline, "no room", func() bool {
		return sender.Stats().Added == 30 &&
			r.Counters().Messages.Waits.Load() > 0
	})
	waiting := sender.Stats().Queued
	assert.NilError(t, os.Remove(p.HostPath(p.Socket)))
	r.state(p, process.StateError, process.ReasonSocketMissing.String())
	queued := sender.Stats().Queued
	assert.Check(t, queued == waiting && waiting != 0, "%d samples waited before, %d after", waiting, queued)
	signal(t, p, syscall.SIGCONT)
	p.RebindSocket()
	p.Registration(2)
	clean(t, p.ReportWhen("what waited", func(report demo.Report) bool { return report.Samples >= waiting }))
	r.end()
	stats := sender.Stats()
	assert.Check(t, stats.Sent == 30, "of 30 samples %d were sent", stats.Sent)
	r.added()
}

// At the end what is queued is sent, though beside it one process does not read and another hangs.
func TestDeliveryAtTheEnd(t *testing.T) {
	neighbor := demo.Start(t, demo.Options{Busy: 1, Manual: true})
	deaf := demo.Start(t, demo.Options{Busy: 1, NeverRead: true})
	hanging := demo.Start(t, demo.Options{Hold: true})
	hanging.Load()
	r := run(t, atRate(997), roomy)
	neighbor.Registration(1)
	context := neighbor.Begin(1)
	r.state(deaf, process.StateRegistered, "")
	hanging.Hostile("storage-hangs", "")
	r.state(hanging, process.StateError, process.ReasonTimeout.String())
	testenv.Poll(t, deadline, "the deaf process's queue to be full",
		func() bool { return r.Counters().Messages.Waits.Load() > 0 })
	sender, never := r.sender(neighbor), r.sender(deaf)
	r.feedContext(neighbor, context, 100) // ten polls' worth
	testenv.Poll(t, deadline, "all to be queued", func() bool { return r.Counters().FedSamples.Load() == 100 })
	assert.Check(t, sender.Stats().Queued != 0, "nothing was queued at the end")
	r.end()
	r.alone(neighbor, deaf, hanging)
	healthy(t, sender, neighbor.Quit())
	stats := never.Stats()
	assert.Check(t, stats.Queued == 0 && stats.Sent != stats.Added, "a process that never reads: %+v", stats)
	if entries := r.logs.FilterMessage("not all processes were released in time").All(); len(entries) != 0 {
		t.Errorf("left behind: %v", entries[0].ContextMap()["pids"])
	}
	hanging.Kill()
}
