package lifecycle

import (
	"correlator/internal/host/share"
	"correlator/internal/worker"
	"correlator/procscan"
)

// refusals are the processes that were refused, or had to give way, and live: they are counted, and come in again
// only when there is room for them. Each is remembered until it executes another program. The admission's mutex
// guards them.
type refusals struct {
	byPID      map[int]*refusal
	shares     *share.Budget[worker.User] // a user's flood does not have those of others forgotten
	publishing int                        // publishers
}

type refusal struct {
	id    procscan.ProcessID
	class class
	user  worker.User
	seen  bool // since the last sweep
}

// remember records that a process was refused as one of a class.
func (r *refusals) remember(p *Process, class class) {
	r.forget(p.id.PID)
	if !r.shares.Take(p.claim.user, 1) {
		return
	}
	r.byPID[p.id.PID] = &refusal{id: p.id, class: class, user: p.claim.user, seen: true}
	if class == classPublisher {
		r.publishing++
	}
}

// forget undoes remember.
func (r *refusals) forget(pid int) {
	known := r.byPID[pid]
	if known == nil {
		return
	}
	delete(r.byPID, pid)
	r.shares.Give(known.user, 1)
	if known.class == classPublisher {
		r.publishing--
	}
}

// refusal returns what is remembered of a process, or nil.
func (r *refusals) refusal(id procscan.ProcessID) *refusal {
	if known := r.byPID[id.PID]; known != nil && known.id == id {
		return known
	}
	return nil
}

// found reports whether a process that was found may come in, and if not, as what it was refused before.
func (a *admission) found(id procscan.ProcessID) (before class, admitted bool) {
	return a.mayEnter(id.PID, func(r *refusal) bool { return r.id == id })
}

// skips reports whether a sweep need not look at what has a pid: it was refused, and may not come back yet. That it
// is another process by now, or has executed another program, live events report. Those that publish are counted
// each time.
func (a *admission) skips(pid int) bool {
	_, may := a.mayEnter(pid, func(r *refusal) bool { return r.class != classPublisher })
	return !may
}

// saw records that a sweep has found what has a pid, which may be a process that had to give way and has not
// ended yet: as long as it hangs, sweeps take it for one that is served.
func (a *admission) saw(pid int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.byPID[pid]; r != nil {
		r.seen = true
	}
}

// replaced forgets that what has a pid was refused: it runs another program now, which was not.
func (a *admission) replaced(pid int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(pid)
}

// swept forgets those that a complete sweep has not found.
func (a *admission) swept() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for pid, r := range a.byPID {
		if !r.seen {
			a.forget(pid)
		}
		r.seen = false
	}
}

// WithoutPlace returns how many processes had to give way, or were not let in, and live: those that
// publish, and the others.
func (m *Manager) WithoutPlace() (publishing, others int) {
	a := &m.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.publishing, len(a.byPID) - a.publishing
}
