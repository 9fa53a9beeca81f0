package stats

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"unicode"

	dto "github.com/prometheus/client_model/go"

	"correlator/internal/host/share"
	"correlator/opencensus/wire"
)

// Names in Prometheus. Those of OpenTelemetry's overflow attribute and of the boundaries of buckets
// are not available to tags.
const (
	familyPrefix  = "opencensus_"
	totalSuffix   = "_total"
	overflowLabel = "otel_metric_overflow"
	boundaryLabel = "le"
)

// Gather implements prometheus.Gatherer: it returns the views as families whose names begin with
// opencensus_. Characters that names cannot have become underscores. A view whose name or labels
// are not unique then is left out, and so is the later one of two series whose labels are the same
// without empty ones, which Prometheus does not know. Views beyond the limits are left out as well:
// what a Gather allocates is no more than Options.MaxMemory, and has 8 MiB in text. The error is
// always nil.
func (s *State) Gather() ([]*dto.MetricFamily, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := gathering{
		state: s, names: make(map[string]bool),
		memory:  share.NewBudget[uint32](s.memory.Capacity()),
		written: share.NewBudget[uint32](maxWrittenBytes),
	}
	for _, v := range s.inOrder() {
		if len(v.series) > 0 {
			g.addView(v)
		}
	}
	slices.SortFunc(g.families, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return g.families, nil
}

// gathering builds the families of one Gather.
type gathering struct {
	state    *State
	families []*dto.MetricFamily
	names    map[string]bool       // that are taken, by families or by what they are written as
	memory   *share.Budget[uint32] // by the users who have registered the views
	written  *share.Budget[uint32] // the same of the page
	id       []byte                // scratch
}

// addView adds a view, or counts why it is left out.
func (g *gathering) addView(v *view) {
	lost := &g.state.counts.Lost
	uid := v.user.uid
	if !g.written.Take(uid, v.writtenBytes()) || !g.memory.Take(uid, v.gatheredBytes()) {
		lost[GatherNoRoom] += uint64(len(v.series))
		return
	}
	labels, ok := labelsOf(v)
	if !ok {
		lost[GatherLabel] += uint64(len(v.series))
		return
	}
	kind := g.state.kindOf(v)
	name, ok := g.take(v.name, kind)
	if !ok {
		lost[GatherName] += uint64(len(v.series))
		return
	}
	help := printable(v.description)
	g.families = append(g.families, &dto.MetricFamily{
		Name: &name, Help: &help, Type: &kind, Metric: g.metrics(v, labels),
	})
}

// gatheredBytes returns what gathering a view allocates at most.
func (v *view) gatheredBytes() int {
	family := gatheredFamilyBytes + gatheredNames*len(v.name) + len(v.description)
	for _, key := range v.keys {
		family += gatheredKeyBytes + gatheredKeys*len(key)
	}
	one := gatheredSeriesBytes + gatheredLabelBytes*len(v.keys)
	if v.aggregation == wire.Distribution {
		one += gatheredHistogramBytes + gatheredBucketBytes*(len(v.boundaries)+1)
	}
	n := family + one*len(v.series)
	for _, x := range v.series {
		n += 2*len(x.identity) + len(x.identity)/4
	}
	return n
}

// writtenBytes returns the size of a view in text at most. Values of labels are escaped, which may make
// two bytes of one.
func (v *view) writtenBytes() int {
	line := writtenLineBytes + len(familyPrefix) + len(v.name)
	for _, key := range v.keys {
		line += writtenLabelBytes + len(key)
	}
	lines := 1
	if v.aggregation == wire.Distribution {
		lines = len(v.boundaries) + 3 // the last bucket, sum and count
	}
	n := 2*(writtenLineBytes+len(familyPrefix)+len(v.name)) + 2*len(v.description)
	for _, x := range v.series {
		n += lines * (line + 2*len(x.identity))
	}
	return n
}

// kindOf returns the type of a view's family.
func (s *State) kindOf(v *view) dto.MetricType {
	switch {
	case v.aggregation == wire.Distribution:
		return dto.MetricType_HISTOGRAM
	case v.aggregation != wire.LastValue && s.monotonic(v):
		return dto.MetricType_COUNTER
	}
	return dto.MetricType_GAUGE
}

// take returns the name of a view's family. It takes all names that the family is written with, in
// the text format and in OpenMetrics, if none of them is taken.
func (g *gathering) take(view string, kind dto.MetricType) (string, bool) {
	name := familyPrefix + translate(view)
	written := []string{name}
	switch kind {
	case dto.MetricType_COUNTER:
		base := strings.TrimSuffix(name, totalSuffix)
		name = base + totalSuffix
		written = []string{name, base, base + "_created"}
	case dto.MetricType_HISTOGRAM:
		written = []string{name, name + "_bucket", name + "_sum", name + "_count", name + "_created"}
	}
	for _, n := range written {
		if g.names[n] {
			return "", false
		}
	}
	for _, n := range written {
		g.names[n] = true
	}
	return name, true
}

// translate returns a name in which only letters, digits and underscores are left.
func translate(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
}

// label is the label that a tag becomes.
type label struct {
	name string
	key  int // its position in the view
}

// labelsOf returns the labels of a view, sorted by their names, unless these are not unique, or
// reserved.
func labelsOf(v *view) ([]label, bool) {
	labels := make([]label, 0, len(v.keys))
	for i, key := range v.keys {
		name := translate(key)
		if name[0] >= '0' && name[0] <= '9' {
			name = "_" + name
		}
		if name == overflowLabel || strings.HasPrefix(name, "__") ||
			name == boundaryLabel && v.aggregation == wire.Distribution {
			return nil, false
		}
		labels = append(labels, label{name, i})
	}
	slices.SortFunc(labels, func(a, b label) int { return cmp.Compare(a.name, b.name) })
	for i := range labels[min(1, len(labels)):] {
		if labels[i].name == labels[i+1].name {
			return nil, false
		}
	}
	return labels, true
}

// metrics returns the metrics of a view's series.
func (g *gathering) metrics(v *view, labels []label) []*dto.Metric {
	metrics := make([]*dto.Metric, 0, len(v.series))
	seen := make(map[string]bool, len(v.series))
	add := func(x *series, pairs []*dto.LabelPair) {
		m := &dto.Metric{Label: pairs}
		g.state.setValue(m, v, x)
		metrics = append(metrics, m)
	}
	values := make([]string, len(v.keys))
	for _, x := range v.series {
		if x == v.overflow {
			name, value := overflowLabel, "true"
			add(x, []*dto.LabelPair{{Name: &name, Value: &value}})
			continue
		}
		clear(values)
		v.setValues(values, x.identity)
		for i := range values {
			values[i] = printable(values[i])
		}
		g.id = appendJoined(g.id[:0], values)
		if seen[string(g.id)] {
			g.state.counts.Lost[GatherLabel]++
			continue
		}
		seen[string(g.id)] = true
		add(x, pairsOf(labels, values))
	}
	return metrics
}

// printable returns a text with question marks for what is not, as control characters: what is scraped is shown
// in terminals, too. It is no longer than before.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return '?'
	}, text)
}

