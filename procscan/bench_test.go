package procscan

import (
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/host/self"
	"correlator/procscan/internal/child"
)

const (
	sweepProcesses = 2000
	sweepLarge     = 10
	largeMappings  = 20000
)

// BenchmarkSweep is a sweep of a host with 2000 more processes than it has, each with the two dozen
// mappings of a small program, except ten that map 20,000 pieces of a file, as databases and search
// engines do. It is compared with package procfs: ProcMaps of every process, and matching the
// paths.
func BenchmarkSweep(b *testing.B) {
	data := child.MapSpec{Path: filepath.Join(b.TempDir(), "index"), Prot: unix.PROT_READ, Times: largeMappings}
	for i := range sweepProcesses {
		if i < sweepLarge {
			child.StartHost(b, child.HostSpec{Maps: []child.MapSpec{data}})
		} else {
			child.StartSleep(b)
		}
	}
	target := startLibrary(b)
	compareWithProcfs(b, target.PID, func(b *testing.B, s *Scanner) int {
		found := 0
		if _, err := s.Sweep(nil, func(f Found) { found++ }); err != nil {
			b.Fatal(err)
		}
		return found
	}, procfsSweep)
}

// BenchmarkLargeProcess probes a process with 20,000 mappings: of data, or, the worst case, of
// code.
func BenchmarkLargeProcess(b *testing.B) {
	for _, c := range []struct {
		name string
		prot int
	}{{"data", unix.PROT_READ}, {"code", unix.PROT_READ | unix.PROT_EXEC}} {
		b.Run(c.name, func(b *testing.B) {
			dir := b.TempDir()
			target := child.StartHost(b, child.HostSpec{Maps: []child.MapSpec{
				{Path: filepath.Join(dir, "elsewhere.so"), Prot: c.prot, Times: largeMappings},
				{Path: filepath.Join(dir, realName)},
			}})
			compareWithProcfs(b, target.PID, func(b *testing.B, s *Scanner) int {
				found, err := s.Process(target.PID)
				assert.NilError(b, err)
				return len(found.Libraries)
			}, func(b *testing.B) int {
				proc, err := child.ProcFS(b).Proc(target.PID)
				assert.NilError(b, err)
				maps, err := proc.ProcMaps()
				assert.NilError(b, err)
				found := 0
				for _, m := range maps {
					if m.Perms.Execute && MatchLibrary(m.Pathname) {
						found++
					}
				}
				return found
			})
		})
	}
}

// BenchmarkProcess probes a small process that maps the library, as after an event.
func BenchmarkProcess(b *testing.B) {
	target := startLibrary(b)
	forEachSource(b, func(b *testing.B, source Source) {
		s := scannerOf(b, source)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Process(target.PID); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// compareWithProcfs runs both in turn, so that other load slows both. The time and the allocations
// of the benchmark are ours. It reports two ratios: of the elapsed time, and of CPU time, which
// does not include waiting for a CPU.
func compareWithProcfs(b *testing.B, pid int, ours func(*testing.B, *Scanner) int, theirs func(*testing.B) int) {
	forEachSource(b, func(b *testing.B, source Source) {
		s := scannerOf(b, source)
		var oursTook, theirsTook stopwatch
		b.ReportAllocs()
		for b.Loop() {
			if oursTook.measure(b, func() int { return ours(b, s) }) == 0 {
				b.Fatalf("process %d was not found", pid)
			}
			b.StopTimer()
			if theirsTook.measure(b, func() int { return theirs(b) }) == 0 {
				b.Fatalf("process %d was not found by procfs", pid)
			}
			runtime.GC() // so that neither pays for the other's garbage
			b.StartTimer()
		}
		b.ReportMetric(float64(theirsTook.wall)/float64(oursTook.wall), "procfs/ours")
		b.ReportMetric(float64(theirsTook.cpu)/float64(oursTook.cpu), "procfs/ours-CPU")
	})
}

type stopwatch struct{ wall, cpu time.Duration }

func (w *stopwatch) measure(b *testing.B, f func() int) int {
	start, startCPU := time.Now(), self.Clock(unix.CLOCK_PROCESS_CPUTIME_ID)
	n := f()
	w.wall += time.Since(start)
	w.cpu += self.Clock(unix.CLOCK_PROCESS_CPUTIME_ID) - startCPU
	return n
}

func procfsSweep(b *testing.B) int {
	procs, err := child.ProcFS(b).AllProcs()
	assert.NilError(b, err)
	found := 0
	for _, proc := range procs {
		maps, err := proc.ProcMaps()
		if err != nil {
			continue // a kernel thread, or one that has exited
		}
		for _, m := range maps {
			if m.Perms.Execute && MatchLibrary(m.Pathname) {
				found++
				break
			}
		}
	}
	return found
}
