package receiver

import (
	"context"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/opencensus/internal/client"
	"correlator/opencensus/spans"
	"correlator/opencensus/wire"
	"correlator/otlp"
)

// The last state of a view that was unregistered is exported even if the queue had no room when it was
// due.
func TestLastStateIsKept(t *testing.T) {
	s := &store{err: &otlp.OverloadError{}}
	l := openLab(t, Config{}, Options{Queue: s})
	l.stopExporting()
	l.exporting.Wait()
	c := client.Client{PID: 1}
	data := c.UnregisterViews(records(setUp(nil, &c), &c, 3), counter)
	l.send(data)
	l.wait(`processed_messages_total{type="view_unregister"}`, 1)
	l.sendMetrics(context.Background())
	assert.Assert(t, len(s.batches) == 0, "%d batches were accepted", len(s.batches))
	l.want(`refused_points_total{reason="overload"}`, 0)
	s.mu.Lock()
	s.err = nil
	s.mu.Unlock()
	l.finish()
	l.store = s
	l.wantSum(counter, 3)
	l.want("exported_points_total", 1)
}

// If it cannot be exported until the end, it is counted.
func TestLastStateIsCounted(t *testing.T) {
	l := openLab(t, Config{}, Options{Queue: &store{err: &otlp.OverloadError{}}})
	c := client.Client{PID: 1}
	l.send(c.UnregisterViews(records(setUp(nil, &c), &c, 3), counter))
	l.finish()
	l.want(`refused_points_total{reason="shutdown"}`, 1)
}

// An export that is larger than a request arrives in several.
func TestLargeExport(t *testing.T) {
	const n = 1000
	l := openLab(t, Config{}, Options{
		MaxRequestBytes: 20_000, Spans: spans.NewEncoder(spans.Options{SplitBytes: 10_000}),
	})
	c := client.Client{PID: 1}
	l.send(export(nil, &c, n))
	l.finish()
	received := 0
	for _, rs := range l.resourceSpans(t) {
		received += len(rs.ScopeSpans[0].Spans)
	}
	if received != n || len(l.batches) < 2 {
		t.Errorf("%d spans in %d requests", received, len(l.batches))
	}
	l.want("exported_spans_total", n)
	l.want(`processed_messages_total{type="`+wire.TraceExport.String()+`"}`, 1)
}
