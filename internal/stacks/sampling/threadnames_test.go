package sampling

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"

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
		assert.Check(t, got == want, "thread %d is called %q, want %q", tid, got, want)
		wanted = wanted || read
	}
	read := func(want ...int) {
		t.Helper()
		assert.Check(t, wanted == (len(want) > 0), "reading is wanted: %v, names to read: %v", wanted, want)
		wanted, r.asked = false, nil
		n.read(r.read, func(tid int, name string) { r.named[tid] = name })
		assert.Check(t, fmt.Sprint(r.asked) == fmt.Sprint(want), "names of %v were read, want %v", r.asked, want)
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
	assert.Check(t, fmt.Sprint(r.named) == "map[1:main 2:pool-2]", "named %v", r.named)
}

// Each of many threads gets its name, also of more than are kept.
func TestThreadNamesMany(t *testing.T) {
	n := newThreadNames()
	for drain := range 5 {
		const threads = 600
		for tid := range threads {
			n.get(threads*drain+tid, time.Now())
		}
		named := make(map[int]bool)
		n.read(func(int) (string, error) { return "pool", nil }, func(tid int, _ string) { named[tid] = true })
		assert.Check(t, len(named) == threads, "drain %d: %d of %d threads have a name", drain, len(named), threads)
		remembered := 0
		for tid := range threads {
			if name, _ := n.get(threads*drain+tid, time.Now()); name != "" {
				remembered++
			}
		}
		if remembered < maxThreadNames/2 || remembered > maxThreadNames { // some that are kept are older
			t.Errorf("drain %d: %d names are kept", drain, remembered)
		}
		n.read(func(int) (string, error) { return "pool", nil }, func(int, string) {})
	}
}

// However many threads a process makes, few names are kept, and not many wait to be read.
func TestThreadNamesBounded(t *testing.T) {
	n, now := newThreadNames(), time.Now()
	bounded := func() {
		t.Helper()
		if len(n.known) > maxThreadNames || len(n.tids) > maxUnread || len(n.unread) > maxUnread {
			t.Fatalf("%d names, %d and %d to be read", len(n.known), len(n.tids), len(n.unread))
		}
	}
	for tid := range 2*maxUnread + 10 {
		n.get(tid, now)
		bounded()
	}
	reads, named := 0, 0
	n.read(func(tid int) (string, error) {
		if reads++; reads == 5 { // others come while names are read
			for more := range maxUnread {
				n.get(1e6+more, now)
				bounded()
			}
		}
		return "old", nil
	}, func(int, string) { named++ })
	bounded()
	assert.Check(t, named == maxUnread, "%d names were read, want %d", named, maxUnread)
	name, _ := n.get(1e6, now)
	assert.Check(t, name == "", "a name that was not read is %q", name)
}

// Errors of all kinds leave the name as it was.
func TestThreadNamesUnreadable(t *testing.T) {
	n, now := newThreadNames(), time.Now()
	n.get(1, now)
	n.read(func(int) (string, error) { return "main", nil }, func(int, string) {})
	n.get(1, now.Add(2*nameAge))
	n.read(func(int) (string, error) { return "", errors.New("no") }, func(int, string) { t.Error("named") })
	name, _ := n.get(1, now)
	assert.Check(t, name == "main", "the name is %q", name)
}
