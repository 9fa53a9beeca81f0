package process

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

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
	assert.NilError(t, err)
	found, err := scanner.Process(pid)
	assert.NilError(t, err)
	target, err := Open(accesstest.Open(t), "/proc", found, Filter{})
	assert.NilError(t, err)
	t.Cleanup(target.Close)
	assert.NilError(t, target.Load())
	return target
}

// probe probes a target, which must find what is wanted.
func probe(t *testing.T, target *Target, want Change, wantErr error) {
	t.Helper()
	change, err := target.Probe()
	assert.Assert(t, change == want && errors.Is(err, wantErr), "%+v, %v; want %+v, %v", change, err, want, wantErr)
}

// holds reports whether the words to poll are what they were.
func (w *Words) holdsIn(t *testing.T, pid int) bool {
	t.Helper()
	reads := w.AppendReads(nil, pid)
	assert.NilError(t, accesstest.Open(t).Read("0", time.Minute, reads))
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
			s := target.Service()
			assert.Check(t, s.Name == "checkout" && s.Environment == "prod" && s.SDKLanguage == "cpp", "%+v", s)
			words := target.Words()
			probe(t, target, Change{}, nil)
			assert.Check(t, words.holdsIn(t, w.PID), "a change without one")
			w.SetResource("service.name", "basket")
			w.Publish()
			assert.Check(t, !words.holdsIn(t, w.PID), "an update is not noticed")
			still, err := target.StillPublishing()
			assert.Check(t, !still && err == nil, "still publishing %v, %v", still, err)
			probe(t, target, contextChange, nil)
			if still, err := target.StillPublishing(); !still || err != nil || target.Service().Name != "basket" {
				t.Errorf("still publishing %v, %v; %+v", still, err, target.Service())
			}
			words = target.Words()
			w.Withdraw()
			assert.Check(t, !words.holdsIn(t, w.PID), "the end is not noticed")
			probe(t, target, contextChange, memread.ErrNotPublished)
			_, err = target.Remap()
			assert.Check(t, errors.Is(err, ErrUnmapped) && !target.Publishes(), "after the end: %v", err)
			w.Publish()
			remapped, err := target.Remap()
			assert.Check(t, remapped && err == nil, "after another publication: %v, %v", remapped, err)
			probe(t, target, contextChange, nil)
			assert.Check(t, target.Publishes(), "it does not publish")
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
			assert.Check(t, rules.Owner == string(target.Owner()) && rules.Owner != "", "%q", rules.Owner)
			if !slices.Equal(rules.Keys, []uint8{1}) || rules.KnownKeys != 2 || rules.Elastic != (tlsdesc.Rule{}) {
				t.Errorf("%+v", rules)
			}
			memory := memread.Open("/proc", w.PID)
			defer memory.Close()
			for i := range w.Threads() {
				thread := w.Begin(i, demo.OTelRecord{TraceID: demo.TraceID{1}, SpanID: demo.SpanID{2}})
				addr, err := rules.OTel.VariableAddr(memory, thread.ThreadPointer)
				assert.Check(t, err == nil && addr == thread.Variable && addr != 0,
					"thread %d: %#x, %v, want %#x", i, addr, err, thread.Variable)
			}
			still, err := target.StillPublishing()
			assert.Check(t, still && err == nil, "still publishing %v, %v", still, err)
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
	pause := target.SearchPause()
	assert.Check(t, pause == 0, "a pause of %v before the first search", pause)
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
	rules := target.Rules(nil)
	assert.Check(t, rules.OTel.Kind != 0, "%+v", rules)
	w.SetSchema("go_pprof_labels_v1")
	w.Publish()
	probe(t, target, contextChange, nil)
	if err := target.Resolve(); err != nil || target.Rules(nil).OTel.Kind != 0 ||
		target.ThreadSchema() != SchemaGoLabels {
		t.Errorf("%v, %+v, %v", err, target.Rules(nil), target.ThreadSchema())
	}
}

// Files that were deleted, of which there may be thousands, are searched after the others.
func TestSearchOrder(t *testing.T) {
	of := func(ino uint64, deleted bool) procscan.Mapping {
		return procscan.Mapping{Start: ino << 20, Ino: ino, Deleted: deleted}
	}
	s := &variableSearch{without: map[imageLocation]struct{}{locationOf(of(4, false)): {}}}
	got := s.unsearched([]procscan.Mapping{of(1, true), of(2, false), of(3, true), of(2, false), of(4, false),
		of(5, false)})
	want := []procscan.Mapping{of(2, false), of(5, false), of(1, true), of(3, true)}
	assert.DeepEqual(t, got, want)
}

// A search that had no time for all files goes on soon, but not for whoever maps new ones all the time.
func TestSearchPauses(t *testing.T) {
	const took = searchTime
	file, deleted := procscan.Mapping{Ino: 1}, procscan.Mapping{Ino: 2, Deleted: true}
	for name, c := range map[string]struct {
		left     []procscan.Mapping
		searches int
		want     time.Duration
	}{
		"all":                {nil, 8, searchMax},
		"makes code":         {[]procscan.Mapping{deleted, deleted}, 8, searchMax},
		"many libraries":     {[]procscan.Mapping{file, deleted}, searchPatience, searchShare * took},
		"maps files forever": {[]procscan.Mapping{file}, searchPatience + 4, searchMax},
	} {
		var s variableSearch
		for range c.searches {
			s.end(took, c.left)
		}
		assert.Check(t, s.pause == c.want, "%s: %v", name, s.pause)
	}
}

// After an exec nothing is left of what was published; what the new program publishes counts.
func TestContextAfterExec(t *testing.T) {
	testenv.NeedRoot(t)
	w := demo.StartOTel(t, demo.OTelOptions{})
	target := openOTel(t, w.PID)
	probe(t, target, contextChange, nil)
	assert.NilError(t, target.Resolve())
	w.Restart()
	still, err := target.StillPublishing()
	assert.Check(t, !still && err == nil, "still publishing %v, %v", still, err)
	target.Replace()
	remapped, err := target.Remap()
	assert.Assert(t, remapped && err == nil, "%v, %v", remapped, err)
	probe(t, target, contextChange, nil)
	assert.Check(t, target.Resolve())
}

// Only a key that is wanted is, and at most as many as can be read.
func TestWantedKeys(t *testing.T) {
	o := otelPublication{context: &processcontext.Context{Keys: slices.Repeat([]string{"a", "b"}, 200)}}
	want := []uint8{1, 3, 5, 7, 9, 11, 13, 15}
	got := o.wanted([]string{"b", "c"})
	assert.Check(t, slices.Equal(got, want), got)
	o.context.Keys = append(slices.Repeat([]string{"a"}, 255), "b", "b")
	got = o.wanted([]string{"b"})
	assert.Check(t, slices.Equal(got, []uint8{255}), got)
	got = o.wanted(nil)
	assert.Check(t, got == nil, got)
}
