package check

import (
	"context"
	"fmt"
	"strings"

	"correlator/internal/operate/inspect"
)

// maxRemarks is how many lines about runtimes a finding has.
const maxRemarks = 4

// probeRuntimes examines the processes that take part, as `scan` does.
func (m *machine) probeRuntimes() ([]inspect.Process, error) {
	processes, _, err := inspect.Scan(context.Background(), m.config.ProcRoot, m.config.Filter)
	if len(processes) > 0 {
		err = nil // of those that could not be read: see process-memory
	}
	return processes, err
}

// runtimes checks whether the unwinding engine can read the runtimes of the processes that take part now.
func runtimes(m *machine) finding {
	processes, err := m.runtimes()
	if err != nil {
		return m.unknown(err, lossNames, "see process-memory")
	}
	examined, with := 0, 0 // processes, and those of which there is something to say
	for _, p := range processes {
		if p.Unwinding != nil {
			examined++
			with += min(1, len(p.Unwinding.Remarks()))
		}
	}
	if with == 0 {
		return ok(fmt.Sprintf("read in all of %d processes that take part now", examined))
	}
	lines := inspect.Remarks(processes)
	if more := len(lines) - maxRemarks; more > 0 {
		lines = append(lines[:maxRemarks], fmt.Sprintf("and %d more", more))
	}
	detail := fmt.Sprintf("not read, or not for certain, in %d of %d processes that take part now: ", with, examined)
	return finding{Degraded, detail + strings.Join(lines, "; "), lossNames,
		"see correlator scan, and docs/stacks.md for versions that can be read"}
}
