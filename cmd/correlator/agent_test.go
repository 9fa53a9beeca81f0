package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/lab/testenv"
	"correlator/internal/operate/admin"
)

// deadline bounds every wait: far more than is needed on a machine that is busy with other tests.
const deadline = 60 * time.Second

// samplerProblem is why this machine does not let us take samples.
var samplerProblem = sync.OnceValue(func() error {
	sampler, err := bpf.OpenSampler(bpf.SamplerOptions{SamplesPerSecond: 1})
	if err != nil {
		return err
	}
	return sampler.Close()
})

// needSampler skips the test unless this machine lets us take samples.
func needSampler(t *testing.T) {
	t.Helper()
	testenv.NeedRoot(t)
	err := samplerProblem()
	if errors.Is(err, errors.ErrUnsupported) {
		testenv.Missing(t, err.Error())
	}
	assert.NilError(t, err)
}

// agentProcess is a running `correlator run`, which is killed at the end of the test.
type agentProcess struct {
	t       *testing.T
	command *exec.Cmd
	log     string // file
}

type logEntry struct {
	Level, Msg, Error   string
	Reason, Destination string
	Address             string
	PID                 int
	Items               uint64
	Counters            counters
}

// counters are those in the last line of the log, by name. A missing one is 0.
type counters map[string]uint64

// sum returns the sum of the counters whose names begin with prefix.
func (c counters) sum(prefix string) (sum uint64) {
	for name, n := range c {
		if strings.HasPrefix(name, prefix) {
			sum += n
		}
	}
	return sum
}

// startAgent starts the agent with a command like env or setpriv, which may be empty. It has no
// unwinding engine, which takes a second or more to start, unless flags say otherwise.
func startAgent(t *testing.T, by []string, flags ...string) *agentProcess {
	t.Helper()
	return startAgentOf(t, installed(t), by, flags...)
}

func startRaced(t *testing.T, by []string, flags ...string) *agentProcess {
	t.Helper()
	return startAgentOf(t, raced(t), by, flags...)
}

func startAgentOf(t *testing.T, binary string, by []string, flags ...string) *agentProcess {
	t.Helper()
	a := &agentProcess{t: t, log: filepath.Join(t.TempDir(), "log")}
	log, err := os.Create(a.log)
	assert.NilError(t, err)
	defer log.Close()
	argv := slices.Concat(by, []string{binary, "run", "--log-format", "json", "--scan-interval", "50ms",
		"--unwinder", "frame-pointers"}, flags)
	a.command = exec.Command(argv[0], argv[1:]...)
	a.command.Stderr = log
	assert.NilError(t, a.command.Start())
	t.Cleanup(func() {
		if a.command.ProcessState == nil {
			a.command.Process.Kill()
			a.command.Wait()
		}
		if text, err := os.ReadFile(a.log); t.Failed() && err == nil {
			fmt.Fprintf(os.Stderr, "the agent logged\n%s", text) // the last line of the test's says why it failed
		}
	})
	return a
}

func (a *agentProcess) entries() (entries []logEntry) {
	a.t.Helper()
	text, err := os.ReadFile(a.log)
	assert.NilError(a.t, err)
	lines := bytes.Split(text, []byte("\n"))
	for _, line := range lines[:len(lines)-1] { // what follows the last newline is still being written
		var entry logEntry
		assert.NilError(a.t, json.Unmarshal(line, &entry), "the agent logs %q", line)
		entries = append(entries, entry)
	}
	return entries
}

func (a *agentProcess) logged(message string) []logEntry {
	a.t.Helper()
	return slices.DeleteFunc(a.entries(), func(e logEntry) bool { return e.Msg != message })
}

// registered waits until the agent has registered with a process.
func (a *agentProcess) registered(pid int) {
	a.t.Helper()
	testenv.Poll(a.t, deadline, fmt.Sprintf("registration with process %d", pid), func() bool {
		return slices.ContainsFunc(a.logged("registered"), func(e logEntry) bool { return e.PID == pid })
	})
}

func statusAt(t *testing.T, socket string) admin.Status {
	t.Helper()
	status, err := admin.NewClient(socket).Status(t.Context())
	assert.NilError(t, err)
	return status
}

// end terminates the agent, checks that it succeeds, and returns its counters.
func (a *agentProcess) end() counters {
	a.t.Helper()
	assert.NilError(a.t, a.command.Process.Signal(syscall.SIGTERM))
	err := a.command.Wait()
	assert.Check(a.t, err, "the agent ended with %v", err)
	entries := a.entries()
	last := entries[len(entries)-1]
	assert.Assert(a.t, last.Msg == "correlator ends", "the last line of the log is %+v", last)
	return last.Counters
}

// addUp checks that each sample has one outcome, whoever took it.
func (c counters) addUp(t *testing.T) {
	t.Helper()
	handedOver := c["kernel_correlated"] + c["kernel_table_full"] + c["kernel_unreadable"]
	outcomes := c.sum("sampled_")
	assert.Check(t, outcomes == handedOver, "the kernel handed over %d samples, %d outcomes", handedOver, outcomes)
	outcomes = c.sum("fed_")
	assert.Check(t, outcomes == c["samples_fed"], "%d samples fed, %d outcomes", c["samples_fed"], outcomes)
	queued := c["sampled_correlated"] + c["fed_correlated"]
	sent, dropped := c["samples_sent"], c.sum("samples_dropped_")
	assert.Check(t, queued == sent+dropped, "%d samples queued, %d sent and %d dropped", queued, sent, dropped)
	troubles := c["sampling_troubles"] + c["looks_failed"]
	assert.Check(t, troubles == 0, "sampling was in trouble %d times", troubles)
}
