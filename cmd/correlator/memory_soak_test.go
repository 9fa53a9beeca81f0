//go:build soak

package main

import (
	"fmt"
	"testing"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// What processes made the agent take is given back when they have ended: of the binary as it is
// released, since the race detector has memory of its own.
func TestSoakMemoryIsGivenBack(t *testing.T) {
	needSampler(t)
	binary := demo.Agent(t, t.TempDir())
	stays := demo.Start(t, demo.Options{})
	pid, _ := startBinary(t, binary)
	stays.Registration(1)
	before := anonymousMB(t, pid)

	crowd := demo.StartMany(t, 1500, demo.Options{})
	crowd.Registered()
	const allowance = 10.0
	if most := anonymousMB(t, pid); most < before+2*allowance {
		t.Fatalf("%.1f MB beside many processes, %.1f MB before: too few to tell", most, before)
	}
	crowd.Quit()
	var after float64
	testenv.Poll(t, deadline, fmt.Sprintf("memory to be within %v MB of %.1f MB", allowance, before), func() bool {
		after = anonymousMB(t, pid)
		return after < before+allowance
	})
	t.Logf("%.1f MB before, %.1f MB after", before, after)
}

// anonymousMB returns how much memory of a process is resident that is no file's.
func anonymousMB(t *testing.T, pid int) float64 {
	t.Helper()
	return float64(memoryOf(t, pid).RssAnon) / (1 << 20)
}
