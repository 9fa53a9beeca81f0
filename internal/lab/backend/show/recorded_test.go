package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"
	"gotest.tools/v3/assert"
)

// What samples say of contexts and methods is compared with what the process says.
func TestContexts(t *testing.T) {
	const rate, pid = 100, 7
	served := func(trace, span, route string, began, ended, cpuMillis int) string {
		return fmt.Sprintf(`{"event":"served","trace_id":%q,"span_id":%q,"route":%q,"began_ns":%d,"ended_ns":%d,`+
			`"cpu_ns":%d,"methods":{"price":%[6]d}}`+"\n", trace, span, route, began, ended, cpuMillis*1e6)
	}
	process := demoProcess{pid, filepath.Join(t.TempDir(), "events")}
	text := `{"event":"ready","pid":1}` + "\n" + served("early", "00", "/", 99, 150, 1000) +
		served("aa", "01", "/a", 150, 200, 600) + served("bb", "02", "/b", 200, 290, 400) +
		served("short", "03", "/b", 290, 291, 10) + served("late", "04", "/", 291, 301, 1000)
	assert.NilError(t, os.WriteFile(process.events, []byte(text), 0o600))
	at := func(name, kind string) *pprof.Location {
		return &pprof.Location{Mapping: &pprof.Mapping{File: kind},
			Line: []pprof.Line{{Function: &pprof.Function{Name: name}}}}
	}
	price := at("price", "[cpython]")
	named := []*pprof.Location{at("sqrt", "/libm"), price, price, at("eval", "/python"), {Mapping: &pprof.Mapping{}}}
	add := func(p *pprof.Profile, trace, span, route string, stack []*pprof.Location, samples int64) *pprof.Profile {
		labels := map[string][]string{"trace_id": {trace}, "span_id": {span}, "http.route": {route}}
		p.Sample = append(p.Sample, &pprof.Sample{Value: []int64{samples}, Location: stack, Label: labels,
			NumLabel: map[string][]int64{"pid": {pid}}})
		return p
	}
	unnamed := []*pprof.Location{named[0], named[4]}
	fresh := func(named []*pprof.Location, samplesOfA, samplesOfB int64) *pprof.Profile {
		p := &pprof.Profile{TimeNanos: 100, DurationNanos: 200}
		add(p, "", "", "", named, 1000)
		add(p, "other", "", "", named, 1000).Sample[1].NumLabel["pid"][0]++
		add(p, "early", "00", "/", named, 1000)
		add(p, "aa", "01", "/a", named, samplesOfA-1)
		add(p, "aa", "01", "/a", named[len(named)/2:], 1)
		return add(p, "bb", "02", "/b", named, samplesOfB)
	}
	shown := func(p *pprof.Profile) (string, error) {
		var out strings.Builder
		err := showContexts(&out, p, process, rate)
		return out.String(), err
	}
	want := `  TRACE                             SPAN              http.route       CPU ms  EXPECTED  SAMPLES
  aa                                01                /a                600.0      60.0       61
  bb                                02                /b                400.0      40.0       39
  in all: 1.00 s of CPU x 100 Hz = 100.0; recorded 100

  Trace aa:

  SAMPLES   SHARE      BY ITS OWN CLOCK  METHOD
       61  100.0 %     600.0 ms  100.0 %  price
`
	got, err := shown(fresh(named, 61, 39))
	assert.Check(t, err == nil && got == want, "%v\n%s\nwant\n%s", err, got, want)

	unwound := fresh(named, 31, 39) // of aa, some samples are from before its stacks were unwound
	got, err = shown(add(unwound, "aa", "01", "/a", unnamed, 30))
	assert.Check(t, err == nil && strings.Contains(got, "Trace bb:"), "%v\n%s", err, got)

	missing := fresh(named, 100, 1)
	missing.Sample = missing.Sample[:5]
	other := fresh(named, 61, 39)
	other.Sample[5].Label["span_id"][0] = "01"
	early := fresh(named, 61, 39)
	early.DurationNanos = 49
	for text, p := range map[string]*pprof.Profile{
		"no trace cc":               add(fresh(named, 61, 39), "cc", "", "", named, 1),
		"of trace bb say":           add(fresh(named, 61, 39), "bb", "02", "", named, 1),
		"trace bb say map[{span:01": other, "trace bb has no sample": missing,
		"151 samples, 100.0 expected": fresh(named, 100, 51), "49 samples, 100.0 expected": fresh(named, 48, 1),
		"not seen: price": fresh(unnamed, 61, 39), "too few": early,
	} {
		_, err := shown(p)
		assert.Check(t, err != nil && strings.Contains(err.Error(), text), "%v, want %s", err, text)
	}
}

// Of the transaction with the most samples, methods are shown that the process tells of, and what has none.
func TestHottest(t *testing.T) {
	events := filepath.Join(t.TempDir(), "events")
	assert.NilError(t, os.WriteFile(events, []byte(`{"event":"served","trace_id":"bb","methods":{"main":5}}
{"event":"served","trace_id":"aa","methods":{"pay":900000000,"serve":1000000000}}
`), 0o600))
	all := map[string]*transaction{
		"aa": {trace: "aa", samples: 100, named: 90, methods: map[string]uint64{"main": 90, "serve": 90, "pay": 80}},
		"bb": {trace: "bb", samples: 99, named: 99, methods: map[string]uint64{"main": 99}},
	}
	var out strings.Builder
	assert.NilError(t, showHottest(&out, all, events))
	want := `  Of 2 transactions, trace aa has the most samples, 100:

  SAMPLES   SHARE      BY ITS OWN CLOCK  METHOD
       90  90.0 %    1000.0 ms  100.0 %  serve
       80  80.0 %     900.0 ms   90.0 %  pay
       10  10.0 %                        (no method: work of the runtime itself, or walked by frame pointers)
`
	assert.Check(t, out.String() == want, "%s\nwant\n%s", out.String(), want)
	all["cc"] = &transaction{trace: "cc", samples: 101}
	err := showHottest(&out, all, events)
	assert.Check(t, err != nil && strings.Contains(err.Error(), "cc"), "a trace that was not served: %v", err)
}
