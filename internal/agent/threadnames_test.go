package agent

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"correlator/internal/demo"
	"correlator/internal/sampling"
	"correlator/internal/testenv"
	"correlator/otlp/profiles"
	"correlator/procscan"
)

// reader answers who asks for names, and takes down whose.
type reader struct {
	names map[int]string
	asked []int
}

func (r *reader) read(tid int) (string, error) {
	r.asked = append(r.asked, tid)
	if name, lives := r.names[tid]; lives {
		return name, nil
	}
	return "", procscan.ErrGone
}

// A name is read once, by whom the token wakes, and again when it is old. Who has ended keeps the name.
func TestThreadNames(t *testing.T) {
	n, r := newThreadNames(), &reader{names: map[int]string{1: "main", 2: ""}}
	now := time.Now()
	get := func(tid int, at time.Time, want string) {
		t.Helper()
		if got := n.get(tid, at); got != want {
			t.Errorf("thread %d is called %q, want %q", tid, got, want)
		}
	}
	learn := func(want ...int) {
		t.Helper()
		select {
		case <-n.wanted:
		default:
			if len(want) > 0 {
				t.Errorf("nobody is woken to read the names of %v", want)
			}
		}
		r.asked = nil
		n.learn(r.read)
		if fmt.Sprint(r.asked) != fmt.Sprint(want) {
			t.Errorf("names of %v were read, want %v", r.asked, want)
		}
	}
	for range 2 {
		get(1, now, "")
		get(2, now, "")
		get(3, now, "")
	}
	learn(1, 2, 3)
	get(1, now, "main")
	get(2, now, "")
	get(3, now, "")
	learn()

	r.names = map[int]string{2: "pool-2"}
	later := now.Add(nameAge + time.Minute)
	get(1, later, "main") // until the new one is known
	get(2, later, "")
	learn(1, 2)
	get(1, now, "main")
	get(2, now, "pool-2")
}

// However many threads a process makes, few names are kept.
func TestThreadNamesBounded(t *testing.T) {
	n, now := newThreadNames(), time.Now()
	for tid := range 3*maxThreadNames + 10 {
		n.get(tid, now)
		if len(n.known) > maxThreadNames || len(n.tids) > maxThreadNames {
			t.Fatalf("%d names, %d to be read", len(n.known), len(n.tids))
		}
	}
	read := 0
	n.learn(func(tid int) (string, error) {
		if read++; read == 5 { // others come while names are read
			for more := range maxThreadNames {
				n.get(1e6+more, now)
			}
		}
		return "old", nil
	})
	if name := n.get(1e6, now); name != "" || len(n.known) > maxThreadNames {
		t.Errorf("%d names; one that was not read is %q", len(n.known), name)
	}
}

// taker is an exporter that keeps nothing.
type taker struct{}

func (taker) Sampled(*profiles.Sample) {}
func (taker) TakesUntraced() bool      { return false }

// programs are the programs of a process that are sampled, or were last.
func (r *running) programs(pid int) (found []*program) {
	r.sampling.Forget(func(receiver sampling.Receiver) bool {
		if p := receiver.(*program); p.id.PID == pid {
			found = append(found, p)
		}
		return false
	})
	return found
}

// After an exec the same numbers are other threads': no name of the program before is told of them.
func TestThreadNamesOfAnotherProgram(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	r := runWith(t, taker{}, func(*Agent) {}, atRate(997))
	r.sampledReport(p, 50)
	before := r.programs(p.PID)
	if len(before) != 1 {
		t.Fatalf("%d programs are sampled", len(before))
	}
	names := before[0].names
	if names.get(p.PID, time.Now()); names == nil {
		t.Fatal("no names")
	}
	p.Restart(false)
	p.Registration(1)
	testenv.Poll(t, deadline, "another program", func() bool {
		for _, now := range r.programs(p.PID) {
			if now != before[0] {
				if now.names == names {
					t.Fatal("its threads are called as those of the program before")
				}
				return true
			}
		}
		return false
	})
	harmless(t, p.Report())
}

// Errors of all kinds leave the name as it was.
func TestThreadNamesUnreadable(t *testing.T) {
	n, now := newThreadNames(), time.Now()
	n.get(1, now)
	n.learn(func(int) (string, error) { return "main", nil })
	n.get(1, now.Add(2*nameAge))
	n.learn(func(int) (string, error) { return "", errors.New("no") })
	if name := n.get(1, now); name != "main" {
		t.Errorf("the name is %q", name)
	}
}
