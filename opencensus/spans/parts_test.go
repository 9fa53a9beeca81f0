package spans

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
)

// A large export is split where a part is large enough; each part is a request of its own, with the same
// resource, and all spans are there in order.
func TestParts(t *testing.T) {
	const n = 1000
	var json []string
	for i := range n {
		json = append(json, fmt.Sprintf(`{"traceId":"%032x","spanId":"%x","name":"%d"}`, 1, i+1, i))
	}
	x := Export{
		Payload: []byte("[" + strings.Join(json, ",") + "]"), Received: time.Unix(1e9, 0), Process: Process{PID: 7},
	}
	for _, limit := range []int{0, 1, 500, 5000, 1 << 20} {
		encoded, result, err := NewEncoder(Options{ServiceName: "shop", SplitBytes: limit}).Append(nil, &x)
		assert.Assert(t, err == nil && result.Spans == n, "%d: %+v, %v", limit, result, err)
		var names []string
		parts, sizes := 0, 0
		for part, spans := range Parts(encoded) {
			var request collector.ExportTraceServiceRequest
			if err := proto.Unmarshal(part, &request); err != nil || len(request.ResourceSpans) != 1 {
				t.Fatalf("%d: %d resources, %v", limit, len(request.ResourceSpans), err)
			}
			rs := request.ResourceSpans[0]
			if len(rs.Resource.Attributes) != 5 || len(rs.ScopeSpans[0].Spans) != spans || spans == 0 {
				t.Errorf("%d: %d spans, said to be %d, of %v", limit, len(rs.ScopeSpans[0].Spans), spans, rs.Resource)
			}
			for _, s := range rs.ScopeSpans[0].Spans {
				names = append(names, s.Name)
			}
			parts, sizes = parts+1, sizes+len(part)
			assert.Check(t, limit <= 0 || len(part) <= limit+1000, "%d: a part of %d bytes", limit, len(part))
		}
		one := limit == 0 || limit == 1<<20
		assert.Check(t, sizes == len(encoded) && one == (parts == 1) && (limit != 1 || parts == n),
			"%d: %d parts of %d bytes, of %d", limit, parts, sizes, len(encoded))
		assert.Check(t, slices.IsSortedFunc(names, func(a, b string) int { return len(a) - len(b) }) &&
			len(names) == n && len(slices.Compact(names)) == n,
			"%d: %d spans", limit, len(names))
	}
}
