package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/out/keep"
	"correlator/internal/out/report"
	"correlator/profile"
)

// source answers every query with the same.
type source struct {
	answer *keep.Answer
	err    error
}

func (s source) Samples(context.Context, keep.Query) (*keep.Answer, error) { return s.answer, s.err }

var at = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func place(i int) *int { return &i }

// example is the answer for a trace with a transaction in each of two processes.
func example() *keep.Answer {
	return &keep.Answer{
		At: at.Add(time.Minute), Host: "web-3", SamplesPerSecond: 20, Keep: 10 * time.Minute, Oldest: at, Kept: 1000,
		Transactions: []keep.Transaction{
			{Trace: "4bf92f3577b34da6a3ce929d0e0e4736", ID: "7ad51cbe3a4f0c12", Process: 0, Context: "elastic",
				First: at, Last: at.Add(950 * time.Millisecond), Samples: 7},
			{Trace: "4bf92f3577b34da6a3ce929d0e0e4736", Process: 1, Context: "opentelemetry", First: at,
				Attributes: map[string]string{"route": "/\x1b[2J"}, Last: at.Add(150 * time.Millisecond), Samples: 8,
				Earlier: 2},
		},
		Processes: []keep.Process{{PID: 11, Service: "shop\x1b[31m", Environment: "test"}, {PID: 12}},
		Files:     []keep.File{{Kind: profile.NativeFrame, Path: "/usr/lib/libc.so.6", BuildID: "0123"}},
		Frames: []keep.Frame{
			{Kind: profile.JVMFrame, Function: "Shop.price", Source: "Shop.java", Line: 43, Address: 43},
			{Kind: profile.JVMFrame, Function: "Shop.checkout", Source: "Shop.java", Line: 24, Address: 24},
			{Kind: profile.NativeFrame, File: place(0), Address: 0x1234},
			{Kind: profile.AnonymousFrame, Address: 0x7f0000000000},
			{Kind: profile.CutFrame, Address: 1},
			{Kind: profile.JVMFrame, Function: "Shop.checkout", Source: "Shop.java", Line: 26, Address: 26},
		},
		Stacks: [][]uint32{{0, 1}, {5}, {2, 3, 4}},
		Samples: []keep.Sample{
			{Transaction: 0, Stack: 0, TID: 21, Thread: "http-1", Span: "00f067aa0ba902b7", Count: 5},
			{Transaction: 0, Stack: 1, TID: 21, Thread: "http-1", Count: 2},
			{Transaction: 1, Stack: 2, TID: 31, Count: 8},
		},
	}
}

func run(t *testing.T, a *keep.Answer, o Options) (stdout, stderr string, err error) {
	t.Helper()
	var out, failure bytes.Buffer
	err = Run(t.Context(), source{answer: a}, &out, &failure, o)
	return out.String(), failure.String(), err
}

