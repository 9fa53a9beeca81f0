package process

import (
	"bytes"
	"cmp"
	"errors"
	"time"

	"correlator/bpf"
	"correlator/elfsym"
	"correlator/memread"
	"correlator/procscan"
	"correlator/tlsdesc"
)

// resolveInterval limits how often the mappings of a process are read for a rule that is not
// resolved yet.
const resolveInterval = 100 * time.Millisecond

// variable is a thread-local variable by which threads publish what they work on, and where each of
// them has it.
type variable struct {
	file  *elfsym.Variable // nil: not known
	bias  uint64           // of the file
	rule  tlsdesc.Rule
	err   error     // why rule is not valid; nil when it is
	words []byte    // what the loader had stored for the relocation when rule was made
	tried time.Time // when making the rule was last tried
}

// wordsAddr is where the words lie that the variable's relocation fills, by what is known of it.
func (v *variable) wordsAddr() uint64 { return v.bias + v.file.Relocation.Addr }

// wordBytes is how long these words are: there are two, one, or, where the linker knows the place, none.
// The loader stores others when the file is loaded again.
func (v *variable) wordBytes() int {
	switch v.file.Relocation.Kind {
	case elfsym.TLSDESC, elfsym.DTPMOD64:
		return 16
	case elfsym.TPOFF64:
		return 8
	}
	return 0
}

// set sets which variable it is.
func (v *variable) set(file *elfsym.Variable, bias uint64) {
	*v = variable{file: file, bias: bias, err: tlsdesc.ErrUnresolved}
}

// forget has the rule made again.
func (v *variable) forget() { v.set(v.file, v.bias) }

// isPending reports whether the rule may still be resolved.
func (v *variable) isPending() bool { return v.file != nil && errors.Is(v.err, tlsdesc.ErrUnresolved) }

// resolve finds where the threads have the variable, unless that is known.
func (v *variable) resolve(t *Target) error {
	if !v.isPending() || time.Since(v.tried) < resolveInterval {
		return v.err
	}
	v.tried = time.Now()
	mappings, err := t.handle.ExecutableMappings()
	if err != nil && !errors.Is(err, procscan.ErrTooMany) {
		return err
	}
	words := make([]byte, v.wordBytes())
	if _, err := t.memory.Read(v.wordsAddr(), words); len(words) > 0 && err != nil {
		return err
	}
	v.words = words
	v.rule, v.err = tlsdesc.Resolve(v.file, v.bias, t.memory, mappings)
	v.err = WithReason(ReasonTLS, v.err)
	return v.err
}

// request is the read of the words that the rule was made from.
func (v *variable) request() memread.Request {
	return memread.Request{Addr: v.wordsAddr(), Buf: make([]byte, v.wordBytes())}
}

// holds reports whether the rule still holds, by what request has read now; one that is not known
// does.
func (v *variable) holds(read memread.Request) bool {
	return v.err != nil || read.Err == nil && bytes.Equal(read.Buf, v.words)
}

// Rule returns where the threads' slots of Elastic's library lie; the error is why that is not known:
// tlsdesc.ErrUnresolved while Resolve may still find out.
func (t *Target) Rule() (tlsdesc.Rule, error) { return t.elastic.rule, t.elastic.err }

// ForgetRules has all rules made again.
func (t *Target) ForgetRules() {
	t.elastic.forget()
	t.otel.forgetVariable()
	if t.HasLabels() {
		t.labels.err, t.labels.pause = errNoGoThread, 0
	}
}

// Resolve finds where the threads have what they work on, as far as that is not known: it may be
// called at any pace. It returns why the rule of Elastic's slots is not known, if the process
// publishes these, else why that of OpenTelemetry's records is not, if it publishes those.
func (t *Target) Resolve() error {
	err := t.ResolveElastic()
	return cmp.Or(err, t.resolveOTel())
}

// ResolveElastic is Resolve for Elastic's slots alone.
func (t *Target) ResolveElastic() error {
	if !t.HasStorage() {
		return nil
	}
	return t.elastic.resolve(t)
}

// Unsupported returns why there can be no rule, with what is loaded now, for anything that the process
// publishes of its threads; nil: there is, or may be, or it publishes nothing of them.
func (t *Target) Unsupported() (err error) {
	if t.otel.ofThreads() && t.otel.variable.file == nil {
		return nil
	}
	for _, v := range []*variable{&t.elastic, &t.otel.variable} {
		if v.file == nil {
			continue
		}
		if !errors.Is(v.err, tlsdesc.ErrUnsupported) && !errors.Is(v.err, tlsdesc.ErrMalformed) {
			return nil
		}
		err = cmp.Or(err, v.err)
	}
	return err
}

// IsPending reports whether there is a rule that Resolve may find out later, because of what the
// process does; see SearchPause for what it may load.
func (t *Target) IsPending() bool {
	return t.HasStorage() && t.elastic.isPending() || t.otel.ofThreads() && t.otel.variable.isPending() ||
		t.HasLabels() && errors.Is(t.labels.err, tlsdesc.ErrUnresolved)
}

// Rules returns all rules that are known, and the attributes that are wanted of OpenTelemetry's
// records: those with given keys.
func (t *Target) Rules(keys []string) bpf.TargetRules {
	rules := bpf.TargetRules{Owner: string(t.Owner())}
	if t.HasStorage() && t.elastic.err == nil {
		rules.Elastic = t.elastic.rule
	}
	if t.otel.hasRule() {
		rules.OTel = t.otel.variable.rule
		rules.Keys, rules.KnownKeys = t.otel.wanted(keys), len(t.otel.context.Keys)
	} else if t.HasLabels() && t.labels.err == nil { // which have other keys
		rules.Labels = t.labels.layout
	}
	return rules
}
