package process

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"correlator/internal/attach/processcontext"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/worker/access/accesstest"
	"correlator/memread"
	"correlator/procscan"
	"correlator/tlsdesc"
)

// openOTel is a target of a process that publishes by OpenTelemetry's standards, as it was found.
func openOTel(t *testing.T, pid int) *Target {
	t.Helper()
	scanner, err := procscan.NewScanner("/proc")
	if err != nil {
		t.Fatal(err)
	}
	found, err := scanner.Process(pid)
	if err != nil {
		t.Fatal(err)
	}
	target, err := Open(accesstest.Open(t), "/proc", found, Filter{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.Close)
	if err := target.Load(); err != nil {
		t.Fatal(err)
	}
	return target
}

// probe probes a target, which must find what is wanted.
func probe(t *testing.T, target *Target, want Change, wantErr error) {
	t.Helper()
	if change, err := target.Probe(); change != want || !errors.Is(err, wantErr) {
		t.Fatalf("%+v, %v; want %+v, %v", change, err, want, wantErr)
	}
}

// holds reports whether the words to poll are what they were.
func (w *Words) holdsIn(t *testing.T, pid int) bool {
	t.Helper()
	reads := w.AppendReads(nil, pid)
	if err := accesstest.Open(t).Read("0", time.Minute, reads); err != nil {
		t.Fatal(err)
	}
	return w.Hold(reads)
}

var contextChange = Change{Context: true}

// Updates of a process context are noticed by the words that are polled, and followed; so are its end,
// and another after that.
func TestContextFollowed(t *testing.T) {
	testenv.NeedRoot(t)
	for _, samePayload := range []bool{false, true} {
		t.Run(fmt.Sprintf("same payload %v", samePayload), func(t *testing.T) {
			w := demo.StartOTel(t, demo.OTelOptions{SamePayload: samePayload})
			target := openOTel(t, w.PID)
			probe(t, target, contextChange, nil)
			if s := target.Service(); s.Name != "checkout" || s.Environment != "prod" || s.SDKLanguage != "cpp" {
				t.Errorf("%+v", s)
			}
			words := target.Words()
			probe(t, target, Change{}, nil)
			if !words.holdsIn(t, w.PID) {
				t.Error("a change without one")
			}
			w.SetResource("service.name", "basket")
			w.Publish()
			if words.holdsIn(t, w.PID) {
				t.Error("an update is not noticed")
			}
			if still, err := target.StillPublishing(); still || err != nil {
				t.Errorf("still publishing %v, %v", still, err)
			}
			probe(t, target, contextChange, nil)
			if still, err := target.StillPublishing(); !still || err != nil || target.Service().Name != "basket" {
				t.Errorf("still publishing %v, %v; %+v", still, err, target.Service())
			}
			words = target.Words()
			w.Withdraw()
			if words.holdsIn(t, w.PID) {
				t.Error("the end is not noticed")
			}
			probe(t, target, contextChange, memread.ErrNotPublished)
			if _, err := target.Remap(); !errors.Is(err, ErrUnmapped) || target.Publishes() {
				t.Errorf("after the end: %v", err)
			}
			w.Publish()
			if remapped, err := target.Remap(); !remapped || err != nil {
				t.Errorf("after another publication: %v, %v", remapped, err)
			}
			probe(t, target, contextChange, nil)
			if !target.Publishes() {
				t.Error("it does not publish")
			}
		})
	}
}

// While a process updates its context, the former one counts; a header that is none ends it.
func TestContextSpoilt(t *testing.T) {
	testenv.NeedRoot(t)
	for _, c := range []struct {
		field string
		value uint64
		want  Change
		err   error
	}{
		{"published_at", 0, Change{}, nil},
		{"signature", 1, contextChange, memread.ErrNotPublished},
		{"version", 1, contextChange, processcontext.ErrVersion},
		{"payload_size", 1 << 31, contextChange, processcontext.ErrMalformed},
		{"payload", 8, contextChange, processcontext.ErrMalformed},
	} {
		t.Run(c.field, func(t *testing.T) {
			w := demo.StartOTel(t, demo.OTelOptions{})
			target := openOTel(t, w.PID)
			probe(t, target, contextChange, nil)
			w.SpoilHeader(c.field, c.value)
			probe(t, target, c.want, c.err)
			if target.Publishes() != (c.err == nil) {
				t.Errorf("publishes %v", target.Publishes())
			}
			if c.err != nil && !errors.Is(c.err, memread.ErrNotPublished) {
				if _, err := target.Probe(); ReasonOf(err) != ReasonContextMalformed {
					t.Errorf("reason %v", ReasonOf(err))
				}
			}
		})
	}
}

// Where threads have their records is found in whichever file has the variable, also in one that is
// loaded later.
func TestContextRule(t *testing.T) {
	testenv.NeedRoot(t)
	for _, o := range []demo.OTelOptions{
		{}, {Dynamic: true}, {Musl: true}, {Form: demo.OTelGD}, {Form: demo.OTelIE}, {Program: demo.OTelPIE},
		{Program: demo.OTelStatic}, {Program: demo.OTelStaticPIE, Musl: true},
	} {
		t.Run(fmt.Sprintf("%s %s %v", o.Program, o.Form, o.Musl), func(t *testing.T) {
			o.Threads = 2
			w := demo.StartOTel(t, o)
			target := openOTel(t, w.PID)
			probe(t, target, contextChange, nil)
			if err := target.Resolve(); err != nil || target.SearchPause() != 0 || target.IsPending() {
				t.Fatalf("%v, pause %v, pending %v", err, target.SearchPause(), target.IsPending())
			}
			rules := target.Rules([]string{"http.route"})
			if !slices.Equal(rules.Keys, []uint8{1}) || rules.KnownKeys != 2 || rules.Elastic != (tlsdesc.Rule{}) {
				t.Errorf("%+v", rules)
			}
			memory := memread.Open("/proc", w.PID)
			defer memory.Close()
			for i := range w.Threads() {
				thread := w.Begin(i, demo.OTelRecord{TraceID: demo.TraceID{1}, SpanID: demo.SpanID{2}})
				addr, err := rules.OTel.VariableAddr(memory, thread.ThreadPointer)
				if err != nil || addr != thread.Variable || addr == 0 {
					t.Errorf("thread %d: %#x, %v, want %#x", i, addr, err, thread.Variable)
				}
			}
			if still, err := target.StillPublishing(); !still || err != nil {
				t.Errorf("still publishing %v, %v", still, err)
			}
		})
	}
}

// A process that says that its threads publish, and has no file with the variable, is searched again,
// less and less often.
func TestContextSearch(t *testing.T) {
	testenv.NeedRoot(t)
	w := demo.StartOTel(t, demo.OTelOptions{Hold: true})
	w.Publish()
	target := openOTel(t, w.PID)
	probe(t, target, contextChange, nil)
	if pause := target.SearchPause(); pause != 0 {
		t.Errorf("a pause of %v before the first search", pause)
	}
	if err := target.Resolve(); !errors.Is(err, tlsdesc.ErrUnresolved) || target.otel.search.pause < searchMin {
		t.Fatalf("%v, pause %v", err, target.otel.search.pause)
	}
	before := target.otel.search.pause
	target.otel.search.ended = time.Now().Add(-before)
	if err := target.Resolve(); !errors.Is(err, tlsdesc.ErrUnresolved) || target.otel.search.pause < 2*before {
		t.Fatalf("%v, pause %v", err, target.otel.search.pause)
	}
	w.Load()
	testenv.Poll(t, time.Minute, "a rule", func() bool { return target.Resolve() == nil })
	if rules := target.Rules(nil); rules.OTel.Kind == 0 {
		t.Errorf("%+v", rules)
	}
	w.SetSchema("go_pprof_labels_v1")
	w.Publish()
	probe(t, target, contextChange, nil)
	if err := target.Resolve(); err != nil || target.Rules(nil).OTel.Kind != 0 ||
		target.ThreadSchema() != SchemaGoLabels {
		t.Errorf("%v, %+v, %v", err, target.Rules(nil), target.ThreadSchema())
	}
}

// After an exec nothing is left of what was published; what the new program publishes counts.
func TestContextAfterExec(t *testing.T) {
	testenv.NeedRoot(t)
	w := demo.StartOTel(t, demo.OTelOptions{})
	target := openOTel(t, w.PID)
	probe(t, target, contextChange, nil)
	if err := target.Resolve(); err != nil {
		t.Fatal(err)
	}
	w.Restart()
	if still, err := target.StillPublishing(); still || err != nil {
		t.Errorf("still publishing %v, %v", still, err)
	}
	target.Replace()
	if remapped, err := target.Remap(); !remapped || err != nil {
		t.Fatalf("%v, %v", remapped, err)
	}
	probe(t, target, contextChange, nil)
	if err := target.Resolve(); err != nil {
		t.Error(err)
	}
}

// Only a key that is wanted is, and at most as many as can be read.
func TestWantedKeys(t *testing.T) {
	o := otelPublication{context: &processcontext.Context{Keys: slices.Repeat([]string{"a", "b"}, 200)}}
	want := []uint8{1, 3, 5, 7, 9, 11, 13, 15}
	if got := o.wanted([]string{"b", "c"}); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	o.context.Keys = append(slices.Repeat([]string{"a"}, 255), "b", "b")
	if got := o.wanted([]string{"b"}); !slices.Equal(got, []uint8{255}) {
		t.Errorf("%v", got)
	}
	if got := o.wanted(nil); got != nil {
		t.Errorf("%v", got)
	}
}
