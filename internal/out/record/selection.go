package record

import (
	"encoding/hex"
	"strings"

	"correlator/profile"
)

// Selection chooses samples: how the ids of their trace and of their transaction begin, in lower-case
// hexadecimal digits; empty: any, or none.
type Selection struct{ Trace, Transaction string }

// has reports whether samples are chosen.
func (s *Selection) has(sample *profile.Sample) bool {
	if *s == (Selection{}) {
		return true
	}
	return sample.HasTrace() && strings.HasPrefix(hex.EncodeToString(sample.TraceID[:]), s.Trace) &&
		strings.HasPrefix(hex.EncodeToString(sample.TransactionID[:]), s.Transaction)
}
