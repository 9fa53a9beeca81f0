package stats

import (
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
	"correlator/otlp/validate"
)

// moment is when the captures were made.
var moment = time.Unix(1795196498, 0).UTC()

// update updates a state at a moment.
func update(s *State, after time.Duration, f func(*Update)) { s.Update(moment.Add(after), f) }

// test records measurements with tags: "key=value".
func (u *Update) test(measurements []wire.Measurement, tags ...string) {
	r := wire.Record{Measurements: measurements}
	for _, t := range tags {
		key, value, _ := strings.Cut(t, "=")
		r.Tags = append(r.Tags, wire.KeyValue{Key: []byte(key), Value: []byte(value)})
	}
	u.Record(&r, time.Time{})
}

func ints(measure string, values ...uint64) (all []wire.Measurement) {
	for _, v := range values {
		all = append(all, wire.Measurement{Measure: []byte(measure), Type: wire.Int, Int: v})
	}
	return all
}

func floats(measure string, values ...float64) (all []wire.Measurement) {
	for _, v := range values {
		all = append(all, wire.Measurement{Measure: []byte(measure), Type: wire.Float, Float: v})
	}
	return all
}

func pairs(text ...string) (all []wire.KeyValue) {
	for i := 0; i < len(text); i += 2 {
		all = append(all, wire.KeyValue{Key: []byte(text[i]), Value: []byte(text[i+1])})
	}
	return all
}

// feed cuts a capture into messages as a connection does, and applies those that concern a State.
func feed(t testing.TB, s *State, file string) {
	t.Helper()
	content, err := os.ReadFile("../testdata/captures/" + file)
	assert.NilError(t, err)
	var counts wire.Counts
	splitter := wire.NewSplitter(unlimited{}, 8<<20, &counts)
	deliver := func(m wire.Message) { apply(t, s, m) }
	assert.NilError(t, splitter.Feed(content, deliver))
	splitter.End(deliver)
}

type unlimited struct{}

func (unlimited) Take(int) bool { return true }
func (unlimited) Give(int)      {}

func apply(t testing.TB, s *State, m wire.Message) {
	t.Helper()
	sent := m.Sent
	if m.Padded {
		sent = time.Time{}
	}
	s.Update(moment, func(u *Update) { assert.Check(t, u.apply(m.Type, m.Payload, m.Padded, sent)) })
}

// apply applies a message as a receiver does.
func (u *Update) apply(kind wire.Type, payload []byte, padded bool, sent time.Time) error {
	switch kind {
	case wire.MeasureCreate:
		m, err := wire.DecodeMeasure(payload)
		if err == nil {
			u.CreateMeasure(m)
		}
		return err
	case wire.ReportingPeriod:
		seconds, err := wire.DecodePeriod(payload, padded)
		if err == nil {
			u.SetReportingPeriod(seconds)
		}
		return err
	case wire.ViewRegister:
		views, more, err := wire.DecodeViews(payload)
		if err == nil {
			u.RegisterViews(views)
			u.LeftOut(more, 0)
		}
		return err
	case wire.ViewUnregister:
		names, more, err := wire.DecodeNames(payload)
		if err == nil {
			u.UnregisterViews(names)
			u.LeftOut(0, more)
		}
		return err
	case wire.StatsRecord:
		var r wire.Record
		err := r.Decode(payload)
		if err == nil {
			u.Record(&r, sent)
		}
		return err
	}
	return nil
}

// export encodes a state, holds the requests against the rules of OTLP, and returns their metrics.
func export(t testing.TB, s *State, after time.Duration) []*metrics.Metric {
	t.Helper()
	var all []*metrics.Metric
	for _, r := range s.Encode(moment.Add(after)) {
		all = append(all, decode(t, r, s.options.MaxBytes).ResourceMetrics[0].ScopeMetrics[0].Metrics...)
	}
	return all
}

