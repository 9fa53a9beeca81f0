package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// sum is that of the parts: every sample of a process is somewhere in its status.
func (s *ProcessStatus) sum() uint64 {
	sum := s.Sent + s.Queued + s.WithoutTrace + s.Late
	for _, samples := range s.Dropped {
		sum += samples
	}
	return sum
}

// What is counted has the same names whatever the processes do, and what they are called by; the status
// has all of them, and its JSON is read back as it was written.
func TestStatus(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Service: "very-special", Environment: "odd"})
	sampled := demo.Start(t, demo.Options{Busy: 1})
	began := time.Now()
	r := run(t, atRate(997))
	names := func() (names []string) {
		r.Counters().Each(func(name string, _ uint64) { names = append(names, name) })
		return names
	}
	before := names()
	unique := slices.Compact(slices.Sorted(slices.Values(before)))
	assert.Check(t, len(unique) == len(before) && unique[0] != "", "%d counters, %d names", len(before), len(unique))
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
	p.End(1)
	worked, rests := p.Begin(0).Thread.TID, p.Begin(1).Thread.TID
	p.End(1)
	r.comesTo(p.PID, worked, process.OutcomeCorrelated)
	r.comesTo(p.PID, rests, process.OutcomeNoTrace)
	r.comesTo(p.PID, 1<<30, process.OutcomeNoThread)
	testenv.Poll(t, deadline, "the end of all samples", func() bool {
		s := r.statusOf(p)
		return s.Samples >= r.Counters().FeedSamples.Load() && s.Queued == 0
	})
	testenv.Poll(t, deadline, "samples of our own", func() bool { return r.statusOf(sampled).Sent > 100 })
	s := r.statusOf(p)
	assert.Check(t, s.ServiceName == "very-special" && s.ServiceEnvironment == "odd" &&
		s.State == process.StateRegistered && s.LastError == nil, "%+v", s)
	assert.Check(t, s.WithoutTrace == 1 && s.Dropped[process.OutcomeNoThread.String()] == 1, "%+v", s)
	assert.Check(t, s.RegisteredSince != nil && s.RegisteredSince.After(began) && s.RegisteredSince.Before(time.Now()))
	assert.Check(t, s.Samples == s.sum(), "%d samples, and the parts are %d: %+v", s.Samples, s.sum(), s)
	status := r.Status()
	assert.Check(t, status.NotReady == "" && status.Unhealthy == "" && status.LiveEvents &&
		status.SamplesPerSecond == 997 && status.StartedAt.After(began) &&
		time.Duration(status.SamplesDelay) == 300*time.Millisecond, "%+v", status)
	l := status.Latency
	assert.Check(t, l.P50 > 0 && l.P50 <= l.P99 && l.P99 <= l.Max, "from sample to socket: %+v", l)
	assert.Check(t, slices.Equal(slices.Sorted(maps.Keys(status.Counters)), unique), "other counters than there are")
	text, err := json.Marshal(status)
	assert.NilError(t, err)
	var back Status
	assert.NilError(t, json.Unmarshal(text, &back))
	again, err := json.Marshal(back)
	assert.Check(t, err == nil && string(again) == string(text), "%v: the JSON\n%s\ncame back as\n%s", err, text, again)

	// What goes wrong with a process is in its status, also when it is over.
	p.Hostile("socket-fifo", "")
	testenv.Poll(t, deadline, "an error", func() bool { s = r.statusOf(p); return s.State == process.StateError })
	e := s.LastError
	assert.Check(t, s.RegisteredSince == nil && e != nil && e.Reason == s.Reason && e.Message != "" && e.Count > 0 &&
		e.At.After(began), "%+v, last error %+v", s, e)
	p.Publish()
	p.Registration(2)
	r.state(p, process.StateRegistered, "")
	after := r.statusOf(p)
	assert.Check(t, after.LastError != nil && after.LastError.Message == e.Message && after.RegisteredSince != nil,
		"afterwards: %+v", after)
	p.Quit()
	r.gone(p)
	r.end()
	r.added()
	assert.Check(t, slices.Equal(before, names()), "the counters have other names now")
}

func TestReady(t *testing.T) {
	r := open(t, nil, atRate(20))
	assert.ErrorIs(t, r.Ready(), errStarting)
	assert.NilError(t, r.Health())
	r.start()
	testenv.Poll(t, deadline, "the agent to be ready", func() bool { return r.Ready() == nil })
	testenv.Poll(t, deadline, "both loops to iterate", func() bool {
		return r.Counters().Sweeps.Load() > 1 && r.Counters().Sampling.Drains.Load() > 1 && r.Health() == nil
	})
	r.end()
	assert.Check(t, errors.Is(r.Ready(), errEnding) && r.Status().NotReady == errEnding.Error(), "after the end")
}

