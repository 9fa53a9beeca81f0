package agent

import (
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/backend"
	"correlator/internal/lab/demo"
)

// Processes with libraries of Datadog's take part, though none of their threads has a context: samples
// of them say who they are, also after they have published something else.
func TestExportedDatadog(t *testing.T) {
	for _, c := range []struct {
		name     string
		start    func(testing.TB, demo.DatadogContext, demo.DatadogOptions) *demo.DatadogProcess
		instance string // the library for Go has one of its own
	}{
		{"dd-trace-go", demo.StartDatadogGo, ""},
		{"libdatadog for Node.js", demo.StartDatadogNode, "instance"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := runExporting(t, true)
			p := c.start(t, demo.DatadogContext{Service: "shop", Environment: "prod", Version: "1.2.3",
				InstanceID: c.instance}, demo.DatadogOptions{Busy: true})
			x.awaitSamples(p.PID, 50, "samples", func(s backend.Sample) bool { return isResource(p, s) })
			x.contexts(p.Process, process.StateAttached, "opentelemetry")
			p.PublishContext(demo.DatadogContext{Service: "basket", Environment: "test", Version: "1.2.4",
				InstanceID: c.instance})
			x.awaitSamples(p.PID, 50, "samples of the updated context",
				func(s backend.Sample) bool { return isResource(p, s) })
			exported := x.ended()
			x.exportedAdded(exported, x.Counters().Sampling.Outcomes[process.OutcomeUntraced].Load())
			services := make(map[string]uint64)
			for sample, n := range exported.Samples {
				assert.Check(t, sample.PID == fmt.Sprint(p.PID) && sample.TraceID == "", "%+v", sample)
				services[sample.Service+" "+sample.Environment+" "+sample.Version] += n
			}
			if len(services) != 2 || services["shop prod 1.2.3"] == 0 || services["basket test 1.2.4"] == 0 {
				t.Errorf("samples by who the process is: %v", services)
			}
		})
	}
}

// isResource reports whether a sample says of its process what that has published. What else the
// library says, whose value is not known, must be there.
func isResource(p *demo.DatadogProcess, s backend.Sample) bool {
	for key, value := range map[string]string{
		"service.name": s.Service, "deployment.environment.name": s.Environment, "service.version": s.Version,
		"service.instance.id": s.InstanceID, "telemetry.sdk.name": s.SDKName, "telemetry.sdk.language": s.SDKLanguage,
		"telemetry.sdk.version": s.SDKVersion,
	} {
		if want, known := p.Resource[key]; value == "" || known && value != want {
			return false
		}
	}
	return true
}
