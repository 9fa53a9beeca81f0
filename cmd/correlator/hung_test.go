package main

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/lab/testenv/fusefs"
	"correlator/internal/out/agent"
)

// hangings are the ways in which a process makes whoever serves it wait for a FUSE server that
// never answers. Each starts the process, and returns its file system.
var hangings = []struct {
	name  string
	start func(t *testing.T) (*fusefs.FS, *demo.Process)
}{
	{"socket path", func(t *testing.T) (*fusefs.FS, *demo.Process) {
		fs := fusefs.Mount(t, fusefs.UserNamespace)
		fs.Overlay("/mnt", "")
		p := startIn(t, fs, demo.Options{Idle: 1})
		fs.Hang(fusefs.Lookup, "/hung")
		p.Hostile("socket-path", "/mnt/hung/agent.socket")
		return fs, p
	}},
	{"opening the library", hangingLibrary(fusefs.Open)},
	{"reading the library", hangingLibrary(fusefs.Read)},
	{"metadata of the library", hangingLibrary(fusefs.Getattr)},
	{"closing the library", hangingLibrary(fusefs.Flush)},
	{"executable file", func(t *testing.T) (*fusefs.FS, *demo.Process) {
		fs := fusefs.Mount(t, fusefs.UserNamespace)
		fs.Write("work.so", buildWork(t))
		fs.Overlay("/mnt", "")
		p := startIn(t, fs, demo.Options{Busy: 1})
		p.Borrow("/mnt/work.so", "work")
		fs.Hang(fusefs.Open, "/work.so")
		return fs, p
	}},
	{"root directory", func(t *testing.T) (*fusefs.FS, *demo.Process) {
		fs := fusefs.Mount(t, fusefs.UserNamespace)
		fs.Overlay("/mnt", fs.Empty())
		p := startIn(t, fs, demo.Options{Idle: 1})
		p.Chroot("/mnt")
		fs.Hang(fusefs.Getattr, "/")
		return fs, p
	}},
	{"slot", func(t *testing.T) (*fusefs.FS, *demo.Process) {
		fs := fusefs.Mount(t, fusefs.Fusermount)
		fs.Write("page", make([]byte, os.Getpagesize()))
		p := startIn(t, fs, demo.Options{Busy: 1, Manual: true})
		p.Begin(1)
		fs.Hang(fusefs.Read, "/page")
		p.Spoil(1, "slot-file:"+fs.Path("page"))
		return fs, p
	}},
	{"memory", func(t *testing.T) (*fusefs.FS, *demo.Process) {
		fs := fusefs.Mount(t, fusefs.Fusermount)
		fs.Write("page", make([]byte, os.Getpagesize()))
		p := startIn(t, fs, demo.Options{Busy: 1})
		fs.Hang(fusefs.Read, "/page")
		p.Hostile("storage-file", fs.Path("page")) // which nobody has read yet
		return fs, p
	}},
}

// startIn starts a demo process that belongs to a file system's user and is in its namespaces.
func startIn(t *testing.T, fs *fusefs.FS, o demo.Options) *demo.Process {
	t.Helper()
	o.Placement = demo.Placement{UID: fusefs.UID, GID: fusefs.GID, By: fs.By}
	return demo.Start(t, o)
}

// buildWork returns a stripped library with a build id for demo.Process.Borrow, whose function is
// work.
func buildWork(t *testing.T) []byte {
	t.Helper()
	source := filepath.Join(t.TempDir(), "work.c")
	testenv.WriteFile(t, source, "double work(double x) { for (int i = 0; i < 1000; i++) x = x / 2 + 1; return x; }\n")
	return testenv.ReadFile(t, testenv.Compile(t, "cc", source, "-shared", "-fPIC", "-s", "-Wl,--build-id"))
}

// hangingLibrary starts a process whose library is on the file system, which does not answer when
// somebody does that to it.
func hangingLibrary(op fusefs.Op) func(*testing.T) (*fusefs.FS, *demo.Process) {
	return func(t *testing.T) (*fusefs.FS, *demo.Process) {
		t.Helper()
		fs := fusefs.Mount(t, fusefs.UserNamespace)
		name := demo.LibraryName(false)
		fs.Write(name, testenv.ReadFile(t, filepath.Join(demo.Build(t, "lib-glibc-tlsdesc"), "lib-glibc-tlsdesc.so")))
		fs.Overlay("/mnt", "")
		p := startIn(t, fs, demo.Options{Idle: 1, Manual: true, LoadFrom: "/mnt/" + name})
		fs.Hang(op, "/"+name)
		return fs, p
	}
}

// hung is a process that makes whoever reads it wait.
type hung struct {
	fs      *fusefs.FS
	process *demo.Process
}

// taken reports whether somebody other than the process has made a request that hangs.
func (h hung) taken() bool {
	return slices.ContainsFunc(h.fs.Requests(), func(r fusefs.Request) bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", h.process.PID, r.TID))
		return err != nil
	})
}

// answerFirst has all that hangs be answered before other cleanups of the test wait for it.
func answerFirst(all []hung) {
	for _, h := range all {
		h.fs.AnswerFirst()
	}
}

