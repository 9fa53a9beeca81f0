package receiver

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
)

// A connection is reported once a minute, with what was lost since then, and a minute has a limited
// number of reports, of each user and in all.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Event
		e := newEvents(func(event Event) { got = append(got, event) })
		s := &stream{}
		s.senders.peer = peer{uid: 33, pid: 42}
		want := func(n int, losses uint64) {
			t.Helper()
			synctest.Wait()
			if len(got) != n || n > 0 && (got[n-1].Losses != losses || got[n-1].UID != 33 || got[n-1].PID != 42) {
				t.Fatalf("%d events, want %d of %d losses: %+v", len(got), n, losses, got)
			}
		}
		failed := errors.New("undecodable")
		e.report(s, time.Now(), false)
		want(0, 0)
		s.lost.note(wire.Loss{Reason: wire.Malformed, Err: failed})
		s.lost.note(wire.Loss{Reason: wire.Truncated})
		e.report(s, time.Now(), false)
		want(1, 2)
		assert.Check(t, got[0].Reason == wire.Malformed && errors.Is(got[0].Err, failed), "%+v", got[0])
		for range 3 {
			time.Sleep(eventInterval / 4)
			s.lost.note(wire.Loss{Reason: wire.Oversize})
			e.report(s, time.Now(), false)
			want(1, 2)
		}
		time.Sleep(eventInterval / 4)
		e.report(s, time.Now(), true)
		want(2, 3)
		assert.Check(t, got[1].Kind == NotProtocol && got[1].Reason == wire.Oversize, "%+v", got[1])
		reports := func(uid uint32) {
			for range 10 * maxEvents {
				other := &stream{}
				other.senders.peer = peer{uid: uid}
				e.report(other, time.Now(), true)
				synctest.Wait()
			}
		}
		reports(33)
		n := len(got) - 1
		assert.Check(t, n == maxEventsOfUser, "%d events of a user in a minute", n)
		for uid := range uint32(10) {
			reports(uid)
		}
		n = len(got) - 1
		assert.Check(t, n == maxEvents, "%d events in a minute", n)
		time.Sleep(eventInterval)
		for uid := range uint32(10) {
			reports(uid)
		}
		n = len(got) - 1 - n
		assert.Check(t, n == maxEvents, "%d events in the next minute", n)
		e.close()
	})
}

// An observer that blocks keeps nobody waiting.
func TestSlowObserver(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	l := openLab(t, Config{}, Options{OnEvent: func(Event) {
		once.Do(func() { close(entered); <-leave })
	}})
	bad := func() {
		c := client.Client{PID: 1}
		l.send(c.Message(setUp(nil, &c), wire.StatsRecord, []byte{9}))
	}
	bad()
	<-entered
	for range 3 * waitingEvents {
		bad()
	}
	l.wait(`dropped_messages_total{reason="malformed",type="stats_record"}`, 3*waitingEvents+1)
	close(leave)
	l.finish()
}

// A conflict is reported with the user, once a minute, and an observer that blocks keeps neither
// records nor exports waiting.
func TestConflictEvent(t *testing.T) {
	entered, leave := make(chan Event), make(chan struct{})
	more := 0
	var once sync.Once
	l := openLab(t, Config{}, Options{OnEvent: func(e Event) {
		more++
		once.Do(func() { more = 0; entered <- e; <-leave })
	}})
	conn := l.dial()
	c := client.Client{PID: 1}
	data := setUp(nil, &c)
	for i := range 50 {
		data = c.RegisterViews(data, wire.View{Name: counter, Measure: counter, Aggregation: wire.Count,
			TagKeys: []string{fmt.Sprint(i)}})
	}
	l.write(conn, data)
	e := <-entered
	assert.Check(t, e.Kind == Conflict && e.UID == uint32(os.Getuid()) && e.Conflict.View == counter, "%+v", e)
	l.write(conn, records(nil, &c, 3))
	l.wait(`processed_messages_total{type="stats_record"}`, 3)
	close(leave)
	l.finish()
	assert.Check(t, more <= 0, "%d more", more)
	l.wantSum(counter, 3)
}

// Another version of the protocol is reported once, and served.
func TestUnknownVersion(t *testing.T) {
	events := make(chan Event, 10)
	l := openLab(t, Config{}, Options{OnEvent: func(e Event) { events <- e }})
	for range 3 {
		c := client.Client{PID: 1}
		data := c.Message(nil, wire.RequestInit, append([]byte{2}, "\x068.2.35\x064.2.35"...))
		l.send(records(c.RegisterViews(data, wire.View{Name: counter, Measure: counter, Aggregation: wire.Sum}), &c, 1))
	}
	l.finish()
	close(events)
	e, another := <-events, len(events)
	assert.Check(t, e.Kind == UnknownVersion && e.Version == 2 && another <= 0, "%+v and %d more", e, another)
	l.wantSum(counter, 3)
}

// A defect costs the message or the connection that meets it, and is reported once.
func TestPanics(t *testing.T) {
	var panics []any
	l := openLab(t, Config{}, Options{OnPanic: func(v any, _ []byte) { panics = append(panics, v) }})
	t.Run("in a reader", func(t *testing.T) {
		var kept []*reader
		for range cap(l.readers) {
			kept = append(kept, <-l.readers)
		}
		l.readers <- nil
		conn := l.dial()
		c := client.Client{PID: 1}
		l.write(conn, setUp(nil, &c))
		l.wait("panics_total", 1)
		assert.Check(t, l.isClosed(conn), "open")
		<-l.readers
		for _, r := range kept {
			l.readers <- r
		}
	})
	t.Run("in the stats worker", func(t *testing.T) {
		w := statsWorker{Receiver: l.Receiver}
		// of no sender
		assert.Check(t, w.applySafely(&entry{kind: wire.ViewUnregister}, []byte("\x01\x01x")))
		if i := wire.ViewUnregister.Index(); w.dropped[Panic][i] != 1 || w.processed[i] != 0 {
			t.Errorf("%d dropped, %d processed", w.dropped[Panic][i], w.processed[i])
		}
		l.want("panics_total", 2)
	})
	t.Run("in a trace worker", func(t *testing.T) {
		broken := &Receiver{drained: l.drained, onPanic: l.onPanic}
		w := traceWorker{Receiver: broken}
		w.work(&batch{data: []byte(span)}, &entry{size: uint32(len(span))}) // of no sender
		n := broken.counters.snapshot().messages[wire.TraceExport.Index()].dropped[Panic]
		assert.Check(t, n == 1, "%d dropped", n)
	})
	t.Run("afterwards", func(t *testing.T) {
		c := client.Client{PID: 1}
		l.send(records(setUp(nil, &c), &c, 2))
		l.wait(`processed_messages_total{type="stats_record"}`, 2)
	})
	l.finish()
	l.wantSum(counter, 2)
	// of two receivers
	assert.Check(t, len(panics) == 2, "%d were reported: %v", len(panics), panics)
	testenv.Poll(t, patience, "all readers", func() bool { return len(l.readers) == cap(l.readers) })
}
