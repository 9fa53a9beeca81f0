package agent

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

const (
	// birthInterval makes 50 processes a second.
	birthInterval = 20 * time.Millisecond

	// longestPause is what a process may wait before it takes its next step, so that the agent
	// meets it at any moment of its life: before it was found, while it is connected to, and when
	// all is settled.
	longestPause = 300 * time.Millisecond

	// maxAlive bounds the processes that live at a time where the machine does not keep up.
	maxAlive = 64

	// heapNoise is what the heap may be larger by after a soak: a round number above what tables
	// that are full to another degree make of it. In a long soak a leak of 35 bytes a process is
	// more than that.
	heapNoise = 1 << 20
)

// Processes come and go as processes do, and nothing of them is left.
func TestProcessesComeAndGo(t *testing.T) {
	first, rest := 2*time.Second, 4*time.Second
	if *long {
		first, rest = time.Minute, 10*time.Minute
	}
	neighbor := demo.Start(t, demo.Options{Busy: 1, Transaction: 200 * time.Millisecond})
	files := demo.NewFiles(t, demo.Glibc)
	r := run(t, atRate(97), roomy)
	registered := neighbor.Registration(1).ReadNs
	c := churn{r: r, files: files}

	c.run(first)
	before := r.settled(1)
	c.run(rest)
	after := r.settled(1)
	t.Logf("after %v: %v; after %v more: %v", first, before, rest, after)
	t.Logf("%d processes; %d of them reported %d registrations", c.lives.Load(), c.asked.Load(), c.registrations.Load())
	if after.descriptors > before.descriptors || after.goroutines > before.goroutines || after.targets != 1 {
		t.Errorf("after %d processes: %v; before: %v", c.lives.Load(), after, before)
	}
	assert.Check(t, after.heapBytes <= before.heapBytes+heapNoise,
		"the heap grew from %d to %d bytes", before.heapBytes, after.heapBytes)
	messages := &r.Counters().Messages
	arrived, sent := c.registrations.Load(), messages.Registrations.Load()
	assert.Check(t, arrived != 0 && arrived <= sent, "%d registrations arrived, %d were sent", arrived, sent)

	neighbor.StopThreads()
	r.end()
	report := neighbor.Quit()
	clean(t, report)
	assert.Check(t, report.Registrations == 1, "the neighbor was registered with %d times", report.Registrations)
	r.samplesAreCPU(report, registered)
	r.sampledAdded()
}

// churn makes processes live and end.
type churn struct {
	r     *running
	files *demo.Files

	lives, asked, registrations atomic.Uint64
}

// run has processes begin for a while, and waits for their end.
func (c *churn) run(duration time.Duration) {
	c.r.t.Helper()
	var alive sync.WaitGroup
	places := make(chan struct{}, maxAlive)
	births := time.NewTicker(birthInterval)
	defer births.Stop()
	for end := time.Now().Add(duration); time.Now().Before(end); <-births.C {
		life := lives[c.lives.Add(1)%uint64(len(lives))]
		places <- struct{}{}
		alive.Go(func() {
			defer func() { <-places }()
			if err := demo.Run(func(t testing.TB) { life(c, t) }); err != nil {
				c.r.t.Error(err)
			}
		})
		c.r.logs.TakeAll() // they are in memory, and of every process
	}
	alive.Wait()
	c.r.logs.TakeAll()
}

// lives are what can become of a process.
var lives = []func(*churn, testing.TB){
	(*churn).exits, (*churn).isKilled, (*churn).execs, (*churn).forks, (*churn).unloads, (*churn).isSilent,
}

func pause() { time.Sleep(rand.N(longestPause)) }

func (c *churn) start(t testing.TB, o demo.Options) *demo.Process {
	t.Helper()
	o.Files, o.ReadAtOnce = c.files, true
	return demo.Start(t, o)
}

// quit ends a process in good order, which then reports how often it was registered with.
func (c *churn) quit(p *demo.Process) {
	report := p.Quit()
	c.asked.Add(1)
	c.registrations.Add(report.Registrations)
}

func (c *churn) exits(t testing.TB) {
	p := c.start(t, demo.Options{Idle: 1, PublishWithin: longestPause / 2})
	pause()
	c.quit(p)
}

func (c *churn) isKilled(t testing.TB) {
	p := c.start(t, demo.Options{})
	pause()
	p.Kill()
}

func (c *churn) execs(t testing.TB) {
	p := c.start(t, demo.Options{})
	pause()
	p.Exec("sleep", "600")
	pause()
	p.Kill()
}

// forks leaves a child behind that lives a little longer than its parent.
func (c *churn) forks(t testing.TB) {
	p := c.start(t, demo.Options{})
	pause()
	p.Fork(false)
	pause()
	p.Kill()
	pause()
}

func (c *churn) unloads(t testing.TB) {
	p := c.start(t, demo.Options{})
	pause()
	p.Unload()
	pause()
	p.Load()
	p.Publish()
	pause()
	c.quit(p)
}

func (c *churn) isSilent(t testing.TB) {
	p := c.start(t, demo.Options{Hold: true})
	p.Load()
	pause()
	c.quit(p)
}

// holdings are what an agent, and its test, can have too much of.
type holdings struct {
	descriptors, goroutines int
	targets                 int // in the sampler's table
	heapBytes               uint64
}

func (h holdings) String() string {
	return fmt.Sprintf("%d descriptors, %d goroutines, %d targets, %d kB of heap", h.descriptors, h.goroutines,
		h.targets, h.heapBytes/1024)
}

// settled waits until so many processes take part and the sampler knows no others, and takes stock:
// what becomes fewer was still on its way out.
func (r *running) settled(processes int) (least holdings) {
	r.t.Helper()
	testenv.Poll(r.t, deadline, "the others to be gone", func() bool {
		return len(r.processStatuses()) == processes && targets(r.t) == processes
	})
	var lower time.Time
	least = holdings{descriptors: math.MaxInt, goroutines: math.MaxInt}
	testenv.Poll(r.t, deadline, "descriptors and goroutines to become no fewer for a second", func() bool {
		descriptors, goroutines := r.openDescriptors(), runtime.NumGoroutine()
		if descriptors < least.descriptors || goroutines < least.goroutines {
			lower = time.Now()
		}
		least.descriptors, least.goroutines = min(least.descriptors, descriptors), min(least.goroutines, goroutines)
		return time.Since(lower) > time.Second
	})
	least.targets = targets(r.t)
	runtime.GC()
	runtime.GC() // what the first made reachable by finalizers no more
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	least.heapBytes = memory.HeapAlloc
	return least
}

// targets is how many processes the sampler of this test's agent samples: the entries of the map
// that is called so, of those that we hold.
func targets(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	assert.NilError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // closed meanwhile
		}
		_, id, ok := strings.Cut(string(text), "\nmap_id:\t")
		if !ok {
			continue
		}
		id, _, _ = strings.Cut(id, "\n")
		number, err := strconv.ParseUint(id, 10, 32)
		assert.NilError(t, err)
		n += countTargets(t, ebpf.MapID(number))
	}
	return n
}

func countTargets(t *testing.T, id ebpf.MapID) (n int) {
	t.Helper()
	table, err := ebpf.NewMapFromID(id)
	assert.NilError(t, err)
	defer table.Close()
	info, err := table.Info()
	assert.NilError(t, err)
	if info.Name != "targets" {
		return 0
	}
	key := make([]byte, table.KeySize())
	var from any
	for {
		switch err := table.NextKey(from, key); {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return n
		case err != nil:
			t.Fatal(err)
		}
		n++
		from = append([]byte(nil), key...)
	}
}
