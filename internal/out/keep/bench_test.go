package keep

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"correlator/profile"
)

// load is samples of 16 CPUs that are half busy, at 20 a second, in one process with 1500 stacks of 60
// frames of 2000 methods; each transaction takes so many samples of its thread.
type load struct {
	perTransaction int
	stacks         []*profile.Stack
	resource       *profile.Resource
	next           int
}

func newLoad(perTransaction int) *load {
	l := &load{perTransaction: perTransaction, resource: resource("a", 1)}
	var frames []profile.Frame
	for i := range 2000 {
		frames = append(frames, profile.NewJVMFrame(profile.NewFunction(
			fmt.Sprintf("com.example.shop.service.internal.ClassWithName%d.methodNumber%d", i/8, i), "ClassWithName.java"),
			uint32(i)))
	}
	for i := range 1500 {
		var stack []profile.Frame
		for depth := range 60 { // callers are shared, callees are not
			stack = append(stack, frames[(i*(60-depth)/7+depth*31)%len(frames)])
		}
		l.stacks = append(l.stacks, &profile.Stack{ID: profile.TraceID(stack), Frames: stack})
	}
	return l
}

const perSecond = 16 / 2 * 20

func (l *load) sample() (*profile.Sample, time.Time) {
	at := begin.Add(time.Duration(l.next) * time.Second / perSecond)
	tid := l.next % 8
	s := newSample(l.resource, l.next/8/l.perTransaction*8+tid, at, l.stacks[l.next*7919%len(l.stacks)])
	s.TID, s.Thread = tid, "http-nio-8080-exec"
	s.SpanID = s.TransactionID
	l.next++
	return s, at
}

// BenchmarkMemory keeps a million samples, and shows what each takes in memory, and what it counts as.
func BenchmarkMemory(b *testing.B) {
	for _, perTransaction := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("samples=%d", perTransaction), func(b *testing.B) {
			const samples = 1_000_000
			for range b.N {
				l := newLoad(perTransaction)
				before := heap()
				s := NewStore(2*samples/perSecond*time.Second, 2<<30)
				for range samples {
					s.Add(l.sample())
				}
				after := heap()
				stats := s.Stats()
				if stats.Samples != samples {
					b.Fatalf("%+v", stats)
				}
				b.ReportMetric(float64(after-before)/(1<<20), "MiB")
				b.ReportMetric(float64(stats.Bytes)/(1<<20), "counted-MiB")
				b.ReportMetric(float64(stats.Transactions), "transactions")
				runtime.KeepAlive(s)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkAdd adds samples to a store that is full, and shows how long Add took at most.
func BenchmarkAdd(b *testing.B) {
	for _, limit := range []int{DefaultBytes, 32 * DefaultBytes} {
		b.Run(fmt.Sprintf("MiB=%d", limit>>20), func(b *testing.B) {
			l := newLoad(10)
			s := NewStore(1000*time.Hour, limit)
			for s.Stats().Evicted == 0 {
				s.Add(l.sample())
			}
			b.ReportAllocs()
			longest := time.Duration(0)
			for b.Loop() {
				before := time.Now()
				s.Add(l.sample())
				longest = max(longest, time.Since(before))
			}
			b.ReportMetric(float64(longest.Microseconds()), "longest-µs")
		})
	}
}

// BenchmarkAddWhileAsked adds samples while the store is asked for what takes most time: a span that all
// transactions have. It shows how long Add took at most.
func BenchmarkAddWhileAsked(b *testing.B) {
	l := newLoad(1)
	s := NewStore(10*time.Minute, DefaultBytes)
	add := func() {
		sample, at := l.sample()
		sample.SpanID = [8]byte{1}
		s.Add(sample, at)
	}
	for range 300_000 {
		add()
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = s.Answer(b.Context(), Query{ID: "0100000000000000"}, begin)
			}
		}
	}()
	longest := time.Duration(0)
	for b.Loop() {
		before := time.Now()
		add()
		longest = max(longest, time.Since(before))
	}
	close(stop)
	<-stopped
	b.ReportMetric(float64(longest.Microseconds()), "longest-µs")
}

// BenchmarkAnswer asks a full store for one transaction.
func BenchmarkAnswer(b *testing.B) {
	l := newLoad(10)
	s := NewStore(10*time.Minute, DefaultBytes)
	for range 1_000_000 {
		s.Add(l.sample())
	}
	last, at := l.sample()
	s.Add(last, at)
	for b.Loop() {
		if len(answer(b, s, Query{ID: traceOf(last)}, at).Samples) == 0 {
			b.Fatal("nothing")
		}
	}
}