// appendJoined appends a text that is the same for equal values.
func appendJoined(b []byte, values []string) []byte {
	for _, value := range values {
		b = binary.AppendUvarint(b, uint64(len(value)))
		b = append(b, value...)
	}
	return b
}

// pairsOf returns the labels that have a value.
func pairsOf(labels []label, values []string) []*dto.LabelPair {
	pairs := make([]*dto.LabelPair, 0, len(labels))
	for i := range labels {
		if value := values[labels[i].key]; value != "" {
			pairs = append(pairs, &dto.LabelPair{Name: &labels[i].name, Value: &value})
		}
	}
	return pairs
}

// setValue sets the value of a metric.
func (s *State) setValue(m *dto.Metric, v *view, x *series) {
	number := x.float
	switch {
	case v.aggregation == wire.Distribution:
		m.Histogram = histogram(v, x)
		return
	case v.aggregation == wire.Count:
		number = float64(x.count)
	case v.measure.kind == wire.Int:
		number = float64(x.int)
	}
	if s.kindOf(v) == dto.MetricType_COUNTER {
		m.Counter = &dto.Counter{Value: &number}
	} else {
		m.Gauge = &dto.Gauge{Value: &number}
	}
}

// histogram returns a Distribution with cumulative buckets, the last of which is infinite.
func histogram(v *view, x *series) *dto.Histogram {
	count, sum := x.count, x.float
	h := &dto.Histogram{SampleCount: &count, SampleSum: &sum, Bucket: make([]*dto.Bucket, 0, len(x.buckets))}
	upTo := uint64(0)
	for i, n := range x.buckets {
		upTo += n
		total, boundary := upTo, math.Inf(1)
		if i < len(v.boundaries) {
			boundary = v.boundaries[i]
		}
		h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: &total, UpperBound: &boundary})
	}
	return h
}
