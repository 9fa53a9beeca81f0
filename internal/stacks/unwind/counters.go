package unwind

import (
	"iter"
	"sync/atomic"
)

// Counters is what an Engine counts. The fields only grow and may be read at any time.
type Counters struct {
	Started atomic.Uint64 // workers

	// Workers that were killed, by reason. After each, all processes are to be synchronized again.
	TimedOut  atomic.Uint64 // a request was not answered in time
	Ended     atomic.Uint64 // it ended by itself: a panic, or too little memory
	Unable    atomic.Uint64 // it said that it cannot serve: a right is missing, or memory for its tables
	Nonsense  atomic.Uint64 // its answer was none to the request
	Exhausted atomic.Uint64 // it had asked for as many tables as one may get, or filled one that is never cleared

	Synchronized atomic.Uint64 // requests after which a process can be unwound
	NotReady     atomic.Uint64 // requests that found a runtime which was still starting, or is unknown
	OverQuota    atomic.Uint64 // requests for processes that needed more than was left of their users' quotas
	Gone         atomic.Uint64 // requests whose process had ended
	Failed       atomic.Uint64 // requests that failed for another reason
	Unavailable  atomic.Uint64 // requests that were not made: there was no worker
	Busy         atomic.Uint64 // requests that were not made: too many of their user waited, or they did too long
	Quarantined  atomic.Uint64 // times that a process was left out because of a killed worker
	LeftOut      atomic.Uint64 // requests that were not made for such a process

	FilesSkipped atomic.Uint64 // mapped files that could not be read, so stacks end in them
	Uncorrected  atomic.Uint64 // files whose tables or code could not be read further, so some frames are left out
	MapErrors    atomic.Uint64 // updates of tables that failed, or were refused, while synchronizing

	Stacks         atomic.Uint64 // whose frames were resolved
	Frames         atomic.Uint64 // of these
	FramesUnnamed  atomic.Uint64 // of these, of a runtime without a name
	FramesUnmapped atomic.Uint64 // of these, native without an address
	FramesUnplaced atomic.Uint64 // of these, of a runtime with a file, but without a line
	StacksCut      atomic.Uint64 // of these stacks, those whose callers are missing: an error, or too many frames

	// InlinedUnknown are InlinedFrames, by reason: UnknownInLoop to UnknownBetween.
	InlinedUnknown [UnknownBetween + 1]atomic.Uint64
}

// Count counts the frames of a stack. isCut: it lacks callers, although no frame of it may say so.
func (c *Counters) Count(frames iter.Seq[Frame], isCut bool) {
	c.Stacks.Add(1)
	n := uint64(0)
	for f := range frames {
		n++
		switch {
		case f.Kind == CutFrame:
			isCut = true
		case f.Kind == InlinedFrame:
			c.InlinedUnknown[min(f.Address, uint64(len(c.InlinedUnknown)-1))].Add(1)
		case f.Kind.OfRuntime() && f.Function == "":
			c.FramesUnnamed.Add(1)
		case f.Kind.OfRuntime() && f.SourceFile != "" && f.Line == 0:
			c.FramesUnplaced.Add(1)
		case f.Kind == NativeFrame && f.Address == 0:
			c.FramesUnmapped.Add(1)
		}
	}
	c.Frames.Add(n)
	if isCut {
		c.StacksCut.Add(1)
	}
}
