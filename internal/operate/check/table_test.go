package check

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

var some = []Result{
	{Name: "short", Group: "first", Status: OK, Detail: "as it should be"},
	{Name: "a.longer.name", Group: "first", Required: true, Status: Missing,
		Detail: "not there, which takes some words to say",
		Loss:   "no samples", Remedy: "do what needs to be done, and then do it again"},
	{Name: "other", Group: "second", Status: Degraded, Detail: "holds \x1b[31m \"quotes\"", Loss: "some",
		Remedy: "do what needs to be done, and then do it again"},
}

func written(t *testing.T, results []Result, style Style) string {
	t.Helper()
	var b strings.Builder
	assert.NilError(t, WriteTable(&b, results, style))
	return b.String()
}

// Names are aligned, a remedy is written once, and escape sequences in details are escaped.
func TestTable(t *testing.T) {
	const want = `first
  ok        short          as it should be
  missing   a.longer.name  not there, which takes some words to say
    -> do what needs to be done, and then do it again

second
  degraded  other          holds \x1b[31m "quotes"

run could not work: missing a.longer.name
`
	got := written(t, some, Style{})
	assert.Check(t, got == want, "wrote\n%s", got)
	got = written(t, some, Style{Width: 120})
	assert.Check(t, got == want, "on a wide terminal\n%s", got)
}

func TestTableNarrow(t *testing.T) {
	const want = `first
  ok        short          as it should be
  missing   a.longer.name  not there, which takes
                           some words to say
    -> do what needs to be done, and then do it
       again

second
  degraded  other  holds \x1b[31m "quotes"

run could not work: missing a.longer.name
`
	got := written(t, some, Style{Width: 51})
	assert.Check(t, got == want, "wrote\n%s", got)
	const narrower = `first
  ok        short
    as it should be
  missing   a.longer.name
    not there, which takes some words
    to say
    -> do what needs to be done, and
       then do it again

second
  degraded  other
    holds \x1b[31m "quotes"

run could not work: missing
a.longer.name
`
	got = written(t, some, Style{Width: 38})
	assert.Check(t, got == narrower, "wrote\n%s", got)
}

// Colors change nothing but the statuses, and their escapes do not count towards the width.
func TestTableColor(t *testing.T) {
	plain := written(t, some, Style{Width: 80})
	colored := written(t, some, Style{Width: 80, Color: true})
	for status, color := range map[Status]string{OK: "\x1b[32mok      \x1b[0m", Degraded: "\x1b[33mdegraded\x1b[0m",
		Missing: "\x1b[31mmissing \x1b[0m"} {
		assert.Check(t, strings.Count(colored, color) == 1, "%s is not colored:\n%q", status, colored)
		colored = strings.Replace(colored, color, color[5:13], 1)
	}
	assert.Check(t, colored == plain, "but for colors:\n%s\nnot\n%s", colored, plain)
}

func TestVerdict(t *testing.T) {
	required := Result{Name: "r", Required: true, Status: Missing, Loss: "all"}
	optional := Result{Name: "o", Status: Missing, Loss: "a bit"}
	for _, test := range []struct {
		results []Result
		works   bool
		verdict string
	}{
		{[]Result{{Name: "f", Required: true, Status: OK}}, true, "run would work"},
		{[]Result{optional, optional, {Name: "d", Required: true, Status: Degraded, Loss: "some"}}, true,
			"run would work, but: a bit; some"},
		{[]Result{optional, required, {Name: "s", Required: true, Status: Missing}}, false,
			"run could not work: missing r, s"},
	} {
		works, verdict := Works(test.results), Verdict(test.results)
		assert.Check(t, works == test.works && verdict == test.verdict,
			"%v, %q, want %v, %q", works, verdict, test.works, test.verdict)
	}
}
