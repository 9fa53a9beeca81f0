package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// A JVM whose agent has not loaded its library has a row and a metric, and one that is left out by
// its container has none.
func TestSilent(t *testing.T) {
	testenv.NeedRoot(t)
	pid := demo.SilentJVM{Jar: "elastic-apm-agent-1.55.0.jar"}.Start(t)
	p := demo.Start(t, demo.Options{Idle: 1})
	r := run(t)
	r.state(p, process.StateRegistered, "")
	testenv.Poll(t, deadline, "the JVM", func() bool { return len(r.Status().Silent) > 0 })
	silent := r.Status().Silent
	assert.Check(t, len(silent) == 1 && silent[0].PID == pid && silent[0].StateText() == "silent (option_not_set)" &&
		silent[0].Agent != nil && silent[0].Agent.Version == "1.55.0",
		"%+v", silent)
	census := r.Census()
	assert.Check(t, len(census.Silent) == 1 && census.Silent["option_not_set"] == 1, "%+v", census.Silent)
	assert.Check(t, r.Counters().JVMLooks.Load() != 0, "no look was counted")

	excluding, err := process.ParsePatterns(".*")
	assert.NilError(t, err)
	filtered := run(t, func(c *Config) { c.Filter.ExcludeContainers = excluding })
	testenv.Poll(t, deadline, "a look", func() bool { return filtered.silent.Load() != nil })
	if silent := filtered.Status().Silent; len(silent) > 0 {
		t.Errorf("of an excluded container: %+v", silent)
	}
}

// New ones are logged together, once, when it is known why.
func TestLogSilent(t *testing.T) {
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
	first := views("starting", "noexec")
	a.logSilent(nil, first)
	a.logSilent(&first, first)
	second := views("musl", "noexec")
	a.logSilent(&first, second)
	a.logSilent(&second, second)
	var pids []string
	for _, entry := range log.All() {
		pids = append(pids, fmt.Sprint(entry.ContextMap()["pids"]))
		assert.Check(t, strings.Contains(entry.Message, "has not loaded its native library"), "%q", entry.Message)
	}
	assert.Check(t, slices.Equal(pids, []string{"[2]", "[1]"}), "logged %q", pids)
}
