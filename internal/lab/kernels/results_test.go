package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/kernels/console"
)

// Lines of a console, with what firmware and kernel print before and between events.
func TestEvents(t *testing.T) {
	const console = "SeaBIOS\x1b[2J\n" +
		"[    1.2] Run /init as init process\n" +
		"cut off by \x1ekernels {\"Release\":\"6.1.0\"}\n" +
		"\x1ekernels {\"Step\":\"bpf\",\"Output\":\"=== RUN\"}\n" +
		"\x1ekernels {\"Step\":\"bpf\",\"Ou\n" +
		"\x1ekernels {\"Step\":\"bpf\",\"Ended\":{\"Error\":\"exit status 1\",\"Seconds\":2.5}}\n" +
		"\x1ekernels {\"Done\":true}\n"
	var got []string
	done, malformed, err := readEvents(strings.NewReader(console), func(e event) {
		text := e.Release + e.Step + e.Output
		if e.Ended != nil {
			text += " ended: " + e.Ended.Error
		}
		if e.Done {
			text += "done"
		}
		got = append(got, text)
	})
	want := []string{"6.1.0", "bpf=== RUN", "bpf ended: exit status 1", "done"}
	assert.Check(t, slices.Equal(got, want), "got %q, want %q", got, want)
	assert.Check(t, done && err == nil && malformed != nil && strings.Contains(malformed.Error(), `Ou"`),
		"done: %v, %v, malformed: %v", done, err, malformed)
}

// Each is the end of a console.
func TestEventsEnd(t *testing.T) {
	const first = "\x1ekernels {\"Release\":\"6.1.0\"}\n"
	for name, c := range map[string]struct {
		end             string
		done, malformed bool
	}{
		"done":           {end: "\x1ekernels {\"Done\":true}\n", done: true},
		"done, no line":  {end: "\x1ekernels {\"Done\":true}", done: true},
		"nothing":        {},
		"another prefix": {end: "kernels {\"Done\":true}\n"},
		"cut off":        {end: "\x1ekernels {\"Step\":\"bp", malformed: true},
		"panic within":   {end: "\x1ekernels {\"Step\":\"bp[  9.1] Kernel panic\n", malformed: true},
		"two in a line":  {end: "\x1ekernels {\"St\x1ekernels {\"Done\":true}\n", malformed: true},
		"another type":   {end: "\x1ekernels {\"Done\":1}\n", malformed: true},
		"no event":       {end: "\x1ekernels \n\x1ekernels {\"Done\":true}\n", done: true, malformed: true},
	} {
		t.Run(name, func(t *testing.T) {
			done, malformed, err := readEvents(strings.NewReader(first+c.end), func(event) {})
			assert.Check(t, done == c.done && (malformed != nil) == c.malformed && err == nil,
				"done: %v, malformed: %v, %v", done, malformed, err)
		})
	}
}

// What a test in the guest asks for is an event.
func TestStop(t *testing.T) {
	for _, want := range []console.Stop{{Stall: 10 * time.Second}, {Pause: 10 * time.Second}} {
		var got []event
		done, malformed, err := readEvents(bytes.NewReader(console.Line(want)), func(e event) { got = append(got, e) })
		assert.Check(t, len(got) == 1 && got[0] == event{Stop: want} && !done && malformed == nil && err == nil,
			"%+v: %+v, %v, %v, %v", want, got, done, malformed, err)
	}
}

// Messages as /dev/kmsg has them, of which some are missing.
func TestReadMessage(t *testing.T) {
	var next uint64
	var got []string
	for _, message := range []string{
		"6,1,0,-;Linux version\n", "4,2,10,-;hpet: Lost 1 RTC interrupts\n SUBSYSTEM=hpet\n",
		"30,3,20,-;a daemon's\n", "12,4,20,-;a daemon's warning\n", "3,7,30,c;BUG: no\n",
	} {
		events, err := readMessage(message, &next)
		assert.NilError(t, err)
		for _, e := range events {
			got = append(got, e.Kernel)
		}
	}
	want := []string{messagesLost + ": 0 to 0", "hpet: Lost 1 RTC interrupts", "a daemon's warning",
		messagesLost + ": 5 to 6", "BUG: no"}
	assert.Check(t, slices.Equal(got, want), "got %q, want %q", got, want)
	events, err := readMessage("no numbers", &next)
	assert.Check(t, err != nil, "no numbers: %v", events)
}

// What a test binary prints with -test.v=test2json, where TestHung had not ended.
const printed = "\x16=== RUN   TestPass\n\x16--- PASS: TestPass (0.00s)\n" +
	"\x16=== RUN   TestParts\n" +
	"\x16=== RUN   TestParts/one\n    a_test.go:1: seen\n\x16--- PASS: TestParts/one (0.00s)\n" +
	"\x16=== RUN   TestParts/two\n    a_test.go:2: needs a|b\n\x16--- SKIP: TestParts/two (0.00s)\n" +
	"\x16--- PASS: TestParts (0.00s)\n" +
	"\x16=== RUN   TestFail\n    a_test.go:3: first\n    a_test.go:4: wrong\n" +
	"    logger.go:146: WARN of the program\n\x16--- FAIL: TestFail (0.00s)\n" +
	"\x16=== RUN   TestHung\npanic: test timed out after 1s\n"

