package sampling

import (
	"sync"
	"time"
)

const (
	// maxThreadNames is how many names are kept of a program: more than have threads that are busy
	// in the same minute. They take 25 KB; when there are more, all are read again.
	maxThreadNames = 256

	// nameAge is how long a name is taken to be right: pools rename their threads now and then, and
	// a tid comes to be another thread's.
	nameAge = time.Minute
)

// threadNames is the names of a program's threads. A sample gets the name that is known; the
// goroutine of the process reads those that are not. So the first samples of a thread have no name.
type threadNames struct {
	mu    sync.Mutex
	known map[int]threadName
	tids  []int // whose names are to be read
}

type threadName struct {
	name string
	due  time.Time // when to read it again; zero: it is about to be
}

func newThreadNames() *threadNames { return &threadNames{known: make(map[int]threadName)} }

// get returns the name, "" as long as it is not known, and whether read must be called. It does not
// block.
func (n *threadNames) get(tid int, now time.Time) (name string, read bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, known := n.known[tid]
	if known && (found.due.IsZero() || now.Before(found.due)) {
		return found.name, false
	}
	if !known && len(n.known) >= maxThreadNames {
		clear(n.known)
		n.tids = n.tids[:0]
	}
	n.known[tid] = threadName{name: found.name}
	n.tids = append(n.tids, tid)
	return found.name, true
}

// read reads the names that were asked for, and calls named with each. A thread that has ended
// keeps its name: samples of it may still come.
func (n *threadNames) read(read func(tid int) (string, error), named func(tid int, name string)) {
	n.mu.Lock()
	tids := n.tids
	n.tids = nil
	n.mu.Unlock()
	for _, tid := range tids {
		name, err := read(tid)
		if err == nil {
			named(tid, name)
		}
		n.mu.Lock()
		if entry, known := n.known[tid]; known {
			if err == nil {
				entry.name = name
			}
			entry.due = time.Now().Add(nameAge)
			n.known[tid] = entry
		}
		n.mu.Unlock()
	}
}

// readNames reads the names of threads of which there were samples. It blocks like probe.
func (p *Program) readNames() { p.names.read(p.memory.handle.ThreadName, p.sink.ThreadNamed) }
