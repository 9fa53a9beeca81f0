//go:build interop

package export_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"

	collectormetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectorprofiles "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	collectortrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
)

// item is a span, a point or a sample as the collector has it; numbers in attributes are float64.
type item struct {
	Signal     string         `json:"signal"`
	Resource   map[string]any `json:"resource"`
	Attributes map[string]any `json:"attributes"`
	Trace      string         `json:"trace_id"`
	Span       string         `json:"span_id"`

	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Type   string    `json:"type"`
	Start  uint64    `json:"start"`
	Time   uint64    `json:"time"`
	Value  float64   `json:"value"`
	Count  uint64    `json:"count"`
	Sum    float64   `json:"sum"`
	Bounds []float64 `json:"bounds"`
	Counts []uint64  `json:"counts"`

	Stack      string   `json:"stack_trace_id"`
	Kinds      []string `json:"frame_types"`
	Values     []int64  `json:"values"`
	Timestamps []uint64 `json:"timestamps"`

	Request []byte `json:"request"` // of the last object of a request, which has nothing else
	Ready   bool   `json:"ready"`
}

// String is all of it: maps print in order of their keys.
func (i item) String() string {
	type plain item
	return fmt.Sprintf("%+v", plain(i))
}

// collector is the program of testdata/interop.
type collector struct {
	command  *exec.Cmd
	input    io.Closer
	items    []item
	requests map[string][][]byte // by signal
	read     chan error          // when its output has ended
}

// startCollector returns when the collector listens.
func startCollector(t *testing.T, program string, args ...string) *collector {
	t.Helper()
	command := exec.Command(program, args...)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	assert.NilError(t, err)
	output, err := command.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, command.Start())
	t.Cleanup(func() {
		command.Process.Kill() // unless finish was called
		command.Wait()
	})
	lines := bufio.NewReader(output)
	var ready item
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	assert.Assert(t, err == nil && ready.Ready, "collector is not ready: %q, %v", line, err)
	c := &collector{command: command, input: input, requests: make(map[string][][]byte), read: make(chan error, 1)}
	go func() { c.read <- c.readAll(lines) }()
	return c
}

// readAll reads beside the test: an answer waits until what came has been printed.
func (c *collector) readAll(lines io.Reader) error {
	decoder := json.NewDecoder(lines)
	for {
		var i item
		err := decoder.Decode(&i)
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case i.Request != nil:
			c.requests[i.Signal] = append(c.requests[i.Signal], i.Request)
		default:
			c.items = append(c.items, i)
		}
	}
}

// finish ends the collector, and returns what it got: items, and requests by signal.
func (c *collector) finish(t *testing.T) ([]item, map[string][][]byte) {
	t.Helper()
	c.input.Close()
	err := <-c.read
	assert.NilError(t, err)
	assert.Check(t, c.command.Wait())
	return c.items, c.requests
}

// compareRequests holds the requests that arrived against those that were sent, field by field, in
// any order.
func compareRequests(t *testing.T, signal string, got, want [][]byte) {
	t.Helper()
	arrived := decodeAll(t, signal, got)
	for _, m := range decodeAll(t, signal, want) {
		i := slices.IndexFunc(arrived, func(a proto.Message) bool { return proto.Equal(asSent(a, m), m) })
		if i < 0 {
			t.Errorf("%s: a request of %d bytes did not arrive as it was sent", signal, proto.Size(m))
			continue
		}
		arrived = slices.Delete(arrived, i, i+1)
	}
	assert.Check(t, len(arrived) == 0, "%s: %d requests that nobody sent", signal, len(arrived))
}

func decodeAll(t *testing.T, signal string, bodies [][]byte) (requests []proto.Message) {
	t.Helper()
	for _, body := range bodies {
		var m proto.Message
		switch signal {
		case "traces":
			m = new(collectortrace.ExportTraceServiceRequest)
		case "metrics":
			m = new(collectormetrics.ExportMetricsServiceRequest)
		case "profiles":
			m = new(collectorprofiles.ExportProfilesServiceRequest)
		}
		assert.NilError(t, proto.Unmarshal(body, m))
		requests = append(requests, m)
	}
	return requests
}

// asSent takes back what the collector changes when it encodes a request again: it writes statuses
// and values without content, and texts of resources behind those of the string table.
func asSent(arrived, sent proto.Message) proto.Message {
	arrived = proto.Clone(arrived)
	switch m := arrived.(type) {
	case *collectortrace.ExportTraceServiceRequest:
		for _, s := range m.ResourceSpans[0].ScopeSpans[0].Spans {
			if proto.Equal(s.Status, new(trace.Status)) {
				s.Status = nil
			}
		}
	case *collectorprofiles.ExportProfilesServiceRequest:
		if a := m.Dictionary.AttributeTable[0]; proto.Equal(a.Value, new(common.AnyValue)) {
			a.Value = nil
		}
		texts := m.Dictionary.StringTable
		for _, r := range m.ResourceProfiles {
			for _, a := range r.Resource.Attributes {
				a.Key, a.KeyStrindex = texts[a.KeyStrindex], 0
				if v, ok := a.Value.Value.(*common.AnyValue_StringValueStrindex); ok {
					a.Value.Value = &common.AnyValue_StringValue{StringValue: texts[v.StringValueStrindex]}
				}
			}
		}
		own := len(sent.(*collectorprofiles.ExportProfilesServiceRequest).Dictionary.StringTable)
		m.Dictionary.StringTable = texts[:min(own, len(texts))]
	}
	return arrived
}
