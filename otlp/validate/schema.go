package validate

import (
	"fmt"
	"strings"
	"sync"

	collectmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectprofiles "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	collecttraces "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// kind is what has to be known about a field. It determines the wire types that the field may have,
// except for plain.
type kind uint8

const (
	unknown    kind = iota
	plain           // a number, a boolean, or bytes: any value is valid
	text            // UTF-8
	texts           // repeated
	varints         // repeated
	fixed64s        // repeated
	message         // of type entry.message
	messages        // repeated
	attributes      // repeated KeyValue, the keys of which are unique
	index           // into the dictionary table entry.table; in common messages: only in profiles
	indices         // repeated
)

// nested reports whether the field is a message, or several.
func (k kind) nested() bool { return k == message || k == messages || k == attributes }

// many reports whether the field is repeated.
func (k kind) many() bool {
	return k == texts || k == varints || k == fixed64s || k == messages || k == attributes || k == indices
}

// entry describes a field of a message.
type entry struct {
	name    string
	kind    kind
	table   table
	message *messageType
}

// messageType describes a message: its fields, by their numbers.
type messageType struct {
	name   protoreflect.FullName
	fields []entry
}

// schema is every message that a request can contain, by name. It is derived from the descriptors
// of the official messages, so that it is that of the version in go.mod.
type schema map[protoreflect.FullName]*messageType

var (
	messageTypes schema

	// requests are the messages of each signal's request.
	requests [numSignals]*messageType

	// pointMessages are the messages of the points of each kind of data.
	pointMessages [tagSummary + 1]*messageType

	msgResource, msgScope, msgKeyValue, msgAnyValue, msgSpan, msgMetric, msgHistogramPoint, msgExemplar, msgProfile,
	msgSample, msgDictionary *messageType
)

// learn makes the schema, once: 160 KB, of which only who receives has a use.
var learn = sync.OnceFunc(func() {
	s := make(schema)
	messageTypes = s
	requests = [numSignals]*messageType{
		Traces: s.add(
			collecttraces.File_opentelemetry_proto_collector_trace_v1_trace_service_proto, "ExportTraceServiceRequest"),
		Metrics: s.add(
			collectmetrics.File_opentelemetry_proto_collector_metrics_v1_metrics_service_proto,
			"ExportMetricsServiceRequest"),
		Profiles: s.add(
			collectprofiles.File_opentelemetry_proto_collector_profiles_v1development_profiles_service_proto,
			"ExportProfilesServiceRequest"),
	}
	msgResource, msgScope = s.get("resource.v1.Resource"), s.get("common.v1.InstrumentationScope")
	msgKeyValue, msgAnyValue = s.get(keyValue), s.get("common.v1.AnyValue")
	msgSpan = s.get("trace.v1.Span")
	msgMetric, msgExemplar = s.get("metrics.v1.Metric"), s.get("metrics.v1.Exemplar")
	msgHistogramPoint = s.get("metrics.v1.HistogramDataPoint")
	msgProfile, msgSample = s.get("profiles.v1development.Profile"), s.get("profiles.v1development.Sample")
	msgDictionary = s.get(dictionary)
	msgNumberPoint := s.get("metrics.v1.NumberDataPoint")
	pointMessages = [...]*messageType{
		tagGauge: msgNumberPoint, tagSum: msgNumberPoint, tagHistogram: msgHistogramPoint,
		tagExponentialHistogram: s.get("metrics.v1.ExponentialHistogramDataPoint"),
		tagSummary:              s.get("metrics.v1.SummaryDataPoint"),
	}
})

const (
	protoPackage = "opentelemetry.proto.slim."
	keyValue     = "common.v1.KeyValue"
	dictionary   = "profiles.v1development.ProfilesDictionary"
)

// get returns a message of the schema.
func (s schema) get(name protoreflect.FullName) *messageType {
	m := s[protoPackage+name]
	if m == nil {
		panic(fmt.Sprintf("the OTLP schema has no message %s", name))
	}
	return m
}

// add adds a message of a file, and all messages in it.
func (s schema) add(file protoreflect.FileDescriptor, name protoreflect.Name) *messageType {
	return s.message(file.Messages().ByName(name))
}

func (s schema) message(d protoreflect.MessageDescriptor) *messageType {
	if m := s[d.FullName()]; m != nil {
		return m
	}
	m := &messageType{name: d.FullName()}
	s[m.name] = m // before its fields: messages may contain themselves
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		for len(m.fields) <= int(f.Number()) {
			m.fields = append(m.fields, entry{})
		}
		m.fields[f.Number()] = s.entry(f)
	}
	return m
}

