package validate

import (
	"testing"

	collectmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectprofiles "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	collecttraces "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// newMessage is the generated message of a signal's request.
func newMessage(signal Signal) proto.Message {
	return [numSignals]proto.Message{
		Traces:   &collecttraces.ExportTraceServiceRequest{},
		Metrics:  &collectmetrics.ExportMetricsServiceRequest{},
		Profiles: &collectprofiles.ExportProfilesServiceRequest{},
	}[signal].ProtoReflect().New().Interface()
}

// The schema is that of the generated messages, field by field.
func TestSchema(t *testing.T) {
	seen := make(map[messageID]protoreflect.FullName)
	var compare func(m messageID, d protoreflect.MessageDescriptor)
	compare = func(m messageID, d protoreflect.MessageDescriptor) {
		if name, ok := seen[m]; ok {
			if name != d.FullName() {
				t.Errorf("message %d is %s and %s", m, name, d.FullName())
			}
			return
		}
		seen[m] = d.FullName()
		for n, e := range schema[m] {
			if e.kind != unknown && d.Fields().ByNumber(protoreflect.FieldNumber(n)) == nil {
				t.Errorf("%s has no field %d", d.FullName(), n)
			}
		}
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			if int(f.Number()) >= len(schema[m]) {
				t.Errorf("%s is not in the schema", f.FullName())
				continue
			}
			e := schema[m][f.Number()]
			if e.name != string(f.Name()) || e.kind.many() != f.IsList() {
				t.Errorf("%s is %+v", f.FullName(), e)
			}
			if deprecated := f.Options().(*descriptorpb.FieldOptions).GetDeprecated(); deprecated {
				t.Errorf("%s is deprecated", f.FullName())
			}
			fits := false
			switch e.kind {
			case plain:
				fits = !f.IsList() && f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.MessageKind
			case text, texts:
				fits = f.Kind() == protoreflect.StringKind
			case varints:
				fits = f.Kind() == protoreflect.Int64Kind || f.Kind() == protoreflect.Uint64Kind
			case fixed64s:
				fits = f.Kind() == protoreflect.Fixed64Kind || f.Kind() == protoreflect.DoubleKind
			case message, messages, attributes:
				if fits = f.Kind() == protoreflect.MessageKind; fits {
					compare(e.ref, f.Message())
				}
				fits = fits && (e.kind == attributes) == (e.ref == msgKeyValue)
			case index, indices:
				table := schema[msgDictionary][e.ref]
				fits = f.Kind() == protoreflect.Int32Kind && table.kind.many() && indexName(string(f.Name())) == table.name
			}
			if !fits {
				t.Errorf("%s is %+v", f.FullName(), e)
			}
		}
	}
	for signal, m := range requests {
		compare(m, newMessage(Signal(signal)).ProtoReflect().Descriptor())
	}
	if len(seen) != int(numMessages) {
		t.Errorf("%d messages are in requests, %d in the schema", len(seen), numMessages)
	}
}

// indexName is the table that an index field says it belongs to.
func indexName(field string) string {
	return map[string]string{
		"stack_index": "stack_table", "link_index": "link_table", "mapping_index": "mapping_table", "function_index": "function_table",
		"attribute_indices": "attribute_table", "location_indices": "location_table", "key_strindex": "string_table",
		"unit_strindex": "string_table", "type_strindex": "string_table", "name_strindex": "string_table",
		"system_name_strindex": "string_table", "filename_strindex": "string_table", "string_value_strindex": "string_table",
	}[field]
}
