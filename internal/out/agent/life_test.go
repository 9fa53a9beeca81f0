package agent

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/messaging/feed"
)

func TestStorageComesAndGoes(t *testing.T) {
	p := demo.Start(t, demo.Options{Hold: true, Manual: true, Idle: 1})
	r := run(t)

	p.Load() // late
	r.state(p, process.StateNoStorage, "")
	p.Publish() // later still
	p.Registration(1)
	r.served(p, 1, [16]byte{1})

	p.Withdraw()
	r.state(p, process.StateNoStorage, "")
	p.Republish(filepath.Join(p.Dir, "second.socket"), "renamed")
	p.Registration(2)
	view := r.state(p, process.StateRegistered, "")
	assert.Check(t, view.ServiceName == "renamed" && strings.HasSuffix(view.SocketPath, "second.socket"),
		"view %+v", view)
	r.served(p, 1, [16]byte{2})

	p.Unload()
	r.gone(p)
	p.Load()
	p.Publish()
	p.Registration(3)
	r.served(p, 1, [16]byte{3})
	clean(t, p.Quit())
	r.gone(p)
}

// gone waits until the process takes no part any more.
func (r *running) gone(p *demo.Process) {
	r.t.Helper()
	r.state(p, "", "")
}

// Of two libraries in one process, the one that publishes wins; the other may have been first.
func TestTwoLibraries(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	p.Registration(1)
	p.Withdraw()
	r.state(p, process.StateNoStorage, "")

	data, err := os.ReadFile(p.Library)
	assert.NilError(t, err)
	second := filepath.Join(p.Dir, demo.LibraryName(false))
	assert.NilError(t, os.WriteFile(second, data, 0o600))
	assert.NilError(t, p.Command(nil, "load", second))
	p.Publish()
	p.Registration(2)
	view := r.state(p, process.StateRegistered, "")
	assert.Check(t, view.Library == second, "library %q, want %q", view.Library, second)
	r.served(p, 1, [16]byte{1})
}

func TestSocketReplaced(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	p.Registration(1)
	r.served(p, 1, [16]byte{1})

	p.RebindSocket() // another socket at the same path
	p.Registration(2)
	r.served(p, 1, [16]byte{2})

	p.CloseSocket() // its file is left: sending is refused, which shows when there is something to send
	context := p.Begin(1)
	testenv.Poll(t, deadline, "a socket that refuses", func() bool {
		r.feedContext(p, context, 1) // again, if a busy machine made it late
		return r.view(p).Reason == process.ReasonSocketRefused.String()
	})
	p.RebindSocket()
	p.Registration(3)
	r.served(p, 1, [16]byte{3})

	p.UnlinkSocket()
	r.state(p, process.StateError, process.ReasonSocketMissing.String())
	p.RebindSocket()
	p.Registration(4)
	r.served(p, 1, [16]byte{4})
	clean(t, p.Quit())
}

func TestOwnMountNamespace(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Placement: demo.Placement{PrivateTmp: true}})
	if _, err := os.Stat(p.Socket); err == nil {
		t.Fatalf("%s exists for us, too", p.Socket)
	}
	r := run(t)
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
}

func TestOtherUser(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Placement: demo.Placement{UID: 4711, GID: 4712}})
	r := run(t)
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
}

func TestDeletedLibrary(t *testing.T) {
	p := demo.Start(t, demo.Options{Hold: true, Manual: true, Idle: 1})
	p.Load()
	p.UnlinkLibrary()
	p.Publish()
	r := run(t)
	p.Registration(1)
	view := r.state(p, process.StateRegistered, "")
	assert.Check(t, view.Library == p.Library, "library %q, want %q", view.Library, p.Library)
	r.served(p, 1, [16]byte{1})
}

func TestRestartRegistersAgain(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	first := run(t)
	p.Registration(1)
	first.served(p, 1, [16]byte{1})
	first.end()
	second := run(t)
	p.Registration(2)
	second.served(p, 1, [16]byte{2})
	clean(t, p.Quit())
}

func TestAutoMode(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Auto: true})
	r := run(t)
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
}

func TestUnsampled(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Unsampled: true})
	t.Run("counted", func(t *testing.T) {
		r := run(t)
		p.Registration(1)
		tid := p.Begin(1).Thread.TID
		testenv.Poll(t, deadline, "a sample that is not stale", func() bool {
			r.sample(p.PID, tid, [16]byte{1})
			return r.Counters().Fed[process.OutcomeUnsampled].Load() > 0
		})
	})
	t.Run("sent when asked to", func(t *testing.T) {
		r := run(t, func(c *Config) { c.Unsampled = true })
		p.Registration(2)
		r.served(p, 1, [16]byte{2})
	})
}