func (s schema) entry(f protoreflect.FieldDescriptor) entry {
	e := entry{name: string(f.Name()), kind: plain}
	one := func(single, repeated kind) kind {
		if f.IsList() {
			return repeated
		}
		return single
	}
	switch f.Kind() {
	case protoreflect.MessageKind:
		e.message = s.message(f.Message())
		e.kind = one(message, messages)
		if f.IsList() && e.message.name == protoPackage+keyValue {
			e.kind = attributes
		}
	case protoreflect.StringKind:
		e.kind = one(text, texts)
	case protoreflect.Int32Kind:
		if name := tableName(e.name); name != "" {
			e.kind, e.table = one(index, indices), tableNumber(name)
			break
		}
		e.kind = one(plain, varints)
	case protoreflect.Int64Kind, protoreflect.Uint64Kind, protoreflect.Uint32Kind, protoreflect.Sint32Kind,
		protoreflect.Sint64Kind, protoreflect.BoolKind, protoreflect.EnumKind:
		e.kind = one(plain, varints)
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		e.kind = one(plain, fixed64s)
	case protoreflect.BytesKind, protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		if f.IsList() { // not in OTLP so far
			panic(fmt.Sprintf("%s is a list of %s", f.FullName(), f.Kind()))
		}
	default:
		panic(fmt.Sprintf("%s is a %s", f.FullName(), f.Kind()))
	}
	return e
}

// table is a table of the dictionary of profiles: its field number there.
type table = uint8

var (
	links       = tableNumber("link_table")
	stringTable = tableNumber("string_table")
)

// tableName returns the table that a field refers to by its name: stack_index to stack_table,
// attribute_indices to attribute_table, name_strindex to string_table. It is empty for other
// fields.
func tableName(field string) string {
	if strings.HasSuffix(field, "_strindex") {
		return "string_table"
	}
	for _, suffix := range []string{"_index", "_indices"} {
		if name, ok := strings.CutSuffix(field, suffix); ok {
			return name + "_table"
		}
	}
	return ""
}

func tableNumber(name string) table {
	file := collectprofiles.File_opentelemetry_proto_collector_profiles_v1development_profiles_service_proto
	request := file.Messages().ByName("ExportProfilesServiceRequest")
	f := request.Fields().ByName("dictionary").Message().Fields().ByName(protoreflect.Name(name))
	if f == nil {
		panic(fmt.Sprintf("the dictionary of profiles has no %s", name))
	}
	return table(f.Number())
}

// describe returns the schema's entry for a field. Its kind is unknown if there is none, or if the
// field has another wire type than it may have.
func describe(m *messageType, t tag) *entry {
	if t.number() >= len(m.fields) {
		return &unknownField
	}
	e := &m.fields[t.number()]
	wire := t.wire()
	fits := true
	switch e.kind {
	case text, texts, message, messages, attributes:
		fits = wire == wireBytes
	case index:
		fits = wire == wireVarint
	case varints, indices:
		fits = wire == wireVarint || wire == wireBytes
	case fixed64s:
		fits = wire == wireFixed64 || wire == wireBytes
	}
	if !fits {
		return &unknownField
	}
	return e
}

var unknownField entry
