package watch

import (
	"os"
	"slices"
	"testing"
	"time"

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
