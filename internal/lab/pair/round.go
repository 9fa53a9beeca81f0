package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/procfs"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/backend"
	"correlator/internal/lab/cost"
	"correlator/internal/lab/demo"
)

// profiler is what is measured.
type profiler struct {
	name    string
	command func(l load, hz int, endpoint string) *exec.Cmd
}

// correlator returns how a binary of ours is started, with an admin socket at a path of its own.
func correlator(binary, admin string) func(load, int, string) *exec.Cmd {
	return func(l load, hz int, endpoint string) *exec.Cmd {
		return exec.Command(binary, slices.Concat([]string{"run", "--log-level", "error", "--admin-socket", admin,
			"--samples-per-second", strconv.Itoa(hz), "--otlp-endpoint", "http://" + endpoint}, l.flags)...)
	}
}

// figures are those of a round, or of several. CPU is in % of a core.
type figures struct {
	cpu, ebpf               float64 // ebpf is a part of cpu
	voluntary, involuntary  float64 // context switches a second
	pss                     float64 // MB
	expected, samples, told float64 // told: samples in messages
	foreign                 float64
}

func (f figures) String() string {
	return fmt.Sprintf("CPU %.2f %%, of which eBPF %.2f %%, %.0f + %.0f switches a second, PSS %.1f MB, "+
		"%.0f of %.0f samples, %.0f told, foreign load %.1f %%", f.cpu, f.ebpf, f.voluntary, f.involuntary, f.pss,
		f.samples, f.expected, f.told, f.foreign)
}

// loading is how long a profiler has for loading its programs.
const loading = 5 * time.Minute

// measure runs a profiler beside a load and measures it.
func measure(ctx context.Context, t testing.TB, p profiler, l load, told []*demo.Process, hz int,
	sink *backend.Counting, o options) (f figures, err error) {
	runtime.LockOSThread() // the profiler gets a signal when the thread ends that has started it
	defer runtime.UnlockOSThread()
	command := p.command(l, hz, sink.Address())
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Setpgid, command.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	if err := command.Start(); err != nil {
		return f, err
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait() // ProcessState has how it ended
		close(ended)
	}()
	wait := func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return errInterrupted
		case <-ended:
			return fmt.Errorf("%s ended by itself: %v\n%s", p.name, command.ProcessState, &output)
		case <-time.After(d):
			return nil
		}
	}
	defer func() {
		_ = command.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = command.Process.Kill()
			<-ended
		}
	}()
	pid, switches := command.Process.Pid, newSwitches()
	for began := time.Now(); !anyRan(cost.Programs(cost.Family(pid), "")); {
		if time.Since(began) > loading {
			return f, fmt.Errorf("%s has no eBPF program that runs", p.name)
		}
		if err := wait(100 * time.Millisecond); err != nil {
			return f, err
		}
	}
	if err := wait(o.settle); err != nil {
		return f, err
	}
	switches.look(cost.Family(pid))
	before := look(t, pid, told, sink)
	for end := before.at.Add(o.measure); time.Now().Before(end); {
		if err := wait(min(time.Second, time.Until(end))); err != nil {
			return f, err
		}
		switches.look(cost.Family(pid))
	}
	after := look(t, pid, told, sink)
	f = between(before, after, hz, runtime.NumCPU())
	seconds := after.at.Sub(before.at).Seconds()
	f.voluntary, f.involuntary = float64(switches.voluntary)/seconds, float64(switches.involuntary)/seconds
	f.pss = cost.ProportionalMB(cost.Family(pid))
	return f, nil
}

// snapshot is what was counted until a time.
type snapshot struct {
	at                  time.Time
	profiler, load, all time.Duration // run times; all: with our own
	idle                time.Duration
	programs            map[ebpf.ProgramID]ebpf.ProgramStats
	samples, told       uint64
}

// look takes a snapshot of a profiler, and of the load: all of our other descendants. What has ended is of the load;
// former rounds' profilers have no more samples.
func look(t testing.TB, pid int, told []*demo.Process, sink *backend.Counting) (s snapshot) {
	for _, p := range told {
		s.told += p.Report().Samples
	}
	self := os.Getpid()
	ofProfiler, ofLoad := cost.Family(pid), cost.Family(self)[1:]
	ofLoad = slices.DeleteFunc(ofLoad, func(p int) bool { return slices.Contains(ofProfiler, p) })
	for text, n := range sink.Samples() {
		p, err := strconv.Atoi(text)
		if ended := syscall.Kill(p, 0) == syscall.ESRCH; err == nil && (ended || slices.Contains(ofLoad, p)) {
			s.samples += n
		}
	}
	s.programs = cost.Programs(ofProfiler, "")
	fs, err := procfs.NewDefaultFS()
	assert.NilError(t, err)
	stat, err := fs.Stat()
	assert.NilError(t, err)
	s.at = time.Now()
	s.idle = time.Duration((stat.CPUTotal.Idle + stat.CPUTotal.Iowait) * float64(time.Second))
	s.profiler, s.load = cost.RunTime(ofProfiler), cost.RunTime(ofLoad)
	s.all = s.profiler + s.load + cost.RunTime([]int{self})
	return s
}

// between returns the figures of the time between two snapshots, on this many CPUs.
func between(before, after snapshot, hz, cpus int) (f figures) {
	elapsed := after.at.Sub(before.at)
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / elapsed.Seconds() }
	var programs time.Duration
	for id, ran := range after.programs {
		programs += ran.Runtime - before.programs[id].Runtime
	}
	load := after.load - before.load
	f.ebpf = share(programs)
	f.cpu = f.ebpf + share(after.profiler-before.profiler)
	f.expected = load.Seconds() * float64(hz)
	f.samples, f.told = float64(after.samples-before.samples), float64(after.told-before.told)
	f.foreign = share(time.Duration(cpus)*elapsed - (after.idle - before.idle) - (after.all - before.all))
	return f
}

// anyRan reports whether one of the programs has run.
func anyRan(programs map[ebpf.ProgramID]ebpf.ProgramStats) bool {
	for _, ran := range programs {
		if ran.Runtime > 0 {
			return true
		}
	}
	return false
}

// switches counts context switches of the threads of processes since it was first told of any. Those of a thread
// that ends are counted until the last look at it.
type switches struct {
	voluntary, involuntary uint64
	seen                   map[int]procfs.ProcStatus // by thread
	started                bool
}

func newSwitches() *switches { return &switches{seen: make(map[int]procfs.ProcStatus)} }

func (s *switches) look(pids []int) {
	for _, pid := range pids {
		threads, _ := procfs.AllThreads(pid) // none if it has ended
		for _, thread := range threads {
			if status, err := thread.NewStatus(); err == nil {
				s.add(thread.PID, status)
			}
		}
	}
	s.started = true
}

// add adds what a thread has done since it was last seen. One that is new has begun since.
func (s *switches) add(tid int, now procfs.ProcStatus) {
	if last := s.seen[tid]; s.started {
		s.voluntary += now.VoluntaryCtxtSwitches - last.VoluntaryCtxtSwitches
		s.involuntary += now.NonVoluntaryCtxtSwitches - last.NonVoluntaryCtxtSwitches
	}
	s.seen[tid] = now
}
