package agent

import "correlator/internal/process"

// Census is how many processes there are now and how they fare: what Status tells, summed up. It does not
// grow with what the processes do.
type Census struct {
	Processes map[process.State]int // those that take part, or would but for the filter
	InError   map[string]int        // of those in StateError, by the reason's name
	Waiting   uint64                // samples that are queued

	LiveEvents bool // see Status
}

// Census counts the processes. It holds the lock of the registry for no longer than it takes to copy it.
func (a *Agent) Census() Census {
	c := Census{
		Processes:  make(map[process.State]int),
		InError:    make(map[string]int),
		LiveEvents: a.discovery.live.Load(),
	}
	for _, p := range a.allProcesses() {
		stats := p.sender.Stats()
		c.Waiting += stats.Queued
		p.mu.Lock()
		state, reason := p.state(&p.shown.view, &stats)
		p.mu.Unlock()
		if state != "" {
			c.Processes[state]++
		}
		if state == process.StateError {
			c.InError[reason]++
		}
	}
	return c
}

func (a *Agent) allProcesses() []*servedProcess {
	a.mu.RLock()
	defer a.mu.RUnlock()
	processes := make([]*servedProcess, 0, len(a.processes))
	for _, p := range a.processes {
		processes = append(processes, p)
	}
	return processes
}
