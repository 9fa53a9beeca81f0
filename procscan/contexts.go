package procscan

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// contextSweeps is the number of sweeps in which each process is probed once for a process context.
	// Such a probe queries all writable mappings: it costs as much as a search for the library, or
	// twice as much if there are many threads, each with a stack. An eighth leaves room for new
	// processes.
	contextSweeps = 8

	// newContextProbes is how many new processes a sweep probes, even if an eighth is less. They take
	// a millisecond or two.
	newContextProbes = 64
)

// contextTurns selects the processes that a sweep probes for a process context, among those that the
// sweep before did not find.
type contextTurns struct {
	turn   int
	listed map[int]struct{} // by pid: those of the last complete sweep that were not left to the next
}

// contextPlan is the selection of one sweep. It does not change.
type contextPlan struct {
	all    bool
	turn   int
	fresh  map[int]struct{} // by pid: new ones
	listed map[int]struct{} // what becomes contextTurns.listed
}

// plan plans a sweep of these processes. The text of maps has all mappings, so looking for contexts
// costs no more there.
func (t *contextTurns) plan(source Source, pids []int) contextPlan {
	plan := contextPlan{
		all: source == SourceText || t.listed == nil, turn: t.turn,
		fresh: make(map[int]struct{}), listed: make(map[int]struct{}, len(pids)),
	}
	room := max(newContextProbes, len(pids)/contextSweeps)
	for _, pid := range pids {
		if _, known := t.listed[pid]; !known && !plan.include(pid) {
			if len(plan.fresh) == room {
				continue
			}
			plan.fresh[pid] = struct{}{}
		}
		plan.listed[pid] = struct{}{}
	}
	return plan
}

// include reports whether the sweep probes a process.
func (p *contextPlan) include(pid int) bool {
	_, fresh := p.fresh[pid]
	return p.all || fresh || pid%contextSweeps == p.turn
}

// end is called after a complete sweep.
func (t *contextTurns) end(plan contextPlan) {
	t.listed, t.turn = plan.listed, (plan.turn+1)%contextSweeps
}

// LookForContext reports whether a process, which may have just published a process context, has one: then the
// caller should pass it to Process. The process makes it wait for a tenth of a second at most, and not at all while
// an earlier look hangs. It may be called at any time, by any goroutine.
func (s *Scanner) LookForContext(pid int) (found bool, err error) {
	r := s.watchdog.runWithin(s.watchdog.hurried, []int{pid}, func(pid int) (Found, error) {
		has, err := s.any(pid, processContexts)
		if err == nil && !has {
			err = ErrNotFound
		}
		return Found{}, err
	})
	if errors.Is(r.err, ErrNotFound) {
		return false, nil
	}
	return r.err == nil, r.err
}

// hurry has the watchdog look at processes, which may each take hurriedTimeout. look returns ErrNotFound
// of those with which nothing was wrong.
func (s *Scanner) hurry(pids []int, look func(pid int) (Found, error)) error {
	for len(pids) > 0 {
		r := s.watchdog.runWithin(s.watchdog.hurried, pids, look)
		pids = pids[r.probed:]
		if endsEarly(r.err) {
			return fmt.Errorf("probing process %d: %w", r.found.PID, r.err)
		}
	}
	return nil
}

// endsEarly reports whether an error is one of our own, and not of a process.
func endsEarly(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, errManyStuck)
}