func TestTable(t *testing.T) {
	defer func(local *time.Location) { time.Local = local }(time.Local)
	time.Local = time.UTC
	out, _, err := run(t, example(), Options{Format: Table})
	assert.NilError(t, err)
	want := "TRACE                             TRANSACTION       SERVICE       " +
		"PID       FIRST    WALL     CPU   OF WALL  SAMPLES  ATTRIBUTES\n" +
		"4bf92f3577b34da6a3ce929d0e0e4736  7ad51cbe3a4f0c12  shop\\x1b[31m  " +
		" 11  12:00:00.0  1.00 s  350 ms      35 %        7  -\n" +
		"4bf92f3577b34da6a3ce929d0e0e4736  -                 -             " +
		" 12  12:00:00.0  200 ms  400 ms  2.0 CPUs        8  route=/\\x1b[2J\n" +
		"2 earlier samples of 1 of the transactions are no longer kept; all numbers are of those that are\n" + `
THREAD  PID  TID     CPU  OF WALL  SAMPLES
-        12   31  400 ms     33 %        8
http-1   11   21  350 ms     29 %        7

SPAN              TRANSACTION          CPU  OF WALL  SAMPLES
-                 -                 400 ms     33 %        8
00f067aa0ba902b7  7ad51cbe3a4f0c12  250 ms     21 %        5
-                 7ad51cbe3a4f0c12  100 ms      8 %        2

   CPU   SHARE    SELF  METHOD
400 ms  53.3 %       -  process (12)
400 ms  53.3 %       -  [stack truncated]
400 ms  53.3 %       -  [unknown]
400 ms  53.3 %  400 ms  libc.so.6+0x1234
350 ms  46.7 %       -  shop\x1b[31m (11)
350 ms  46.7 %  100 ms  Shop.checkout  Shop.java:24,26
250 ms  33.3 %  250 ms   Shop.price  Shop.java:43
`
	assert.Check(t, out == want, "%s\nwant\n%s", out, want)

	// What was on another day has a date.
	older := example()
	older.At = at.AddDate(0, 0, 1)
	out, _, err = run(t, older, Options{Format: Table})
	const first = " 2026-11-23 12:00:00.0  1.00 s "
	assert.Check(t, err == nil && strings.Contains(out, first), "%v, %s", err, out)
	older.Transactions, older.Samples = older.Transactions[:1], older.Samples[:2]
	out, _, err = run(t, older, Options{Format: Table})
	assert.Check(t, err == nil && strings.Contains(out, ", 2026-11-23 12:00:00.000 to 12:00:00.950: "), "%v, %s", err,
		out)
}

func TestJSONAndFiles(t *testing.T) {
	out, _, err := run(t, example(), Options{Format: JSON})
	assert.NilError(t, err)
	var e Explanation
	assert.NilError(t, json.Unmarshal([]byte(out), &e))
	assert.Check(t, len(e.Methods) == 7 && e.Methods[5].Caller == 4 && e.Methods[4].Caller == -1 &&
		e.Methods[5].Lines[0] == Line{24, 5, 0} && e.Samples == 15 && len(e.Spans) == 3,
		out)
	path := filepath.Join(t.TempDir(), "x.html")
	out, stderr, err := run(t, example(), Options{Format: report.HTML, File: path})
	info, statErr := os.Stat(path)
	assert.Check(t, err == nil && statErr == nil && out == "" && strings.HasPrefix(stderr, "wrote ") &&
		info.Mode().Perm() == 0o600,
		"%q %q, %v, %v", out, stderr, err, statErr)
	_, _, err = run(t, example(), Options{Format: report.HTML, File: "missing/x"})
	assert.Check(t, err != nil, "a file in a missing directory was written")
	if out, _, err := run(t, example(), Options{Format: report.Folded}); err != nil || !strings.
		Contains(out, "Shop.checkout;Shop.price 5\n") {
		t.Errorf("%s, %v", out, err)
	}
}

// A function with a mangled name is shown by the other one; pprof has both.
func TestSystemName(t *testing.T) {
	a := example()
	a.Frames[2].Function, a.Frames[2].System = "foo::bar<int>", "_ZN3foo3barIiEEvv"
	for _, format := range []report.Format{Table, JSON, report.HTML, report.Folded} {
		out, _, err := run(t, a, Options{Format: format})
		assert.Check(t, err == nil && !strings.Contains(out, a.Frames[2].System) && strings.Contains(out, "foo::bar"),
			"%s: %s, %v", format, out, err)
	}
	path := filepath.Join(t.TempDir(), "x.pb.gz")
	_, _, err := run(t, a, Options{Format: report.PProf, File: path})
	assert.NilError(t, err)
	p, err := pprof.ParseData(testenv.ReadFile(t, path))
	assert.NilError(t, err)
	assert.Check(t, slices.ContainsFunc(p.Function, func(f *pprof.Function) bool {
		return f.Name == a.Frames[2].Function && f.SystemName == a.Frames[2].System
	}), p)
}

