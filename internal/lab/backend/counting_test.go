package backend

import (
	"testing"

	"gotest.tools/v3/assert"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	otlpprofiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
)

// Samples are counted by process: those with values by these, those without by their timestamps; waits are not, whose
// values are times.
func TestCounting(t *testing.T) {
	c, err := OpenCounting("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer c.Close()
	assert.Check(t, c.Address() != "127.0.0.1:0")
	of := func(pid int64, samples ...*otlpprofiles.Sample) *otlpprofiles.ResourceProfiles {
		value := &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: pid}}
		return &otlpprofiles.ResourceProfiles{
			Resource:      &resource.Resource{Attributes: []*common.KeyValue{{Key: "process.pid", Value: value}}},
			ScopeProfiles: []*otlpprofiles.ScopeProfiles{{Profiles: []*otlpprofiles.Profile{{Samples: samples}}}},
		}
	}
	request := &collector.ExportProfilesServiceRequest{ResourceProfiles: []*otlpprofiles.ResourceProfiles{
		of(7, &otlpprofiles.Sample{Values: []int64{3, 4}}, &otlpprofiles.Sample{TimestampsUnixNano: []uint64{1, 2}}),
		of(8, &otlpprofiles.Sample{Values: []int64{1}, TimestampsUnixNano: []uint64{9}}),
	}}
	waits := of(8, &otlpprofiles.Sample{Values: []int64{1e9}})
	waits.ScopeProfiles[0].Profiles[0].SampleType = &otlpprofiles.ValueType{TypeStrindex: 2, UnitStrindex: 1}
	request.ResourceProfiles = append(request.ResourceProfiles, waits)
	request.Dictionary = &otlpprofiles.ProfilesDictionary{StringTable: []string{"", "nanoseconds", "off_cpu"}}
	for range 2 {
		assert.NilError(t, c.count(request))
	}
	counted := c.Samples()
	assert.Check(t, len(counted) == 2 && counted["7"] == 18 && counted["8"] == 2, "%v", counted)
}
