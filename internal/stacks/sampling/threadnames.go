package sampling

import (
	"sync"
	"time"
)

const (
	// maxThreadNames is how many names are kept of a program: more than have threads that do something
	// in the same minute. They take 25 KB; when there are more, some are read again.
	maxThreadNames = 256

	// maxUnread is how many names may wait to be read: those of more threads than run between two
	// drains, but for a process that hangs.
	maxUnread = 4096

	// nameAge is how long a name is taken to be right: pools rename their threads now and then, and
	// a tid comes to be another thread's.
	nameAge = time.Minute
)

// threadNames is the names of a program's threads, for accounts: samples and waits have theirs from the
// kernel. An account gets the name that is known; the goroutine of the process reads those that are not.
// So the first accounts of a thread have no name.
type threadNames struct {
	mu     sync.Mutex
	known  map[int]threadName
	unread map[int]struct{} // whose names are to be read
	tids   []int            // those of unread that read has not taken, in the order of the requests
}

type threadName struct {
	name string
	due  time.Time // when to read it again
}

func newThreadNames() *threadNames {
	return &threadNames{known: make(map[int]threadName), unread: make(map[int]struct{})}
}

// get returns the name, "" as long as it is not known, and whether read must be called. It does not
// block.
func (n *threadNames) get(tid int, now time.Time) (name string, read bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, known := n.known[tid]
	if known && now.Before(found.due) {
		return found.name, false
	}
	if _, waiting := n.unread[tid]; waiting || len(n.unread) >= maxUnread {
		return found.name, false
	}
	n.unread[tid] = struct{}{}
	n.tids = append(n.tids, tid)
	return found.name, true
}

// read reads the names that were asked for, and calls named with each. A thread that has ended
// keeps its name: accounts of it may still come.
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
		n.store(tid, name, err)
	}
}

// store stores what reading a name ended with: with an error it stays as it was.
func (n *threadNames) store(tid int, name string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.unread, tid)
	entry, known := n.known[tid]
	if !known && len(n.known) >= maxThreadNames {
		for other := range n.known { // any: which of them runs next is not known
			delete(n.known, other)
			break
		}
	}
	if err == nil {
		entry.name = name
	}
	entry.due = time.Now().Add(nameAge)
	n.known[tid] = entry
}

// readNames reads the names of threads with accounts. It blocks like probe.
func (p *program) readNames() { p.names.read(p.memory.handle.ThreadName, p.sink.ThreadNamed) }
