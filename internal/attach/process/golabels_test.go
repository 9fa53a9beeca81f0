package process

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/processcontext"
	"correlator/internal/worker/access"
	"correlator/tlsdesc"
)

// The layout of a version is that of its release. Versions that were not released may have another.
func TestLayoutOf(t *testing.T) {
	for version, minor := range map[string]string{
		"go1.22": "22", "go1.22.12": "22", "go1.23.1": "23", "go1.24.3 X:nocoverageredesign": "24",
		"go1.25.5-vendor": "25",
		"go1.26 X:none":   "26", "go1.26.8+patch": "26",
		"go1.21.13": "", "go1.27": "", "go1.260": "", "go1.2": "", "go1.26rc1": "", "go1.26-devel_0123": "", "": "",
		"devel go1.26-0123": "", "go1.22.12x": "", "xgo1.22": "",
	} {
		layout, ok := layoutOf(version)
		assert.Check(t, ok == (minor != "") && layout == goLayouts[minor], "%q: %+v, %v", version, layout, ok)
	}
	assert.Check(t, goLayouts["23"].Map && !goLayouts["24"].Map)
}

// The layout of the Go that runs the test is known.
func TestLayoutOfThisVersion(t *testing.T) {
	_, ok := layoutOf(runtime.Version())
	assert.Check(t, ok, runtime.Version())
}

// The pointer to a g is in a register of programs for arm64 without thread-local variables. Where it is not, threads
// that have no thread pointer, since the loader runs, or that are not there, do not say that it is.
func TestInRegister(t *testing.T) {
	for _, local := range []bool{false, true} {
		l := goLabels{local: local}
		assert.Check(t, l.inRegister("arm64") == !local && !l.inRegister("amd64"))
	}
	for _, threads := range [][]bpf.Thread{nil, {{TID: 1}}} {
		_, err := new(Target).findG(goLayouts["26"], threads)
		assert.ErrorIs(t, err, tlsdesc.ErrUnresolved)
	}
}

// Labels are a rule once it is known where threads have their goroutine, unless there is one of records, whose
// attributes have other keys; and of processes that take part anyway, or say that they have contexts there.
func TestLabelRules(t *testing.T) {
	layout := bpf.GoLayout{G: -8, GM: 48}
	known := goLabels{looked: true, can: true, layout: layout}
	says := otelPublication{context: &processcontext.Context{Schema: "go_pprof_labels_v1"}}
	records := otelPublication{context: &processcontext.Context{Schema: "tls_v1"}}
	for name, test := range map[string]struct {
		target Target
		labels bool
	}{
		"all":                    {Target{filter: Filter{All: true}, labels: known}, true},
		"says so":                {Target{otel: says, labels: known}, true},
		"says nothing":           {Target{labels: known}, false},
		"says something else":    {Target{otel: records, labels: known}, false},
		"says so, can have none": {Target{otel: says, labels: goLabels{looked: true}}, false},
		"can have none":          {Target{filter: Filter{All: true}, labels: goLabels{looked: true}}, false},
		"has records, and all":   {Target{filter: Filter{All: true}, otel: records, labels: known}, true},
	} {
		var view View
		target := &test.target
		target.access = new(access.Process)
		assert.Check(t, target.HasLabels() == test.labels, name)
		rules := target.Rules(nil)
		assert.Check(t, rules.Labels == layout == test.labels, "%s: %+v", name, rules)
		target.Describe(&view)
		assert.Check(t, slices.Contains(view.Contexts, GoLabels) == test.labels, "%s: %v", name, view.Contexts)
		assert.Check(t, view.TLS == "", "%s: %q without a library", name, view.TLS)
		assert.Check(t, (view.UnreadSchema() != "") == (name == "says so, can have none"), "%s: unread %q", name,
			view.UnreadSchema())
		target.ForgetRules()
		assert.Check(t, target.IsPending() == test.labels || target.otel.ofThreads(), name)
		assert.Check(t, target.Rules(nil).Labels == bpf.GoLayout{}, name)
	}
}

// Threads without a goroutine are looked at again, less and less often, and are no error meanwhile; a version whose
// layout is not known is one, where the process says that it has contexts in labels.
func TestLabelsPending(t *testing.T) {
	says := otelPublication{context: &processcontext.Context{Schema: "go_pprof_labels_v1"}}
	target := &Target{otel: says, labels: goLabels{looked: true, can: true, err: errNoGoThread}}
	assert.Check(t, target.SearchPause() == 0 && target.IsPending())
	target.labels.tried, target.labels.pause = time.Now(), time.Hour
	assert.Check(t, target.SearchPause() > 59*time.Minute)
	assert.ErrorIs(t, target.ResolveLabels(nil), tlsdesc.ErrUnresolved) // it looks at nothing yet
	target.labels = goLabels{looked: true, err: WithReason(ReasonTLS, errGoVersion)}
	assert.Check(t, errors.Is(target.LabelsError(), tlsdesc.ErrUnsupported) &&
		ReasonOf(target.LabelsError()) == ReasonTLS)
	target.otel = otelPublication{}
	assert.NilError(t, target.LabelsError())
	target.labels.can = true
	target.Replace()
	assert.Check(t, target.labels == goLabels{}, "%+v", target.labels)
}

// Labels that cannot be read are no labels, and not pending, whatever is forgotten.
func TestRefuseLabels(t *testing.T) {
	says := otelPublication{context: &processcontext.Context{Schema: "go_pprof_labels_v1"}}
	target := &Target{otel: says, labels: goLabels{looked: true, can: true, err: errNoGoThread}}
	assert.Check(t, target.IsPending() && target.HasLabels())
	target.RefuseLabels(errors.ErrUnsupported)
	target.ForgetRules()
	assert.Check(t, !target.IsPending() && !target.HasLabels())
	assert.Check(t, errors.Is(target.LabelsError(), tlsdesc.ErrUnsupported) &&
		errors.Is(target.LabelsError(), errors.ErrUnsupported) && ReasonOf(target.LabelsError()) == ReasonTLS)
}
