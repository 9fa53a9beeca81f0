package live

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"correlator/profile"
)

// BenchmarkPublish is what a second costs while a guest of the embedded broker watches 500 processes
// with 2000 threads, of which 60 run, and the stacks of the busiest transactions: of any program, of a JVM
// with its frameworks, and of one that has the longest names on the deepest stacks.
func BenchmarkPublish(b *testing.B) {
	for _, c := range []struct {
		name          string
		depth, length int
	}{{"small", 8, 8}, {"JVM", 80, 60}, {"hostile", 250, 500}} {
		b.Run(c.name, func(b *testing.B) { benchmarkPublish(b, c.depth, c.length) })
	}
}

func benchmarkPublish(b *testing.B, depth, length int) {
	uri := newSocket(b)
	l := openLive(b, Config{Listen: []string{uri}})
	source := newSource(500)
	for i := range *source.processes.Load() {
		(*source.processes.Load())[i].ID.PID = 1 // whose CPU time is read, as for any process
	}
	subscribe(b, dial(b, uri, ""))
	p := &publisher{about: testAbout, source: source, tracker: l.tracker, name: l.nameOf, log: l.log}
	p.add(&local{live: l, output: output{bus: embedded{l.broker}}})
	for wantedOn(embedded{l.broker}) != wantHosts|wantOfSamples {
		time.Sleep(time.Millisecond)
	}
	now := time.Now()
	p.publish(now)
	names := make([]string, depth)
	for k := range names {
		names[k] = fmt.Sprintf("%*s", length, fmt.Sprint(strings.Repeat("a.", length/4), k))
	}
	stacks := make(map[string]*profile.Stack)
	feed := func(tid, stack int) {
		s := newSample(1000+tid%500, tid+1, 0, 1, time.Now())
		s.TransactionID[0], s.TransactionID[1], s.TraceID[0] = byte(tid), byte(tid>>8), 1
		names[0] = fmt.Sprint(tid, " ", stack) // no two transactions have one
		if s.Stack = stacks[names[0]]; s.Stack == nil {
			s.Stack = frames(names...)
			stacks[names[0]] = s.Stack
		}
		l.tracker.Sampled(s)
		l.tracker.Named(s)
	}
	for stack := range 20 { // first the transactions, then their stacks, as they come in 20 s
		for tid := range 2000 {
			if tid < 60 || stack == 0 {
				feed(tid, stack)
			}
		}
		p.last, p.ticked, l.tracker.ticked = time.Time{}, time.Time{}, time.Time{}
		p.publish(now)
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for tid := range 60 {
			feed(tid, tid%20)
		}
		now = now.Add(time.Second / 1000) // nothing is forgotten
		p.last, p.ticked, l.tracker.ticked = time.Time{}, time.Time{}, time.Time{}
		b.StartTimer()
		p.publish(now)
	}
	b.ReportMetric(float64(len(l.tracker.stacks.byKey)), "stacks")
}
