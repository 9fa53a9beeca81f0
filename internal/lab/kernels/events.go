package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"correlator/internal/lab/kernels/console"
)

// A step is a command that the guest runs, alone.
type step struct {
	Name    string
	Dir     string
	Args    []string
	Env     []string // beside the environment of all steps
	Timeout time.Duration

	// CgroupV1: cgroups of version 2 are not mounted for it. Once they were, even elsewhere and for
	// a moment, the kernel puts each process in one, for good.
	CgroupV1 bool
}

// plan is what the guest reads from planFile.
type plan struct {
	Steps []step
}

const planFile = "/plan.json"

// An event is what the guest reports, as console.Line has it. Fields that do not belong to it are
// zero.
type event struct {
	Release string  `json:",omitempty"` // once, first: the version of the running kernel
	Step    string  `json:",omitempty"` // what the following fields are about
	Output  string  `json:",omitempty"` // a line that the step printed, or a part of a long one
	Ended   *ending `json:",omitempty"` // once for each step
	Kernel  string  `json:",omitempty"` // a warning of the kernel's log
	Done    bool    `json:",omitempty"` // once, last

	console.Stop // what a test asks for
}

type ending struct {
	Error   string // empty: exit code 0
	Seconds float64
}

// parseEvent returns the event in a line of the console, if there is one.
func parseEvent(line string) (e event, ok bool, err error) {
	_, text, ok := strings.Cut(line, console.Prefix)
	if !ok {
		return event{}, false, nil
	}
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return event{}, false, fmt.Errorf("parsing the event %.200q: %w", text, err)
	}
	return e, true, nil
}

// readEvents hands over the events on a console, and reports whether the guest was done. It goes on
// after a line that is cut off: what a kernel prints when it panics comes after it. The first such
// line is malformed.
func readEvents(from io.Reader, handle func(event)) (done bool, malformed, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		e, ok, err := parseEvent(lines.Text())
		if malformed == nil {
			malformed = err
		}
		if ok {
			done = done || e.Done
			handle(e)
		}
	}
	return done, malformed, lines.Err()
}
