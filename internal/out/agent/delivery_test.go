package agent

import (
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/messaging"
	"correlator/messaging/feed"
)

// roomy is short enough for samples to become late where nobody reads.
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

// arrived checks, after the end, that what was sent to a process to which nothing happened has arrived,
// and that it was registered with once. If its samples were never late, none was dropped.
func (r *running) arrived(sender *messaging.Sender, report demo.Report) {
	r.t.Helper()
	stats := sender.Stats()
	clean(r.t, report)
	assert.Check(r.t, stats.Sent > 0 && report.Samples+report.LateSamples == stats.Sent,
		"%d samples sent, %d arrived, %d late", stats.Sent, report.Samples, report.LateSamples)
	late := stats.Dropped[messaging.DropLate] + stats.Dropped[messaging.DropAddedLate]
	assert.Check(r.t, stats.Added == stats.Sent+late, "dropped, not for being late: %v", stats.Dropped)
	assert.Check(r.t, late+report.LateSamples == 0 || r.config.SamplesDelay < time.Hour, "%d late", late)
	assert.Check(r.t, stats.Registrations == 1 && report.Registrations == 1,
		"registered %d times", report.Registrations)
}

// The worked example of the protocol: three messages for one transaction. Records with their context
// are sent as they are, however many samples they have.
func TestFed(t *testing.T) {
	p := demo.Start(t, idle)
	r := run(t, patient)
	p.Registration(1)
	context := p.Begin(1)
	record := feed.Record{PID: uint32(p.PID), TID: uint32(context.Thread.TID)}
	for _, message := range []struct {
		stack string
		count uint16
	}{
		{"60b420bb3851d9d47acb933dbe70399b", 2},
		{"4c9326bb9805fa8f85882c12eae724ce", 1},
		{"60b420bb3851d9d47acb933dbe70399b", 1},
	} {
		_, err := hex.Decode(record.StackTraceID[:], []byte(message.stack))
		assert.NilError(t, err)
		record.Count = message.count
		r.recordComesTo(record, process.OutcomeCorrelated)
	}
	p.ReportWhen("the two stacks of the example", func(report demo.Report) bool {
		transaction, _ := report.Transaction(context.TraceID)
		return len(transaction.Stacks) == 2 && transaction.Stacks["YLQguzhR2dR6y5M9vnA5mw"] == 3 &&
			transaction.Stacks["TJMmu5gF-o-FiCwS6uckzg"] == 1
	})
	record = feed.Record{PID: uint32(p.PID), TID: 1, StackTraceID: [16]byte{1}, Count: 40_000, HasContext: true,
		TraceID: context.TraceID, TransactionID: context.TransactionID}
	r.send(record, record)
	report := p.ReportWhen("80000 samples more", func(report demo.Report) bool {
		transaction, _ := report.Transaction(context.TraceID)
		return transaction.Samples == 80_004
	})
	clean(t, report)
	assert.Check(t, report.BadCount == 0, "messages with a count that is negative for the agent")

	// What is no feed datagram is counted by what is wrong with it, and hurts nothing.
	conn, err := net.Dial("unixgram", r.config.FeedSocket)
	assert.NilError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("CFD1\001\000\000\000"))
	assert.NilError(t, err)
	testenv.Poll(t, deadline, "a datagram to be refused", func() bool {
		return r.Counters().Feed.Refused[feed.RefusedLength].Load() == 1
	})
	r.served(p, 1, [16]byte{2})
	r.end()
	r.added()
}

// block occupies the goroutine of a process until the function that it returns is called.
func (r *running) block(p *demo.Process) (release func()) {
	r.t.Helper()
	begun, over := make(chan struct{}), make(chan struct{})
	assert.Assert(r.t, r.registration(p).process.Post(func() { close(begun); <-over }))
	<-begun
	return func() { close(over) }
}

