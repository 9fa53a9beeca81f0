package bpf

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"testing"

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

// BenchmarkWaits measures the CPU time of a switch with its wakeup, in each round without accounts and
// with them, and reports the median of what accounts add: of a process that is no target, of one without a
// context, and of one with one.
func BenchmarkWaits(b *testing.B) {
	const rounds, handovers = 10, 30000
	added := make(map[string][]float64)
	var plain []float64
	s := openSampler(b, SamplerOptions{SamplesPerSecond: 1})
	other, bare, traced := startSwitches(b), startSwitches(b), startSwitches(b, "context")
	for b.Loop() {
		for range rounds {
			before := other.measure(handovers)
			plain = append(plain, before)
			w, err := s.OpenWaits(WaitOptions{})
			assert.NilError(b, err)
			for name, p := range map[string]*switches{"other": other, "bare": bare, "traced": traced} {
				if p != other {
					target := addRules(b, s, p.pid, func() TargetRules {
						return TargetRules{Elastic: tlsdesc.Rule{Kind: tlsdesc.Static, Offset: p.offset}}
					})
					defer s.RemoveTarget(target)
				}
				added[name] = append(added[name], p.measure(handovers)-before)
			}
			counters, err := w.Counters()
			assert.NilError(b, err)
			assert.Check(b, counters.Accounts > 0 && counters.Stateless == 0, "%+v", counters)
			assert.NilError(b, w.Close())
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(plain), "ns/switch")
	for name, all := range added {
		b.ReportMetric(median(all), "ns/"+name)
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
