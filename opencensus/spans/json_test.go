package spans

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
)

// maxNesting is the nesting that both readers of JSON accept.
const maxNesting = 10_000

// FuzzJSON compares what is read with encoding/json: which texts are valid, and what strings and
// numbers are.
func FuzzJSON(f *testing.F) {
	for _, exports := range traceExports(f, "20-*.bin") {
		f.Add(exports[0].Payload)
	}
	for _, text := range []string{`"\ud83d\ud83d\ude00\n\/"`, "\"\xff\xc3\xa4\"", `-0.10e-07`, `9223372036854775808`, "1e400",
		` [ { } , [ ] , "" , nul ] `, `{"a":1,}`, `[1 2]`, "\"\x1f\"", `"\u00zz"`, `01`, `[`, `--1`, "tru"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e := &encoding{}
		r := e.open(text)
		v := r.value()
		assert.Assert(t, !r.bad || v == nil && !r.more(), "goes on behind what is invalid: %q", v)
		valid := r.ended()
		if deepest(text) > maxNesting {
			return // hostile: any answer, but an answer
		}
		assert.Assert(t, valid == json.Valid(text), "valid: %v", valid)
		if !valid {
			return
		}
		assert.Assert(t, bytes.Equal(v, bytes.Trim(text, " \t\r\n")), "value %q", v)
		switch {
		case v.isString():
			var want string
			assert.NilError(t, json.Unmarshal(text, &want))
			got := string(appendText(nil, v))
			again := string(e.text(v))
			assert.Assert(t, again == got, "%q and %q", got, again)
			if !utf8.ValidString(got) || utf8.Valid(text) && got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		case v.isText() && v[0] != 't' && v[0] != 'f':
			want, err := strconv.ParseInt(string(v), 10, 64)
			got, ok := integer(v)
			assert.Assert(t, ok == (err == nil) && (!ok || got == want), "%d, %v, want %d, %v", got, ok, want, err)
		}
	})
}

// deepest returns an upper bound of the levels of a JSON text.
func deepest(text []byte) int { return bytes.Count(text, []byte("[")) + bytes.Count(text, []byte("{")) }

// Numbers keep their values.
func TestInteger(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "7": 7, "-1": -1, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
		"9223372036854775808": -2, "-9223372036854775809": -2, "99999999999999999999999": -2, "1.0": -2,
		"1e1": -2, "": -2, "-": -2, "+1": -2, "x": -2,
	} {
		n, ok := integer(value(text))
		assert.Check(t, ok == (want != -2) && (!ok || n == want), "%q: %d, %v", text, n, ok)
	}
}
