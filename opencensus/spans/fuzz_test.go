package spans

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// FuzzAppend encodes any payload: the output is valid, and its numbers add up to those of another
// reader of JSON.
func FuzzAppend(f *testing.F) {
	seed(f, func(payload []byte, options byte) { f.Add(payload, options) })
	f.Fuzz(func(t *testing.T, payload []byte, options byte) {
		x := &Export{Payload: payload, Received: sent}
		out, r, err := NewEncoder(fuzzOptions(options)).Append(nil, x)
		if err != nil {
			if len(out) > 0 || r != (Result{}) || deepest(payload) <= maxNesting && isExport(payload) {
				t.Fatalf("%v with %+v and %d bytes", err, r, len(out))
			}
			return
		}
		decode(t, out, r)
		if len(payload) == 0 {
			return
		}
		assert.Assert(t, isExport(payload), "accepts invalid JSON")
		if want := elementsOf(t, payload); r.Spans+r.dropped() != want {
			t.Fatalf("%+v, want %d spans", r, want)
		}
		assert.Assert(t, r.dropped() <= 0 || r.Spans != 0 || len(out) == 0, "output without spans")
	})
}

// FuzzSpan encodes any JSON between two spans: they are not affected.
func FuzzSpan(f *testing.F) {
	const good = `{"traceId":"a","spanId":"b","name":"caf\u00e9","startTime":{"date":"2024-07-01 12:00:00.000001",` +
		`"timezone_type":3,"timezone":"Europe\/Paris"},"endTime":null,"attributes":{"k":"v"}}`
	seed(f, func(payload []byte, options byte) {
		var list []json.RawMessage
		json.Unmarshal(payload, &list)
		for _, span := range list {
			f.Add([]byte(span), options)
		}
	})
	f.Fuzz(func(t *testing.T, span []byte, options byte) {
		if !json.Valid(span) || deepest(span) >= maxNesting {
			t.Skip()
		}
		e := NewEncoder(fuzzOptions(options))
		alone, _, err := e.Append(nil, export("["+good+"]"))
		assert.NilError(t, err)
		want := show(spansOf(decode(t, alone, Result{Spans: 1}))[0])
		out, r, err := e.Append(nil, export("["+good+","+string(span)+","+good+"]"))
		if err != nil || r.Spans+r.dropped() != 3 {
			t.Fatalf("%+v, %v", r, err)
		}
		all := spansOf(decode(t, out, r))
		first, last := show(all[0]), show(all[len(all)-1])
		assert.Assert(t, first == want && last == want, "%s\n%s\nwant %s", first, last, want)
	})
}

// seed adds the captured exports and some that are odd.
func seed(f *testing.F, add func(payload []byte, options byte)) {
	for _, exports := range traceExports(f, "20-*.bin") {
		add(exports[0].Payload, 0)
	}
	for i, payload := range []string{
		`[{"traceId":"1","spanId":"2","kind":"SERVER","name":"/a?b","status":{"code":500,"message":"m"},` +
			`"timeEvents":[{"description":"d","attributes":{"a":1,"a":2}},{"type":"SENT","id":"7"}],` +
			`"links":[{"traceId":"3","spanId":"4","type":"X"}],"attributes":{"http.path":"/a?b","http.host":"h:1",` +
			`"http.status_code":"500","k":[1,{"x":null}],"f":-1.5e300,"k":"\ud83d"}}]`,
		`{"a":{"traceId":"1","spanId":"2","stackTrace":[{"file":"\/a","line":1,"function":"f","class":"C","type":"->"},{}]}}`,
		"[{\"traceId\":\"1\",\"spanId\":\"2\",\"name\":\"\xff\xfe\"},null,[[[]]]]", ` [ ] `, `{}`, `[]x`,
	} {
		add([]byte(payload), byte(i*5))
	}
}

func fuzzOptions(bits byte) Options {
	o := testOptions()
	o.CutQueries, o.TranslateAttributes = bits&1 != 0, bits&2 != 0
	if bits&4 != 0 {
		o.MaxStackTraceBytes = int(bits >> 3)
	}
	return o
}

// isExport reports whether a payload is a list or an object.
func isExport(payload []byte) bool {
	text := bytes.TrimLeft(payload, " \t\r\n")
	return json.Valid(payload) && (text[0] == '[' || text[0] == '{')
}

// elementsOf returns the number of elements of a list or an object.
func elementsOf(t *testing.T, payload []byte) (n int) {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber() // also those that are out of range
	open, err := d.Token()
	for err == nil && d.More() {
		if open == json.Delim('{') {
			_, err = d.Token()
		}
		var element json.RawMessage
		if err == nil {
			err = d.Decode(&element)
		}
		n++
	}
	assert.NilError(t, err)
	return n
}

// Exports with times that no clock has are encoded, too.
func TestOddClocks(t *testing.T) {
	for _, at := range []time.Time{{}, time.Unix(-1, 0), time.Unix(1<<40, 0), time.Unix(1<<62, 0)} {
		x := export(`[{"traceId":"1","spanId":"2"}]`)
		x.Sent, x.Received = at, at
		data, _ := encode(t, testOptions(), x)
		if s := spansOf(data)[0]; s.StartTimeUnixNano != 0 || s.EndTimeUnixNano != 0 {
			t.Errorf("%v: %s to %s", at, clock(s.StartTimeUnixNano), clock(s.EndTimeUnixNano))
		}
	}
}