// A process whose goroutine is not there to take samples loses its own, with a count of each: those of
// records that it is not told of, and those beyond what may wait. The feed goes on.
func TestBacklog(t *testing.T) {
	p, other := demo.Start(t, idle), demo.Start(t, idle)
	r := run(t)
	p.Registration(1)
	other.Registration(1)
	tid := p.Begin(1).Thread.TID
	registration := r.registration(p)
	release := r.block(p)

	// As route calls it, with times at which they are not too old whenever they are looked at.
	const beyond = 100
	samples := make([]fedSample, maxFedWaiting+beyond)
	for i := range samples {
		samples[i] = fedSample{tid: tid, stackTraceID: [16]byte{1}, count: 2, sampledAt: time.Now().Add(time.Hour)}
	}
	r.counters.FeedSamples.Add(2 * uint64(len(samples)))
	registration.wait(samples[:10])
	registration.wait(samples[10:])
	backlog := func() uint64 { return r.Counters().Fed[process.OutcomeBacklog].Load() }
	assert.Check(t, backlog() == 2*beyond, "%d of %d samples beyond the backlog are counted", backlog(), 2*beyond)
	refused := registration.refused[process.OutcomeBacklog].Load()
	assert.Check(t, refused == 2*beyond, "%d of the process", refused)
	registration.fed.Lock()
	assert.Check(t, len(registration.fed.waiting) == maxFedWaiting)
	registration.fed.Unlock()
	r.served(other, 1, [16]byte{1})
	release()
	testenv.Poll(t, deadline, "the outcome of all", func() bool {
		return r.Counters().Fed.Sum() == r.Counters().FeedSamples.Load()
	})

	// Nor is there room for the message that there are samples.
	release = r.block(p)
	for registration.process.Post(func() {}) { // until no more may wait
	}
	r.sampleInTime(p.PID, tid, [16]byte{1})
	r.outcome(process.OutcomeBacklog, 2*beyond+1)
	r.feedContext(p, p.Begin(1), 1)
	release()
	empty := make(chan struct{}) // else a post may have taken the only room
	testenv.Poll(t, deadline, "room", func() bool { return registration.process.Post(func() { close(empty) }) })
	<-empty
	r.served(p, 1, [16]byte{2})

	// Those that wait for a process that ends have an outcome, too.
	release = r.block(p)
	registration.wait(samples[:1])
	r.counters.FeedSamples.Add(2)
	p.Kill()
	release()
	r.gone(p)
	testenv.Poll(t, deadline, "the outcome of all", func() bool {
		return r.Counters().Fed.Sum() == r.Counters().FeedSamples.Load()
	})
	r.end()
	r.added()
}

// An end that waits no longer for the goroutine of a process leaves no sample without an outcome. What that
// goroutine holds is abandoned, and counted as nothing else when it goes on after all.
func TestAbandoned(t *testing.T) {
	// The kernel cannot read the slots, so the goroutine has to; and it finds more than the process reads.
	p := demo.Start(t, demo.Options{Busy: 2, Rewrite: demo.RewriteCycle, PageOut: true})
	r := run(t, atRate(997))
	r.sampledReport(p, 1)
	served := r.registration(p)
	release := r.block(p)
	served.wait([]fedSample{{tid: p.PID, count: 1, sampledAt: time.Now()}})
	r.counters.FeedSamples.Add(1)
	r.recounted()
	before := r.kernel(bpf.Unreadable)
	testenv.Poll(t, deadline, "samples that wait", func() bool { return r.kernel(bpf.Unreadable) > before+10 })
	r.end()
	warnings := r.logs.FilterMessage("not all processes were released in time").Len()
	r.added()
	abandoned := func(o *process.SampleOutcomes) uint64 { return o[process.OutcomeAbandoned].Load() }
	sampled, fed := abandoned(&r.Counters().Sampling.Outcomes), abandoned(&r.Counters().Fed)
	assert.Check(t, warnings == 1 && sampled > 0 && fed == 1 && abandoned(&served.refused) == sampled+fed,
		"%d warnings; %d samples abandoned, and %d fed ones, want 1; %d of the process", warnings, sampled, fed,
		abandoned(&served.refused))
	over := make(chan struct{})
	assert.Assert(t, served.process.Post(func() { close(over) }))
	release()
	<-over
	testenv.Poll(t, deadline, "the end of the process's goroutine", func() bool {
		return len(r.registrations.All()) == 0
	})
	r.added()
}

