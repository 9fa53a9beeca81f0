package backend

import (
	"maps"

	collectormetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectorprofiles "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	collectortrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	otlpprofiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
)

// Counting is a backend that only counts samples, so that it costs little beside what is measured.
type Counting struct {
	backend Backend
	samples map[string]uint64
}

// OpenCounting listens on a network address and serves until Close.
func OpenCounting(network, address string) (*Counting, error) {
	c := &Counting{samples: make(map[string]uint64)}
	err := c.backend.serve(network, address, c.count,
		func(*collectormetrics.ExportMetricsServiceRequest) error { return nil },
		func(*collectortrace.ExportTraceServiceRequest) error { return nil })
	return c, err
}

// Address returns the address that it listens on.
func (c *Counting) Address() string { return c.backend.listener.Addr().String() }

// Close ends the server.
func (c *Counting) Close() { c.backend.Close() }

// Samples returns how many samples of CPU time have come so far, by process.pid.
func (c *Counting) Samples() map[string]uint64 {
	c.backend.mu.Lock()
	defer c.backend.mu.Unlock()
	return maps.Clone(c.samples)
}

func (c *Counting) count(request *collectorprofiles.ExportProfilesServiceRequest) error {
	for _, ofResource := range request.ResourceProfiles {
		pid := resourceAttributes(ofResource.Resource)["process.pid"]
		for _, ofScope := range ofResource.ScopeProfiles {
			for _, profile := range ofScope.Profiles {
				if isOfWaits(profile, request.Dictionary) {
					continue
				}
				for _, sample := range profile.Samples {
					c.samples[pid] += countOf(sample)
				}
			}
		}
	}
	return nil
}

// isOfWaits reports whether values of a profile are times, not numbers of samples.
func isOfWaits(p *otlpprofiles.Profile, d *otlpprofiles.ProfilesDictionary) bool {
	unit := int(p.GetSampleType().GetUnitStrindex())
	return unit < len(d.GetStringTable()) && d.GetStringTable()[unit] == "nanoseconds"
}

// countOf returns how many samples s stands for: a timestamp alone is one.
func countOf(s *otlpprofiles.Sample) (n uint64) {
	if len(s.Values) == 0 {
		return uint64(len(s.TimestampsUnixNano))
	}
	for _, value := range s.Values {
		n += uint64(value)
	}
	return n
}
