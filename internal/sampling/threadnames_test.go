package sampling

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"correlator/procscan"
)

// reader reads names, and records whose.
type reader struct {
	names map[int]string
	asked []int
	named map[int]string
}

func (r *reader) read(tid int) (string, error) {
	r.asked = append(r.asked, tid)
	if name, lives := r.names[tid]; lives {
		return name, nil
	}
	return "", procscan.ErrGone
}

// A name is read once, and again when it is old. A thread that has ended keeps the name.
func TestThreadNames(t *testing.T) {
	n, r := newThreadNames(), &reader{names: map[int]string{1: "main", 2: ""}, named: make(map[int]string)}
	now := time.Now()
	wanted := false
	get := func(tid int, at time.Time, want string) {
		t.Helper()
		got, read := n.get(tid, at)
		if got != want {
			t.Errorf("thread %d is called %q, want %q", tid, got, want)
		}
		wanted = wanted || read
	}
	read := func(want ...int) {
		t.Helper()
		if wanted != (len(want) > 0) {
			t.Errorf("reading is wanted: %v, names to read: %v", wanted, want)
		}
		wanted, r.asked = false, nil
		n.read(r.read, func(tid int, name string) { r.named[tid] = name })
		if fmt.Sprint(r.asked) != fmt.Sprint(want) {
			t.Errorf("names of %v were read, want %v", r.asked, want)
		}
	}
	for range 2 {
		get(1, now, "")
		get(2, now, "")
		get(3, now, "")
	}
	read(1, 2, 3)
	get(1, now, "main")
	get(2, now, "")
	get(3, now, "")
	read()

	r.names = map[int]string{2: "pool-2"}
	later := now.Add(nameAge + time.Minute)
	get(1, later, "main") // until the new one is known
	get(2, later, "")
	read(1, 2)
	get(1, now, "main")
	get(2, now, "pool-2")
	if fmt.Sprint(r.named) != "map[1:main 2:pool-2]" {
		t.Errorf("named %v", r.named)
	}
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
	ignore := func(int, string) {}
	n.read(func(tid int) (string, error) {
		if read++; read == 5 { // others come while names are read
			for more := range maxThreadNames {
				n.get(1e6+more, now)
			}
		}
		return "old", nil
	}, ignore)
	if name, _ := n.get(1e6, now); name != "" || len(n.known) > maxThreadNames {
		t.Errorf("%d names; one that was not read is %q", len(n.known), name)
	}
}

// Errors of all kinds leave the name as it was.
func TestThreadNamesUnreadable(t *testing.T) {
	n, now := newThreadNames(), time.Now()
	n.get(1, now)
	n.read(func(int) (string, error) { return "main", nil }, func(int, string) {})
	n.get(1, now.Add(2*nameAge))
	n.read(func(int) (string, error) { return "", errors.New("no") }, func(int, string) { t.Error("named") })
	if name, _ := n.get(1, now); name != "main" {
		t.Errorf("the name is %q", name)
	}
}
