package agent

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"correlator/internal/attach/process"
	"correlator/procscan"
	"correlator/procscan/javaagent"
)

const (
	// agentNotLoadedInterval is the time between two checks of all JVMs. Somebody who has started one waits
	// that long for the reason. A check of a thousand processes takes a few milliseconds.
	agentNotLoadedInterval = time.Minute

	// maxNotLoadedLogged is how many pids a log line has.
	maxNotLoadedLogged = 16
)

// watchAgentNotLoaded checks, until ctx ends, which JVMs have an agent that has not loaded its library.
func (a *Agent) watchAgentNotLoaded(ctx context.Context) {
	scanner, err := procscan.NewScanner(a.config.ProcRoot)
	if err != nil { // the manager has one of its own, so this is want of descriptors
		a.log.Warn("agents that have not loaded their library are not looked for", zap.Error(err))
		return
	}
	search := process.NewSilentSearch(scanner, a.access, a.config.ProcRoot, a.config.Filter)
	ticker := time.NewTicker(agentNotLoadedInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		a.findAgentNotLoaded(ctx, search)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (a *Agent) findAgentNotLoaded(ctx context.Context, search *process.SilentSearch) {
	look, err := search.Look(ctx)
	a.counters.JVMLooks.Add(uint64(look.Looks))
	a.counters.JVMLooksMissed.Add(uint64(look.Missed))
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		a.log.Warn("looking for JVMs ended early", zap.Error(err))
	}
	before := a.agentNotLoaded.Swap(&look.Views)
	a.logAgentNotLoaded(before, look.Views)
}

// logAgentNotLoaded logs those that are new, together: there may be many.
func (a *Agent) logAgentNotLoaded(before *[]process.View, found []process.View) {
	known := make(map[procscan.ProcessID]bool)
	if before != nil {
		for _, view := range *before {
			known[view.ID] = view.Reason != string(javaagent.Starting)
		}
	}
	var pids []int
	reasons := make(map[string]int)
	for _, view := range found {
		if !known[view.ID] && view.Reason != string(javaagent.Starting) {
			reasons[view.Reason]++
			pids = append(pids, view.PID)
		}
	}
	if len(pids) > 0 {
		a.log.Info("JVMs have an APM agent that has not loaded its native library; \"correlator status\" says what to do",
			zap.Int("jvms", len(pids)), zap.Ints("pids", pids[:min(len(pids), maxNotLoadedLogged)]),
			zap.Any("likely_reasons", reasons))
	}
}

// agentNotLoadedViews returns the JVMs that were found and still take no part, by pid.
func (a *Agent) agentNotLoadedViews() []process.View {
	views := []process.View{}
	if found := a.agentNotLoaded.Load(); found != nil {
		views = slices.Clone(*found)
	}
	return slices.DeleteFunc(views, func(v process.View) bool { return a.registrations.Find(v.PID) != nil })
}
