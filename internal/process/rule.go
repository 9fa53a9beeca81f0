package process

import (
	"errors"
	"time"

	"correlator/procscan"
	"correlator/tlsdesc"
)

// resolveInterval limits how often the mappings of a process are read for a rule that is not
// resolved yet.
const resolveInterval = 100 * time.Millisecond

// pair is the two words that the TLS relocation fills. The loader stores others when the library is
// loaded again.
type pair [16]byte

// Rule returns where the threads' slots lie; the error is why that is not known:
// tlsdesc.ErrUnresolved while Resolve may still find out.
func (t *Target) Rule() (tlsdesc.Rule, error) { return t.rule, t.ruleErr }

// ForgetRule has the rule made again.
func (t *Target) ForgetRule() {
	t.rule, t.ruleErr, t.tried = tlsdesc.Rule{}, tlsdesc.ErrUnresolved, time.Time{}
}

// Resolve finds where the threads' slots lie, for the image that publishes, unless that is known.
func (t *Target) Resolve() error {
	if t.publishing == nil || !errors.Is(t.ruleErr, tlsdesc.ErrUnresolved) || time.Since(t.tried) < resolveInterval {
		return t.ruleErr
	}
	t.tried = time.Now()
	mappings, err := t.handle.ExecutableMappings()
	if err != nil && !errors.Is(err, procscan.ErrTooMany) {
		return err
	}
	img := t.publishing
	if _, err := t.memory.Read(img.pairAddr(), t.pair[:]); err != nil {
		return err
	}
	t.rule, t.ruleErr = tlsdesc.Resolve(&img.library.Variable, img.bias, t.memory, mappings)
	t.ruleErr = WithReason(ReasonTLS, t.ruleErr)
	return t.ruleErr
}
