package agent

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// forkedCPU is how much CPU the child of a fork burns under its parent's trace: a hundred samples.
const forkedCPU = time.Second

// The child of a fork that executes nothing has a copy of what its parent published and of its
// thread's slot, and receives nothing at the socket that is named there. The parent reads it, which
// must not be sent samples of the child.
func TestFork(t *testing.T) {
	for _, before := range []bool{false, true} {
		t.Run(map[bool]string{false: "of a registered process", true: "before the agent came"}[before],
			func(t *testing.T) {
				p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
				var r *running
				var child int
				p.Begin(0) // the slot of the thread that forks
				if before {
					child = p.Fork(true)
				}
				r = run(t, atRate(97))
				p.Registration(1)
				if !before {
					child = p.Fork(true)
				}
				swept(r, 2) // the child was found, whatever it is taken for
				burnt := cpuTime(t, child)
				testenv.Poll(t, deadline, "the child to burn CPU",
					func() bool { return cpuTime(t, child) > burnt+forkedCPU })
				r.served(p, 1, [16]byte{1})
				report := p.Report()
				clean(t, report)
				// When both are found in the same moment the child may be the first at the socket,
				// until the parent comes. To be registered with twice does no harm.
				most := map[bool]uint64{false: 1, true: 2}[before]
				assert.Check(t, report.Registrations <= most,
					"the parent's socket got %d registrations, want %d at most", report.Registrations, most)
				// One by the test, and what little the parent does itself.
				assert.Check(t, report.Samples <= 10,
					"the parent was sent %d samples: some of its child's", report.Samples)
				p.Quit() // the child, too
				r.gone(p)
				testenv.Poll(t, deadline, "nobody to take part", func() bool { return len(r.processStatuses()) == 0 })
				r.end()
				r.sampledAdded()
			})
	}
}

// The child of a fork does not get its parent's place when the parent's socket becomes another, by
// its file's mode or altogether, whichever notices first.
func TestForkSocketChanges(t *testing.T) {
	for name, change := range map[string]func(*demo.Process) error{
		"mode":     func(p *demo.Process) error { return os.Chmod(p.HostPath(p.Socket), 0o700) },
		"replaced": func(p *demo.Process) error { p.RebindSocket(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
			p.Begin(0) // the slot of the thread that forks
			r := run(t, atRate(97))
			p.Registration(1)
			child := &demo.Process{PID: p.Fork(true)}
			r.state(child, process.StateError, process.ReasonSocketShared.String())
			before := r.Counters().Errors[process.ReasonSocketShared].Load()
			assert.NilError(t, change(p))
			testenv.Poll(t, deadline, "the child to be probed again", func() bool {
				return r.Counters().Errors[process.ReasonSocketShared].Load() > before+1
			})
			p.Registration(2)
			r.served(p, 1, [16]byte{1})
			r.state(child, process.StateError, process.ReasonSocketShared.String())
			report := p.Report()
			assert.Check(t, report.Samples <= 10, "the parent was sent %d samples: some of its child's", report.Samples)
		})
	}
}

// The child of a fork shows what its parent published before it published something else, at the
// same socket: it does not get that either.
func TestForkThenRepublish(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	p.Begin(0) // the slot of the thread that forks
	child := p.Fork(true)
	p.Republish(p.Socket, "renamed")
	r := run(t, atRate(97))
	r.state(p, process.StateRegistered, "")
	r.state(&demo.Process{PID: child}, process.StateError, process.ReasonSocketShared.String())
	burnt := cpuTime(t, child)
	testenv.Poll(t, deadline, "the child to burn CPU", func() bool { return cpuTime(t, child) > burnt+forkedCPU })
	r.served(p, 1, [16]byte{1})
	report := p.Report()
	assert.Check(t, report.Samples <= 10, "the parent was sent %d samples: some of its child's", report.Samples)
}

// cpuTime is what the first thread of a process has used.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	assert.NilError(t, err)
	ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
	assert.NilError(t, err)
	return time.Duration(ns)
}
