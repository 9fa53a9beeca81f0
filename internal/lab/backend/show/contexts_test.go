package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// What samples say of contexts is compared with what the process says.
func TestContexts(t *testing.T) {
	const rate = 100
	whole := interval{100, 300}
	served := func(trace, span, route string, began, ended, cpuMillis int) string {
		return fmt.Sprintf(`{"event":"served","trace_id":%q,"span_id":%q,"route":%q,"began_ns":%d,"ended_ns":%d,`+
			`"cpu_ns":%d,"methods":{"price":%[6]d}}`+"\n", trace, span, route, began, ended, cpuMillis*1e6)
	}
	events := filepath.Join(t.TempDir(), "events")
	text := `{"event":"ready","pid":1}` + "\n" + served("early", "00", "/", 99, 150, 1000) +
		served("aa", "01", "/a", 150, 200, 600) + served("bb", "02", "/b", 200, 290, 400) +
		served("short", "03", "/b", 290, 291, 10) + served("late", "04", "/", 291, 301, 1000)
	assert.NilError(t, os.WriteFile(events, []byte(text), 0o600))
	price := frame{name: "price", source: "shop.py", line: 3, method: true}
	frames := []frame{{name: "sqrt"}, price, {name: "eval"}}
	fresh := func(samplesOfA, samplesOfB uint64) map[string]*transaction {
		all := make(map[string]*transaction)
		add(all, "early", context{"00", "/"}, stack{frames, 1000})
		add(all, "aa", context{"01", "/a"}, stack{frames, samplesOfA - 1})
		add(all, "aa", context{"01", "/a"}, stack{frames[1:], 1})
		add(all, "bb", context{"02", "/b"}, stack{frames, samplesOfB})
		return all
	}
	shown := func(all map[string]*transaction, during interval) (string, error) {
		var out strings.Builder
		err := showContexts(&out, all, events, rate, during)
		return out.String(), err
	}

	want := `  TRACE                             SPAN              http.route       CPU ms  EXPECTED  SAMPLES
  aa                                01                /a                600.0      60.0       61
  bb                                02                /b                400.0      40.0       39
  in all: 1.00 s of CPU x 100 Hz = 100.0; recorded 100

  Trace aa:

  SAMPLES   SHARE      BY ITS OWN CLOCK  METHOD
       61  100.0 %     600.0 ms  100.0 %  price  shop.py:3
`
	got, err := shown(fresh(61, 39), whole)
	assert.Check(t, err == nil && got == want, "%v\n%s\nwant\n%s", err, got, want)

	early := fresh(61, 39) // of aa, some samples are from before its stacks were unwound
	early["aa"].stacks = []stack{{frames, 30}, {frames[:1], 31}}
	got, err = shown(early, whole)
	assert.Check(t, err == nil && strings.Contains(got, "Trace bb:"), "%v\n%s", err, got)

	other := fresh(61, 39)
	add(other, "cc", context{}, stack{frames, 1})
	route := fresh(61, 39)
	add(route, "bb", context{"02", ""}, stack{frames, 1})
	missing := fresh(100, 1)
	delete(missing, "bb")
	unnamed := fresh(61, 39)
	unnamed["aa"].stacks, unnamed["bb"].stacks = []stack{{frames[:1], 61}}, []stack{{frames[:1], 39}}
	for text, all := range map[string]map[string]*transaction{
		"no trace cc": other, "of trace bb say": route, "trace bb has no sample": missing,
		"151 samples, 100.0 expected": fresh(100, 51), "49 samples, 100.0 expected": fresh(48, 1),
		"not seen: price": unnamed,
	} {
		_, err := shown(all, whole)
		assert.Check(t, err != nil && strings.Contains(err.Error(), text), "%v, want %s", err, text)
	}
	_, err = shown(fresh(61, 39), interval{100, 149})
	assert.Check(t, err != nil && strings.Contains(err.Error(), "too few"), "no transaction: %v", err)
}
