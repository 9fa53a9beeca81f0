package dump

import (
	"fmt"
	"strings"

	"correlator/opencensus/wire"
)

// aggregations are the names of the known ones.
var aggregations = [...]string{"none", "count", "sum", "distribution", "last value"}

// text is the content of a message in words, as far as a row shows it.
type text struct{ b strings.Builder }

func (t *text) String() string { return t.b.String() }

func (t *text) full() bool { return t.b.Len() > maxContent }

func (t *text) addf(format string, args ...any) {
	if t.full() {
		return
	}
	for i, arg := range args { // what is cut anyway is not copied
		switch arg := arg.(type) {
		case string:
			args[i] = arg[:min(len(arg), maxContent)]
		case []byte:
			args[i] = arg[:min(len(arg), maxContent)]
		}
	}
	fmt.Fprintf(&t.b, format, args...)
}

func (t *text) payload(m wire.Message) {
	p, err := decode(m)
	if err != nil {
		t.addf("(malformed: %v)", err)
		return
	}
	switch p := p.(type) {
	case wire.Init:
		t.addf("PHP %s, Zend %s", p.PHP, p.Zend)
		if p.Version != 1 {
			t.addf(", protocol version %d", p.Version)
		}
	case spans:
		switch {
		case len(m.Payload) == 0:
			t.addf("empty: the client could not encode the spans")
		case p == 1:
			t.addf("1 span")
		default:
			t.addf("%d spans", int(p))
		}
	case wire.Measure:
		t.addf("%v %s, unit %q, %q", measureType(p.Type), p.Name, p.Unit, p.Description)
	case float64:
		t.addf("%v s", p)
	case views:
		t.views(p.list)
		t.more(p.more)
	case names:
		t.list(", ", len(p.list), func(i int) { t.addf("%s", p.list[i]) })
		t.more(p.more)
	case *wire.Record:
		t.record(p)
	}
}

// list adds items, as far as they are shown.
func (t *text) list(separator string, n int, item func(i int)) {
	for i := 0; i < n && !t.full(); i++ {
		if i > 0 {
			t.addf("%s", separator)
		}
		item(i)
	}
}

// more adds how many items there are that were not decoded.
func (t *text) more(n int) {
	if n > 0 {
		t.addf(", and %d more", n)
	}
}

func (t *text) views(views []wire.View) {
	t.list("; ", len(views), func(i int) {
		v := &views[i]
		t.addf("%s: %s of %s", v.Name, aggregation(v.Aggregation), v.Measure)
		if len(v.TagKeys) > 0 {
			t.addf(" by ")
			t.list(", ", len(v.TagKeys), func(i int) { t.addf("%s", v.TagKeys[i]) })
			t.more(v.MoreTagKeys)
		}
		if v.Aggregation == wire.Distribution {
			t.addf(" in [")
			t.list(", ", len(v.Boundaries), func(i int) { t.addf("%v", v.Boundaries[i]) })
			t.addf("]")
		}
	})
}

func aggregation(a wire.Aggregation) string {
	if a < wire.Aggregation(len(aggregations)) {
		return aggregations[a]
	}
	return fmt.Sprintf("aggregation %d", a)
}

func measureType(t wire.MeasureType) string {
	switch t {
	case wire.Int:
		return "int"
	case wire.Float:
		return "float"
	default:
		return "unknown"
	}
}

func (t *text) record(r *wire.Record) {
	t.list(", ", len(r.Measurements), func(i int) {
		m := &r.Measurements[i]
		t.addf("%s=", m.Measure)
		switch m.Type {
		case wire.Int:
			t.addf("%d", m.Int)
		case wire.Float:
			t.addf("%v", m.Float)
		default:
			t.addf("?")
		}
	})
	t.more(r.MoreMeasurements)
	t.pairs(" {", r.Tags, r.MoreTags, "}")
	t.pairs(" [", r.Attachments, r.MoreAttachments, "]")
}

func (t *text) pairs(before string, pairs []wire.KeyValue, more int, behind string) {
	if len(pairs) == 0 {
		return
	}
	t.addf("%s", before)
	t.list(", ", len(pairs), func(i int) { t.addf("%s=%s", pairs[i].Key, pairs[i].Value) })
	t.more(more)
	t.addf("%s", behind)
}
