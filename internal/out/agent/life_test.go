package agent

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

var idle = demo.Options{Manual: true, Idle: 1}

// What happens to processes in their lives, one after the other, is followed by one agent.
func TestLife(t *testing.T) {
	r := run(t)
	r.parts(map[string]func(*running){
		"served":                 (*running).wherever,
		"JVM":                    (*running).servedJVM,
		"outcomes":               (*running).fedOutcomes,
		"paths of sockets":       (*running).socketPaths,
		"fork":                   (*running).forkOutlivesItsParent,
		"hostile storage":        (*running).hostileStorage,
		"socket of another":      (*running).othersSocket,
		"storage comes and goes": (*running).storageComesAndGoes,
		"two libraries":          (*running).twoLibraries,
		"library mapped twice":   (*running).libraryMappedTwice,
		"socket replaced":        (*running).socketReplaced,
		"exec":                   (*running).exec,
		"long name":              (*running).longName,
	})
}

func (r *running) storageComesAndGoes() {
	p := demo.Start(r.t, demo.Options{Hold: true, Manual: true, Idle: 1})
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
	assert.Check(r.t, view.ServiceName == "renamed" && strings.HasSuffix(view.SocketPath, "second.socket"), "%+v", view)
	r.served(p, 1, [16]byte{2})

	p.Unload()
	r.gone(p)
	p.Load()
	p.Publish()
	p.Registration(3)
	r.served(p, 1, [16]byte{3})
	clean(r.t, p.Quit())
	r.gone(p)
}

// Of two libraries in one process, the one that publishes wins; the other may have been first.
func (r *running) twoLibraries() {
	p := demo.Start(r.t, idle)
	p.Registration(1)
	p.Withdraw()
	r.state(p, process.StateNoStorage, "")
	second := addLibrary(r.t, p, p.HostPath(p.Library))
	p.Publish()
	p.Registration(2)
	view := r.state(p, process.StateRegistered, "")
	assert.Check(r.t, view.Library == second, "%+v", view)
	r.served(p, 1, [16]byte{1})
}

// One file that is mapped twice has two storage pointers, and two variables in each thread. The
// pair that publishes is the one that counts.
func (r *running) libraryMappedTwice() {
	p := demo.Start(r.t, idle)
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
	p.Withdraw()
	r.state(p, process.StateNoStorage, "")
	assert.Assert(r.t, p.LoadAgain().Base != p.Loaded().Base)
	p.Publish()
	p.Registration(2)
	r.served(p, 1, [16]byte{2})
	p.Withdraw()
	r.state(p, process.StateNoStorage, "")
	clean(r.t, p.Quit())
	r.gone(p)
}

func (r *running) socketReplaced() {
	p := demo.Start(r.t, idle)
	p.Registration(1)
	r.served(p, 1, [16]byte{1})

	p.RebindSocket() // another socket at the same path
	p.Registration(2)
	r.served(p, 1, [16]byte{2})

	p.CloseSocket() // its file is left: sending is refused, which shows when there is something to send
	context := p.Begin(1)
	testenv.Poll(r.t, deadline, "a socket that refuses", func() bool {
		r.feedContext(p, context, 1) // again, if a busy machine made it late
		return r.statusOf(p).Reason == process.ReasonSocketRefused.String()
	})
	p.RebindSocket()
	p.Registration(3)
	r.served(p, 1, [16]byte{3})

	p.UnlinkSocket()
	r.state(p, process.StateError, process.ReasonSocketMissing.String())
	p.RebindSocket()
	p.Registration(4)
	r.served(p, 1, [16]byte{4})
	clean(r.t, p.Quit())
}

// A process that executes another program takes no part any more, though its pid, its start time
// and its pidfd stay.
func (r *running) exec() {
	p := demo.Start(r.t, idle)
	silent := demo.Start(r.t, demo.Options{Hold: true}) // one that never published
	silent.Load()
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
	r.state(silent, process.StateNoStorage, "")
	for _, p := range []*demo.Process{p, silent} {
		p.Exec("sleep", "600")
		r.gone(p)
		p.Kill()
	}
}

// A name of the largest size is whole in the status, and cut in the log.
func (r *running) longName() {
	name := strings.Repeat("n", 8000) + strings.Repeat("m", 100)
	p := demo.Start(r.t, idle)
	p.Registration(1)
	p.Republish(p.Socket, name)
	testenv.Poll(r.t, deadline, "the name", func() bool {
		return r.state(p, process.StateRegistered, "").ServiceName == name
	})
	want := name[:192] + "…[7844 characters cut]…" + name[len(name)-64:]
	testenv.Poll(r.t, deadline, "the log", func() bool {
		return r.logs.FilterField(zap.String("service", want)).Len() == 1
	})
}