// Numbers of a transaction that is partly kept are of what is kept, and fit together.
func TestPartlyKept(t *testing.T) {
	defer func(local *time.Location) { time.Local = local }(time.Local)
	time.Local = time.UTC
	a := example()
	a.Transactions, a.Samples = a.Transactions[:1], a.Samples[:2]
	tx := &a.Transactions[0]
	tx.Earlier, tx.First, tx.KeptFrom = 993, at.Add(-49*time.Second), at
	a.Gone, a.GoneAt = "evicted", at.Add(-time.Second)
	out, _, err := run(t, a, Options{Format: Table})
	assert.NilError(t, err)
	for _, want := range []string{
		"350 ms of CPU time in 1.00 s from the first sample to the last, 12:00:00.000 to 12:00:00.950: 35 %; " +
			"before that, 993 samples since 11:59:11.000, which are no longer kept\n",
		"http-1   11   21  350 ms     35 %        7\n",
		"there was no room for them (--keep-bytes), the last ones at 11:59:59\n",
	} {
		assert.Check(t, strings.Contains(out, want), "no %q in\n%s", want, out)
	}
}

// Samples that the answer had no room for are in the sums, and have a name in each form.
func TestLeftOut(t *testing.T) {
	a := example()
	a.LeftOut = 5
	a.Transactions[0].Samples += a.LeftOut + 2
	a.Samples = append(a.Samples, keep.Sample{Transaction: 0, Stack: keep.LeftOutStack, Count: a.LeftOut},
		keep.Sample{Transaction: 0, Several: true, Count: 2})
	for format, want := range map[report.Format]string{
		Table: "7 samples are counted without thread and span, or without stack", JSON: leftOut, report.Folded: leftOut + " 5\n",
		report.HTML: leftOut,
	} {
		out, _, err := run(t, a, Options{Format: format})
		assert.Check(t, err == nil && strings.Contains(out, want), "%s: no %q in\n%s, %v", format, want, out, err)
	}
	out, _, err := run(t, a, Options{Format: JSON})
	var e Explanation
	assert.NilError(t, errors.Join(err, json.Unmarshal([]byte(out), &e)))
	outermost := uint64(0)
	for _, m := range e.Methods {
		if m.Caller < 0 {
			outermost += m.Samples
		}
	}
	assert.Check(t, e.Samples == 22 && outermost == 22 && e.LeftOut == 7 && len(e.Threads) == 2 && len(e.Spans) == 3,
		"%d samples, %d in methods, threads %v, spans %v", e.Samples, outermost, e.Threads, e.Spans)
}

