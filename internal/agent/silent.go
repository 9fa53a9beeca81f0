package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"correlator/internal/javaagent"
	"correlator/internal/process"
	"correlator/procscan"
)

const (
	// silentInterval is the time between two looks for JVMs with a silent agent. Somebody who has
	// started one waits that long for the reason. A look at a thousand processes takes a few
	// milliseconds.
	silentInterval = time.Minute

	// maxSilent is how many are kept, which `status` shows, and maxSilentLooks how many JVMs are looked
	// at each time. A host has tens; a process that calls itself java can be anything.
	maxSilent      = 256
	maxSilentLooks = 1024

	// maxSilentLogged is how many pids a log line has.
	maxSilentLogged = 16
)

// watchSilent looks for JVMs with a silent agent until ctx ends.
func (a *Agent) watchSilent(ctx context.Context) {
	scanner, err := procscan.NewScanner(a.config.ProcRoot)
	if err != nil { // the manager has one of its own, so this is want of descriptors
		a.log.Warn("agents that have not loaded their library are not looked for", zap.Error(err))
		return
	}
	ticker := time.NewTicker(silentInterval)
	defer ticker.Stop()
	for turn := 0; ctx.Err() == nil; turn++ {
		a.lookForSilent(ctx, scanner, turn)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// lookForSilent looks once. The first turn, 0, is at all processes.
func (a *Agent) lookForSilent(ctx context.Context, scanner *procscan.Scanner, turn int) {
	if turn == 0 {
		turn = -1
	}
	jvms, err := scanner.JVMs(turn)
	if err != nil {
		a.log.Warn("looking for JVMs ended early", zap.Error(err))
	}
	if missed := len(jvms) - maxSilentLooks; missed > 0 {
		a.counters.JVMLooksMissed.Add(uint64(missed))
		jvms = jvms[:maxSilentLooks]
	}
	found := []process.View{}
	for _, id := range jvms {
		if ctx.Err() != nil {
			return
		}
		view, ok, err := process.Silent(a.access, a.config.ProcRoot, id, a.config.Filter)
		a.counters.JVMLooks.Add(1)
		switch {
		case err != nil && !errors.Is(err, procscan.ErrGone):
			a.counters.JVMLooksMissed.Add(1)
		case ok && len(found) == maxSilent:
			a.counters.JVMLooksMissed.Add(1)
		case ok:
			found = append(found, view)
		}
	}
	before := a.silent.Swap(&found)
	a.logSilent(before, found)
}

// logSilent logs those that are new, together: there may be many.
func (a *Agent) logSilent(before *[]process.View, found []process.View) {
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
			zap.Int("jvms", len(pids)), zap.Ints("pids", pids[:min(len(pids), maxSilentLogged)]),
			zap.Any("likely_reasons", reasons))
	}
}

// silentViews returns the JVMs with a silent agent that take no part by now, by pid.
func (a *Agent) silentViews() []process.View {
	views := []process.View{}
	if found := a.silent.Load(); found != nil {
		views = slices.Clone(*found)
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.DeleteFunc(views, func(v process.View) bool { return a.registrations[v.PID] != nil })
}
