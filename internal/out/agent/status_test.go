package agent

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// of is the status of one process.
func (r *running) of(p *demo.Process) (status ProcessStatus) {
	r.t.Helper()
	processes := r.Status().Processes
	i := slices.IndexFunc(processes, func(s ProcessStatus) bool { return s.PID == p.PID })
	if i < 0 {
		r.t.Fatalf("process %d has no status among %+v", p.PID, processes)
	}
	return processes[i]
}

// Every sample of a process is somewhere in its status.
func (s *ProcessStatus) sum() uint64 {
	sum := s.Sent + s.Queued + s.WithoutTrace + s.Late
	for _, samples := range s.Dropped {
		sum += samples
	}
	return sum
}

func TestStatus(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Service: "shop", Environment: "production"})
	other := demo.Start(t, demo.Options{Busy: 1})
	began := time.Now()
	r := run(t, atRate(997))
	p.Registration(1)
	r.served(p, 1, [16]byte{1})
	p.End(1)
	worked, rests := p.Begin(0).Thread.TID, p.Begin(1).Thread.TID
	p.End(1)
	// Those that a busy machine makes stale are fed again.
	testenv.Poll(t, deadline, "all kinds of samples", func() bool {
		s := r.of(p)
		if s.Sent >= 2 && s.WithoutTrace > 0 && s.Dropped[process.OutcomeNoThread.String()] > 0 {
			return true
		}
		r.sample(p.PID, worked, [16]byte{2})
		r.sample(p.PID, rests, [16]byte{3})
		r.sample(p.PID, 1<<30, [16]byte{4})
		return false
	})
	testenv.Poll(t, deadline, "the end of all samples",
		func() bool { s := r.of(p); return s.Samples >= r.Counters().FedSamples.Load() && s.Queued == 0 })
	r.state(other, process.StateRegistered, "")
	testenv.Poll(t, deadline, "samples of our own", func() bool { return r.of(other).Sent > 100 })
	s := r.of(p)
	assert.Check(t, s.ServiceName == "shop" && s.ServiceEnvironment == "production" &&
		s.State == process.StateRegistered && s.LastError == nil,
		"%+v", s)
	if s.RegisteredSince == nil || s.RegisteredSince.Before(began) || s.RegisteredSince.After(time.Now()) {
		t.Errorf("registered since %v", s.RegisteredSince)
	}
	if s.Samples != s.sum() {
		t.Errorf("%d samples, and the parts are %d: %+v", s.Samples, s.sum(), s)
	}
	status := r.Status()
	if status.NotReady != "" || status.Unhealthy != "" || !status.LiveEvents || status.SamplesPerSecond != 997 ||
		status.StartedAt.Before(began.Add(-time.Second)) || time.Duration(status.SamplesDelay) != 300*time.Millisecond {
		t.Errorf("%+v", status)
	}
	if status.Latency.P50 <= 0 || status.Latency.P50 > status.Latency.P99 || status.Latency.P99 > status.Latency.Max {
		t.Errorf("from sample to socket: %+v", status.Latency)
	}
	counted := make(map[string]uint64)
	r.Counters().Each(func(name string, n uint64) { counted[name] = n })
	assert.Check(t, slices.Equal(slices.Sorted(maps.Keys(counted)), slices.Sorted(maps.Keys(status.Counters))),
		"the status has other counters than there are")

	text, err := json.Marshal(status)
	assert.NilError(t, err)
	var back Status
	assert.NilError(t, json.Unmarshal(text, &back))
	again, err := json.Marshal(back)
	assert.Check(t, err == nil && string(again) == string(text), "%v: the JSON\n%s\ncame back as\n%s", err, text, again)
}

// What goes wrong with a process is in its status, also when it is over.
func TestStatusOfTrouble(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	p.Registration(1)
	p.Hostile("socket-fifo", "")
	s := ProcessStatus{}
	testenv.Poll(t, deadline, "an error", func() bool { s = r.of(p); return s.State == process.StateError })
	assert.Check(t, s.RegisteredSince == nil && s.LastError != nil && s.LastError.Reason == s.Reason &&
		s.LastError.Message != "" && s.LastError.Count != 0 && time.Since(s.LastError.At) <= deadline,
		"%+v, last error %+v", s, s.LastError)
	p.Publish()
	p.Registration(2)
	testenv.Poll(t, deadline, "the end of the error", func() bool { return r.of(p).State == process.StateRegistered })
	if after := r.of(p); after.LastError == nil || after.LastError.Message != s.LastError.Message ||
		after.RegisteredSince == nil {
		t.Errorf("afterwards: %+v", after)
	}
}

// What a process loses by not reading is in its own status.
func TestStatusOfLateSamples(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	r := run(t)
	p.Registration(1)
	context := p.Begin(1)
	signal(t, p, syscall.SIGSTOP)
	r.feedContext(p, context, 30)
	testenv.Poll(t, deadline, "samples to become late", func() bool {
		s := r.of(p)
		return s.Samples == 30 && s.Queued == 0
	})
	s := r.of(p)
	if s.Late == 0 || s.Late+s.Sent != 30 || s.sum() != 30 {
		t.Errorf("%+v", s)
	}
	signal(t, p, syscall.SIGCONT)
}

func TestReady(t *testing.T) {
	testenv.NeedRoot(t)
	r := runPrepared(t, func(a *Agent) {
		err := a.Ready()
		assert.Check(t, errors.Is(err, errStarting), "before the first sweep: %v", err)
		assert.Check(t, a.Health(), "before it runs")
	}, atRate(20))
	testenv.Poll(t, deadline, "the agent to be ready", func() bool { return r.Ready() == nil })
	testenv.Poll(t, deadline, "both loops to iterate", func() bool {
		return r.Counters().Sweeps.Load() > 1 && r.Counters().Sampling.Drains.Load() > 1 && r.Health() == nil
	})
	r.end()
	err := r.Ready()
	assert.Check(t, errors.Is(err, errEnding), "after the end: %v", err)
	got := r.Status().NotReady
	assert.Check(t, got == errEnding.Error(), "status: %q", got)
}

// A name of the largest size is whole in the status, and cut in the log.
func TestLongName(t *testing.T) {
	r := run(t)
	name := strings.Repeat("n", 8000) + strings.Repeat("m", 100)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	p.Registration(1)
	p.Republish(p.Socket, name)
	var view process.View
	testenv.Poll(t, deadline, "the name", func() bool {
		view = r.state(p, process.StateRegistered, "")
		return view.ServiceName != "demo"
	})
	assert.Check(t, view.ServiceName == name, "the status has a name of %d characters", len(view.ServiceName))
	want := name[:192] + "…[7844 characters cut]…" + name[len(name)-64:]
	testenv.Poll(t, deadline, "the log", func() bool { return r.logs.FilterField(zap.String("service", want)).Len() == 1 })
}
