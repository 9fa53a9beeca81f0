package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/procfs"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Figures are differences between two snapshots, over the time between them: a program that is new counts as a
// whole, one that is gone not at all, and what nobody of ours has used is foreign.
func TestBetween(t *testing.T) {
	began := time.Unix(1000, 0)
	before := snapshot{
		at: began, profiler: time.Second, load: 10 * time.Second, all: 12 * time.Second, idle: 100 * time.Second,
		programs: map[ebpf.ProgramID]ebpf.ProgramStats{1: {Runtime: time.Second}, 2: {Runtime: time.Minute}},
		samples:  7, told: 5,
	}
	after := snapshot{
		at: began.Add(20 * time.Second), profiler: 1200 * time.Millisecond, load: 40 * time.Second,
		all: 42300 * time.Millisecond, idle: 109 * time.Second, samples: 607, told: 505,
		programs: map[ebpf.ProgramID]ebpf.ProgramStats{1: {Runtime: 1100 * time.Millisecond},
			3: {Runtime: 40 * time.Millisecond}},
	}
	want := figures{cpu: 1.7, ebpf: 0.7, expected: 600, samples: 600, told: 500, foreign: 100 * (40 - 9 - 30.3) / 20}
	got := between(before, after, 20, 2)
	near := func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }
	assert.Check(t, near(got.cpu, want.cpu) && near(got.ebpf, want.ebpf) && near(got.expected, want.expected) &&
		got.samples == want.samples && got.told == want.told && near(got.foreign, want.foreign), "%v, not %v", got,
		want)
}

// Switches count from the first look on, of a thread that is new from its beginning; one that has ended keeps what it
// has done.
func TestSwitches(t *testing.T) {
	status := func(voluntary, involuntary uint64) procfs.ProcStatus {
		return procfs.ProcStatus{VoluntaryCtxtSwitches: voluntary, NonVoluntaryCtxtSwitches: involuntary}
	}
	s := newSwitches()
	s.add(1, status(100, 10))
	s.started = true
	s.add(1, status(105, 11))
	s.add(2, status(7, 3))
	s.add(1, status(106, 11))
	assert.Check(t, s.voluntary == 13 && s.involuntary == 4, "%d, %d", s.voluntary, s.involuntary)
}

// A cell has, of each profiler, the median of rounds without foreign load, and the range; without any such round it is
// of all, and marked. What was not measured is a dash.
func TestTable(t *testing.T) {
	all := table{profilers: []string{"correlator", "peer"}}
	for _, f := range []figures{{cpu: 3, pss: 40}, {cpu: 1, pss: 41}, {cpu: 2, pss: 42}, {cpu: 100, foreign: 6}} {
		all.add(load{letter: "a", what: "C"}, 20, "peer", f)
	}
	for _, f := range []figures{{cpu: 1, voluntary: 20, involuntary: 5, foreign: 9}, {cpu: 2, voluntary: 22,
		involuntary: 5, foreign: 9}} {
		all.add(load{letter: "a", what: "C"}, 20, "correlator", f)
	}
	all.add(load{letter: "a", what: "C"}, 97, "peer", figures{ebpf: 0.5, samples: 3, expected: 4, told: 2})
	var out strings.Builder
	all.write(&out, 5)
	want := `correlator / peer:

| load | Hz | CPU, % of a core | of which eBPF | switches/s | of which involuntary | PSS, MB | samples | expected |` +
		` told | rounds |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|
| a. C | 20 | 1.50 (1.00–2.00) / 2.00 (1.00–3.00) | 0.00 / 0.00 | 26 (25–27) / 0 | 5 / 0 | 0.0 / 41.0 | 0 / 0 |` +
		` 0 / 0 | 0 / 0 | 2, none quiet / 3 of 4 |
| a. C | 97 | – / 0.00 | – / 0.50 | – / 0 | – / 0 | – / 0.0 | – / 3 | – / 4 | – / 2 | 0 of 0 / 1 of 1 |
`
	assert.Check(t, out.String() == want, "%s", &out)
}

// Loads are chosen by their letters, rates by numbers; there are no others.
func TestSelect(t *testing.T) {
	chosen, err := selectLoads("ca")
	assert.Check(t, err == nil && len(chosen) == 2 && chosen[0].letter == "a" && chosen[1].letter == "c", "%v", err)
	_, err = selectLoads("a?")
	assert.ErrorContains(t, err, `"?"`)
	every, err := selectLoads(allLoads())
	assert.Check(t, err == nil && len(every) == len(loads), "%v", err)
	var r rates
	assert.Check(t, r.Set("20,97") == nil && len(r) == 2 && r[0] == 20 && r[1] == 97, "%v", r)
	for _, wrong := range []string{"", "x", "0", "-1", "20,"} {
		assert.Check(t, r.Set(wrong) != nil, "%q", wrong)
	}
}

// The patch is one for the version of the peer that go.mod has: then, a refused limit is no error.
func TestPeerPatch(t *testing.T) {
	testenv.NeedTool(t, "go")
	testenv.NeedTool(t, "git")
	source := filepath.Join(t.TempDir(), "source")
	assert.NilError(t, copyPeer(source, "../../../testdata/peer/memlock.patch"))
	patched := string(testenv.ReadFile(t, filepath.Join(source, "rlimit", "rlimit.go")))
	assert.Check(t, strings.Contains(patched, "return func() {}, nil") && !strings.Contains(patched, "fmt"), patched)
}