// A socket of somebody else's, to which the process may not write, gets nothing though we may.
func (r *running) othersSocket() {
	t := r.t
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Placement: demo.Placement{UID: 4711, GID: 4711}})
	p.Registration(1)
	context := p.Begin(1)
	var others *net.UnixConn
	instead(t, p, func(path string) (err error) {
		others, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			return err
		}
		return os.Chmod(path, 0o600)
	})
	defer others.Close()
	r.state(p, process.StateError, process.ReasonSocketDenied.String())
	fed := r.Counters().Fed.Sum()
	r.feedContext(p, context, 20)
	testenv.Poll(t, deadline, "samples to have an outcome", func() bool { return r.Counters().Fed.Sum() == fed+20 })
	r.swept(3)
	others.SetReadDeadline(time.Now())
	n, err := others.Read(make([]byte, 1))
	assert.Check(t, os.IsTimeout(err), "%d bytes arrived at another's socket, %v", n, err)
	p.RebindSocket()
	p.Registration(2)
	r.served(p, 1, [16]byte{1})
}

// Receivers in every kind of trouble, and as many that never read as would silence all others if they
// shared a socket with them, do not keep their neighbor from its samples. Those whose samples become
// late are logged once; the agent does not try what cannot work; and what a process loses is in its
// own status.
func TestDeliveryBesideTrouble(t *testing.T) {
	neighbor := demo.Start(t, demo.Options{Busy: 1, Transaction: 500 * time.Millisecond})
	stopped, file, fifo, removed := demo.Start(t, idle), demo.Start(t, idle), demo.Start(t, idle), demo.Start(t, idle)
	blocked := []*demo.Process{stopped}
	for range 25 {
		blocked = append(blocked, demo.Start(t, demo.Options{Manual: true, Idle: 1, NeverRead: true}))
	}
	fed := append([]*demo.Process{file, fifo, removed}, blocked...)
	r := run(t, atRate(997), roomy)
	r.state(neighbor, process.StateRegistered, "")
	contexts := make(map[*demo.Process]demo.Context)
	for _, p := range fed {
		r.state(p, process.StateRegistered, "")
		contexts[p] = p.Begin(1)
	}
	stop(t, stopped)
	instead(t, file, putFile)
	instead(t, fifo, putFIFO)
	removed.UnlinkSocket()
	for _, p := range []*demo.Process{file, fifo} {
		r.state(p, process.StateError, process.ReasonNotSocket.String())
	}
	r.state(removed, process.StateError, process.ReasonSocketMissing.String())

	sender, c := r.registration(neighbor).sender, &r.Counters().Messages
	before, feeds := sender.Stats().Sent, uint64(0)
	for done := false; !done; feeds++ {
		for _, p := range fed {
			r.feedContext(p, contexts[p], 8)
		}
		drains := r.Counters().Sampling.Drains.Load() // load comes at that pace
		testenv.Poll(t, deadline, "a drain", func() bool { return r.Counters().Sampling.Drains.Load() > drains })
		done = sender.Stats().Sent > before+300
		for _, p := range blocked {
			done = done && r.logged(p, process.ReasonSocketFull) > 0
		}
	}
	neighbor.StopThreads()
	waits, most := c.SendWaits.Load(), c.MessagesSent.Load()+feeds*uint64(len(fed))
	assert.Check(t, waits <= most, "%d waits for room, want %d at most", waits, most)
	assert.Check(t, c.SendPauses.Load() == 0)
	for _, p := range blocked {
		testenv.Poll(t, deadline, "all to be late", func() bool { return r.statusOf(p).Queued == 0 })
		s := r.statusOf(p)
		stale := s.Dropped[process.OutcomeStale.String()] // samples of its own threads, on a busy machine
		assert.Check(t, s.Late > 0 && s.Samples == s.Late+s.Sent+stale && s.sum() == s.Samples, "%+v", s)
	}
	r.end()
	signal(t, stopped, syscall.SIGCONT)
	r.arrived(sender, neighbor.Quit())
	r.added()
	for _, p := range append(fed, neighbor) {
		want := 0
		if slices.Contains(blocked, p) {
			want = 1
		}
		logged := r.logged(p, process.ReasonSocketFull)
		assert.Check(t, logged == want, "process %d was logged %d times to be full", p.PID, logged)
	}
}

