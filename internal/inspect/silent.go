package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"correlator/internal/access"
	"correlator/internal/process"
	"correlator/internal/worker"
	"correlator/procscan"
)

// findSilent returns the JVMs with an agent that has not loaded its library, and how many could not
// be looked at.
func findSilent(ctx context.Context, scanner *procscan.Scanner, client *access.Client, procRoot string,
	filter process.Filter) (views []process.View, missed int) {
	jvms, err := scanner.JVMs(-1)
	if err != nil {
		missed++
	}
	for _, id := range jvms {
		if ctx.Err() != nil {
			break
		}
		view, ok, err := process.Silent(client, procRoot, id, filter)
		if err != nil && !errors.Is(err, procscan.ErrGone) {
			missed++
		}
		if ok {
			views = append(views, view)
		}
	}
	return views, missed
}

// whyNotTarget returns errNotTarget of a process, with what is to be done if it has an agent that has
// not loaded its library.
func whyNotTarget(scanner *procscan.Scanner, procRoot string, pid int) error {
	jvms, _ := scanner.JVMs(-1)
	i := slices.IndexFunc(jvms, func(id procscan.ProcessID) bool { return id.PID == pid })
	if i < 0 {
		return errNotTarget
	}
	client, err := access.Open(procRoot, new(worker.Counters))
	if err != nil {
		return errNotTarget
	}
	defer client.Close()
	view, ok, err := process.Silent(client, procRoot, jvms[i], process.Filter{})
	if err != nil || !ok {
		return errNotTarget
	}
	return fmt.Errorf("%w: %s", errNotTarget, view.Agent.Advice())
}
