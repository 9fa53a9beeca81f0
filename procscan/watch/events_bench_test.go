package watch

import (
	"math"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/procscan"
)

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
	assert.NilError(b, err)
	for _, cpu := range cpus {
		fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
			Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY,
			Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
			Bits:   unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitMmapData | unix.PerfBitWatermark,
			Wakeup: math.MaxInt32,
		}, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		assert.NilError(b, err)
		memory, err := mapRing(fd, 8*ringBytes, unix.PROT_READ|unix.PROT_WRITE)
		assert.NilError(b, err)
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
