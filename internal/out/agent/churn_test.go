package agent

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/messaging"
)

// victim is a process to which anything may happen.
type victim struct {
	*demo.Process
	r       *running
	random  *rand.Rand
	flavor  demo.Flavor
	sockets int
	stopped bool
	mute    bool   // it knows no commands
	seen    uint64 // 1: by the agent
	changed bool   // it is not the program that it was: it can be sent samples of traces that are not its own
}

func startVictim(r *running, random *rand.Rand) *victim {
	flavors := demo.Flavors()
	flavor := flavors[random.IntN(len(flavors))]
	return &victim{r: r, random: random, flavor: flavor, Process: demo.Start(r.t, demo.Options{
		Flavor: flavor, Busy: 1, Transaction: 20 * time.Millisecond,
		PublishWithin: time.Duration(random.IntN(2)) * 20 * time.Millisecond, ReadAtOnce: random.IntN(2) == 0,
	})}
}

// suffer has something happen to it, at any moment of its life, and reports whether it lives.
func (v *victim) suffer() (lives bool) {
	v.seen = v.isSeen()
	if v.stopped {
		signal(v.r.t, v.Process, syscall.SIGCONT)
		v.stopped = false
		return true
	}
	switch moment := v.random.IntN(4); {
	case v.mute:
	case moment == 0:
		v.r.swept(1)
	case moment == 1:
		testenv.Poll(v.r.t, deadline, "a sample, or another state", func() bool {
			s := v.r.statusOf(v.Process)
			return s.Sent > 0 || s.State != "registered"
		})
	}
	if v.mute || v.random.IntN(3) == 0 {
		v.die()
		return false
	}
	v.innocent()
	switch v.random.IntN(9) {
	case 0:
		signal(v.r.t, v.Process, syscall.SIGSTOP)
		v.stopped = true
	case 1:
		v.changed = true
		v.Restart(v.random.IntN(2) == 0)
	case 2:
		v.sockets++
		v.Republish(filepath.Join(v.Dir, fmt.Sprintf("socket-%d", v.sockets)), fmt.Sprintf("service-%d", v.sockets))
	case 3:
		v.Withdraw()
	case 4:
		v.Publish()
	case 5:
		v.RebindSocket()
	case 6:
		v.UnlinkSocket()
	case 7:
		v.r.sample(v.PID, v.Threads()[0].TID, [16]byte{1})
	case 8:
		if v.flavor == demo.MuslPreloaded { // the library is preloaded into sleep, too, which has another C library
			return true
		}
		v.Exec("sleep", "600")
		v.mute = true
	}
	return true
}

// isSeen returns 1 once the agent knows the process, else 0: on a busy machine one may end before.
func (v *victim) isSeen() uint64 {
	if v.r.statusOf(v.Process).State != "" {
		return 1
	}
	return v.seen
}

func (v *victim) die() {
	if v.stopped || v.mute || v.random.IntN(2) == 0 {
		v.Kill()
		return
	}
	v.Quit()
}

// innocent checks what it was sent.
func (v *victim) innocent() {
	if report := v.Report(); v.changed {
		harmless(v.r.t, report)
	} else {
		clean(v.r.t, report)
	}
}

// bpfDir is a directory in a BPF file system.
func bpfDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	assert.NilError(t, unix.Mount("bpf", dir, "bpf", 0, ""))
	t.Cleanup(func() { assert.Check(t, unix.Unmount(dir, unix.MNT_DETACH)) })
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

// openDescriptors returns how many descriptors are open, without those of workers: as many of these
// wait for requests as there were at a time, up to a bound.
func (r *running) openDescriptors() int {
	r.t.Helper()
	for {
		workers := r.Census().Workers.Running
		entries, err := os.ReadDir("/proc/self/fd")
		assert.NilError(r.t, err)
		if r.Census().Workers.Running == workers { // else one began or ended meanwhile
			return len(entries) - 2*workers // the channel of each, and what waits for it
		}
	}
}

// Whatever happens to processes under load, at any moment: those to which nothing happens lose not
// one sample, nobody is sent what is not theirs, and nothing is left of those that are gone.
func TestDeliveryInChurn(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	churn(t, rand.New(rand.NewPCG(seed, 0)), 40)
}

// churn has so many things happen, and returns how many processes there were.
func churn(t *testing.T, random *rand.Rand, things int) (processes int) {
	testenv.NeedRoot(t)
	pins := bpfDir(t)
	survivors := []*demo.Process{
		demo.Start(t, demo.Options{Busy: 1, Transaction: 500 * time.Millisecond}),
		demo.Start(t, demo.Options{Flavor: demo.Musl, Busy: 1, Transaction: time.Second}),
	}
	r := run(t, atRate(997), patient, func(c *Config) { c.PinMaps = pins })
	var senders []*messaging.Sender
	for _, p := range survivors {
		r.sampledReport(p, 50)
		senders = append(senders, r.registration(p).sender)
	}
	descriptors := r.openDescriptors()
	assert.Assert(t, kernelTargets(t, pins) == len(survivors) && len(r.registrations.All()) == len(survivors))
	victims, seen := make([]*victim, 4), uint64(0)
	for range things {
		i := random.IntN(len(victims))
		if victims[i] == nil {
			victims[i] = startVictim(r, random)
			processes++
		} else if v := victims[i]; !v.suffer() {
			seen += v.seen
			victims[i] = nil
		}
		if t.Failed() {
			return processes
		}
	}
	for _, v := range victims {
		if v != nil {
			seen += v.isSeen()
			v.Kill()
		}
	}
	testenv.Poll(t, deadline, "nothing of those that are gone", func() bool {
		return len(r.registrations.All()) == len(survivors) && kernelTargets(t, pins) == len(survivors) &&
			r.openDescriptors() <= descriptors
	})
	for _, p := range survivors {
		p.StopThreads()
	}
	r.end()
	for i, p := range survivors {
		r.arrived(senders[i], p.Quit())
	}
	r.added()
	r.released()
	gone := r.Counters().Gone.Load()
	assert.Check(t, gone >= seen, "%d processes were seen to go, of %d that were seen, and %d", gone, seen, processes)
	return processes
}

// An end in full flight: what was taken until then is counted, and what can be is sent, whether it
// was in the kernel's tables or on its way through the ring buffer.
func TestSampledShutdown(t *testing.T) {
	for _, o := range []demo.Options{
		{Busy: 1, Transaction: 20 * time.Millisecond},
		{Busy: 1, Rewrite: demo.RewriteCycle, PageOut: true},
	} {
		p := demo.Start(t, o)
		r := run(t, atRate(bpf.MaxSamplesPerSecond), patient)
		r.sampledReport(p, 1)
		r.end()
		r.added()
		report := p.Quit()
		clean(t, report)
		sent := r.Counters().Messages.SamplesSent.Load()
		assert.Check(t, sent == r.Counters().Messages.SamplesQueued.Load() && sent == report.Samples+report.LateSamples,
			"%d samples sent, %d arrived", sent, report.Samples)
	}
}
