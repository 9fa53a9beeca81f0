package otlp

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Enqueue does not wait for an observer that blocks, not even when there is an event to pass on.
func TestObserverBlocks(t *testing.T) {
	r := newReceiver(t, reply{code: codes.InvalidArgument, message: "no"})
	release, blocked := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d1, d2 := r.destination("a"), r.destination("b")
	x, err := Open(Options{Destinations: []Destination{d1, d2}, Observe: func(Event) {
		once.Do(func() { close(blocked) })
		<-release
	}})
	assert.NilError(t, err)
	defer x.Shutdown(t.Context())
	defer close(release)
	x.Enqueue(NewBatch(Metrics, []byte("x"), 1, time.Now()))
	<-blocked // one sender waits, and that of the other destination will have an event as well
	testenv.Poll(t, time.Minute, "both answers", func() bool {
		s := x.Status()
		return s[0].Dropped.Sum()+s[1].Dropped.Sum() == 2
	})
	done := make(chan error)
	go func() {
		x.Enqueue(NewBatch(Metrics, []byte("x"), 1, time.Now()))
		done <- x.EnqueueReceived(t.Context(), NewBatch(Metrics, []byte("x"), 1, time.Now()))
	}()
	select {
	case err := <-done:
		assert.Check(t, err)
	case <-time.After(time.Minute):
		t.Error("Enqueue waits for the observer")
	}
}

// An outage is reported when it begins, also when there was another right before. Of many in quick
// succession the later ones are left out, unless they last.
func TestOutageEvents(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t)
		d := r.destination("a")
		d.MaxAge = 0
		l := lab1(t, d)
		outage := func(d time.Duration, atOnce ...string) {
			t.Helper()
			r.answer(unavailable)
			l.send(Metrics, "x", 1)
			l.wantEvents(atOnce...)
			l.after(d)
			r.answer(reply{})
			l.after(16 * time.Second)
			l.wantState(l.Status()[0].Name, StateOpen)
		}
		for range outageBurst {
			outage(time.Second, "waiting, UNAVAILABLE, later")
			l.wantEvents("recovered")
		}
		outage(time.Second)
		l.wantEvents()
		d = r.destination("b") // the same with one that lasts
		l = lab1(t, d)
		for range outageBurst {
			outage(time.Second, "waiting, UNAVAILABLE, later")
			l.wantEvents("recovered")
		}
		outage(2 * time.Minute)
		l.wantEvents("waiting, UNAVAILABLE, later", "recovered")
		l.after(outageBurst * time.Minute)
		outage(time.Second, "waiting, UNAVAILABLE, later")
		l.wantEvents("recovered")
	})
}

// Latency is that of requests that were accepted, which limits the throughput.
func TestLatency(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{delay: time.Second}, reply{hang: true}, unavailable, reply{delay: time.Second})
		l := lab1(t, r.destination("a"))
		for range 2 {
			l.send(Metrics, "x", 1)
			l.after(time.Minute)
		}
		if s := l.Status()[0]; s.Sent != 2 || time.Duration(s.Latency) != time.Second || len(r.got()) != 4 {
			t.Errorf("%d requests, status %+v", len(r.got()), s)
		}
	})
}

// A late success does not report the outage that goes on.
func TestLateSuccess(t *testing.T) {
	s := newScheduler(1<<20, []Destination{NewDestination("http://a")}, always(0))
	d := s.destinations[0]
	for range 2 {
		s.enqueue(NewBatch(Metrics, []byte("x"), 1, epoch), epoch)
	}
	for range outageBurst {
		d.outages.allow(epoch) // other outages were reported right before
	}
	first, second := d.take(epoch), d.take(epoch)
	d.finish(first, &result{code: codes.Unavailable}, epoch)
	d.finish(second, &result{code: codes.OK}, epoch.Add(quiet))
	assert.Check(t, len(s.events) == 0, "emitted %+v", s.events)
	d.finish(d.take(epoch.Add(quiet)), &result{code: codes.Aborted}, epoch.Add(quiet))
	assert.Check(t, len(s.events) == 1 && s.events[0].Kind == EventWaiting && s.events[0].Code == "ABORTED",
		"emitted %+v", s.events)
}