func decode(t testing.TB, r Request, limit int) *collector.ExportMetricsServiceRequest {
	t.Helper()
	assert.Check(t, len(r.Body) <= limit, "request of %d bytes, limit %d", len(r.Body), limit)
	verdict, err := validate.Check(validate.Metrics, r.Body)
	assert.NilError(t, err)
	assert.Check(t, verdict.Message == "" && verdict.Items == r.Points && r.Points != 0,
		"%d points, %d of them valid: %s", r.Points, verdict.Items, verdict.Message)
	request := new(collector.ExportMetricsServiceRequest)
	assert.NilError(t, proto.Unmarshal(r.Body, request))
	return request
}

// points writes the points of metrics as text, one a line: the name, its type and unit, the
// attributes, the value.
func points(all []*metrics.Metric) (lines []string) {
	for _, m := range all {
		write := func(kind string, attributes []*common.KeyValue, exemplars []*metrics.Exemplar, format string,
			args ...any) {
			line := fmt.Sprintf("%s %s %q %s ", m.Name, kind, m.Unit, list(attributes)) + fmt.Sprintf(format, args...)
			for _, e := range exemplars {
				line += fmt.Sprintf(" <%v %s %s %s>", number(e.Value), hex.EncodeToString(e.TraceId),
					hex.EncodeToString(e.SpanId), list(e.FilteredAttributes))
			}
			lines = append(lines, line)
		}
		for _, p := range m.GetGauge().GetDataPoints() {
			write("gauge", p.Attributes, p.Exemplars, "%v", number(p.Value))
		}
		kind := "sum"
		if !m.GetSum().GetIsMonotonic() {
			kind = "updown"
		}
		for _, p := range m.GetSum().GetDataPoints() {
			write(kind, p.Attributes, p.Exemplars, "%v", number(p.Value))
		}
		for _, p := range m.GetHistogram().GetDataPoints() {
			sum := "no sum,"
			if p.Sum != nil {
				sum = fmt.Sprint(p.GetSum())
			}
			write("histogram", p.Attributes, p.Exemplars, "%d %v %v..%v %v %v",
				p.Count, sum, p.GetMin(), p.GetMax(), p.ExplicitBounds, p.BucketCounts)
		}
	}
	return lines
}

// number writes a value with its type: a double with a point.
func number(v any) string {
	switch v := v.(type) {
	case *metrics.NumberDataPoint_AsInt:
		return fmt.Sprint(v.AsInt)
	case *metrics.NumberDataPoint_AsDouble:
		return double(v.AsDouble)
	case *metrics.Exemplar_AsInt:
		return fmt.Sprint(v.AsInt)
	case *metrics.Exemplar_AsDouble:
		return double(v.AsDouble)
	}
	return "no value"
}

func double(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprint(f)
}

func list(attributes []*common.KeyValue) string {
	var text []string
	for _, a := range attributes {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			text = append(text, a.Key+"="+v.StringValue)
		case *common.AnyValue_BoolValue:
			text = append(text, fmt.Sprintf("%s=(%v)", a.Key, v.BoolValue))
		default:
			text = append(text, "unexpected")
		}
	}
	return "{" + strings.Join(text, " ") + "}"
}

// expect compares what a state exports.
func expect(t testing.TB, s *State, after time.Duration, want ...string) {
	t.Helper()
	if got := points(export(t, s, after)); !slices.Equal(got, want) {
		t.Errorf("exported:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// expectLost compares all losses.
func expectLost(t testing.TB, s *State, want map[Loss]uint64) {
	t.Helper()
	counts := s.Counts()
	for l := range NumLosses {
		if counts.Lost[l] != want[l] {
			what, reason := l.Labels()
			t.Errorf("%d %s lost by %s, want %d", counts.Lost[l], what, reason, want[l])
		}
	}
	checkSums(t, &counts)
}

// checkSums checks the sums that Counts promises.
func checkSums(t testing.TB, c *Counts) {
	t.Helper()
	measurements, views := c.Aggregated, c.ViewsCreated+c.ViewsReplaced+c.ViewsKnown
	for l := range NumLosses {
		switch what, _ := l.Labels(); what {
		case "measurement":
			measurements += c.Lost[l]
		case "view":
			views += c.Lost[l]
		}
	}
	assert.Check(t, measurements == c.Measurements && views == c.Views,
		"%d measurements are accounted for of %d, %d views of %d", measurements, c.Measurements, views, c.Views)
}
