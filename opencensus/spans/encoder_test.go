package spans

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestResource(t *testing.T) {
	o := testOptions()
	o.HostName = "web\xff1"
	x := export(`[{"traceId":"1","spanId":"2"}]`)
	x.PHPVersion = "8.2\xc3"
	x.Process = Process{PID: 24983, ContainerID: "c0ffee", ExecutableName: "php-fpm"}
	data, _ := encode(t, o, x)
	rs := data.ResourceSpans[0]
	const want = ` service.name="shop" telemetry.sdk.name="opencensus" telemetry.sdk.language="php"` +
		` process.runtime.name="php" host.id="0af7" host.name="web` + "\uFFFD" + `1"` +
		` process.runtime.version="8.2` + "\uFFFD" + `" process.executable.name="php-fpm" container.id="c0ffee"` +
		` process.pid=24983`
	got := showAll(rs.Resource.Attributes, " ")
	assert.Check(t, got == want, got)
	assert.Check(t, len(rs.ScopeSpans) == 1 && rs.ScopeSpans[0].Scope.Name == "opencensus-php", rs.ScopeSpans)

	data, _ = encode(t, Options{ServiceName: "shop"}, export(`[{"traceId":"1","spanId":"2"}]`))
	const least = ` service.name="shop" telemetry.sdk.name="opencensus" telemetry.sdk.language="php"` +
		` process.runtime.name="php"`
	got = showAll(data.ResourceSpans[0].Resource.Attributes, " ")
	assert.Check(t, got == least, got)
}

// The bytes of a request, written by hand from the messages of OTLP.
func TestBytes(t *testing.T) {
	x := export(` [ {"traceId":"a1","spanId":"b2","parentSpanId":"c3","name":"n","kind":"CLIENT",` +
		`"startTime":{"date":"1970-01-01 00:00:01.000001","timezone_type":3,"timezone":"UTC"},` +
		`"endTime":{"date":"1970-01-01 00:00:02.000000","timezone_type":3,"timezone":"UTC"},` +
		`"attributes":{"k":true},"timeEvents":[{}],"links":[{},{}],"sameProcessAsParentSpan":false} ] `)
	out, r, err := bare().Append(nil, x)
	const want = "" +
		"\x0a\x68" + // resource_spans
		"\x0a\x00" + // resource
		"\x12\x64" + // scope_spans
		"\x0a\x10\x0a\x0eopencensus-php" +
		"\x12\x50" + // span
		"\x0a\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xa1" +
		"\x12\x08\x00\x00\x00\x00\x00\x00\x00\xb2" +
		"\x22\x08\x00\x00\x00\x00\x00\x00\x00\xc3" +
		"\x2a\x01n" +
		"\x30\x03" +
		"\x39\xe8\xcd\x9a\x3b\x00\x00\x00\x00" + // 1000001000
		"\x41\x00\x94\x35\x77\x00\x00\x00\x00" + // 2000000000
		"\x4a\x07\x0a\x01k\x12\x02\x10\x01" +
		"\x60\x01" +
		"\x70\x02" +
		"\x85\x01\x01\x03\x00\x00" // 0x301
	assert.Check(t, string(out) == want && err == nil && r.Spans == 1, "% x, %+v, %v, want\n% x", out, r, err, want)
}

