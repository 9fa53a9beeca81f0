package stats

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	"gotest.tools/v3/assert"

	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
)

// choices are made by a fuzzer, byte by byte.
type choices []byte

func (c *choices) below(n int) int {
	if len(*c) == 0 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return int(b) % n
}

func (c *choices) text(all []string) string { return all[c.below(len(all))] }

func (c *choices) float() float64 {
	all := [...]float64{0, 1, -1, 2.5, 5, 100, 1e308, -1e308, math.Inf(1), math.NaN(), math.Copysign(0, -1),
		math.MaxInt64}
	return all[c.below(len(all))]
}

// message is any message, of few names, so that they meet.
func (c *choices) message(names []string) (wire.Type, []byte) {
	switch c.below(8) {
	case 0:
		return wire.MeasureCreate, client.AppendMeasure(nil, wire.Measure{Type: wire.MeasureType(c.below(4)),
			Name: c.text(names), Description: c.text(names), Unit: c.text(names)})
	case 1:
		return wire.ReportingPeriod, client.AppendPeriod(nil, c.float())
	case 2, 3:
		var views []wire.View
		for range c.below(4) {
			v := wire.View{Name: c.text(names), Description: c.text(names), Measure: c.text(names),
				Aggregation: wire.Aggregation(c.below(6))}
			for range c.below(4) {
				v.TagKeys = append(v.TagKeys, c.text(names))
			}
			for range c.below(5) {
				if v.Aggregation == wire.Distribution {
					v.Boundaries = append(v.Boundaries, c.float())
				}
			}
			views = append(views, v)
		}
		return wire.ViewRegister, client.AppendViews(nil, views)
	case 4:
		return wire.ViewUnregister, client.AppendNames(nil, []string{c.text(names), c.text(names)}[:c.below(3)])
	default:
		var r wire.Record
		for range c.below(5) {
			ints := [...]uint64{0, 1, 127, 1 << 40, math.MaxInt64}
			r.Measurements = append(r.Measurements, wire.Measurement{Measure: []byte(c.text(names)),
				Type: wire.MeasureType(c.below(3)), Int: ints[c.below(5)], Float: c.float()})
		}
		for range c.below(5) {
			r.Tags = append(r.Tags, pairs(c.text(names), c.text(names))...)
		}
		for range c.below(4) {
			r.Attachments = append(r.Attachments, pairs(c.text(append(names, "trace_id", "SpanId")),
				c.text(append(names,
					"0123456789abcdef0123456789abcdef", "7")))...)
		}
		return wire.StatsRecord, client.AppendRecord(nil, &r)
	}
}

// FuzzState applies any messages of several users, and holds what comes out against the rules, and
// the bounds and sums against what is there.
func FuzzState(f *testing.F) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 0))
		all := make([]byte, 4000)
		for i := range all {
			all[i] = byte(random.Uint32())
		}
		texts := [][2]string{{"a\xff", "\x00"}, {"a.b", "a/b"}, {"le", "a_total"}, {"", "__x"}}[seed%4]
		f.Add(all, uint16(seed*seed*80), uint16(seed*300), texts[0], texts[1])
	}
	f.Add([]byte{2, 1, 1, 1, 1, 1, 0, 7, 1, 1, 1, 1}, uint16(9), uint16(300), "le", "")
	f.Fuzz(func(t *testing.T, b []byte, memory, limit uint16, name, other string) {
		names := []string{name, other, "a", "b", "c", "a b", ""}
		s := New(Options{MaxMemory: max(int(memory)*16, 1), MaxBytes: 200 + int(limit), MaxMeasures: 4, MaxViews: 5,
			MaxSeries:     3,
			MaxBoundaries: 3, NonMonotonicSums: len(b)%2 == 1})
		now := moment
		var past timeline
		for c := choices(b); len(c) > 0; {
			uid, kind, payload := uint32(c.below(3)), wire.Type(0), []byte(nil)
			if c.below(8) == 7 {
				n := min(len(c), c.below(64))
				kind, payload = wire.MeasureCreate+wire.Type(c.below(5)), c[:min(n, len(c))]
				c = c[len(payload):]
			} else {
				kind, payload = c.message(names)
			}
			now = now.Add(time.Duration(c.below(5)-1) * time.Minute)
			before := s.Counts()
			s.Update(now.Add(time.Duration(c.below(4)-3)*time.Minute), func(u *Update) {
				u.SetUser(uid)
				fuzzMessage(u, kind, payload, now.Add(time.Duration(c.below(8)-4)*time.Minute))
			})
			after := s.Counts()
			checkSums(t, &after)
			for l := range NumLosses {
				assert.Check(t, after.Lost[l] >= before.Lost[l], "%v decreased", l)
			}
			check(t, s)
			switch c.below(8) {
			case 6:
				s.Gather()
			case 7:
				for _, r := range s.Encode(now) {
					past.check(t, decode(t, r, s.options.MaxBytes))
				}
				check(t, s)
			}
		}
		gather(t, s)
		for _, r := range s.Encode(now) {
			past.check(t, decode(t, r, s.options.MaxBytes))
		}
		check(t, s)
	})
}

