// Package check says what this machine, and the rights and limits of this process, allow `run` to do.
//
// A check is one requirement. What can be tried is tried: a feature of the kernel is there when it works,
// whatever the version says. What the checks open they close again, and nothing is written, pinned or
// bound. Nor is a connection made, unless that is asked for. Which checks there are, and which of them `run` cannot
// start without, follows from its flags.
//
// There is a file for each subject: namespaces.go, capabilities.go, kernel.go, settings.go (sysctl),
// security.go, limits.go, paths.go (of flags), otlp.go.
package check

import (
	"slices"
	"strings"

	"correlator/internal/agent"
	"correlator/internal/export"
)

// Status is what became of a requirement.
type Status string

const (
	// OK: it is there, or nothing is lost without it.
	OK Status = "ok"
	// Degraded: it is there in part, or cannot be found out.
	Degraded Status = "degraded"
	// Missing: it is not there.
	Missing Status = "missing"
)

// Result is the answer to one requirement. As JSON it is an interface: names, groups and statuses keep
// their meaning; the other texts are for people.
type Result struct {
	Name     string `json:"name"`  // unique
	Group    string `json:"group"` // of requirements
	Required bool   `json:"required"`
	Status   Status `json:"status"`
	Detail   string `json:"detail"`           // what was found
	Loss     string `json:"loss,omitempty"`   // what `run` does not do because of it, unless it is OK
	Remedy   string `json:"remedy,omitempty"` // an imperative, unless it is OK
}

// check is one requirement.
type check struct {
	name, group string
	required    bool // `run` with these flags does not start without
	run         func(*machine) finding
}

// finding is what a check finds.
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
	groupPaths        = "paths"
	groupOTLP         = "otlp"
)

// Config is what `run` is told.
type Config struct {
	agent.Config
	AdminSocket      string // path; empty: none
	NeedsAdminSocket bool   // it was asked for: `run` does not start without
	MetricsAddress   string // host:port; empty: none
	Export           export.Config
	Connect          bool   // connections are made to the destinations
	Version          string // ours, as they see it
}

// Run checks all that `run` with this configuration, which must be valid, needs. It takes a fraction of
// a second, and takes samples for a part of that if `run` would. To connect may take as long as the destinations'
// timeouts.
func Run(config Config) []Result {
	m := newMachine(config)
	var results []Result
	for _, c := range checks(needsOf(config)) {
		f := c.run(m)
		results = append(results, Result{
			Name: c.name, Group: c.group, Required: c.required,
			Status: f.status, Detail: f.detail, Loss: f.loss, Remedy: f.remedy,
		})
	}
	return results
}

func checks(n needs) []check {
	return slices.Concat(
		namespaceChecks(n), capabilityChecks(n), kernelChecks(n), settingChecks(n), securityChecks(n),
		limitChecks(n), pathChecks(n), otlpChecks(n),
	)
}

// Works says whether `run` would start.
func Works(results []Result) bool { return !slices.ContainsFunc(results, Result.prevents) }

func (r Result) prevents() bool { return r.Required && r.Status == Missing }

// Verdict says in a sentence what `run` would do.
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

const (
	lossSampler  = "no samples: the sampler is not loaded"
	lossFed      = "samples that are fed without their trace are not used"
	lossLive     = "no live events: new processes are found by sweeps alone, at most 5 s apart"
	lossOthers   = "processes of other users are not served"
	lossRights   = "processes of other users, or with more rights, are not served"
	lossDeleted  = "processes whose library was deleted are not served"
	lossSymbols  = "stacks have no kernel frames"
	lossOutside  = "processes outside of this namespace are not served"
	lossUnproved = "it is not known whether all processes can be served"
)
