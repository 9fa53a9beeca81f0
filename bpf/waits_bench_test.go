package bpf

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/tlsdesc"
)

// switches is a process whose two threads switch.
type switches struct {
	b      *testing.B
	pid    int
	stdin  io.Writer
	stdout *bufio.Reader
	offset int64
}

func startSwitches(b *testing.B, args ...string) *switches {
	cmd := exec.Command(testenv.Compile(b, "cc", "testdata/switches.c", "-pthread"), args...)
	stdin, stdout := testenv.Start(b, cmd)
	s := &switches{b: b, pid: cmd.Process.Pid, stdin: stdin, stdout: bufio.NewReader(stdout)}
	s.offset = s.read()
	return s
}

func (s *switches) read() (n int64) {
	_, err := fmt.Fscanln(s.stdout, &n)
	assert.NilError(s.b, err)
	return n
}

// measure returns the CPU time of a switch in ns.
func (s *switches) measure(handovers int) float64 {
	fmt.Fprintln(s.stdin, handovers)
	return float64(s.read()) / float64(2*handovers)
}

// attachNothing attaches programs that do nothing where those of accounts are.
func attachNothing(b *testing.B) (detach func()) {
	var all []io.Closer
	for _, name := range []string{"sched_switch", "sched_waking"} {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp,
			AttachTo: name, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
		assert.NilError(b, err)
		attached, err := link.AttachTracing(link.TracingOptions{Program: p})
		assert.NilError(b, err)
		all = append(all, attached, p)
	}
	return func() {
		for _, c := range all {
			assert.NilError(b, c.Close())
		}
	}
}

// BenchmarkWaits measures the CPU time of a switch with its wakeup, in each round without accounts and with them, and
// reports the median of what accounts add: of a process that is no target, of one without a context, of one that
// publishes none, also with OBI's map, and with its contexts in that, of one with labels of goroutines, and of one with
// a context, also with OBI's map; of the last also where stacks of its waits are walked, and how many that are in a
// second of its CPU time at most; and what a stack takes, if each wait has one. Programs that do nothing add what the
// kernel takes to call them.
func BenchmarkWaits(b *testing.B) {
	const rounds, handovers, period = 10, 30000, 100 * time.Microsecond
	added := make(map[string][]float64)
	var plain, walks []float64
	s := openSampler(b, SamplerOptions{SamplesPerSecond: 1, Labels: labelKeys})
	other, bare, traced, none := startSwitches(b), startSwitches(b), startSwitches(b, "context"), startSwitches(b)
	labeled := startSwitches(b, "labels")
	addRules(b, s, labeled.pid, func() TargetRules {
		return TargetRules{Labels: GoLayout{G: labeled.offset, GLabels: 8, MCurG: 8, MExtra: 16}}
	})
	addRules(b, s, none.pid, func() TargetRules { return TargetRules{} })
	for _, p := range []*switches{bare, traced} {
		addRules(b, s, p.pid, func() TargetRules {
			return TargetRules{Elastic: tlsdesc.Rule{Kind: tlsdesc.Static, Offset: p.offset}}
		})
	}
	measure := func(options WaitOptions, handovers int, of map[string]*switches) WaitCounters {
		before := other.measure(handovers)
		plain = append(plain, before)
		w, err := s.OpenWaits(options)
		assert.NilError(b, err)
		ended, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for pause := time.NewTicker(10 * time.Millisecond); ; {
				assert.Check(b, w.DrainWalks(func(*Walk) {}))
				select {
				case <-pause.C:
				case <-ended:
					return
				}
			}
		}()
		for name, p := range of {
			added[name] = append(added[name], p.measure(handovers)-before)
		}
		close(ended)
		<-done
		counters, err := w.Counters()
		assert.NilError(b, err)
		assert.Check(b, counters.Accounts+counters.Walked > 0 && counters.Stateless == 0, "%+v", counters)
		assert.NilError(b, w.Close())
		return counters
	}
	for b.Loop() {
		for range rounds {
			before := other.measure(handovers)
			detach := attachNothing(b)
			added["nothing"] = append(added["nothing"], other.measure(handovers)-before)
			detach()
			measure(WaitOptions{NoWalks: true}, handovers,
				map[string]*switches{"other": other, "bare": bare, "traced": traced, "none": none,
					"labels": labeled})
			contexts := putOBI(b, s)
			measure(WaitOptions{NoWalks: true}, handovers, map[string]*switches{"none/obi": none, "traced/obi": traced})
			stop := putOBIContexts(b, s, contexts, none.pid)
			none.measure(100)
			stop()
			measure(WaitOptions{NoWalks: true}, handovers, map[string]*switches{"obi": none})
			assert.NilError(b, s.objects.OBI.Delete(uint32(obiContexts)))
			s.table.all = false // the next accounts begin with that
			began := time.Now()
			c := measure(WaitOptions{Period: period}, handovers, map[string]*switches{"stacks": traced})
			walks = append(walks, float64(c.Walked)/time.Since(began).Seconds())
			const each = 100 // there is room for what comes until a drain
			c = measure(WaitOptions{Period: 1, MaxWalks: 1 << 20}, each, map[string]*switches{"each": traced})
			last := len(added["each"]) - 1
			added["stack"] = append(added["stack"], added["each"][last]*2*each/float64(c.Walked))
		}
	}
	delete(added, "each")
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(plain), "ns/switch")
	b.ReportMetric(slices.Max(walks), "stacks/s")
	for name, all := range added {
		b.ReportMetric(median(all), "ns/"+name)
	}
}

