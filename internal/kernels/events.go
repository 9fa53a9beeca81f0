package main

import (
	"encoding/json"
	"strings"
	"time"
)

// A step is a command that the guest runs, alone.
type step struct {
	Name    string
	Dir     string
	Args    []string
	Env     []string // beside the environment of all steps
	Timeout time.Duration

	// CgroupV1: cgroups of version 2 are not mounted for it. Once they were, even elsewhere and for a
	// moment, the kernel puts each process in one, for good.
	CgroupV1 bool
}

// plan is what the guest reads from planFile.
type plan struct {
	Steps []step
}

const planFile = "/plan.json"

// An event is what the guest reports, as a line of JSON on the console, after eventPrefix. Fields
// that do not belong to it are zero.
type event struct {
	Release string  `json:",omitempty"` // once, first: the version of the running kernel
	Step    string  `json:",omitempty"` // what the following fields are about
	Output  string  `json:",omitempty"` // a line that the step printed, or a part of a long one
	Ended   *ending `json:",omitempty"` // once for each step
	Kernel  string  `json:",omitempty"` // a warning of the kernel's log
	Stall   int     `json:",omitempty"` // seconds for which a test wants the machine stopped, but not its clocks
	Pause   int     `json:",omitempty"` // seconds for which it is to be stopped with its clocks
	Done    bool    `json:",omitempty"` // once, last
}

// ending is how a step ended.
type ending struct {
	Error   string // empty: exit code 0
	Seconds float64
}

// eventPrefix distinguishes events from what the kernel and the firmware print. The first byte is a
// control character that ends whatever precedes it on its line.
const eventPrefix = "\x1ekernels "

// parseEvent returns the event in a line of the console, if there is one.
func parseEvent(line string) (e event, ok bool) {
	_, text, ok := strings.Cut(line, eventPrefix)
	if !ok {
		return event{}, false
	}
	err := json.Unmarshal([]byte(text), &e)
	return e, err == nil
}
