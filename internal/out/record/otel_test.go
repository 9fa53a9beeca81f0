package record

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/profile"
)

// A process that publishes by OpenTelemetry's standards is recorded with the ids and attributes of its
// threads' records, under the name in its process context; only the keys that are asked for.
func TestRecordingOTel(t *testing.T) {
	keys := []string{"datadog.local_root_span_id", "http.route", "tenant"}
	w := demo.StartOTel(t, demo.OTelOptions{Threads: 2, Keys: keys})
	record1 := demo.OTelRecord{TraceID: demo.TraceID{1}, SpanID: demo.SpanID{2}, Flags: 1}
	record1.Attributes = demo.OTelAttribute(nil, 0, "00000000000000ab")
	record1.Attributes = demo.OTelAttribute(record1.Attributes, 1, "/pay/:id")
	record1.Attributes = demo.OTelAttribute(record1.Attributes, 2, "secret")
	working := w.Begin(1, record1)
	w.Busy(1, true)
	w.Busy(2, true) // on nothing
	r := record(t, Options{Filter: services(t, "checkout"),
		Attributes: keys[:2]})
	r.poll("samples", func(p Progress) bool { return p.WithTrace >= 100 && p.Samples >= p.WithTrace+100 })
	recording := r.end()
	want := profile.NewAttributes([]profile.Attribute{
		{Key: "datadog.local_root_span_id", Value: "00000000000000ab"}, {Key: "http.route", Value: "/pay/:id"}})
	for key := range recording.of(w.PID) {
		assert.Assert(t, key.Process.Service == "checkout" && key.Process.Environment == "prod",
			"process %+v", key.Process)
		traced := Key{
			Process: key.Process, TID: working.TID, Thread: key.Thread, TraceID: record1.TraceID,
			SpanID: record1.SpanID, TransactionID: [8]byte{7: 0xab}, Attributes: want, Stack: key.Stack,
		}
		assert.Check(t, key.TID != working.TID || key == traced, "got %+v, want %+v", key, traced)
		if key.TID != working.TID && (key.HasTrace() || key.Attributes != profile.Attributes{}) {
			t.Errorf("%+v, of a thread that works on nothing", key)
		}
	}
	assert.Check(t, len(recording.Failed) == 0 && len(recording.Lost) == 0,
		"failed %v, lost %v", recording.Failed, recording.Lost)
}
