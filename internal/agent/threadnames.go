package agent

import (
	"sync"
	"time"
)

const (
	// maxThreadNames is how many names are kept of a process: more than have threads that are busy in the same minute.
	// They take 25 KB; a process that has more of them has names anew.
	maxThreadNames = 256

	// nameAge is how long a thread is taken to be called what it was: pools rename theirs now and then, and a
	// number comes to be another thread's.
	nameAge = time.Minute
)

// threadNames is what the threads of a process are called. Whoever has a sample asks for the name, and gets what
// is known; the goroutine of the process reads what is not. So a thread's first samples have no name.
type threadNames struct {
	wanted chan struct{} // has a token when there are names to read

	mu    sync.Mutex
	known map[int]threadName
	tids  []int // whose names are to be read
}

type threadName struct {
	name string
	due  time.Time // when to read it again; zero: it is about to be
}

func newThreadNames() *threadNames {
	return &threadNames{wanted: make(chan struct{}, 1), known: make(map[int]threadName)}
}

// get returns the name, "" as long as it is not known. It does not block.
func (n *threadNames) get(tid int, now time.Time) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, known := n.known[tid]
	if known && (found.due.IsZero() || now.Before(found.due)) {
		return found.name
	}
	if !known && len(n.known) >= maxThreadNames {
		clear(n.known)
		n.tids = n.tids[:0]
	}
	n.known[tid] = threadName{name: found.name}
	n.tids = append(n.tids, tid)
	select {
	case n.wanted <- struct{}{}:
	default:
	}
	return found.name
}

// learn reads the names that were asked for. A thread that has ended keeps its name: samples of it may still come.
func (n *threadNames) learn(read func(tid int) (string, error)) {
	n.mu.Lock()
	tids := n.tids
	n.tids = nil
	n.mu.Unlock()
	for _, tid := range tids {
		name, err := read(tid)
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