// An agent finds what was there before it: a library that was deleted, one that is mapped twice, and a
// process that maps more libraries than are looked at, which is logged once. The next agent registers
// with all of them again.
func TestFoundAtStart(t *testing.T) {
	deleted := demo.Start(t, demo.Options{Hold: true, Manual: true, Idle: 1})
	deleted.Load()
	deleted.UnlinkLibrary()
	twice, many := demo.Start(t, idle), demo.Start(t, idle)
	twice.Withdraw()
	twice.LoadAgain()
	for range 20 {
		addLibrary(t, many, many.HostPath(many.Library))
	}
	processes := []*demo.Process{deleted, twice, many}
	for _, p := range processes {
		p.Publish()
	}
	for n := range 2 {
		r := run(t, atRate(97))
		for _, p := range processes {
			p.Registration(n + 1)
			r.served(p, 1, [16]byte{byte(n)})
		}
		assert.Check(t, r.statusOf(deleted).Library == deleted.Library)
		r.swept(3)
		assert.Check(t, r.Counters().Truncated.Load() == 1, "want one process with too many libraries")
		r.end()
		r.added()
	}
	for _, p := range processes {
		clean(t, p.Quit())
	}
}

// Whatever a process publishes, it has a reason for not being served that is counted, and logged once at most;
// and a neighbor is served meanwhile.
func (r *running) hostileStorage() {
	t := r.t
	outside := filepath.Join(t.TempDir(), "outside.socket")
	host, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: outside, Net: "unixgram"})
	assert.NilError(t, err)
	defer host.Close()
	assert.NilError(t, os.Chmod(outside, 0o777))
	neighbor := demo.Start(t, idle)
	neighbor.Registration(1)
	// Several take turns: one that publishes too often is looked at once a second.
	var processes []*demo.Process
	for range 4 {
		p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Hold: true, Placement: demo.Placement{PrivateTmp: true}})
		p.Load()
		processes = append(processes, p)
	}
	reasons := map[string]process.Reason{
		"storage-unmapped":          process.ReasonStorageUnreadable,
		"storage-wild":              process.ReasonStorageUnreadable,
		"storage-edge":              process.ReasonStorageUnreadable,
		"storage-length":            process.ReasonStorageTooLong,
		"storage-utf8":              process.ReasonStorageUTF8,
		"storage-version":           process.ReasonStorageMalformed,
		"socket-missing":            process.ReasonSocketMissing,
		"socket-fifo":               process.ReasonNotSocket,
		"socket-directory":          process.ReasonNotSocket,
		"socket-file":               process.ReasonNotSocket,
		"socket-stream":             process.ReasonNotSocket,
		"socket-empty":              process.ReasonSocketPath,
		"socket-relative":           process.ReasonSocketPath,
		"socket-nul":                process.ReasonSocketPath,
		"socket-symlink " + outside: process.ReasonSocketMissing,
	}
	for i, kind := range slices.Sorted(maps.Keys(reasons)) {
		t.Run(kind, func(t *testing.T) {
			r, want, hostile := r.in(t), reasons[kind], processes[i%len(processes)]
			counted := r.Counters().Errors[want].Load()
			kind, argument, _ := strings.Cut(kind, " ")
			hostile.Hostile(kind, argument)
			r.state(hostile, process.StateError, want.String())
			testenv.Poll(t, deadline, "the reason to be counted", func() bool {
				return r.Counters().Errors[want].Load() > counted
			})
			if i%5 == 0 {
				r.served(neighbor, 1, [16]byte{1, byte(i)})
			}
			hostile.Withdraw()
			r.state(hostile, process.StateNoStorage, "")
		})
	}
	assert.Check(t, neighbor.Quit().Registrations == 1)
	all := 0
	for _, hostile := range processes {
		hostile.Republish(filepath.Join(hostile.Dir, "good.socket"), "")
		hostile.Registration(1)
		r.served(hostile, 1, [16]byte{2})
		for reason := range process.NumReasons { // each once, but a user's processes have a budget
			logged := r.logged(hostile, reason)
			assert.Check(t, logged <= 1, "reason %v logged %d times, want once", reason, logged)
			all += logged
		}
	}
	assert.Check(t, all > 2, "%d reasons logged", all)
}

// released checks, after the end, that no process was left behind.
func (r *running) released() {
	r.t.Helper()
	left := r.logs.FilterMessage("not all processes were released in time").Len()
	assert.Check(r.t, left == 0, "processes were not released in time")
}