// timeline has the latest times of each name.
type timeline map[string]struct{ start, time uint64 }

// check checks that times do not decrease, and that a series begins not before the end of another
// one that had its name.
func (l *timeline) check(t *testing.T, r *collector.ExportMetricsServiceRequest) {
	t.Helper()
	if *l == nil {
		*l = make(timeline)
	}
	for _, m := range r.ResourceMetrics[0].ScopeMetrics[0].Metrics {
		point := func(start, time uint64) {
			last := (*l)[m.Name]
			if time < last.time || start > time || start > 0 && start != last.start && start < last.time {
				t.Errorf("%q from %d to %d after one from %d to %d", m.Name, start, time, last.start, last.time)
			}
			(*l)[m.Name] = struct{ start, time uint64 }{start, time}
		}
		for _, p := range append(m.GetGauge().GetDataPoints(), m.GetSum().GetDataPoints()...) {
			point(p.StartTimeUnixNano, p.TimeUnixNano)
		}
		for _, p := range m.GetHistogram().GetDataPoints() {
			point(p.StartTimeUnixNano, p.TimeUnixNano)
		}
	}
}

// fuzzMessage applies a message, which may be undecodable.
func fuzzMessage(u *Update, kind wire.Type, payload []byte, sent time.Time) {
	payload = bytes.Clone(payload)
	_ = u.apply(kind, payload, false, sent)
	for i := range payload { // what is kept is a copy
		payload[i] = 0x55
	}
}

// check checks the bounds of a state, and that what it has fits together.
func check(t testing.TB, s *State) {
	t.Helper()
	checkMemory(t, s)
	total := 0
	views := make(map[*user]int)
	for name, v := range s.views {
		views[v.user]++
		total += len(v.series)
		if v.name != name || s.measures[v.measure.name] != v.measure || len(v.byValues) > s.options.MaxSeries {
			t.Errorf("view %q has the measure %q and %d series", name, v.measure.name, len(v.byValues))
		}
		for _, x := range v.series {
			sum := uint64(0)
			for _, n := range x.buckets {
				sum += n
			}
			if v.aggregation == wire.Distribution && sum != x.count || math.IsNaN(x.float) || math.IsInf(x.float, 0) {
				t.Errorf("%q: %d in buckets, %d in all, sum %v", name, sum, x.count, x.float)
			}
		}
	}
	assert.Check(t, total == s.series, "%d series, not %d", total, s.series)
	measures := make(map[*user]int)
	for _, m := range s.measures {
		measures[m.user]++
		for _, v := range m.views {
			assert.Check(t, s.views[v.name] == v, "measure %q has a view that is not registered: %q", m.name, v.name)
		}
	}
	for _, u := range s.memory.users {
		if u.views != views[u] || u.measures != measures[u] || u.views > s.options.MaxViews ||
			u.measures > s.options.MaxMeasures {
			t.Errorf("user %d has %d views and %d measures, not %d and %d", u.uid, views[u], measures[u], u.views,
				u.measures)
		}
	}
	assert.Check(t, s.period >= minPeriod && s.period <= maxPeriod, "period %v", s.period)
}

// FuzzStream applies whole connections.
func FuzzStream(f *testing.F) {
	files, err := filepath.Glob("../testdata/captures/*.bin")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		assert.NilError(f, err)
		if len(content) < 10_000 {
			f.Add(content)
		}
	}
	f.Add(binary.BigEndian.AppendUint32(nil, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := New(Options{MaxMemory: 1 << 20})
		var counts wire.Counts
		splitter := wire.NewSplitter(unlimited{}, 8<<20, &counts)
		deliver := func(m wire.Message) {
			s.Update(moment, func(u *Update) { fuzzMessage(u, m.Type, m.Payload, m.Sent) })
		}
		if splitter.Feed(b, deliver) == nil {
			splitter.End(deliver)
		}
		check(t, s)
		gather(t, s)
		for _, r := range s.Encode(moment) {
			decode(t, r, s.options.MaxBytes)
		}
		check(t, s)
		got := s.Counts()
		checkSums(t, &got)
	})
}