func TestHostileStorage(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.socket")
	host, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: outside, Net: "unixgram"})
	assert.NilError(t, err)
	defer host.Close()
	assert.NilError(t, os.Chmod(outside, 0o777))

	neighbor := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	hostile := demo.Start(t, demo.Options{Manual: true, Idle: 1, Hold: true,
		Placement: demo.Placement{PrivateTmp: true}})
	r := run(t)
	neighbor.Registration(1)
	hostile.Load()
	for i, c := range []struct {
		kind, argument string
		want           process.Reason
	}{
		{kind: "storage-unmapped", want: process.ReasonStorageUnreadable},
		{kind: "storage-wild", want: process.ReasonStorageUnreadable},
		{kind: "storage-edge", want: process.ReasonStorageUnreadable},
		{kind: "storage-length", want: process.ReasonStorageTooLong},
		{kind: "storage-utf8", want: process.ReasonStorageUTF8},
		{kind: "storage-version", want: process.ReasonStorageMalformed},
		{kind: "socket-missing", want: process.ReasonSocketMissing},
		{kind: "socket-fifo", want: process.ReasonNotSocket},
		{kind: "socket-directory", want: process.ReasonNotSocket},
		{kind: "socket-file", want: process.ReasonNotSocket},
		{kind: "socket-stream", want: process.ReasonNotSocket},
		{kind: "socket-empty", want: process.ReasonSocketPath},
		{kind: "socket-relative", want: process.ReasonSocketPath},
		{kind: "socket-nul", want: process.ReasonSocketPath},
		{kind: "socket-symlink", argument: outside, want: process.ReasonSocketMissing},
	} {
		t.Run(c.kind, func(t *testing.T) {
			r := *r
			r.t = t
			hostile.Hostile(c.kind, c.argument)
			r.state(hostile, process.StateError, c.want.String())
			r.served(neighbor, 1, [16]byte{1, byte(i)})
			assert.Check(t, r.Counters().Errors[c.want].Load() != 0, "not counted as %v", c.want)
			hostile.Withdraw()
			r.state(hostile, process.StateNoStorage, "")
		})
	}
	hostile.Republish(filepath.Join(hostile.Dir, "good.socket"), "")
	hostile.Registration(1)
	r.served(hostile, 1, [16]byte{2})

	if report := neighbor.Quit(); report.Registrations != 1 || report.LateSamples != 0 {
		t.Errorf("neighbor: %d registrations, %d late samples", report.Registrations, report.LateSamples)
	}
	seen := make(map[string]int)
	for _, entry := range r.logs.FilterMessage("process cannot be served; trying again").FilterField(zap.Int("pid",
		hostile.PID)).All() {
		seen[entry.ContextMap()["reason"].(string)]++
	}
	for reason, n := range seen {
		assert.Check(t, n == 1, "reason %s logged %d times, want once", reason, n)
	}
}

func TestHostileSlots(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	p.Registration(1)
	counted := make(map[process.SampleOutcome]uint64)
	for kind, want := range map[string]process.SampleOutcome{
		"slot-null":     process.OutcomeNoSlot,
		"slot-unmapped": process.OutcomeUnreadable,
		"slot-wild":     process.OutcomeUnreadable,
		"slot-edge":     process.OutcomeUnreadable,
		"slot-updating": process.OutcomeUpdating,
		"slot-version":  process.OutcomeUnreadable,
	} {
		context := p.Begin(1)
		p.Spoil(1, kind)
		r.sampleInTime(p.PID, context.Thread.TID, [16]byte{1})
		counted[want]++
		r.outcome(want, counted[want])
	}
	r.served(p, 1, [16]byte{2})
	clean(t, p.Quit())
	r.end()
	r.added()
}

// A process that blocks the reader of its memory delays nobody, not even the agent's end.
func TestHangingProcess(t *testing.T) {
	neighbor := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	hostile := demo.Start(t, demo.Options{Hold: true})
	hostile.Load()
	r := run(t)
	hostile.Hostile("storage-hangs", "")
	r.state(hostile, process.StateError, process.ReasonTimeout.String())
	later := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	for i, p := range []*demo.Process{neighbor, later} {
		p.Registration(1)
		r.served(p, 1, [16]byte{1, byte(i)})
	}
	testenv.Poll(t, deadline, "the hanging process to be counted", func() bool {
		return r.Counters().Errors[process.ReasonTimeout].Load() > 0
	})
	r.end()
	assert.Check(t, r.logs.FilterMessage("not all processes were released in time").Len() == 0,
		"the hanging process was not released in time")
}