// The child of a fork that executes nothing has a copy of what its parent published and of its
// thread's slot, and receives nothing at the socket that is named there. The parent reads it, which
// must not be sent samples of the child.
func TestFork(t *testing.T) {
	start := func() *demo.Process {
		p := demo.Start(t, idle)
		p.Begin(0) // the slot of the thread that forks
		return p
	}
	fork := func(p *demo.Process) *demo.Process {
		child := &demo.Process{PID: p.Fork(true)}
		signal(t, child, syscall.SIGSTOP) // it burns CPU when all are there
		return child
	}
	before, republished := start(), start()
	children := map[*demo.Process]*demo.Process{before: fork(before), republished: fork(republished)} // by parent
	// The child shows what it published before.
	republished.Republish(republished.Socket, "renamed")
	r := run(t, atRate(997))
	// The child's place stays the parent's, also when that gets another socket at the same path.
	changes := map[string]func(*demo.Process){
		"":         func(*demo.Process) {},
		"mode":     func(p *demo.Process) { assert.NilError(t, os.Chmod(p.HostPath(p.Socket), 0o700)) },
		"replaced": (*demo.Process).RebindSocket,
	}
	for name, change := range changes {
		p := start()
		p.Registration(1)
		child := fork(p)
		r.state(child, process.StateError, process.ReasonSocketShared.String())
		probed := r.Counters().Errors[process.ReasonSocketShared].Load()
		change(p)
		testenv.Poll(t, deadline, "the child to be probed again", func() bool {
			return r.Counters().Errors[process.ReasonSocketShared].Load() > probed+uint64(len(children)+1)
		})
		if name != "" {
			p.Registration(2)
		}
		children[p] = child
	}
	sent, burnt := make(map[*demo.Process]uint64), make(map[*demo.Process]time.Duration)
	for p, child := range children {
		r.state(p, process.StateRegistered, "")
		r.state(child, process.StateError, process.ReasonSocketShared.String())
		sent[p], burnt[p] = r.registration(child).sender.Stats().Added, cpuTime(t, child)
	}
	for _, child := range children {
		signal(t, child, syscall.SIGCONT)
	}
	for p, child := range children {
		testenv.Poll(t, deadline, "the child to burn CPU", func() bool { // for some tens of samples
			return cpuTime(t, child) > burnt[p]+50*time.Millisecond
		})
	}
	r.recounted()
	for p, child := range children {
		r.served(p, 1, [16]byte{1})
		now := r.registration(child).sender.Stats()
		assert.Check(t, now.Added == sent[p], "%d samples of the child are for its parent", now.Added-sent[p])
		report, known := p.Report(), p == before || p == republished
		clean(t, report)
		// Where both are found in the same moment the child may be the first at the socket, until the
		// parent comes. To be registered with twice does no harm.
		assert.Check(t, known || now.Registrations == 0 && now.Added == 0, "%+v", now)
		assert.Check(t, report.Registrations <= 2, "%d registrations of %+v, errors %v",
			report.Registrations, r.statusOf(p), r.logs.FilterField(zap.Int("pid", p.PID)).AllUntimed())
	}
	for p, child := range children {
		p.Quit() // the child, too
		r.gone(p)
		r.gone(child)
	}
	r.end()
	r.added()
}

func cpuTime(t *testing.T, p *demo.Process) time.Duration {
	t.Helper()
	used, err := procscan.CPUTime(p.PID)
	assert.NilError(t, err)
	return used
}

// A child that lives on alone is in nobody's way: its parent's successor at the same path is
// served.
func (r *running) forkOutlivesItsParent() {
	t := r.t
	p := demo.Start(t, idle)
	p.Registration(1)
	p.Fork(false)
	r.swept(2)
	p.Kill()
	r.gone(p)
	successor := demo.Start(t, demo.Options{Manual: true, Idle: 1, Socket: p.Socket})
	successor.Registration(1)
	r.state(successor, process.StateRegistered, "")
	r.swept(20) // the child, if it was taken for one that takes part, was probed again
	r.served(successor, 1, [16]byte{1})
	report := successor.Quit()
	clean(t, report)
	assert.Check(t, report.Registrations == 1)
}

// A process whose mappings cannot be read at first is logged, once, and found when they can.
func TestUnreadableAtFirst(t *testing.T) {
	testenv.NeedRoot(t)
	p := demo.Start(t, idle)
	proc := t.TempDir()
	mount(t, "proc", proc, "proc", 0)
	// Address 0 of the init process: a read there is EIO.
	maps := filepath.Join(proc, fmt.Sprint(p.PID), "maps")
	mount(t, "/proc/1/mem", maps, "", unix.MS_BIND)
	r := run(t, func(c *Config) { c.ProcRoot = proc })
	r.swept(2)
	logged := r.logs.FilterMessage("process cannot be read").FilterField(zap.Int("pid", p.PID)).Len()
	assert.Check(t, logged == 1, "logged %d times, want once", logged)
	assert.NilError(t, unix.Unmount(maps, unix.MNT_DETACH))
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
	clean(t, p.Quit())
	r.end()
	r.added()
}

func mount(t *testing.T, source, at, kind string, flags uintptr) {
	t.Helper()
	assert.NilError(t, unix.Mount(source, at, kind, flags, ""))
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}