// While processes make whoever serves them wait for ever, the others are served; the agent ends at once
// when it is told to, also if it is killed, and another one takes its place. The commands that examine
// processes once end, too. Some at a time, since of one user only so many may hang workers.
func TestHungProcesses(t *testing.T) {
	needSampler(t)
	honest := demo.Start(t, demo.Options{})
	for i, group := range slices.Collect(slices.Chunk(hangings, 3)) {
		t.Run(group[0].name+" and others", func(t *testing.T) {
			var all []hung
			for _, hanging := range group {
				fs, hangs := hanging.start(t)
				all = append(all, hung{fs, hangs})
			}
			at := newAddresses(t)
			signals := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}
			flags := at.flags()
			if i == 1 {
				flags = append(flags, "--unwinder", "auto")
				slices.Reverse(signals)
			}
			start := startAgent
			if i == 0 {
				start = startRaced
			}
			first := start(t, nil, flags...)
			answerFirst(all)
			examinations := [][]string{{"scan"}}
			for _, h := range all {
				testenv.Poll(t, deadline, "somebody else to hang", h.taken)
				examinations = append(examinations, []string{"inspect", strconv.Itoa(h.process.PID)})
			}
			var pids []int
			for _, argv := range examinations {
				cmd := exec.Command(installed(t), argv...)
				assert.NilError(t, cmd.Start())
				t.Cleanup(func() { cmd.Wait() })
				pids = append(pids, cmd.Process.Pid)
			}
			at.works(t, first, honest)
			first.kill(signals[0])
			second := startAgent(t, nil, at.flags()...)
			answerFirst(all)
			at.works(t, second, honest)
			second.kill(signals[1])
			testenv.Poll(t, deadline, "the end of all that examine", func() bool {
				return !slices.ContainsFunc(pids, func(pid int) bool { return !reapable(t, pid) })
			})
		})
	}
}

// addresses is everything that an agent listens on: the same for one and the next.
type addresses struct{ dir, metrics string }

func newAddresses(t *testing.T) addresses {
	t.Helper()
	l := addresses{dir: t.TempDir(), metrics: newLoopback() + ":9464"}
	openBackend(t, filepath.Join(l.dir, "otlp"))
	return l
}

func (l addresses) flags() []string {
	return []string{"--samples-per-second", "97", "--metrics-address", l.metrics,
		"--admin-socket", filepath.Join(l.dir, "admin"), "--feed-socket", filepath.Join(l.dir, "feed"),
		"--otlp-endpoint", "unix:" + filepath.Join(l.dir, "otlp"),
		"--otlp-listen", "unix:" + filepath.Join(l.dir, "listen")}
}

// works checks that an agent has everything that it is to listen on, and serves processes.
func (l addresses) works(t *testing.T, a *agentProcess, processes ...*demo.Process) {
	t.Helper()
	for _, p := range processes {
		a.registered(p.PID)
		getsSamples(t, p)
	}
	testenv.Poll(t, deadline, "health", func() bool {
		answer, err := http.Get("http://" + l.metrics + "/healthz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	if connection, err := net.Dial("unix", filepath.Join(l.dir, "listen")); err != nil {
		t.Error(err)
	} else {
		connection.Close()
	}
	pid := strconv.Itoa(processes[0].PID)
	command(t, pid+" "+pid+" 60b420bb3851d9d47acb933dbe70399b\n", "feed", "--socket", filepath.Join(l.dir, "feed"))
	status := statusAt(t, filepath.Join(l.dir, "admin"))
	for _, p := range processes {
		i := slices.IndexFunc(status.Processes, func(s agent.ProcessStatus) bool { return s.PID == p.PID })
		if i < 0 {
			t.Fatalf("process %d is not in %+v", p.PID, status.Processes)
		}
		dropped := maps.Clone(status.Processes[i].Dropped)
		delete(dropped, "stale") // on a busy machine
		if len(dropped) > 0 {
			t.Errorf("samples of process %d were dropped: %v", p.PID, dropped)
		}
	}
}

// getsSamples has a process whose threads do not burn CPU time do so for a while, and waits for samples.
func getsSamples(t *testing.T, p *demo.Process) {
	t.Helper()
	before := p.Report().Samples
	p.StartThreads(1, "busy")
	clean(t, p.ReportWhen("samples", func(report demo.Report) bool { return report.Samples > before+5 }))
	p.StopThreads()
}

// kill sends a signal and waits until the agent is gone: with all its threads, or nobody could reap
// it, and what it had open would stay open.
func (a *agentProcess) kill(signal syscall.Signal) {
	a.t.Helper()
	assert.NilError(a.t, a.command.Process.Signal(signal))
	testenv.Poll(a.t, deadline, "the end of the agent", func() bool { return reapable(a.t, a.command.Process.Pid) })
	err := a.command.Wait()
	if status := a.command.ProcessState.Sys().(syscall.WaitStatus); signal == syscall.SIGKILL {
		assert.Check(a.t, status.Signaled() && status.Signal() == signal, "the agent ended with %v", err)
	} else if err != nil {
		a.t.Errorf("the agent ended with %v", err)
	}
}

func reapable(t *testing.T, pid int) bool {
	t.Helper()
	var info unix.Siginfo
	assert.NilError(t, unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil))
	return info.Signo != 0
}
