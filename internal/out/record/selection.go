package record

import (
	"correlator/profile"
	"correlator/profile/ids"
)

// Selection chooses samples: the ids of their trace and of their transaction, or how they begin, as
// ids.Parse returns them; empty: any, or none.
type Selection struct {
	Trace, Transaction string

	patterns *[2]ids.Pattern // when they are needed
}

// has reports whether samples are chosen.
func (s *Selection) has(sample *profile.Sample) bool {
	if s.Trace == "" && s.Transaction == "" {
		return true
	}
	if s.patterns == nil {
		s.patterns = &[2]ids.Pattern{ids.NewPattern(s.Trace), ids.NewPattern(s.Transaction)}
	}
	return sample.HasTrace() && s.patterns[0].Matches(sample.TraceID[:]) &&
		(s.Transaction == "" || sample.TransactionID != [8]byte{} && s.patterns[1].Matches(sample.TransactionID[:]))
}
