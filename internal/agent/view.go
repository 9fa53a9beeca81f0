package agent

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/memread"
	"correlator/procscan"
)

// State is where a process is in its life. The names are an interface: `scan` and `status`
// print them.
type State string

const (
	StateNoStorage  State = "no-storage" // maps the library, publishes nothing (yet)
	StateReady      State = "ready"      // publishes a storage and a socket that accepts us
	StateRegistered State = "registered" // was told of us; samples are sent to it
	StateError      State = "error"      // cannot be served, see Reason; tried again with backoff
	StateGone       State = "gone"       // ended, or no longer maps the library
)

// Process is one process that takes part, as `scan` prints it. Texts are what the process
// itself published: valid UTF-8, but otherwise anything.
type Process struct {
	PID       int       `json:"pid"`
	StartTime time.Time `json:"start_time"` // in steps of 10 ms
	State     State     `json:"state"`
	Reason    string    `json:"reason,omitempty"` // with StateError, a Reason's name

	ServiceName        string `json:"service_name"`
	ServiceEnvironment string `json:"service_environment"`
	SocketPath         string `json:"socket_path"` // as the process itself sees it
	Library            string `json:"library"`     // path in the process's mount namespace
	Libc               string `json:"libc"`        // glibc or musl; empty while not known
	TLS                string `json:"tls"`         // static, dynamic, dtpmod or unresolved
}

// StateText is the state, with the reason of an error.
func (p Process) StateText() string {
	if p.Reason == "" {
		return string(p.State)
	}
	return string(p.State) + " (" + p.Reason + ")"
}

// Thread is what one thread of a process works on, as `inspect` prints it. The ids are
// lower-case hex, and absent when no trace was active or the slot could not be read.
type Thread struct {
	TID           int    `json:"tid"`
	Name          string `json:"name"`
	Slot          string `json:"slot,omitempty"` // address in the process, hex; absent when the thread has none
	Valid         bool   `json:"valid"`
	TracePresent  bool   `json:"trace_present"`
	TraceFlags    uint8  `json:"trace_flags"`
	TraceID       string `json:"trace_id,omitempty"`
	SpanID        string `json:"span_id,omitempty"`
	TransactionID string `json:"transaction_id,omitempty"`
	Reason        string `json:"reason,omitempty"` // why there is no trace: an Outcome's name
}

// Inspection is a process and its threads, as `inspect` prints them.
type Inspection struct {
	Process
	Threads []Thread `json:"threads"`
}

func sortByPID(processes []Process) {
	slices.SortFunc(processes, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
}

// ticksPerSecond is the unit of start times, the same on every architecture that we run on
// (USER_HZ of the kernel).
const ticksPerSecond = 100

func newView(id procscan.Identity) Process {
	return Process{PID: id.PID, StartTime: startTime(id.StartTime), TLS: unresolved}
}

// unresolved is the TLS of a process whose rule is not known (yet), or that none fits.
const unresolved = "unresolved"

// startTime turns ticks since boot into a time of day, as exact as the ticks are.
func startTime(ticks uint64) time.Time {
	const tick = time.Second / ticksPerSecond
	var sinceBoot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &sinceBoot); err != nil {
		return time.Time{} // not since Linux 2.6.39
	}
	booted := time.Now().Add(-time.Duration(sinceBoot.Nano()))
	return booted.Add(time.Duration(ticks) * tick).Round(tick).UTC()
}

// describeError is the state of a process that an error ended the last look at. No state is that
// of a process that takes no part.
func describeError(err error) (State, string) {
	switch {
	case errors.Is(err, memread.ErrNotPublished):
		return StateNoStorage, ""
	case errors.Is(err, errNotTarget):
		return "", ""
	case errors.Is(err, errTooOften):
		return StateReady, ""
	case isGone(err):
		return StateGone, ""
	}
	return StateError, reasonOf(err).String()
}

// isGone says whether there is nothing left to serve.
func isGone(err error) bool {
	return errors.Is(err, procscan.ErrGone) || errors.Is(err, memread.ErrGone) || errors.Is(err, bpf.ErrGone) ||
		errors.Is(err, errUnmapped)
}
