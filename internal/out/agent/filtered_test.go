package agent

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/messaging/feed"
)

// filtered checks that so many processes were filtered, and logged once each.
func (r *running) filtered(n int) {
	r.t.Helper()
	counted, logged := r.Counters().Filtered.Load(), r.logs.FilterMessage("process filtered").Len()
	assert.Check(r.t, counted == uint64(n) && logged == n, "%d filtered, %d logged, want %d", counted, logged, n)
}

// refused checks that what is fed of a filtered process comes to nothing.
func (r *running) refused(p *demo.Process) {
	r.t.Helper()
	fed := &r.Counters().Fed
	refused := func() uint64 { return fed[process.OutcomeNotRegistered].Load() }
	before := refused()
	r.sampleInTime(p.PID, p.PID, [16]byte{1})
	r.send(feed.Record{PID: uint32(p.PID), TID: uint32(p.PID), StackTraceID: [16]byte{1}, Count: 1,
		HasContext: true, TraceID: [16]byte{1}, TransactionID: [8]byte{1}})
	testenv.Poll(r.t, deadline, "the outcomes of both", func() bool { return refused() == before+2 })
}

// A process that is filtered by its service is known, and is sent nothing. One that becomes another
// service is served, and one that was served is not.
func TestFilteredByService(t *testing.T) {
	start := func(service string) *demo.Process {
		return demo.Start(t, demo.Options{Service: service, Manual: true, Busy: 1})
	}
	shop, test, other := start("shop"), start("shop-test"), start("other")
	r := run(t, atRate(997), func(c *Config) {
		c.Filter.IncludeServices, c.Filter.ExcludeServices = patterns(t, "shop.*"), patterns(t, ".*-test")
	})
	r.state(shop, process.StateRegistered, "")
	for _, p := range []*demo.Process{test, other} {
		p.Begin(1)
		view := r.state(p, process.StateFiltered, "")
		assert.Check(t, view.ServiceName != "" && view.Library == p.Library, "%+v", view)
		r.refused(p)
	}
	context := shop.Begin(1)
	clean(t, shop.ReportWhen("samples", func(report demo.Report) bool {
		transaction, _ := report.Transaction(context.TraceID)
		return transaction.Samples > 0
	}))
	r.filtered(2)

	other.Republish(other.Socket, "shop-too")
	other.Registration(1)
	r.state(other, process.StateRegistered, "")
	shop.Republish(shop.Socket+".test", "shop-test")
	r.state(shop, process.StateFiltered, "")
	assert.Check(t, shop.Report().Registrations == 1, "registered with a service that is filtered now")
	r.filtered(3)
	r.end()
	r.added()
	assert.Check(t, test.Quit().Messages == 0, "messages came to a process that is filtered")
}

// A process is filtered by its container, and then not looked into.
func TestFilteredByContainer(t *testing.T) {
	slice := "/correlator-test-" + strconv.Itoa(os.Getpid())
	cgroup := testenv.Cgroup(t, slice+"/docker-"+containerID+".scope")
	contained := demo.Start(t, demo.Options{Hold: true, Manual: true, Idle: 1})
	enter(t, cgroup, contained.PID)
	contained.Load()
	contained.Publish()
	free := demo.Start(t, idle)
	for name, c := range map[string]struct {
		filter process.Filter
		served bool // the process in the container; the other is the opposite
	}{
		"included by id":   {process.Filter{IncludeContainers: patterns(t, containerID)}, true},
		"included by path": {process.Filter{IncludeContainers: patterns(t, slice+"/.*")}, true},
		"excluded by id":   {process.Filter{ExcludeContainers: patterns(t, containerID[:12]+".*")}, false},
		"excluded by path": {process.Filter{ExcludeContainers: patterns(t, slice+`/docker-.*\.scope`)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			served, filtered, state := free, contained, process.StateFiltered
			if c.served {
				served, filtered, state = contained, free, process.StateRegistered
			}
			before := filtered.Report().Messages
			r := run(t, func(config *Config) { config.Filter = c.filter })
			r.state(served, process.StateRegistered, "")
			r.served(served, 1, [16]byte{1})
			view := r.state(filtered, process.StateFiltered, "")
			assert.Check(t, view.ServiceName == "" && view.SocketPath == "", "looked into: %+v", view)
			view = r.state(contained, state, "")
			assert.Check(t, view.ContainerID == containerID && view.CgroupPath == slice+"/docker-"+containerID+".scope",
				"%+v", view)
			r.refused(filtered)
			r.end()
			r.added()
			r.filtered(1)
			assert.Check(t, filtered.Report().Messages == before, "messages came to a process that is filtered")
		})
	}
}

func enter(t *testing.T, cgroup, pid int) {
	t.Helper()
	fd, err := unix.Openat(cgroup, "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(strconv.Itoa(pid)))
	assert.NilError(t, err)
}
