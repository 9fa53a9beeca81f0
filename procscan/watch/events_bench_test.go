package watch

import (
	"math"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"correlator/procscan"
)

// BenchmarkWatchedMapping is the cost of making and removing an executable mapping, without and
// with a watcher on the machine.
func BenchmarkWatchedMapping(b *testing.B) {
	f := createLibrary(b)
	loop := func(b *testing.B) {
		for b.Loop() {
			mapOnce(b, f)
		}
	}
	b.Run("unwatched", loop)
	b.Run("watched", func(b *testing.B) {
		n := runWatcher(b, openWatcher(b, procscan.OnlineCPUs, ringBytes))
		loop(b)
		n.mu.Lock()
		defer n.mu.Unlock()
		b.ReportMetric(float64(n.lost)/float64(b.N), "lost/op")
	})
}

// BenchmarkDataMapping is the cost of making and removing a mapping that is not executable, without
// events, and with records of such mappings (attr.mmap_data), which a watcher does not request: what
// the maker pays, and what it costs to read them.
func BenchmarkDataMapping(b *testing.B) {
	size := 16 * os.Getpagesize()
	loop := func(b *testing.B) {
		for b.Loop() {
			memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			if err == nil {
				err = unix.Munmap(memory)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("unwatched", loop)
	b.Run("recorded", func(b *testing.B) {
		end, ended := make(chan struct{}), make(chan dataRecords)
		rings := openDataRings(b)
		go func() { ended <- readDataRings(rings, end) }()
		loop(b)
		close(end)
		read := <-ended
		for _, r := range rings {
			r.close()
		}
		b.ReportMetric(float64(read.records)/b.Elapsed().Seconds(), "records/s")
		b.ReportMetric(float64(read.lost)/float64(read.lost+read.records), "lost")
		b.ReportMetric(100*float64(read.cpu)/float64(b.Elapsed()), "%CPU-reader")
	})
}

// openDataRings opens a ring of each CPU that also has the records of data.
func openDataRings(b *testing.B) (rings []*perfRing) {
	b.Helper()
	cpus, err := procscan.ReadCPUs(procscan.OnlineCPUs)
	if err != nil {
		b.Fatal(err)
	}
	for _, cpu := range cpus {
		fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
			Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY,
			Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
			Bits:   unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitMmapData | unix.PerfBitWatermark,
			Wakeup: math.MaxInt32,
		}, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			b.Fatal(err)
		}
		memory, err := mapRing(fd, 8*ringBytes, unix.PROT_READ|unix.PROT_WRITE)
		if err != nil {
			b.Fatal(err)
		}
		r := &perfRing{fd: fd, waker: -1}
		r.use(memory)
		rings = append(rings, r)
	}
	return rings
}

type dataRecords struct {
	records, lost uint64
	cpu           time.Duration
}

// readDataRings reads the rings every pollInterval until the end.
func readDataRings(rings []*perfRing, end <-chan struct{}) (read dataRecords) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	interval, before := unix.NsecToTimespec(pollInterval.Nanoseconds()), threadTime()
	for {
		for _, r := range rings {
			r.drain(func(e Event) {
				if e.Kind == EventLost {
					read.lost += e.Lost
				} else {
					read.records++
				}
			})
		}
		select {
		case <-end:
			read.cpu = threadTime() - before
			return read
		default:
			_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &interval, nil)
		}
	}
}

// threadTime returns the CPU time of this thread.
func threadTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
	return time.Duration(now.Nano())
}

// BenchmarkEventAge is the time from mapping a library until the watcher reports it, when it was
// waiting and when it is busy.
func BenchmarkEventAge(b *testing.B) {
	f := createLibrary(b)
	for name, pause := range map[string]time.Duration{"waiting": 5 * pollInterval, "busy": 0} {
		b.Run(name, func(b *testing.B) {
			w := openWatcher(b, procscan.OnlineCPUs, ringBytes)
			reported := make(chan time.Time, 1)
			go w.Run(func(e Event) {
				if e.Kind == EventLibrary && e.PID == os.Getpid() {
					reported <- time.Now()
				}
			})
			defer w.Close()
			var ages []float64
			for b.Loop() {
				time.Sleep(pause)
				begin := time.Now()
				mapOnce(b, f)
				ages = append(ages, (<-reported).Sub(begin).Seconds()*1e6)
			}
			slices.Sort(ages)
			b.ReportMetric(ages[len(ages)/2], "µs-p50")
			b.ReportMetric(ages[len(ages)*99/100], "µs-p99")
			b.ReportMetric(0, "ns/op") // mostly our own pauses
		})
	}
}
