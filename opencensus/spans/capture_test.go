package spans

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// The trace exports of the captures, as spans that were derived by hand from their JSON.
func TestCaptures(t *testing.T) {
	want, err := os.ReadFile("testdata/spans.txt")
	assert.NilError(t, err)
	var got strings.Builder
	found := traceExports(t, "20-trace-export*.bin")
	for _, name := range slices.Sorted(maps.Keys(found)) {
		for _, x := range found[name] {
			data, r := encode(t, testOptions(), x.Export)
			fmt.Fprintf(&got, "== %s\n", name)
			if r.Empty || r.InvalidParents+r.UnknownZones > 0 {
				fmt.Fprintf(&got, "empty %v, %d invalid parents, %d unknown zones\n", r.Empty, r.InvalidParents,
					r.UnknownZones)
			}
			for _, s := range spansOf(data) {
				fmt.Fprintln(&got, show(s))
			}
		}
	}
	gotLines, wantLines := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		if i >= len(gotLines) || i >= len(wantLines) || gotLines[i] != wantLines[i] {
			t.Fatalf("line %d:\n%s\nwant\n%s", i+1, strings.Join(gotLines[min(i, len(gotLines)):], "\n"),
				strings.Join(wantLines[min(i, len(wantLines)):], "\n"))
		}
	}
}

// All trace exports of all captures have the spans that another reader of JSON finds.
func TestSessions(t *testing.T) {
	total := 0
	for name, exports := range traceExports(t, "*.bin") {
		for _, x := range exports {
			data, r := encode(t, testOptions(), x.Export)
			assert.Assert(t, r.Spans == x.spans, "%s: %d spans, want %d", name, r.Spans, x.spans)
			total += r.Spans
			var want []struct {
				TraceID, SpanID, ParentSpanID string
				Name                          any
				StartTime, EndTime            *struct{ Date, Timezone string }
				Attributes                    any
				TimeEvents, Links             []any
			}
			err := json.Unmarshal(x.Payload, &want)
			assert.Assert(t, err == nil || len(x.Payload) == 0, "%v %v", name, err)
			for i, s := range spansOf(data) {
				w := want[i]
				parent := ""
				if s.ParentSpanId != nil {
					parent = strings.TrimLeft(hex.EncodeToString(s.ParentSpanId), "0")
				}
				count := len(s.Attributes)
				for _, a := range s.Attributes {
					if a.Key == "code.stacktrace" || a.Key == "opencensus.unfinished" {
						count--
					}
				}
				wantCount := strings.Count(fmt.Sprint(w.Attributes), "<nil>") // null is left out
				switch list := w.Attributes.(type) {
				case []any:
					wantCount = len(list) - wantCount
				case map[string]any:
					wantCount = len(list) - wantCount
				}
				if hex.EncodeToString(s.TraceId) != strings.ToLower(w.TraceID) || s.Name != fmt.Sprint(w.Name) ||
					strings.TrimLeft(hex.EncodeToString(s.SpanId), "0") != strings.TrimLeft(w.SpanID, "0") ||
					len(w.ParentSpanID) <= 16 && parent != w.ParentSpanID || count != wantCount ||
					int(s.DroppedEventsCount) != len(w.TimeEvents) || int(s.DroppedLinksCount) != len(w.Links) {
					t.Errorf("%s: %s, want %+v", name, show(s), w)
				}
				if w.StartTime != nil && (w.StartTime.Timezone == "UTC" || w.StartTime.Timezone == "+00:00") {
					at, err := time.Parse(time.DateTime, w.StartTime.Date)
					if err != nil || uint64(at.UnixNano()) != s.StartTimeUnixNano {
						t.Errorf("%s: starts at %s, want %s", name, clock(s.StartTimeUnixNano), w.StartTime.Date)
					}
				}
			}
		}
	}
	assert.Check(t, total == 74, "%d spans in all captures", total)
}

// A padded time of a message is none, so unfinished spans end when their export was received.
func TestPaddedTime(t *testing.T) {
	x := export(`[{"traceId":"1","spanId":"2","startTime":{"date":"2026-11-20 17:41:38.000000","timezone_type":3,` +
		`"timezone":"UTC"},"endTime":null}]`)
	x.Sent = time.Time{}
	data, _ := encode(t, testOptions(), x)
	if got := spansOf(data)[0].EndTimeUnixNano; got != uint64(x.Received.UnixNano()) {
		t.Errorf("ends at %s", clock(got))
	}
}
