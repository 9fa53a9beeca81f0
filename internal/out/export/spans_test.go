package export

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"correlator/otlp/spantimes"
)

// All spans of a request are told, in their order and many at a time; those of two requests never at once.
func TestSpansAreToldTogether(t *testing.T) {
	const spans = 2*spansAtOnce + 1
	scope := &trace.ScopeSpans{}
	for i := range spans {
		scope.Spans = append(scope.Spans, &trace.Span{TraceId: []byte("0123456789abcdef"),
			SpanId: binary.BigEndian.AppendUint64(nil, uint64(i)+1)})
	}
	request, err := proto.Marshal(&collector.ExportTraceServiceRequest{
		ResourceSpans: []*trace.ResourceSpans{{ScopeSpans: []*trace.ScopeSpans{scope}}}})
	assert.NilError(t, err)
	var inside atomic.Int32
	var sizes []int
	next := uint64(0)
	r := spanReader{tell: func(told []spantimes.Span) {
		assert.Check(t, inside.Add(1) == 1)
		sizes = append(sizes, len(told))
		for _, span := range told {
			next++
			assert.Check(t, binary.BigEndian.Uint64(span.ID[:]) == (next-1)%spans+1)
		}
		inside.Add(-1)
	}}
	var reading sync.WaitGroup
	for range 2 {
		reading.Go(func() { r.read(request) })
	}
	reading.Wait()
	assert.DeepEqual(t, sizes, []int{spansAtOnce, spansAtOnce, 1, spansAtOnce, spansAtOnce, 1})
	r.read(nil)
	assert.Check(t, len(sizes) == 6, "nothing is told of a request without spans")
}