// BenchmarkWaitsBystander measures how late a thread runs that shares a CPU with two that switch, and takes no part:
// the 99th percentile of 2000 sleeps, in each round without accounts, with them and as many stacks as are walked at
// most, and without again. It reports the median of the ratio of the second to the mean of the others, and, for the
// noise, that of the larger to the smaller of these.
func BenchmarkWaitsBystander(b *testing.B) {
	const rounds, sleeps, handovers = 15, 2000, 10000
	const maxWalks = 10 // of which one target gets what all targets of a CPU get of windowWalks
	s := openSampler(b, SamplerOptions{SamplesPerSecond: 1})
	sleeper, traced := startSwitches(b, "sleeper"), startSwitches(b, "context")
	addRules(b, s, traced.pid, func() TargetRules {
		return TargetRules{Elastic: tlsdesc.Rule{Kind: tlsdesc.Static, Offset: traced.offset}}
	})
	measure := func() float64 {
		fmt.Fprintln(sleeper.stdin, sleeps)
		return float64(sleeper.read())
	}
	var late, ratios, noise, walks []float64
	for b.Loop() {
		ended, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				traced.measure(handovers)
				select {
				case <-ended:
					return
				default:
				}
			}
		}()
		for range rounds {
			before := measure()
			w, err := s.OpenWaits(WaitOptions{Period: 100 * time.Microsecond, MaxWalks: maxWalks})
			assert.NilError(b, err)
			began := time.Now()
			with := measure()
			took := time.Since(began).Seconds()
			counters, err := w.Counters()
			assert.NilError(b, err)
			assert.NilError(b, w.Close())
			after := measure()
			late = append(late, before, after)
			ratios = append(ratios, 2*with/(before+after))
			noise = append(noise, max(before, after)/min(before, after))
			walks = append(walks, float64(counters.Walked)/took)
		}
		close(ended)
		<-done
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(late), "ns/p99")
	b.ReportMetric(median(ratios), "ratio/p99")
	b.ReportMetric(median(noise), "ratio/noise")
	b.ReportMetric(median(walks), "stacks/s")
}

// BenchmarkWaitsHackbench measures the CPU time of hackbench (Debian: rt-tests), whose 80 processes send each other
// messages and take no part, in pairs of runs with accounts and without, each kind first in every other. It reports the
// median of the ratios of the pairs, and, for the noise, that of two runs without.
func BenchmarkWaitsHackbench(b *testing.B) {
	const pairs = 15
	path := testenv.NeedTool(b, "hackbench")
	s := openSampler(b, SamplerOptions{SamplesPerSecond: 1})
	traced := startSwitches(b, "context") // there is a target
	addRules(b, s, traced.pid, func() TargetRules {
		return TargetRules{Elastic: tlsdesc.Rule{Kind: tlsdesc.Static, Offset: traced.offset}}
	})
	measure := func() float64 {
		cmd := exec.Command(path, "-g", "2", "-l", "600")
		assert.NilError(b, cmd.Run())
		return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds() // with its children's
	}
	accounted := func() float64 {
		w, err := s.OpenWaits(WaitOptions{})
		assert.NilError(b, err)
		took := measure()
		assert.NilError(b, w.Close())
		return took
	}
	var plain, ratios, noise []float64
	for b.Loop() {
		for i := range pairs {
			var with, without float64
			if i%2 == 0 {
				with, without = accounted(), measure()
			} else {
				without = measure()
				with = accounted()
			}
			plain = append(plain, without)
			ratios = append(ratios, with/without)
			if n := len(plain); n > 1 {
				noise = append(noise, plain[n-1]/plain[n-2])
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(plain), "s/plain")
	b.ReportMetric(median(ratios), "ratio/cpu")
	b.ReportMetric(slices.Min(ratios), "ratio/least")
	b.ReportMetric(slices.Max(ratios), "ratio/most")
	b.ReportMetric(median(noise), "ratio/noise")
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
