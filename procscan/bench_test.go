package procscan

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkSweep is a sweep of a host with 500 more processes than it has, each with the two dozen
// mappings of a small program, and beside it the same question put to procfs: ProcMaps of every
// process, and the paths matched. What both cost is mostly the kernel writing the text.
func BenchmarkSweep(b *testing.B) {
	const processes = 500
	for range processes {
		startSleep(b)
	}
	target := startHost(b, hostSpec{Maps: []mapSpec{{Path: filepath.Join(b.TempDir(), realName)}}})
	compareWithProcfs(b, target.pid, func(s *Scanner) int {
		found := 0
		if _, err := s.Sweep(func(f Found) { found++ }); err != nil {
			b.Fatal(err)
		}
		return found
	}, func() int { return procfsSweep(b) })
}

// BenchmarkLargeProcess looks at one process of 20,000 mappings.
func BenchmarkLargeProcess(b *testing.B) {
	dir := b.TempDir()
	target := startHost(b, hostSpec{Maps: []mapSpec{
		{Path: filepath.Join(dir, "elsewhere.so"), Times: 20000},
		{Path: filepath.Join(dir, realName)},
	}})
	compareWithProcfs(b, target.pid, func(s *Scanner) int {
		found, err := s.Process(target.pid)
		if err != nil {
			b.Fatal(err)
		}
		return len(found.Libraries)
	}, func() int {
		proc, err := procFS(b).Proc(target.pid)
		if err != nil {
			b.Fatal(err)
		}
		maps, err := proc.ProcMaps()
		if err != nil {
			b.Fatal(err)
		}
		found := 0
		for _, m := range maps {
			if m.Perms.Execute && MatchLibrary(m.Pathname) {
				found++
			}
		}
		return found
	})
}

// compareWithProcfs runs both in turn, so that what else the machine does slows both. The time
// and the allocations of the benchmark are ours.
func compareWithProcfs(b *testing.B, pid int, ours func(*Scanner) int, theirs func() int) {
	s := newScanner(b, "/proc")
	var oursTook, theirsTook time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if ours(s) == 0 {
			b.Fatalf("process %d was not found", pid)
		}
		oursTook += time.Since(start)

		b.StopTimer()
		start = time.Now()
		if theirs() == 0 {
			b.Fatalf("process %d was not found by procfs", pid)
		}
		theirsTook += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(float64(theirsTook)/float64(oursTook), "procfs/ours")
}

func procfsSweep(b *testing.B) int {
	procs, err := procFS(b).AllProcs()
	if err != nil {
		b.Fatal(err)
	}
	found := 0
	for _, proc := range procs {
		maps, err := proc.ProcMaps()
		if err != nil {
			continue // kernel threads, what has ended
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

// BenchmarkMapsText is our own share of a sweep: the text of a JVM, as it comes from the kernel,
// a page at a time.
func BenchmarkMapsText(b *testing.B) {
	text := captured(b, "jvm.txt")
	text = bytes.ReplaceAll(text, []byte("jvmti"), []byte("other"))
	r := newMapsReader(mapsBufferBytes)
	source := &pieceReader{bytes: 4096}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		source.text = text
		r.reset(source)
		if found, err := r.collect(libraryLine, maxLibraries); err != nil || len(found) > 0 {
			b.Fatal(found, err)
		}
	}
	lines := float64(b.N) * float64(bytes.Count(text, []byte("\n")))
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/lines, "ns/line")
}

func BenchmarkAlive(b *testing.B) {
	p := startSleep(b)
	h, err := OpenProcess("/proc", identityOf(b, p.pid))
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	b.ReportAllocs()
	for b.Loop() {
		if !h.Alive() {
			b.Fatal("not alive")
		}
	}
}
