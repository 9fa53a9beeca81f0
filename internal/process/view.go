package process

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/memread"
	"correlator/procscan"
)

// State is where a process is in its life. The names are an interface: `scan` and `status` print
// them.
type State string

const (
	StateNoStorage  State = "no-storage" // maps the library, publishes nothing (yet)
	StateReady      State = "ready"      // publishes a storage and a socket that accepts us
	StateRegistered State = "registered" // attached: was registered with, or is recorded
	StateFiltered   State = "filtered"   // left out by the Filter
	StateError      State = "error"      // cannot be served, see Reason; tried again with backoff
	StateGone       State = "gone"       // ended, or no longer maps the library
)

// View is one process that takes part, or would but for the filter, as `scan` prints it. Texts are
// what the process itself published, and paths that it may have named: anything.
type View struct {
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

	ContainerID string `json:"container_id"` // empty without a container; see procscan.Cgroup
	CgroupPath  string `json:"cgroup_path"`  // as seen from our own cgroup namespace
}

// StateText returns the state, with the reason of an error.
func (v View) StateText() string {
	if v.Reason == "" {
		return string(v.State)
	}
	return string(v.State) + " (" + v.Reason + ")"
}

// ShortContainerID returns as much of the container's id as engines print in their own tables.
func (v View) ShortContainerID() string { return v.ContainerID[:min(len(v.ContainerID), 12)] }

// ticksPerSecond is the unit of start times, the same on every architecture that we run on (USER_HZ
// of the kernel).
const ticksPerSecond = 100

// NewView returns the view of a process of which nothing is known yet.
func NewView(id procscan.ProcessID) View {
	return View{PID: id.PID, StartTime: startTime(id.StartTime), TLS: unresolved}
}

// unresolved is the TLS of a process whose rule is not known (yet), or that none fits.
const unresolved = "unresolved"

// clockLeeway is how much the time of a file may be before that of the start of the process that
// has written it: the latter is counted from the boot, and the clock may have been set in between.
const clockLeeway = time.Second

// WrittenSince returns a time before which a process has written no file.
func WrittenSince(id procscan.ProcessID) time.Time { return startTime(id.StartTime).Add(-clockLeeway) }

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

// StateOf returns the state of a process whose last probe ended with an error, and with StateError
// the name of its reason. A process that takes no part has no state.
func StateOf(err error) (State, string) {
	switch {
	case errors.Is(err, memread.ErrNotPublished):
		return StateNoStorage, ""
	case errors.Is(err, ErrContainerFiltered), errors.Is(err, ErrServiceFiltered):
		return StateFiltered, ""
	case errors.Is(err, ErrNotTarget):
		return "", ""
	case IsGone(err):
		return StateGone, ""
	}
	return StateError, ReasonOf(err).String()
}

// IsGone reports whether there is nothing left to serve.
func IsGone(err error) bool {
	return errors.Is(err, procscan.ErrGone) || errors.Is(err, memread.ErrGone) || errors.Is(err, bpf.ErrGone) ||
		errors.Is(err, ErrUnmapped)
}
