package profile

import (
	"time"

	"correlator/procscan"
)

// Stack is a stack and its id. All samples with that stack share it, and it never changes.
type Stack struct {
	ID     StackTraceID // of Frames
	Frames []Frame      // leaf first
	Cut    bool         // there is a CutFrame: callers are missing
}

// Resource describes the process that samples are of. It never changes; exporters compare it by its
// address. Empty fields are not known.
type Resource struct {
	Service
	ContainerID    string // empty without a container
	PodUID         string // of Kubernetes; empty without a pod
	PID            int
	ExecutableName string
	ExecutablePath string

	// For who reads names of its functions; not exported.
	Process procscan.ProcessID
	Image   procscan.Image // which of its programs; zero: not known
	Since   time.Time      // it has written no file before
	Owner   string         // whose bounds it counts against: a container, or a user
}

// TextBytes returns how long all texts of the resource are together.
func (r *Resource) TextBytes() (n int) {
	for _, text := range []string{r.Name, r.Namespace, r.Version, r.InstanceID, r.Environment, r.SDKName, r.SDKLanguage,
		r.SDKVersion, r.ContainerID, r.PodUID, r.ExecutableName, r.ExecutablePath, r.Owner} {
		n += len(text)
	}
	return n
}

// Service is what a process says of itself, or what runs it of it. Texts may be any bytes. Names are
// those of OpenTelemetry's conventions for resources.
type Service struct {
	Name, Namespace, Version, InstanceID string // service.*
	Environment                          string // deployment.environment.name
	SDKName, SDKLanguage, SDKVersion     string // telemetry.sdk.*
}

// Sample is how often one thread of a process was seen with one stack and in one span, in one
// interval. It is what every receiver of samples gets, with all that is known.
type Sample struct {
	Resource *Resource // nil for receivers that know it
	Stack    *Stack

	// All zero: no trace was active. A zero SpanID means that there is no span but the transaction,
	// or that samples are not counted by span.
	TraceID               [16]byte
	SpanID, TransactionID [8]byte

	Context    ContextKind // where the ids are from, if there are any
	Attributes Attributes  // of the same

	Unwound bool // by an engine; else the stack was walked by frame pointers
	Served  bool // an engine unwound the process by then; if not Unwound, it did not know the innermost code

	TID    int    // in our own pid namespace; 0: not known
	Thread string // the thread's name; empty: not known (yet)

	Space *AddressSpace // of the program, for who reads names of its functions; nil: not known

	Wait *Wait // nil: the thread ran, when the sample was taken

	Count    uint64    // with a Wait: how many waits had their stack walked
	At, Last time.Time // when the first and the last one were taken

	// Start and End are the interval in which they were counted: from the drain before to the one
	// that fetched them, which all that it fetched share, unless the machine was suspended in it. What is
	// counted while a drain begins can be either's, so At and Last may lie outside: for some microseconds, or
	// as long as the drain got no CPU. A sample that was not counted in the kernel has its own time for all.
	Start, End time.Time
}

// HasTrace reports whether the thread worked on a trace.
func (s *Sample) HasTrace() bool { return s.TraceID != [16]byte{} }
