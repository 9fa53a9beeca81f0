package profiles

import (
	"errors"
	"time"

	"correlator/profile"
)

var (
	// ErrTooLarge: the sample does not fit into a request by itself.
	ErrTooLarge = errors.New("sample too large")
	// ErrInvalid: the sample counts nothing, has no process, no frames or one at the address 0, or no time after
	// 1970 began.
	ErrInvalid = errors.New("invalid sample")
)

// Resource is the process that samples are of. Empty fields are left out; text that is not UTF-8 is made so, and
// cut at 8 KiB.
type Resource struct {
	ServiceName    string // as the process published it, with Environment
	Environment    string
	ContainerID    string // empty without a container
	PID            int
	ExecutableName string
	ExecutablePath string
}

// Sample is how often one thread of a process was seen with one stack and in one span, in one interval.
type Sample struct {
	// Process is compared by its address: one for each process, which does not change.
	Process *Resource

	Stack  profile.StackTraceID // that of Frames; they are not looked at when it is known
	Frames []profile.Frame      // leaf first

	// All zero: no trace was active. A zero SpanID means that there is no span but the transaction.
	TraceID               [16]byte
	SpanID, TransactionID [8]byte

	TID    int    // 0: not known
	Thread string // the thread's name; empty: not known

	Count uint64
	// The interval, which the point in its middle stands for. End is not in it, unless it is Start: then that is
	// the time of the sample.
	Start, End time.Time
}

// valid says whether there is something to send, whose frames are left to the dictionary.
func (s *Sample) valid() bool {
	return s.Count > 0 && s.Process != nil && len(s.Frames) > 0 && s.Start.UnixNano() > 0
}

// window is the interval in ns since 1970, 1 ns long at least: the clock may have been set back in it.
func (s *Sample) window() (start, end uint64) {
	start = uint64(s.Start.UnixNano())
	return start, max(uint64(max(s.End.UnixNano(), 0)), start+1)
}

// link is the entry of the link table, zero for none: an id of zeros is none. A span is in a trace, and has
// the transaction's id if it is the transaction.
func (s *Sample) link() (l link) {
	l = link{s.TraceID, s.SpanID}
	if l.span == [8]byte{} {
		l.span = s.TransactionID
	}
	if l.trace == [16]byte{} || l.span == [8]byte{} {
		return link{}
	}
	return l
}
