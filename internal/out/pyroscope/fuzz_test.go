package pyroscope

import (
	"bytes"
	"context"
	"io"
	"testing"

	pprof "github.com/google/pprof/profile"
	"gotest.tools/v3/assert"

	"correlator/internal/out/explain"
	"correlator/internal/out/keep"
)

// answers answers by the path.
type answers map[string][]byte

func (a answers) Post(_ context.Context, path, _ string, _ []byte, _ int64) ([]byte, error) {
	return a[path], nil
}
func (a answers) Close() {}

// smallProfile is one of a sample, with what is not for a terminal.
func smallProfile(t testing.TB) []byte {
	function := &pprof.Function{ID: 1, Name: "f\x1b", Filename: "F.java"}
	location := &pprof.Location{ID: 1, Address: 7, Line: []pprof.Line{{Function: function, Line: 3}}}
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "cpu", Unit: "nanoseconds"}},
		Function: []*pprof.Function{function}, Location: []*pprof.Location{location},
		Sample: []*pprof.Sample{{Location: []*pprof.Location{location}, Value: []int64{1 << 62}}}}
	var content bytes.Buffer
	assert.NilError(t, p.WriteUncompressed(&content))
	return content.Bytes()
}

// Whatever a backend answers is shown, or an error.
func FuzzAnswers(f *testing.F) {
	content := smallProfile(f)
	for _, kind := range []string{cpuType, waitType} {
		f.Add([]byte(`{"labelsSet":[{"labels":[{"name":"__profile_type__","value":"`+kind+`"},{"name":"trace_id","value":"`+
			testTrace+`"},{"name":"process_pid","value":"-1"},{"name":"wait_waker","value":"thread"},`+
			`{"name":"wait_waker_trace_id","value":"x"},{"name":"network_peer_address","value":"::1"}]}]}`), content)
	}
	f.Fuzz(func(t *testing.T, labels, profile []byte) {
		client := &Client{"http://localhost", answers{seriesPath: labels, profilePath: profile}}
		_ = explain.Run(t.Context(), client, io.Discard, io.Discard, explain.Options{Query: keep.Query{ID: testTrace},
			Format: explain.JSON})
	})
}
