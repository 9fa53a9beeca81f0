package otlp

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"correlator/internal/testenv"
)

// Who offers does not wait for an observer that blocks, not even when there is something to tell.
func TestObserverBlocks(t *testing.T) {
	r := newReceiver(t, reply{code: codes.InvalidArgument, message: "no"})
	release, blocked := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d1, d2 := r.destination("a"), r.destination("b")
	x, err := Open(Options{Destinations: []Destination{d1, d2}, Observe: func(Event) {
		once.Do(func() { close(blocked) })
		<-release
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Shutdown(t.Context())
	defer close(release)
	x.Enqueue(NewBatch(Metrics, []byte("x"), 1, time.Now()))
	<-blocked // one sender is there, and that of the other destination will have news as well
	testenv.Poll(t, time.Minute, "both answers", func() bool {
		s := x.Status()
		return s[0].Dropped+s[1].Dropped == 2
	})
	done := make(chan error)
	go func() {
		x.Enqueue(NewBatch(Metrics, []byte("x"), 1, time.Now()))
		done <- x.EnqueueReceived(t.Context(), NewBatch(Metrics, []byte("x"), 1, time.Now()))
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("an offer waits for the observer")
	}
}

// An outage is told once, at most one a minute; one that begins too soon after another, when it has lasted.
func TestOutageIsTold(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t)
		d := r.destination("a")
		d.MaxAge = 0
		l := lab1(t, d)
		outage := func(d time.Duration) {
			r.answer(unavailable)
			l.send(Metrics, "x", 1)
			l.after(d)
			r.answer(reply{})
			l.after(20 * time.Second)
			l.wantState("a", StateOpen)
		}
		outage(time.Second)
		l.wantTold("waiting, UNAVAILABLE, later", "recovered")
		outage(time.Second)
		l.wantTold()
		outage(2 * time.Minute)
		l.wantTold("waiting, UNAVAILABLE, later", "recovered")
	})
}

// Latency is that of requests that were taken: what the throughput is limited by.
func TestLatency(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		r := newReceiver(t, reply{delay: time.Second}, reply{hang: true}, unavailable, reply{delay: time.Second})
		l := lab1(t, r.destination("a"))
		for range 2 {
			l.send(Metrics, "x", 1)
			l.after(time.Minute)
		}
		if s := l.Status()[0]; s.Sent != 2 || s.Latency != time.Second || len(r.got()) != 4 {
			t.Errorf("%d requests, status %+v", len(r.got()), s)
		}
	})
}

// A late success does not tell of the outage that goes on.
func TestLateSuccessIsNotTold(t *testing.T) {
	c := newScheduler(1<<20, []Destination{NewDestination("http://a")}, always(0))
	p := c.destinations[0]
	for range 2 {
		c.enqueue(NewBatch(Metrics, []byte("x"), 1, epoch), epoch)
	}
	p.waiting.allow(epoch) // another outage was told right before
	first, _ := p.take(epoch)
	second, _ := p.take(epoch)
	p.finish(first, &answer{code: codes.Unavailable}, epoch)
	p.finish(second, &answer{code: codes.OK}, epoch.Add(quiet))
	if len(c.events) != 0 {
		t.Errorf("told %+v", c.events)
	}
	probe, _ := p.take(epoch.Add(quiet))
	p.finish(probe, &answer{code: codes.Aborted}, epoch.Add(quiet))
	if len(c.events) != 1 || c.events[0].Kind != EventWaiting || c.events[0].Code != "ABORTED" {
		t.Errorf("told %+v", c.events)
	}
}
