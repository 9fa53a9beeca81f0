package agent

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/messaging"
)

// victim is a process to which anything may happen.
type victim struct {
	*demo.Process
	t        *testing.T
	random   *rand.Rand
	sockets  int
	stopped  bool
	executed bool // it is not the program that it was: it can be sent samples of traces that are not its own
}

func startVictim(t *testing.T, random *rand.Rand) *victim {
	flavors := demo.Flavors()
	return &victim{t: t, random: random, Process: demo.Start(t, demo.Options{
		Flavor: flavors[random.IntN(len(flavors))], Busy: 1, Transaction: 20 * time.Millisecond,
	})}
}

// suffer has something happen to it, and reports whether it lives.
func (v *victim) suffer() (lives bool) {
	deadly := v.random.IntN(3) == 0
	if v.stopped {
		if deadly {
			v.Kill()
			return false
		}
		signal(v.t, v.Process, syscall.SIGCONT)
		v.stopped = false
		return true
	}
	v.innocent()
	if deadly {
		v.Kill()
		return false
	}
	switch v.random.IntN(8) {
	case 0, 1:
		signal(v.t, v.Process, syscall.SIGSTOP)
		v.stopped = true
	case 2:
		v.executed = true
		v.Restart(v.random.IntN(2) == 0)
	case 3:
		v.sockets++
		v.Republish(filepath.Join(v.Dir, fmt.Sprintf("socket-%d", v.sockets)), fmt.Sprintf("service-%d", v.sockets))
	case 4:
		v.Withdraw()
	case 5:
		v.Publish()
	case 6:
		v.RebindSocket()
	case 7:
		v.UnlinkSocket()
	}
	return true
}

// innocent checks what it was sent.
func (v *victim) innocent() {
	if report := v.Report(); v.executed {
		harmless(v.t, report)
	} else {
		clean(v.t, report)
	}
}

// bpfDir is a directory in a BPF file system.
func bpfDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	assert.NilError(t, unix.Mount("bpf", dir, "bpf", 0, ""))
	t.Cleanup(func() {
		assert.Check(t, unix.Unmount(dir, unix.MNT_DETACH))
	})
	return filepath.Join(dir, "correlator")
}

// kernelTargets is how many processes the kernel's table has.
func kernelTargets(t *testing.T, dir string) (n int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	assert.Assert(t, err == nil && len(entries) == 1, "pinned maps: %v, %v", entries, err)
	table, err := ebpf.LoadPinnedMap(filepath.Join(dir, entries[0].Name()), nil)
	assert.NilError(t, err)
	defer table.Close()
	key, value := make([]byte, table.KeySize()), make([]byte, table.ValueSize())
	all := table.Iterate()
	for all.Next(&key, &value) {
		n++
	}
	assert.NilError(t, all.Err())
	return n
}

// strangers ends the test when the agent serves other processes than these.
func (r *running) strangers(processes ...*demo.Process) {
	r.t.Helper()
	for _, served := range r.registrations.All() {
		if !slices.ContainsFunc(processes, func(p *demo.Process) bool { return served.pid == p.PID }) {
			testenv.Missing(r.t, fmt.Sprintf("process %d maps the library, too, and is none of this test", served.pid))
		}
	}
}

// Whatever happens to receivers under load, at any moment: those to which nothing happens lose not
// one sample, nobody is sent what is not theirs, and nothing is left of those that are gone.
func TestDeliveryInChurn(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	period := 5 * time.Second
	if *long {
		period = time.Minute
	}
	testenv.NeedRoot(t)
	pins := bpfDir(t)
	survivors := []*demo.Process{
		demo.Start(t, demo.Options{Busy: 1, Transaction: 50 * time.Millisecond}),
		demo.Start(t, demo.Options{Flavor: demo.Musl, Busy: 1, Transaction: 500 * time.Millisecond}),
	}
	r := run(t, atRate(997), roomy, func(c *Config) { c.PinMaps = pins })
	for _, p := range survivors {
		r.sampledReport(p, 100)
	}
	registered := func() int { return len(r.registrations.All()) }
	watch := watchStalls(t)
	descriptors, goroutines, targets, processes := r.openDescriptors(), runtime.NumGoroutine(), kernelTargets(t, pins),
		registered()
	if targets != len(survivors) || processes != len(survivors) {
		testenv.Missing(t, fmt.Sprintf("%d processes take part, %d are of this test", processes, len(survivors)))
	}

	victims := make([]*victim, 5)
	all, happened := append([]*demo.Process(nil), survivors...), 0
	for end := time.Now().Add(period); time.Now().Before(end) && !t.Failed(); happened++ {
		i := random.IntN(len(victims))
		if victims[i] == nil {
			victims[i] = startVictim(t, random)
			all = append(all, victims[i].Process)
		} else if !victims[i].suffer() {
			victims[i] = nil
		}
		time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond) // so that it happens at any moment
	}
	for _, v := range victims {
		if v != nil {
			v.Kill()
		}
	}
	t.Logf("%d things happened to %d processes: %d registrations, %d sockets gone", happened, len(all)-len(survivors),
		r.Counters().Messages.Registrations.Load(), r.Counters().Messages.SocketsGone.Load())
	what := fmt.Sprintf("%d processes, %d of them in the kernel's table, %d descriptors and %d goroutines, as before",
		processes, targets,
		descriptors, goroutines)
	testenv.Poll(t, deadline, what, func() bool {
		r.strangers(all...)
		return registered() == processes && kernelTargets(t, pins) == targets &&
			r.openDescriptors() <= descriptors && runtime.NumGoroutine() <= goroutines
	})
	var senders []*messaging.Sender
	for _, p := range survivors {
		senders = append(senders, r.sender(p))
		p.StopThreads()
	}
	r.end()
	stalled := watch.end()
	t.Logf("stalled for %v", stalled)
	r.alone(all...)
	for i, p := range survivors {
		report, dropped := p.Quit(), senders[i].Stats().Dropped
		// As in everythingArrives.
		if spare := (r.config.SamplesDelay - r.config.ReportInterval) / 2; stalled > spare &&
			dropped[messaging.DropLate]+dropped[messaging.DropAddedLate] > 0 {
			testenv.Missing(t, "this machine stopped for longer than the agent has to spare")
		}
		healthy(t, senders[i], report)
	}
	r.sampledAdded()
	if n := r.Counters().Gone.Load(); n < uint64(len(all)-len(survivors))/2 {
		t.Errorf("%d processes were seen to go, of %d", n, len(all)-len(survivors))
	}
}
