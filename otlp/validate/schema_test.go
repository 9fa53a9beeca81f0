package validate

import (
	"fmt"
	"os"
	"strings"
	"testing"

	collectmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectprofiles "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	collecttraces "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
)

// newMessage is the generated message of a signal's request.
func newMessage(signal Signal) proto.Message {
	return [numSignals]proto.Message{
		Traces:   &collecttraces.ExportTraceServiceRequest{},
		Metrics:  &collectmetrics.ExportMetricsServiceRequest{},
		Profiles: &collectprofiles.ExportProfilesServiceRequest{},
	}[signal].ProtoReflect().New().Interface()
}

var kindNames = [...]string{
	plain: "plain", text: "text", texts: "texts", varints: "varints", fixed64s: "fixed64s", message: "message",
	messages: "messages", attributes: "attributes", index: "index", indices: "indices",
}

// The schema that is derived is the one that was reviewed: testdata/schema.txt was made from a
// table written by hand from opentelemetry-proto 1.11.0. After an update of the messages, new
// fields must be reviewed: whether checks have to know them.
func TestSchema(t *testing.T) {
	learn()
	var out strings.Builder
	seen := make(map[*messageType]bool)
	var dump func(m *messageType)
	dump = func(m *messageType) {
		if seen[m] {
			return
		}
		seen[m] = true
		fmt.Fprintf(&out, "%s\n", strings.TrimPrefix(string(m.name), protoPackage))
		for n, e := range m.fields {
			if e.kind == unknown {
				continue
			}
			fmt.Fprintf(&out, "\t%d %s %s", n, e.name, kindNames[e.kind])
			if e.message != nil {
				fmt.Fprintf(&out, " %s", strings.TrimPrefix(string(e.message.name), protoPackage))
			}
			if e.kind == index || e.kind == indices {
				fmt.Fprintf(&out, " %s", msgDictionary.fields[e.table].name)
			}
			out.WriteByte('\n')
		}
		for _, e := range m.fields {
			if e.message != nil {
				dump(e.message)
			}
		}
	}
	for _, m := range requests {
		dump(m)
	}
	want, err := os.ReadFile("testdata/schema.txt")
	assert.NilError(t, err)
	got := out.String()
	assert.Check(t, got == string(want), "the schema is\n%s\nwant\n%s", got, want)
	assert.Check(t, len(seen) == len(messageTypes),
		"%d messages are in requests, %d in the schema", len(seen), len(messageTypes))
}