// What is not an export as a whole is an error, and nothing is appended.
func TestInvalid(t *testing.T) {
	span := `{"traceId":"1","spanId":"2"}`
	e := NewEncoder(testOptions())
	for _, payload := range []string{
		" ", "null", "1", `"text"`, "true", "[", "{", "]", "[" + span, "[" + span + ",", "[" + span + ",]", "[" + span + "]]",
		"[" + span + " " + span + "]", "[" + span + "] x", "[" + span + "]\x00", "[,]", "[" + span + ",{]", `{"a"}`,
		`{"a":}`, `{"a":` + span + `,}`, `{a:` + span + `}`, `[{"traceId":"1","spanId":"2","name":"` + "\n" + `"}]`,
		`[` + span + `,{"name":"\x"}]`, `[` + span + `,{"name":"\u12g4"}]`, `[` + span + `,{"name":"\`, `[` + span + `,{"name":"\u12`,
		`[` + span + `,{"name":01}]`, `[` + span + `,{"name":1.}]`, `[` + span + `,{"name":-}]`, `[` + span + `,{"name":1e}]`,
		`[` + span + `,{"name":.5}]`, `[` + span + `,{"name":nul}]`, `[` + span + `,NaN]`, "\ufeff[]",
		"[" + span + "," + strings.Repeat("[", maxNesting) + strings.Repeat("]", maxNesting) + "]",
		strings.Repeat("[", 1<<20), strings.Repeat(`{"a":`, 1<<20),
	} {
		out, r, err := e.Append([]byte("before"), export(payload))
		assert.Check(t, errors.Is(err, ErrInvalid) && r == Result{} && string(out) == "before",
			"%.80q: %q, %+v, %v", payload, out, r, err)
	}
}

// Without spans nothing is appended, and no memory is taken.
func TestNoSpans(t *testing.T) {
	e := NewEncoder(testOptions())
	for payload, want := range map[string]Result{
		"": {Empty: true}, "[]": {}, " [ ] ": {}, "{}": {}, "[1]": {Dropped: [NumDropReasons]int{NotObject: 1}},
		`[{}]`: {Dropped: [NumDropReasons]int{BadTraceID: 1}},
		strings.Repeat("[", maxNesting) + strings.Repeat("]", maxNesting): {Dropped: [NumDropReasons]int{NotObject: 1}},
	} {
		out, r, err := e.Append([]byte("before"), export(payload))
		assert.Check(t, string(out) == "before" && r == want && err == nil, "%.80q: %q, %+v, %v", payload, out, r, err)
	}
	x := export("[]")
	n := testing.AllocsPerRun(100, func() { e.Append(nil, x) })
	assert.Check(t, n == 0, "%v allocations", n)
}

// A bad span costs only itself.
func TestDropped(t *testing.T) {
	for bad, reason := range map[string]DropReason{
		`null`: NotObject, `[]`: NotObject, `[{"traceId":"1","spanId":"2"}]`: NotObject, `"x"`: NotObject, `-1.5e3`: NotObject,
		`{}`: BadTraceID, `{"spanId":"2"}`: BadTraceID, `{"traceId":null,"spanId":"2"}`: BadTraceID,
		`{"traceId":"","spanId":"2"}`: BadTraceID, `{"traceId":"0","spanId":"2"}`: BadTraceID,
		`{"traceId":"x1","spanId":"2"}`: BadTraceID, `{"traceId":true,"spanId":"2"}`: BadTraceID,
		`{"traceId":["1"],"spanId":"2"}`: BadTraceID, `{"traceId":"-1","spanId":"2"}`: BadTraceID,
		`{"traceId":"` + strings.Repeat("1", 33) + `","spanId":"2"}`: BadTraceID,
		`{"traceId":"` + strings.Repeat("0", 33) + `","spanId":"2"}`: BadTraceID,
		`{"traceId":"1"}`: BadSpanID, `{"traceId":"1","spanId":null}`: BadSpanID, `{"traceId":"1","spanId":""}`: BadSpanID,
		`{"traceId":"1","spanId":"0000"}`: BadSpanID, `{"traceId":"1","spanId":"12345678123456789"}`: BadSpanID,
		`{"traceId":"1","spanId":"12 "}`: BadSpanID, `{"traceId":"1","spanId":"\u0000"}`: BadSpanID,
		`{"traceId":"1","spanId":"2","spanId":{}}`: BadSpanID,
	} {
		data, r := encode(t, testOptions(), export(`[{"traceId":"a","spanId":"b"},`+bad+`,{"traceId":"a","spanId":"c"}]`))
		got := spansOf(data)
		if len(got) != 2 || got[0].SpanId[7] != 0xb || got[1].SpanId[7] != 0xc || r.Dropped[reason] != 1 ||
			r.dropped() != 1 {
			t.Errorf("%s: %+v", bad, r)
		}
	}
}

func TestTooMany(t *testing.T) {
	span := `,{"traceId":"1","spanId":"2"}`
	payload := "[1" + strings.Repeat(span, maxSpans+9) + ",2]"
	_, r := encode(t, testOptions(), export(payload))
	assert.Check(t, r.Spans == 49_999 && r.Dropped == [NumDropReasons]int{NotObject: 2, TooMany: 10}, "%+v", r)
	// What is not encoded is still checked.
	_, _, err := NewEncoder(testOptions()).Append(nil, export(payload+"]"))
	assert.Check(t, errors.Is(err, ErrInvalid), err)
}

// A list becomes an object when PHP takes elements out.
func TestObjectOfSpans(t *testing.T) {
	data, r := encode(t, testOptions(), export(`{"3":{"traceId":"a","spanId":"b"},"1":7,"x\n":{"traceId":"a","spanId":"c"}}`))
	got := spansOf(data)
	assert.Check(t, len(got) == 2 && got[0].SpanId[7] == 0xb && got[1].SpanId[7] == 0xc && r.Dropped[NotObject] == 1,
		"%+v", r)
}

// An encoder is used concurrently, and its memory again: exports do not affect each other.
func TestConcurrent(t *testing.T) {
	e := NewEncoder(testOptions())
	done := make(chan error)
	const workers = 4
	for i := range workers {
		go func() {
			var err error
			x := export(fmt.Sprintf(`[{"traceId":"%d","spanId":"2","name":"caf\u00e9 %d","startTime":{"date":`+
				`"2024-07-01 12:00:00","timezone_type":3,"timezone":"Europe/Paris"}}]`, i+1, i))
			want, _, _ := NewEncoder(testOptions()).Append(nil, x)
			for range 200 {
				e.Append(nil, export(`[{"traceId":"1`))
				if out, _, _ := e.Append(nil, x); !bytes.Equal(out, want) {
					err = fmt.Errorf("% x, want % x", out, want)
				}
			}
			done <- err
		}()
	}
	for range workers {
		err := <-done
		assert.Check(t, err)
	}
}

func TestDropReasonNames(t *testing.T) {
	seen := make(map[string]bool)
	for r := range NumDropReasons + 1 {
		assert.Check(t, r.String() != "" && !seen[r.String()], "%d: %q", r, r)
		seen[r.String()] = true
	}
	assert.Check(t, seen["unknown"], seen)
}

// bare returns an encoder whose resource has no attributes.
func bare() *Encoder {
	e := NewEncoder(Options{})
	e.resource = nil
	return e
}
