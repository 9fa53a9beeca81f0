package profiles

import (
	"errors"

	"correlator/profile"
)

var (
	// ErrTooLarge: the sample does not fit into a request by itself.
	ErrTooLarge = errors.New("sample too large")
	// ErrInvalid: the sample counts nothing, or no time, has no resource, no frames or one at the address 0, or
	// no time after 1970 began.
	ErrInvalid = errors.New("invalid sample")
)

// hasContents reports whether there is something to send; the dictionary checks the frames.
func hasContents(s *profile.Sample) bool {
	return s.Count > 0 && amountOf(s) > 0 && s.Resource != nil && s.Stack != nil && len(s.Stack.Frames) > 0 &&
		s.Start.UnixNano() > 0
}

// amountOf is how often a sample was taken, or how long it waited in ns.
func amountOf(s *profile.Sample) uint64 {
	if s.Wait != nil {
		return uint64(max(s.Wait.Sum, 0))
	}
	return s.Count
}

// window is the interval in ns since 1970, with the times of the sample in it: 1 ns long at least, since the clock may
// have been set back in it.
func window(s *profile.Sample) (start, end uint64) {
	first, last := times(s)
	return min(uint64(s.Start.UnixNano()), first), max(uint64(max(s.End.UnixNano(), 0)), last+1)
}

// times returns when a sample was taken for the first and the last time, in ns since 1970. Where that is not known, it
// was in the middle of its interval.
func times(s *profile.Sample) (first, last uint64) {
	if at := s.At.UnixNano(); at > 0 {
		return uint64(at), uint64(max(at, s.Last.UnixNano()))
	}
	start := uint64(s.Start.UnixNano())
	middle := start + (max(uint64(max(s.End.UnixNano(), 0)), start+1)-start)/2
	return middle, middle
}

// linkOf is the entry of the link table, zero for none: an id of zeros is none. A span is in a
// trace, and has the transaction's id if it is the transaction.
func linkOf(s *profile.Sample) (l link) {
	l = link{s.TraceID, s.SpanID}
	if l.span == [8]byte{} {
		l.span = s.TransactionID
	}
	if l.trace == [16]byte{} || l.span == [8]byte{} {
		return link{}
	}
	return l
}
