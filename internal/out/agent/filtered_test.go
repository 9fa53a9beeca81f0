package agent

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/messaging/feed"
)

func patterns(t *testing.T, lines string) process.Patterns {
	t.Helper()
	p, err := process.ParsePatterns(lines)
	assert.NilError(t, err)
	return p
}

// silent checks that a process was sent nothing at all.
func silent(t *testing.T, p *demo.Process) {
	t.Helper()
	report := p.Quit()
	assert.Check(t, report.Messages == 0, "%d messages came to a process that is filtered", report.Messages)
}

// filtered checks that so many processes were filtered, and logged once each.
func (r *running) filtered(n int) {
	r.t.Helper()
	if counted := r.Counters().Filtered.Load(); counted != uint64(n) {
		r.t.Errorf("%d processes filtered, want %d", counted, n)
	}
	if logged := r.logs.FilterMessage("process filtered").Len(); logged != n {
		r.t.Errorf("%d lines of filtered processes, want %d", logged, n)
	}
}

func TestFilteredByService(t *testing.T) {
	start := func(service string) *demo.Process {
		return demo.Start(t, demo.Options{Service: service, Manual: true, Busy: 1})
	}
	shop, test, other := start("shop"), start("shop-test"), start("other")
	r := run(t, func(c *Config) {
		c.SamplesPerSecond, c.ReportInterval = 997, 100*time.Millisecond
		c.Filter.IncludeServices, c.Filter.ExcludeServices = patterns(t, "shop.*"), patterns(t, ".*-test")
	})
	r.state(shop, process.StateRegistered, "")
	for _, p := range []*demo.Process{test, other} {
		view := r.state(p, process.StateFiltered, "")
		assert.Check(t, view.ServiceName != "" && view.Library == p.Library, "view %+v", view)
		// Neither is what is fed of it sent.
		context := p.Begin(1)
		r.sample(p.PID, context.Thread.TID, [16]byte{1})
		r.send(feed.Record{PID: uint32(p.PID), TID: uint32(context.Thread.TID), StackTraceID: [16]byte{1}, Count: 1,
			HasContext: true, TraceID: [16]byte{1}, TransactionID: [8]byte{1}})
	}
	testenv.Poll(t, deadline, "outcomes of what was fed", func() bool {
		fed := &r.Counters().Fed
		return fed[process.OutcomeNotRegistered].Load()+fed[process.OutcomeStale].Load() == 4
	})
	context := shop.Begin(1)
	clean(t, shop.ReportWhen("samples", func(report demo.Report) bool {
		transaction, _ := report.Transaction(context.TraceID)
		return transaction.Samples > 0
	}))
	r.filtered(2)

	// A filtered process that becomes another service is served, and one that was served is not.
	other.Republish(other.Socket, "shop-too")
	other.Registration(1)
	r.state(other, process.StateRegistered, "")
	shop.Republish(shop.Socket+".test", "shop-test")
	r.state(shop, process.StateFiltered, "")
	now := shop.Report()
	assert.Check(t, now.Registrations == 1, "%d registrations with a service that is filtered now", now.Registrations)
	r.filtered(3)

	r.end()
	silent(t, test)
}

func TestFilteredByContainer(t *testing.T) {
	const id = "5ebf11e02dbde102cda4b76bc0e3849a65f9edac7a12bdabfd34db01b9556101"
	slice := "/correlator-test-" + strconv.Itoa(os.Getpid())
	cgroup := testenv.Cgroup(t, slice+"/docker-"+id+".scope")
	contained := demo.Start(t, demo.Options{Service: "contained", Manual: true, Idle: 1})
	enter(t, cgroup, contained.PID)
	free := demo.Start(t, demo.Options{Service: "free", Manual: true, Idle: 1})

	for _, c := range []struct {
		name   string
		filter process.Filter
		served bool // the process in the container; the other is the opposite
	}{
		{"included by id", process.Filter{IncludeContainers: patterns(t, id)}, true},
		{"included by path", process.Filter{IncludeContainers: patterns(t, slice+"/.*")}, true},
		{"excluded by id", process.Filter{ExcludeContainers: patterns(t, id[:12]+".*")}, false},
		{"excluded by path", process.Filter{ExcludeContainers: patterns(t, slice+`/docker-.*\.scope`)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			served, filtered := free, contained
			if c.served {
				served, filtered = contained, free
			}
			before := filtered.Report().Messages
			r := run(t, func(config *Config) { config.Filter = c.filter })
			r.state(served, process.StateRegistered, "")
			r.served(served, 1, [16]byte{1})
			view := r.state(filtered, process.StateFiltered, "")
			assert.Check(t, view.ServiceName == "" && view.SocketPath == "",
				"a process was looked into that is filtered by its container: %+v", view)
			state := process.StateFiltered
			if c.served {
				state = process.StateRegistered
			}
			if view := r.state(contained, state, ""); view.ContainerID != id ||
				view.CgroupPath != slice+"/docker-"+id+".scope" {
				t.Errorf("view of the process in the container: %+v", view)
			}
			r.sample(filtered.PID, filtered.PID, [16]byte{2})
			testenv.Poll(t, deadline, "outcome of what was fed", func() bool {
				fed := &r.Counters().Fed
				return fed[process.OutcomeNotRegistered].Load()+fed[process.OutcomeStale].Load() == 1
			})
			r.end()
			r.added()
			r.filtered(1)
			after := filtered.Report().Messages
			assert.Check(t, after == before, "%d messages came to a process that is filtered", after-before)
		})
	}
}

// enter moves a process into a cgroup.
func enter(t *testing.T, cgroup, pid int) {
	t.Helper()
	fd, err := unix.Openat(cgroup, "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(strconv.Itoa(pid)))
	assert.NilError(t, err)
}