// The census is what the list of processes adds up to. Registered processes that are not sampled are
// counted by what prevents it now, if samples are taken.
func TestCensus(t *testing.T) {
	registered, unread := demo.Start(t, idle), demo.Start(t, demo.Options{Manual: true, Idle: 1, NeverRead: true})
	silent := demo.Start(t, demo.Options{Hold: true})
	silent.Load()
	spoilt := demo.Start(t, demo.Options{Manual: true, Untouched: 1}) // nothing uses the words that are spoilt
	spoilDescriptor(t, spoilt)
	hanging, broken := demo.Start(t, demo.Options{Idle: 1}), demo.Start(t, demo.Options{Idle: 1})
	hanging.Hostile("storage-hangs", "")
	broken.Hostile("storage-length", "")
	for perSecond, want := range map[int]map[string]int{0: {}, 20: {process.ReasonTLS.String(): 1}} {
		r := run(t, patient, atRate(perSecond))
		r.state(registered, process.StateRegistered, "")
		r.state(spoilt, process.StateRegistered, "")
		r.state(silent, process.StateNoStorage, "")
		testenv.Poll(t, deadline, "the process to be counted", func() bool { return maps.Equal(r.NotSampled(), want) })
		if perSecond == 0 {
			r.state(hanging, process.StateError, process.ReasonTimeout.String())
			r.state(broken, process.StateError, process.ReasonStorageTooLong.String())
			testenv.Poll(t, deadline, "a connection", func() bool { return r.registration(unread).connected.Load() })
			r.feedContext(unread, unread.Begin(1), 100) // more messages than its socket has room for
			r.addsUp()
			hanging.Kill()
		}
		r.StopNow()
		r.end()
	}
}

// addsUp waits for a census that is what the list of processes adds up to, with samples that wait.
func (r *running) addsUp() {
	r.t.Helper()
	testenv.Poll(r.t, deadline, "a census that adds up, with samples that wait", func() bool {
		states, reasons, queued := make(map[process.State]int), make(map[string]int), uint64(0)
		for _, p := range r.processStatuses() {
			states[p.State]++
			queued += p.Queued
			if p.State == process.StateError {
				reasons[p.Reason]++
			}
		}
		c := r.Census()
		return maps.Equal(c.Processes, states) && maps.Equal(c.InError, reasons) && c.Waiting == queued && queued > 0 &&
			c.LiveEvents && len(reasons) >= 2 && len(states) >= 3
	})
}

// A JVM whose agent has not loaded its library has a row and a metric, and one that is left out by
// its container has none.
func TestAgentNotLoaded(t *testing.T) {
	testenv.NeedRoot(t)
	pid := demo.SilentJVM{Jar: "elastic-apm-agent-1.55.0.jar"}.Start(t)
	r := run(t)
	testenv.Poll(t, deadline, "the JVM", func() bool { return len(r.Status().Silent) > 0 })
	silent := r.Status().Silent
	assert.Check(t, len(silent) == 1 && silent[0].PID == pid && silent[0].StateText() == "silent (option_not_set)" &&
		silent[0].Agent != nil && silent[0].Agent.Version == "1.55.0", "%+v", silent)
	census := r.Census()
	assert.Check(t, maps.Equal(census.Silent, map[string]int{"option_not_set": 1}), "%+v", census.Silent)
	assert.Check(t, r.Counters().JVMLooks.Load() > 0, "no check was counted")

	filtered := run(t, func(c *Config) { c.Filter.ExcludeContainers = patterns(t, ".*") })
	testenv.Poll(t, deadline, "a check", func() bool { return filtered.agentNotLoaded.Load() != nil })
	silent = filtered.Status().Silent
	assert.Check(t, len(silent) == 0, "of an excluded container: %+v", silent)
}

// New ones are logged together, once, when it is known why.
func TestLogAgentNotLoaded(t *testing.T) {
	core, log := observer.New(zapcore.InfoLevel)
	a := &Agent{log: zap.New(core)}
	views := func(reasons ...string) (views []process.View) {
		for i, reason := range reasons {
			view := process.View{PID: i + 1, Reason: reason}
			view.ID.PID = i + 1
			views = append(views, view)
		}
		return views
	}
	first, second := views("starting", "noexec"), views("musl", "noexec")
	a.logAgentNotLoaded(nil, first)
	a.logAgentNotLoaded(&first, first)
	a.logAgentNotLoaded(&first, second)
	a.logAgentNotLoaded(&second, second)
	var pids []string
	for _, entry := range log.All() {
		pids = append(pids, fmt.Sprint(entry.ContextMap()["pids"]))
		assert.Check(t, strings.Contains(entry.Message, "has not loaded its native library"), "%q", entry.Message)
	}
	assert.DeepEqual(t, pids, []string{"[2]", "[1]"})
}
