package agent

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"correlator/internal/attach"
	"correlator/internal/attach/lifecycle"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/messaging"
	"correlator/procscan"
)

// The census is what the list of processes adds up to.
func TestCensus(t *testing.T) {
	registered := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	silent := demo.Start(t, demo.Options{Hold: true})
	silent.Load()
	unread := demo.Start(t, demo.Options{Manual: true, Idle: 1, NeverRead: true})
	hanging, broken := demo.Start(t, demo.Options{Idle: 1}), demo.Start(t, demo.Options{Idle: 1})
	hanging.Hostile("storage-hangs", "")
	broken.Hostile("storage-length", "")
	r := run(t, roomy)
	r.state(registered, process.StateRegistered, "")
	r.state(silent, process.StateNoStorage, "")
	r.state(unread, process.StateRegistered, "")
	r.state(hanging, process.StateError, process.ReasonTimeout.String())
	r.state(broken, process.StateError, process.ReasonStorageTooLong.String())
	r.feedContext(unread, unread.Begin(1), 100) // more messages than its socket has room for
	testenv.Poll(t, deadline, "a census that adds up, with samples that wait", func() bool {
		states, reasons, queued := make(map[process.State]int), make(map[string]int), uint64(0)
		for _, p := range r.processStatuses() {
			states[p.State]++
			queued += p.Queued
			if p.State == process.StateError {
				reasons[p.Reason]++
			}
		}
		c := r.Census()
		return maps.Equal(c.Processes, states) && maps.Equal(c.InError, reasons) && c.Waiting == queued && queued > 0 &&
			c.LiveEvents && len(reasons) >= 2 && len(states) >= 3
	})
	hanging.Kill()
}

func BenchmarkCensus(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			poller, err := messaging.NewPoller()
			if err != nil {
				b.Fatal(err)
			}
			defer poller.Close()
			a := &Agent{manager: new(lifecycle.Manager)}
			table := attach.NewTable()
			a.registrations = attach.NewColumn[*registration](table)
			for pid := range n {
				r := &registration{agent: a, pid: pid, process: new(lifecycle.Process)}
				r.sender = messaging.NewSender(&a.counters.Messages, poller)
				defer r.sender.Close()
				r.sender.Add(messaging.Key{}, 2, time.Now())
				entry := table.Add(procscan.ProcessID{PID: pid})
				a.registrations.Set(entry, r)
				entry.Show()
			}
			b.ReportAllocs()
			for b.Loop() {
				a.Census()
			}
		})
	}
}
