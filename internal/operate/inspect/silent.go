package inspect

import (
	"fmt"

	"correlator/internal/attach/process"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/procscan"
)

// whyNotTarget returns errNotTarget of a process, with what is to be done if it has an agent that has
// not loaded its library.
func whyNotTarget(scanner *procscan.Scanner, procRoot string, pid int) error {
	id, err := scanner.JVM(pid)
	if err != nil {
		return errNotTarget
	}
	client, err := access.Open(procRoot, new(worker.Counters))
	if err != nil {
		return errNotTarget
	}
	defer client.Close()
	view, ok, err := process.Silent(client, procRoot, id, process.Filter{})
	if err != nil || !ok {
		return errNotTarget
	}
	return fmt.Errorf("%w: %s", errNotTarget, view.Agent.Advice())
}