// JSON is not nested by the depth of stacks: jq 1.6 stops at 256.
func TestDepthOfJSON(t *testing.T) {
	a := example()
	for i := range 500 {
		a.Frames = append(a.Frames, keep.Frame{Kind: profile.JVMFrame, Function: fmt.Sprint("deep", i)})
		a.Stacks[0] = append(a.Stacks[0], uint32(len(a.Frames)-1))
	}
	out, _, err := run(t, a, Options{Format: JSON})
	assert.NilError(t, err)
	depth, most := 0, 0
	for _, r := range out {
		switch r {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		most = max(most, depth)
	}
	// names have brackets, too
	assert.Check(t, strings.Contains(out, "deep499") && most <= 20, "JSON has a depth of %d", most)
}

// An answer that refers to what it does not have is an error, whatever it is.
func TestAnswerOfAnotherVersion(t *testing.T) {
	for what, spoil := range map[string]func(a *keep.Answer){
		"rate":        func(a *keep.Answer) { a.SamplesPerSecond = 0 },
		"file":        func(a *keep.Answer) { a.Frames[2].File = place(1) },
		"no file":     func(a *keep.Answer) { a.Frames[2].File = place(-1) },
		"frame":       func(a *keep.Answer) { a.Stacks[0][0] = 99 },
		"stack":       func(a *keep.Answer) { a.Samples[0].Stack = 99 },
		"transaction": func(a *keep.Answer) { a.Samples[0].Transaction = -1 },
		"process":     func(a *keep.Answer) { a.Transactions[0].Process = 2 },
		"id":          func(a *keep.Answer) { a.Transactions[0].ID = "abcd" },
		"span":        func(a *keep.Answer) { a.Samples[0].Span = "xyz" },
		"wait":        func(a *keep.Answer) { a.Waits[0].Transaction = 1 },
		"its stack":   func(a *keep.Answer) { a.Waits[0].Stack = keep.LeftOutStack },
		"its time":    func(a *keep.Answer) { a.Waits[0].Sum = -1 },
		"its peer":    func(a *keep.Answer) { a.Waits[0].Peer = "x" },
		"its waker":   func(a *keep.Answer) { a.Waits[0].Waker.Trace = "12" },
	} {
		a := waited()
		spoil(a)
		_, _, err := run(t, a, Options{Format: Table})
		assert.Check(t, err != nil, "%s: no error", what)
	}
}

// Where there is nothing, the error says why.
func TestNothing(t *testing.T) {
	for want, a := range map[string]*keep.Answer{
		"too long ago":               {Gone: "expired", GoneAt: at, Keep: time.Minute},
		"dropped for lack of room":   {Gone: "evicted", GoneAt: at},
		"its samples had no stack":   {Gone: "no_stack"},
		"too large to be kept":       {Gone: "too_large"},
		"every 50ms of CPU time":     {SamplesPerSecond: 20, At: at},
		"Of an id in full, 32 or":    {SamplesPerSecond: 20, At: at},
		"ran before the agent began": {SamplesPerSecond: 20, At: at},
		"ran before " + at.Local().Format(time.DateTime): {SamplesPerSecond: 20, Complete: at,
			Oldest: at.Add(-time.Hour), At: at.AddDate(0, 0, 2)},
		"several ids begin with abcd": {Ambiguous: []string{"abcd1", "abcd2"}},
		"samples are kept of 2 transactions with the id abcd, but --service or --since": {Filtered: 2, Gone: "no_stack"},
	} {
		_, _, err := run(t, a, Options{Query: keep.Query{ID: "abcd"}, Format: Table})
		assert.Check(t, err != nil && strings.Contains(err.Error(), want), "%v, want %q", err, want)
	}
	_, _, err := run(t, &keep.Answer{}, Options{Query: keep.Query{Service: "x"}, Format: Table})
	assert.Check(t, err != nil && strings.Contains(err.Error(), "that is selected (--service, --since)"), err)
	refused := errors.New("refused")
	err = Run(t.Context(), source{err: refused}, nil, nil, Options{})
	assert.Check(t, errors.Is(err, refused), err)
}

// Where it is often not known which inlined method runs, that is said in one line.
func TestInlined(t *testing.T) {
	a := example()
	a.Frames[5] = keep.Frame{Kind: profile.JVMFrame, Function: profile.InlinedName, Address: 1}
	stdout, _, err := run(t, a, Options{Format: Table})
	assert.NilError(t, err)
	const want = "28.6% of the CPU time of shop"
	assert.Check(t, strings.Contains(stdout, want) && strings.Contains(stdout, "-XX:+DebugNonSafepoints"), stdout)
}

// Of several transactions it is said how many have lost samples, of one why.
func TestGoneNote(t *testing.T) {
	e := &Explanation{Transactions: []Transaction{{}, {Gone: "evicted"}, {Gone: "expired"}}}
	note := e.goneNote()
	assert.Check(t, strings.Contains(note, " of 2 of the transactions are not kept"), note)
	e.Transactions = e.Transactions[:1]
	assert.Check(t, e.goneNote() == "", e.goneNote())
	e.Gone = "evicted"
	note = e.goneNote()
	assert.Check(t, strings.Contains(note, goneTexts["evicted"]), note)
}
