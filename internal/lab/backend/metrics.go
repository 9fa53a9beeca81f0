package backend

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	otlpmetrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
)

const temporalityCumulative = otlpmetrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE

// Metric is the last point of a metric.
type Metric struct {
	Kind         string // sum, gauge or histogram
	Value        float64
	Count        uint64 // of a histogram
	Start, At    uint64 // ns since 1970
	Instance     string // service.instance.id
	ServiceName  string
	IsCumulative bool // and monotonic, if it is a sum
}

// Metrics returns the last point of every metric, by its name and labels as Prometheus writes them.
func (b *Backend) Metrics() map[string]Metric {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.metrics)
}

func addMetrics(into map[string]Metric, request *collector.ExportMetricsServiceRequest) error {
	for _, ofResource := range request.ResourceMetrics {
		about := resourceAttributes(ofResource.Resource)
		put := func(name string, labels []*common.KeyValue, m Metric) {
			m.ServiceName, m.Instance = about["service.name"], about["service.instance.id"]
			into[series(name, labels)] = m
		}
		for _, ofScope := range ofResource.ScopeMetrics {
			for _, metric := range ofScope.Metrics {
				switch data := metric.Data.(type) {
				case *otlpmetrics.Metric_Sum:
					cumulative := data.Sum.IsMonotonic && data.Sum.AggregationTemporality == temporalityCumulative
					for _, p := range data.Sum.DataPoints {
						put(metric.Name, p.Attributes, Metric{Kind: "sum", Value: value(p),
							Start: p.StartTimeUnixNano, At: p.TimeUnixNano, IsCumulative: cumulative})
					}
				case *otlpmetrics.Metric_Gauge:
					for _, p := range data.Gauge.DataPoints {
						put(metric.Name, p.Attributes, Metric{Kind: "gauge", Value: value(p),
							At: p.TimeUnixNano})
					}
				case *otlpmetrics.Metric_Histogram:
					cumulative := data.Histogram.AggregationTemporality == temporalityCumulative
					for _, p := range data.Histogram.DataPoints {
						put(metric.Name, p.Attributes, Metric{Kind: "histogram", Value: p.GetSum(), Count: p.Count,
							Start: p.StartTimeUnixNano, At: p.TimeUnixNano, IsCumulative: cumulative})
					}
				case *otlpmetrics.Metric_Summary: // of the Go runtime
				default:
					return fmt.Errorf("metric %s is of kind %T", metric.Name, data)
				}
			}
		}
	}
	return nil
}

func value(p *otlpmetrics.NumberDataPoint) float64 {
	if i, ok := p.Value.(*otlpmetrics.NumberDataPoint_AsInt); ok {
		return float64(i.AsInt)
	}
	return p.GetAsDouble()
}

func series(name string, labels []*common.KeyValue) string {
	if len(labels) == 0 {
		return name
	}
	var pairs []string
	for _, label := range labels {
		pairs = append(pairs, fmt.Sprintf("%s=%q", label.Key, label.Value.GetStringValue()))
	}
	slices.Sort(pairs)
	return name + "{" + strings.Join(pairs, ",") + "}"
}