// A receiver that was in trouble is registered again, and gets what waited meanwhile.
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
		{"stopped", func(p *demo.Process) { stop(t, p) },
			func(p *demo.Process) { signal(t, p, syscall.SIGCONT) },
			process.StateRegistered, process.ReasonNone, 1},
	}
	r := run(t, patient)
	processes, contexts := make([]*demo.Process, len(cases)), make([]demo.Context, len(cases))
	for i, c := range cases {
		processes[i] = demo.Start(t, idle)
		processes[i].Registration(1)
		contexts[i] = processes[i].Begin(1)
		c.hurt(processes[i])
	}
	for i, c := range cases {
		r.state(processes[i], c.state, c.reason.String())
		sender := r.registration(processes[i]).sender
		r.feedContext(processes[i], contexts[i], 30)
		testenv.Poll(t, deadline, "samples to wait", func() bool { return sender.Stats().Added == 30 })
		stats := sender.Stats()
		assert.Check(t, stats.Queued >= 15,
			"%s: %d samples wait, %d were sent to nobody", c.name, stats.Queued, stats.Sent)
	}
	for i, c := range cases {
		p := processes[i]
		c.heal(p)
		p.Registration(c.registrations)
		report := p.ReportWhen("what waited", func(report demo.Report) bool { return report.Samples >= 30 })
		clean(t, report)
		transaction, _ := report.Transaction(contexts[i].TraceID)
		assert.Check(t, transaction.Samples == 30 && len(transaction.Stacks) == 30, "%s: %+v", c.name, transaction)
	}
	r.end()
	r.added()
}

// What waits for room when a socket goes is kept for the next one.
func TestDeliveryQueuedBeforeTrouble(t *testing.T) {
	p := demo.Start(t, idle)
	r := run(t, patient)
	p.Registration(1)
	context, sender := p.Begin(1), r.registration(p).sender
	stop(t, p)
	r.feedContext(p, context, 30)
	testenv.Poll(t, deadline, "no room", func() bool {
		return sender.Stats().Added == 30 && r.Counters().Messages.SendWaits.Load() > 0
	})
	waiting := sender.Stats().Queued
	assert.NilError(t, os.Remove(p.HostPath(p.Socket)))
	r.state(p, process.StateError, process.ReasonSocketMissing.String())
	queued := sender.Stats().Queued
	assert.Check(t, queued == waiting && waiting > 0, "%d samples waited before, %d after", waiting, queued)
	signal(t, p, syscall.SIGCONT)
	p.RebindSocket()
	p.Registration(2)
	clean(t, p.ReportWhen("what waited", func(report demo.Report) bool { return report.Samples >= waiting }))
	r.end()
	assert.Check(t, sender.Stats().Sent == 30)
	r.added()
}

