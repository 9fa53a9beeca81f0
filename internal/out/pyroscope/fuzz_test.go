package pyroscope

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"
	"unicode"

	pprof "github.com/google/pprof/profile"
	"gotest.tools/v3/assert"

	"correlator/internal/out/explain"
	"correlator/internal/out/keep"
	"correlator/internal/out/report"
)

// answers answers by the path.
type answers map[string][]byte

func (a answers) Post(_ context.Context, path, _ string, _ []byte, _ int64) ([]byte, error) {
	return a[path], nil
}
func (a answers) Close() {}

// Whatever a backend answers is shown, or an error: tables without control characters, and no
// sum of times is negative.
func FuzzAnswers(f *testing.F) {
	function := &pprof.Function{ID: 1, Name: "f\x1b", Filename: "F.java"}
	location := &pprof.Location{ID: 1, Address: 7, Line: []pprof.Line{{Function: function, Line: 3}}}
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "cpu", Unit: "nanoseconds"}},
		Function: []*pprof.Function{function}, Location: []*pprof.Location{location},
		Sample: []*pprof.Sample{{Location: []*pprof.Location{location}, Value: []int64{1 << 62}}}}
	var content bytes.Buffer
	assert.NilError(f, p.WriteUncompressed(&content))
	for _, kind := range []string{cpuType, waitType} {
		f.Add([]byte(seriesOf(labels{typeLabel: kind, traceLabel: testTrace, "process_pid": "-1",
			"wait_waker": "thread", "wait_waker_trace_id": "x", "network_peer_address": "::1"})), content.Bytes())
	}
	f.Fuzz(func(t *testing.T, series, profile []byte) {
		client := &Client{"http://localhost", answers{seriesPath: series, profilePath: profile}}
		q := keep.Query{ID: testTrace}
		answer, err := client.Samples(t.Context(), q)
		if err != nil {
			return
		}
		var sum time.Duration
		for i := range answer.Waits {
			sum += answer.Waits[i].Sum
			assert.Assert(t, sum >= 0)
		}
		for i := range answer.Samples {
			sum += time.Duration(answer.Samples[i].Count) * time.Microsecond
			assert.Assert(t, sum >= 0)
		}
		for _, format := range []report.Format{explain.Table, explain.JSON, report.HTML} {
			var out bytes.Buffer
			err := explain.Run(t.Context(), client, &out, io.Discard, explain.Options{Query: q, Format: format})
			has := bytes.ContainsFunc(out.Bytes(), func(r rune) bool { return unicode.IsControl(r) && r != '\n' })
			assert.Assert(t, err != nil || format != explain.Table || !has, "%q", out.Bytes())
		}
	})
}
