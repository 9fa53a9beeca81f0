package agent

import (
	"correlator/internal/attach/process"
	"correlator/internal/worker"
)

// Census is how many processes there are now, by state: what Status returns, summed up. It does not
// grow with what the processes do.
type Census struct {
	Processes map[process.State]int // those that take part, or would but for the filter
	InError   map[string]int        // of those in StateError, by the reason's name
	Publish   map[string]int        // those that publish, by the standard's name; one may by both
	Waiting   uint64                // samples that are queued

	Silent       map[string]int // JVMs whose agent has not loaded its library, by javaagent.Reason
	WithoutPlace WithoutPlace
	LiveEvents   bool // see Status
	Workers      worker.Stats
}

// WithoutPlace is how many processes live and are not probed because there are too many
// (--max-processes): what they published when they were probed last.
type WithoutPlace struct {
	Publishing int `json:"publishing"`
	Others     int `json:"others"` // published nothing, or are left out
}

func (a *Agent) withoutPlace() (w WithoutPlace) {
	w.Publishing, w.Others = a.manager.WithoutPlace()
	return w
}

// Census counts the processes. It holds the lock of the registry for no longer than it takes to
// copy it.
func (a *Agent) Census() Census {
	c := Census{
		Processes:    make(map[process.State]int),
		InError:      make(map[string]int),
		Publish:      make(map[string]int),
		Silent:       make(map[string]int),
		WithoutPlace: a.withoutPlace(),
		LiveEvents:   a.manager.LiveEvents(),
		Workers:      a.access.Stats(),
	}
	for _, view := range a.agentNotLoadedViews() {
		c.Silent[view.Reason]++
	}
	for _, r := range a.registrations.All() {
		stats := r.sender.Stats()
		c.Waiting += stats.Queued
		state, reason := r.process.State()
		for _, standard := range r.process.Contexts() {
			c.Publish[standard]++
		}
		if state = stateOf(state, &stats); state != "" {
			c.Processes[state]++
		}
		if state == process.StateError {
			c.InError[reason]++
		}
	}
	return c
}
