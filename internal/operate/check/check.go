// Package check probes what the machine, and the privileges and limits of this process, allow `run`
// to do.
//
// Each check is one requirement. What can be tried is tried: a kernel feature is available if it
// works, whatever the version of the kernel is. The checks close what they open, and neither write,
// pin nor bind anything; they connect to OTLP destinations only on request. The flags of `run`
// determine which checks there are, and which of them it cannot start without.
//
// probes.go is the table of checks, which have a file for each subject. machine.go has what several of
// them use.
package check

import (
	"slices"
	"strings"

	"correlator/internal/out/agent"
	"correlator/internal/out/export"
)

// Status is how far a requirement is met.
type Status string

const (
	// OK: it is met, or nothing is lost without it.
	OK Status = "ok"
	// Degraded: it is met in part, or whether it is met is unknown.
	Degraded Status = "degraded"
	// Missing: it is not met.
	Missing Status = "missing"
)

// Result is the outcome of one check. Its JSON is an interface: names, groups and statuses keep
// their meaning from version to version. The other texts are for people.
type Result struct {
	Name     string `json:"name"` // unique
	Group    string `json:"group"`
	Required bool   `json:"required"`
	Status   Status `json:"status"`
	Detail   string `json:"detail"`           // what was found
	Loss     string `json:"loss,omitempty"`   // what `run` does not do because of it; empty with OK
	Remedy   string `json:"remedy,omitempty"` // what to do about it; empty with OK
}

// finding is the outcome of a probe's run.
type finding struct {
	status               Status
	detail, loss, remedy string
}

func ok(detail string) finding { return finding{status: OK, detail: detail} }

// Groups, in the order in which they are shown.
const (
	groupNamespaces   = "namespaces"
	groupCapabilities = "capabilities"
	groupKernel       = "kernel"
	groupSettings     = "settings"
	groupSecurity     = "security"
	groupLimits       = "limits"
	groupProcesses    = "processes"
	groupPaths        = "paths"
	groupOTLP         = "otlp"
)

// Losses that several requirements have in common.
const (
	lossSampler    = "no samples: the sampler is not loaded"
	lossFed        = "samples that are fed without their trace are not used"
	lossCallers    = "stacks that are walked by frame pointers lack callers"
	lossInKernel   = "threads are not sampled while they are in the kernel, as in system calls"
	lossWaits      = "neither explain nor the live view says what threads wait for"
	lossWaitStacks = "neither explain nor the live view says where threads wait"
	lossUnwound    = "stacks are walked by frame pointers: those of a JVM without -XX:+PreserveFramePointer are cut"
	lossNames      = "functions of some runtimes may have no names"
	lossLive       = "no live events: new processes are found by sweeps alone, at most 5 s apart"
	lossOthers     = "processes of other users are not served"
	lossRights     = "processes of other users, or with more privileges, are not served"
	lossDeleted    = "processes whose library was deleted are not served"
	lossSender     = "a receiver with CAP_SYS_PTRACE in the initial user namespace can take the agent's descriptors"
	lossSymbols    = "stacks have no kernel frames"
	lossOutside    = "processes outside of this namespace are not served"
	lossUnproved   = "it is unknown whether all processes can be served"
)

// Config is the configuration of `run`.
type Config struct {
	agent.Config
	AdminSocket      string // path; empty: none
	NeedsAdminSocket bool   // `run` does not start without it
	MetricsAddress   string // host:port; empty: none
	Export           export.Config
	LiveListen       []string // URIs
	Connect          bool     // connect to the OTLP destinations
	Version          string   // of the correlator, as destinations see it
}

// notReady continues a loss because of which the agent sees only a part of the host.
func (c *Config) notReady() string {
	if c.AcceptPartialView {
		return ""
	}
	return ", and run is not ready (/readyz) without --accept-partial-view"
}

// Run checks everything that `run` with this configuration, which must be valid, needs. It takes a
// fraction of a second, some seconds where a thousand processes take part, and takes samples for part
// of that time if `run` would. With Connect it takes at most the timeout of the slowest destination in
// addition.
func Run(config Config) []Result {
	m := newMachine(config)
	var results []Result
	for _, p := range probesFor(&config) {
		f := p.run(m)
		results = append(results, Result{
			Name: p.name, Group: p.group, Required: p.required != nil && p.required(&config),
			Status: f.status, Detail: f.detail, Loss: f.loss, Remedy: f.remedy,
		})
	}
	return results
}

// Works reports whether `run` would start.
func Works(results []Result) bool { return !slices.ContainsFunc(results, Result.prevents) }

func (r Result) prevents() bool { return r.Required && r.Status == Missing }

// Verdict returns a sentence that says what `run` would do.
func Verdict(results []Result) string {
	var missing, losses []string
	for _, r := range results {
		if r.prevents() {
			missing = append(missing, r.Name)
		}
		if r.Status != OK && !slices.Contains(losses, r.Loss) {
			losses = append(losses, r.Loss)
		}
	}
	switch {
	case len(missing) > 0:
		return "run could not work: missing " + strings.Join(missing, ", ")
	case len(losses) > 0:
		return "run would work, but: " + strings.Join(losses, "; ")
	}
	return "run would work"
}
