package agent

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"correlator/internal/process"
	"correlator/messaging"
	"correlator/procscan"
)

// known is an agent that knows so many processes, a third of them registered, a third in error, and a third
// that publish nothing. It does not run.
func known(t testing.TB, n int) *Agent {
	t.Helper()
	discovery, err := newDiscovery("/proc")
	if err != nil {
		t.Fatal(err)
	}
	poller, err := messaging.NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { poller.Close() })
	a := &Agent{discovery: discovery, poller: poller, processes: make(map[int]*servedProcess)}
	for pid := range n {
		p := &servedProcess{agent: a, sender: messaging.NewSender(&a.counters.Messages, poller)}
		p.shown.view = process.NewView(procscan.ProcessID{PID: pid})
		p.sender.Add(messaging.Key{}, 2, time.Now()) // nothing is late before the first connection
		t.Cleanup(p.sender.Close)
		switch pid % 3 {
		case 0:
			p.shown.view.State = process.StateRegistered
		case 1:
			p.shown.view.State, p.shown.view.Reason = process.StateError, process.Reason(1+pid/3%int(process.NumReasons-1)).String()
		case 2:
			p.shown.view.State = process.StateNoStorage
		}
		a.processes[pid] = p
	}
	return a
}

// The census is what the list of processes adds up to.
func TestCensus(t *testing.T) {
	a := known(t, 100)
	a.started = time.Now().Add(-time.Hour)
	a.processes[2].busySince.Store(1)    // it hangs
	a.processes[3].shown.view.State = "" // it takes no part
	a.discovery.live.Store(true)
	states, reasons, queued := make(map[process.State]int), make(map[string]int), uint64(2)
	for _, p := range a.processStatuses() {
		states[p.State]++
		queued += p.Queued
		if p.State == process.StateError {
			reasons[p.Reason]++
		}
	}
	c := a.Census()
	if !maps.Equal(c.Processes, states) || !maps.Equal(c.InError, reasons) || c.Waiting != queued || !c.LiveEvents {
		t.Errorf("%+v, want %v, %v and %d samples", c, states, reasons, queued)
	}
	if c.InError[process.ReasonTimeout.String()] == 0 || c.Processes[process.StateReady] == 0 {
		t.Errorf("%+v: no process hangs, or none waits for its registration", c)
	}
}

func BenchmarkCensus(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			a := known(b, n)
			b.ReportAllocs()
			for b.Loop() {
				a.Census()
			}
		})
	}
}