// A process that executes another program takes no part any more, though its pid, its start time
// and its pidfd stay.
func TestExec(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
	p.Exec("sleep", "600")
	r.gone(p)
	p.Kill()

	silent := demo.Start(t, demo.Options{Hold: true}) // one that never published
	silent.Load()
	r.state(silent, process.StateNoStorage, "")
	silent.Exec("sleep", "600")
	r.gone(silent)
	silent.Kill()
}

// Processes that have ended leave no descriptor and no goroutine.
func TestNothingIsLeft(t *testing.T) {
	neighbor := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	neighbor.Registration(1)
	r.served(neighbor, 1, [16]byte{1})
	descriptors, goroutines := r.openDescriptors(), runtime.NumGoroutine()
	for range 5 {
		p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
		p.Registration(1)
		r.served(p, 1, [16]byte{2})
		p.Kill()
		r.gone(p)
	}
	testenv.Poll(t, deadline, "descriptors and goroutines to be what they were", func() bool {
		return r.openDescriptors() <= descriptors && runtime.NumGoroutine() <= goroutines
	})
}

// openDescriptors returns how many descriptors are open, without those of workers: as many of these
// wait for requests as there were at a time, up to a bound.
func (r *running) openDescriptors() int {
	r.t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		r.t.Fatal(err)
	}
	return len(entries) - r.Census().Workers.Running
}

// A sample that is too old to read its thread's slot by is not attributed to anything.
func TestStaleSample(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	p.Registration(1)
	tid := p.Begin(1).Thread.TID
	r.send(feed.Record{PID: uint32(p.PID), TID: uint32(tid), StackTraceID: [16]byte{1}, Count: 1,
		TimeNs: bpf.Now() - uint64(2*process.MaxContextAge)})
	r.outcome(process.OutcomeStale, 1)
	old := []fedSample{{tid: tid, count: 5, sampledAt: time.Now().Add(-2 * process.MaxContextAge)}}
	registration := r.registrations.Find(p.PID)
	registration.wait(old) // as if they had waited
	r.outcome(process.OutcomeStale, 6)
}

// Records with context of a process that never published where to send them are not kept.
func TestContextForTheUnregistered(t *testing.T) {
	p := demo.Start(t, demo.Options{Hold: true})
	p.Load()
	r := run(t)
	r.state(p, process.StateNoStorage, "")
	r.send(feed.Record{PID: uint32(p.PID), TID: 1, StackTraceID: [16]byte{1}, Count: 4, HasContext: true,
		TraceID: [16]byte{1}})
	r.outcome(process.OutcomeNotRegistered, 4)
	r.end()
	r.added()
}

// Processes that are killed at any moment leave nothing behind, and disturb nobody.
func TestKilledAtAnyMoment(t *testing.T) {
	neighbor := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	neighbor.Registration(1)
	for i := range 20 {
		p := demo.Start(t, demo.Options{Busy: 2})
		if i%2 == 0 {
			p.Registration(1)
		}
		for _, thread := range p.Threads() {
			r.sample(p.PID, thread.TID, [16]byte{byte(i)})
		}
		p.Kill()
		r.gone(p)
	}
	r.served(neighbor, 1, [16]byte{1})
	clean(t, neighbor.Quit())
	r.end()
	r.added()
}

func TestJVM(t *testing.T) {
	for name, placement := range map[string]demo.Placement{
		"static":  {},
		"dynamic": {Env: []string{"GLIBC_TUNABLES=glibc.rtld.optional_static_tls=0"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := demo.StartJVM(t, demo.JVMOptions{Service: "java-shop", Threads: 3, Placement: placement})
			r := run(t)
			p.Registration(1)
			view := r.state(p, process.StateRegistered, "")
			assert.Check(t, view.ServiceName == "java-shop" && view.Libc == "glibc" && view.TLS == name,
				"view %+v, want %s TLS of glibc", view, name)
			for thread := range 4 {
				r.served(p, thread, [16]byte{1, byte(thread)})
			}
			clean(t, p.Quit())
		})
	}
}
