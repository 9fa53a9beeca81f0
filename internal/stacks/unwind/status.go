package unwind

import (
	"time"

	"correlator/internal/host/sorting"
)

// LossOfJava is what it means that the kernel refuses the program for Java's stacks as it is corrected.
const LossOfJava = "stacks of Java end after 116 frames, and where methods begin or end, callers may be missing or wrong"

// Status is the state of an Engine.
type Status struct {
	Failure      string `json:"failure,omitempty"` // why there is no worker
	Generation   uint64 `json:"generation"`        // how often all was synchronized anew
	Synchronized int    `json:"synchronized"`      // processes
	// WorkerRoot is why the worker is root's, which is to have a user of its own.
	WorkerRoot string `json:"worker_root,omitempty"`
	// JavaRefused is why Java's stacks are walked by a program that is not corrected, if so: see LossOfJava.
	JavaRefused string       `json:"java_refused,omitempty"`
	Unreaped    int          `json:"unreaped"`              // killed workers that have not ended
	Quarantined []Quarantine `json:"quarantined,omitempty"` // by pid
	// Runtimes are the kinds of language runtimes that processes have, besides JVMs, and why their frames
	// cannot be unwound, "" if they can.
	Runtimes map[string]string `json:"runtimes,omitempty"`
}

// Quarantine is a process that is left out.
type Quarantine struct {
	PID    int       `json:"pid"` // in our own pid namespace
	Reason string    `json:"reason"`
	Until  time.Time `json:"until"`
}

// Status returns a snapshot.
func (e *Engine) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Status{Generation: e.generation, Unreaped: e.blame.Hung()}
	if e.chain != nil {
		s.JavaRefused = e.chain.refused
	}
	for _, k := range e.known {
		if k.ready {
			s.Synchronized++
		}
	}
	for kind, err := range e.runtimes {
		if s.Runtimes == nil {
			s.Runtimes = make(map[string]string)
		}
		s.Runtimes[kind.name] = failureText(err)
	}
	if err := e.spawner.Root(); err != nil {
		s.WorkerRoot = err.Error()
	}
	switch {
	case e.broken != nil:
		s.Failure = e.broken.Error()
	case e.failure != nil:
		s.Failure = e.failure.Error()
	case e.serving == nil && s.Unreaped >= maxUnreaped:
		s.Failure = errUnreaped.Error()
	}
	now := time.Now()
	for _, q := range e.quarantined {
		if now.Before(q.until) {
			s.Quarantined = append(s.Quarantined, Quarantine{PID: q.pid, Reason: q.reason, Until: q.until})
		}
	}
	sorting.Sort(s.Quarantined, func(a, b Quarantine) int { return a.PID - b.PID })
	return s
}
