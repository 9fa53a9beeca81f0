package live

import (
	"testing"
	"time"
)

// BenchmarkPublish is what a second costs while a guest of the embedded broker watches 500 processes
// with 2000 threads, of which 60 run, and the stacks of the busiest transactions.
func BenchmarkPublish(b *testing.B) {
	uri := newSocket(b)
	l := openLive(b, Config{Listen: []string{uri}})
	source := newSource(500)
	for i := range *source.processes.Load() {
		(*source.processes.Load())[i].ID.PID = 1 // whose CPU time is read, as for any process
	}
	subscribe(b, dial(b, uri, ""))
	p := &publisher{about: testAbout, source: source, tracker: l.tracker, name: l.name, log: l.log,
		stacksWanted: func() {}}
	p.add(&local{live: l, output: output{bus: embedded{l.broker}}})
	for wantedOn(embedded{l.broker}) != wantHosts|wantOfSamples {
		time.Sleep(time.Millisecond)
	}
	now := time.Now()
	p.publish(now)
	feed := func(tid int, stack byte) {
		s := newSample(1000+tid%500, tid+1, 0, 1, time.Now())
		s.TransactionID[0], s.TransactionID[1], s.TraceID[0] = byte(tid), byte(tid>>8), 1
		s.Stack = frames("main", "serve", "handle", string('a'+rune(stack)), "query", "parse", "encode", "compress")
		l.tracker.Sampled(s)
		l.tracker.Named(s)
	}
	for tid := range 2000 {
		for stack := range max(1, min(20, (60-tid)*20)) {
			feed(tid, byte(stack))
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for tid := range 60 {
			feed(tid, byte(tid%20))
		}
		now = now.Add(time.Second / 1000) // nothing is forgotten
		p.last, p.ticked, l.tracker.ticked = time.Time{}, time.Time{}, time.Time{}
		b.StartTimer()
		p.publish(now)
	}
}