// A process that blocks the reader of its memory delays nobody who was there before it, or comes later. At
// the end what is queued is sent, though beside it one process does not read and another hangs. What is not
// sent within the samples-delay, or until StopNow, is dropped and counted.
func TestDeliveryAtTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		delay func(*Config)
		now   bool
	}{"samples-delay": {roomy, false}, "now": {patient, true}} {
		t.Run(name, func(t *testing.T) {
			neighbor := demo.Start(t, idle)
			unread := demo.Start(t, demo.Options{Manual: true, Idle: 1, NeverRead: true})
			hanging := demo.Start(t, demo.Options{Hold: true})
			hanging.Load()
			r := run(t, c.delay)
			neighbor.Registration(1)
			r.state(unread, process.StateRegistered, "")
			hanging.Hostile("storage-hangs", "")
			r.state(hanging, process.StateError, process.ReasonTimeout.String())
			testenv.Poll(t, deadline, "the hanging process to be counted", func() bool {
				return r.Counters().Errors[process.ReasonTimeout].Load() > 0
			})
			later := demo.Start(t, idle) // is served, as is who was before
			later.Registration(1)
			r.served(later, 1, [16]byte{1})
			sender, never := r.registration(neighbor).sender, r.registration(unread).sender
			r.feedContext(unread, unread.Begin(1), 100) // a message each, of which the socket has room for eleven
			r.feedContext(neighbor, neighbor.Begin(1), 100)
			testenv.Poll(t, deadline, "all to be queued", func() bool {
				return never.Stats().Added == 100 && sender.Stats().Added == 100
			})
			if c.now {
				testenv.Poll(t, deadline, "the neighbor's", func() bool { return sender.Stats().Sent == 100 })
				r.StopNow()
			}
			r.end()
			r.arrived(sender, neighbor.Quit())
			stats := never.Stats()
			assert.Check(t, stats.Queued == 0 && stats.Sent < 100, "a process that never reads: %+v", stats)
			assert.Check(t, !c.now || stats.Sent+stats.Dropped[messaging.DropClosed] == 100, "%+v", stats)
			r.released()
			r.added()
			hanging.Kill()
		})
	}
}

// At the end nothing waits for a process that has ended meanwhile.
func TestDeliveryEndedAtTheEnd(t *testing.T) {
	neighbor, unread := demo.Start(t, idle), demo.Start(t, demo.Options{Manual: true, Idle: 1, NeverRead: true})
	r := run(t, patient)
	neighbor.Registration(1)
	r.state(unread, process.StateRegistered, "")
	sender, never := r.registration(neighbor).sender, r.registration(unread).sender
	r.feedContext(unread, unread.Begin(1), 100)
	testenv.Poll(t, deadline, "all to be queued", func() bool { return never.Stats().Added == 100 })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.end()
	}()
	testenv.Poll(t, deadline, "the end of the neighbor's", func() bool { return !sender.Stats().Connected })
	unread.Kill()
	<-ended
	stats := never.Stats()
	assert.Check(t, stats.Queued == 0 && stats.Sent+stats.Dropped[messaging.DropClosed] == 100, "%+v", stats)
	r.released()
	r.added()
}

// A process that republishes a thousand times a second, each time with another storage and another
// socket, is connected to once a second in the long run, and probed a few times more. It is served again
// as soon as it is at rest.
func TestDeliveryRepublishing(t *testing.T) {
	p := demo.Start(t, idle)
	r := run(t)
	p.Registration(1)
	p.RepublishEvery(100 * time.Microsecond)
	c := r.Counters()
	// What is allowed in a row is over soon.
	testenv.Poll(t, deadline, "republishing to be too often", func() bool { return c.TooOften.Load() > 0 })
	began, connected, throttled, probed := time.Now(), c.Connections.Load(), c.TooOften.Load(), c.Probes.Load()
	testenv.Poll(t, deadline, "it to be too often again", func() bool { return c.TooOften.Load() > throttled+1 })
	connects, probes := c.Connections.Load()-connected, c.Probes.Load()-probed
	seconds := uint64(time.Since(began)/time.Second) + 2
	assert.Check(t, connects <= seconds, "connected %d times in %d seconds", connects, seconds)
	assert.Check(t, probes <= 10*seconds, "probed %d times in %d seconds", probes, seconds)
	p.StopRepublishing()
	r.state(p, process.StateRegistered, "")
	r.served(p, 1, [16]byte{1})
	r.end()
	clean(t, p.Quit())
	r.added()
}
