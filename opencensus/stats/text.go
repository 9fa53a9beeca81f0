package stats

import (
	"strings"

	"correlator/internal/host/textcut"
)

// invalid stands for bytes that are not UTF-8: with those, a request would be undecodable.
const invalid = "\ufffd"

func valid(s string) string { return strings.ToValidUTF8(s, invalid) }

// text returns a copy of a description or unit as it is kept.
func (s *State) text(raw string) string {
	if len(raw) > maxText {
		s.counts.Lost[TextCut]++
	}
	return strings.Clone(valid(textcut.At(raw, maxText)))
}
