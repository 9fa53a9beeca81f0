package agent

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/lifecycle"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// One file that is mapped twice has two storage pointers, and two variables in each thread. The
// pair that publishes is the one that counts.
func TestLibraryMappedTwice(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
	p.Withdraw()
	r.state(p, process.StateNoStorage, "")
	again := p.LoadAgain()
	assert.Assert(t, again.Base != p.Loaded().Base, "mapped at %#x both times", again.Base)
	p.Publish()
	p.Registration(2)
	r.served(p, 1, [16]byte{2})
	p.Withdraw()
	r.state(p, process.StateNoStorage, "")
	clean(t, p.Quit())
	r.gone(p)
}

// The same when the agent comes later, and meets both at once.
func TestLibraryMappedTwiceBefore(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	p.Withdraw()
	p.LoadAgain()
	p.Publish()
	r := run(t, atRate(97))
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
	clean(t, p.Quit())
}

// A process in a pid namespace of its own calls itself and its threads by other numbers than we do.
func TestOwnPIDNamespace(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1, Placement: demo.Placement{PIDNamespace: true}})
	pid := p.Threads()[0].TID
	assert.Assert(t, pid == 1, "the process calls itself %d", pid)
	r := run(t, atRate(997))
	p.Registration(1)
	r.state(p, process.StateRegistered, "")
	r.stacksTrue(p, r.sampledReport(p, 300))
	clean(t, p.Quit())
	r.gone(p)
}

// A child that lives on alone is in nobody's way: its parent's successor at the same path is
// served.
func TestForkOutlivesItsParent(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	p.Registration(1)
	p.Fork(false)
	swept(r, 2)
	p.Kill()
	r.gone(p)
	successor := demo.Start(t, demo.Options{Manual: true, Idle: 1, Socket: p.Socket})
	successor.Registration(1)
	r.state(successor, process.StateRegistered, "")
	swept(r, 40) // two seconds: the child, if it was taken for one that takes part, was probed again
	r.served(successor, 1, [16]byte{1})
	report := successor.Quit()
	clean(t, report)
	assert.Check(t, report.Registrations == 1, "the successor got %d registrations, want 1", report.Registrations)
}

// A process whose mappings cannot be read at first is logged, once, and found when they can.
func TestUnreadableAtFirst(t *testing.T) {
	testenv.NeedRoot(t)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	proc := t.TempDir()
	mount(t, "proc", proc, "proc", 0)
	// Address 0 of the init process: a read there is EIO.
	uncover := mount(t, "/proc/1/mem", filepath.Join(proc, fmt.Sprint(p.PID), "maps"), "", unix.MS_BIND)
	r := run(t, func(c *Config) { c.ProcRoot = proc })
	swept(r, 2)
	logged := r.logs.FilterMessage("process cannot be read").FilterField(zap.Int("pid", p.PID))
	if n := logged.Len(); n != 1 {
		t.Errorf("it was logged %d times that process %d cannot be read, want once", n, p.PID)
	}
	uncover()
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
	clean(t, p.Quit())
	r.end()
	r.added()
}

// mount mounts something until it is called off, or the test ends.
func mount(t *testing.T, source, at, kind string, flags uintptr) (off func()) {
	t.Helper()
	assert.NilError(t, unix.Mount(source, at, kind, flags, ""), "mounting %s", at)
	mounted := true
	off = func() {
		if mounted {
			mounted = false
			unix.Unmount(at, unix.MNT_DETACH)
		}
	}
	t.Cleanup(off)
	return off
}

// swept waits until so many sweeps have begun and ended.
func swept(r *running, times uint64) {
	r.t.Helper()
	want := r.Counters().Sweeps.Load() + times + 1 // one may be under way
	testenv.Poll(r.t, deadline, fmt.Sprintf("%d sweeps", times),
		func() bool { return r.Counters().Sweeps.Load() >= want })
}

// More processes publish than may be served: that is logged once, the agent is not ready and says
// why, and the others are served when there is room.
func TestMaxProcesses(t *testing.T) {
	first := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t, func(c *Config) { c.MaxProcesses = 1 }, atRate(20))
	first.Registration(1)
	second := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	testenv.Poll(t, deadline, "a process to be refused",
		func() bool { return r.Counters().Refused[lifecycle.RefusedPublishing].Load() > 0 })
	err := r.Ready()
	assert.Check(t, err != nil && strings.Contains(err.Error(), "1 more processes publish than the 1 that are served"),
		"ready: %v", err)
	assert.Check(t, r.Started(), "a process made the agent look as if it had not started")
	if s := r.Status(); s.WithoutPlace != (WithoutPlace{Publishing: 1}) || s.NotReady != err.Error() {
		t.Errorf("status: %+v, not ready: %q", s.WithoutPlace, s.NotReady)
	}
	n := r.logs.FilterMessage("processes are not served; counted from here on").Len()
	assert.Check(t, n == 1, "logged %d times", n)
	first.Kill()
	second.Registration(1)
	r.served(second, 1, [16]byte{1})
	testenv.Poll(t, deadline, "the agent to be ready again", func() bool { return r.Ready() == nil })
}

// A process that forks has a child with a copy of all that it published: that is no agent of its
// own.
func TestSharedSocket(t *testing.T) {
	r := run(t, atRate(997))
	p := demo.Start(t, demo.Options{Busy: 1})
	p.Registration(1)
	child := &demo.Process{PID: p.Fork(true)}
	r.state(child, process.StateError, process.ReasonSocketShared.String())
	r.sampledReport(p, 100)
	report := p.Quit()
	clean(t, report)
	assert.Check(t, report.Registrations == 1, "%d registrations", report.Registrations)
}