func TestParseTests(t *testing.T) {
	tests, err := parseTests(bytes.NewBufferString(printed))
	assert.NilError(t, err)
	want := []test{
		{"TestPass", "pass", ""}, {"TestParts/one", "pass", ""}, {"TestParts/two", "skip", "needs a|b"},
		{"TestFail", "fail", "wrong"}, {"TestHung", "", ""},
	}
	assert.Check(t, slices.Equal(tests, want), "got %q, want %q", tests, want)
}

// The table shows everything that failed or did not end, and how many were skipped.
func TestTable(t *testing.T) {
	one, two := result{ID: "one", Commit: "1234"}, result{ID: "two", Error: "no such kernel"}
	outputs := make(map[string]*bytes.Buffer)
	for _, e := range []event{
		{Release: "5.10"}, {Step: "bpf", Output: printed}, {Step: "bpf", Ended: &ending{Error: "exit status 1"}},
		{Step: "memread", Output: "panic: no\n"}, {Step: "memread", Ended: &ending{Error: "exit status 2"}},
	} {
		assert.NilError(t, one.handle(e, outputs))
	}
	const want = `|  | kernel | commit | tests |
|---|---|---|---|
| one | 5.10 | 1234 | 2 passed, 1 skipped, 1 failed, 1 did not end |
| two | did not boot |  | 0 passed |

Steps: ` + "`bpf`, `memread`" + `

two failed: no such kernel

| failed step | kernel | tests |
|---|---|---|
| ` + "`bpf`" + ` | one | 2 passed, 1 skipped, 1 failed, 1 did not end |
| ` + "`memread`" + ` | one | 0 passed, exit status 2 |

| failed | tests | kernels |
|---|---|---|
| wrong | ` + "`bpf`: TestFail" + ` | one |

| did not end | tests | kernels |
|---|---|---|
| no reason | ` + "`bpf`: TestHung" + ` | one |
`
	got := table([]result{one, two})
	assert.Check(t, got == want, "got:\n%s\nwant:\n%s", got, want)
	if !one.failed() || !two.failed() {
		t.Errorf("failed: %v, %v", one.failed(), two.failed())
	}

	page := filepath.Join(t.TempDir(), "page.md")
	assert.NilError(t, os.WriteFile(page, []byte("before\n"+tableBegin+"old\n"+tableEnd+"after\n"), 0o600))
	assert.NilError(t, updatePage(page, got))
	text, err := os.ReadFile(page)
	assert.Check(t, err == nil && string(text) == "before\n"+tableBegin+"\n"+want+"\n"+tableEnd+"after\n",
		"%v, page:\n%s", err, text)
}

// What is no success although no test has failed.
func TestJudge(t *testing.T) {
	passed := test{Name: "TestOne", Outcome: "pass"}
	skipped := func(reason string) test { return test{Name: "TestTwo", Outcome: "skip", Output: reason} }
	for name, c := range map[string]struct {
		change func(r *result)
		want   string // part of the table
	}{
		"nothing wrong":       {func(*result) {}, ""},
		"skipped as expected": {func(r *result) { r.Steps[0].add(skipped("needs PROCMAP_QUERY")) }, ""},
		"skipped": {func(r *result) { r.Steps[0].add(skipped("needs CAP_BPF")) },
			"1 passed, 1 skipped, TestTwo must not be skipped"},
		"nothing has run": {func(r *result) { r.Steps[0].Count = nil }, "0 passed, no test has passed"},
		"did not end":     {func(r *result) { r.Steps = nil }, "0 passed, did not end"},
		"a test did not end": {func(r *result) { r.Steps[0].add(test{Name: "TestTwo"}) },
			"1 passed, 1 did not end"},
		"a program that the guest should have": {
			func(r *result) { r.Steps[0].add(skipped("needs the program setpriv in PATH")) },
			"TestTwo must not be skipped"},
		"another kernel": {func(r *result) { r.Release = "5.100.1" }, `amd64-5.10 failed: the kernel is "5.100.1"`},
		"not done":       {func(r *result) { r.Error = "the guest ended early" }, "failed: the guest ended"},
		"trouble":        {func(r *result) { r.Kernel = []string{"hrtimer: late", "BUG: no"} }, "log has: BUG: no"},
		"lost messages":  {func(r *result) { r.Kernel = []string{messagesLost + ": 5 to 6"} }, "log has: messages"},
	} {
		t.Run(name, func(t *testing.T) {
			one := newStepResult("bpf", "", []test{passed})
			r := result{ID: "amd64-5.10", Release: "5.10.0", Steps: []stepResult{one}}
			c.change(&r)
			r.judge(plan{Steps: []step{{Name: "bpf"}}})
			if got := table([]result{r}); r.failed() != (c.want != "") || !strings.Contains(got, c.want) {
				t.Errorf("failed: %v, want %q in\n%s", r.failed(), c.want, got)
			}
		})
	}
}

var update = flag.Bool("update-page", false, "write the table into "+page)

// The table of the page is that of the results beside this program, which it is made of.
func TestPage(t *testing.T) {
	results, err := loadResults("results")
	assert.Assert(t, err == nil && len(results) != 0, "%d results, %v", len(results), err)
	path := filepath.Join("../../..", page)
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	if !*update {
		path = filepath.Join(t.TempDir(), "page.md")
		assert.NilError(t, os.WriteFile(path, text, 0o600))
	}
	assert.NilError(t, updatePage(path, table(results)))
	shown, err := os.ReadFile(path)
	assert.Check(t, err == nil && (*update || bytes.Equal(shown, text)),
		"%v; %s does not show %s: go test ./internal/lab/kernels -run TestPage -update-page", err, page, resultsDir)
}
