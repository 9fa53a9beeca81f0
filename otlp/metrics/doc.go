// Package metrics encodes what a Prometheus registry gathers as OTLP metrics: the bytes of
// ExportMetricsServiceRequest messages. It does not send them.
//
//	Prometheus  OTLP
//	counter     sum, monotonic and cumulative
//	gauge       gauge; so do families without a type
//	histogram   histogram with explicit bounds, cumulative
//	summary     summary
//
// # Names
//
// A metric has the name that it has at /metrics, and its labels are attributes of the same names.
// The OpenTelemetry Collector does the same when it scrapes the agent, and Prometheus when it
// receives the metric by OTLP: it appends "_total" and the unit where a name does not have them. So
// dashboards, alerts and the documentation use one name whichever way a metric takes. Names in
// OpenTelemetry's style (correlator.samples.sent) would be a second set in every store that does
// not translate, and those of Go and the process would still not be the ones of its conventions,
// which count other things.
//
// The unit in the name is also the metric's unit.
//
// # Values
//
// Values are doubles, as in Prometheus: a counter of seconds is integral now and then, and a series
// must not change its type. NaN and infinite values of counters and gauges are left out and counted
// as skipped; such sums and quantiles are left out of their histogram or summary. Labels with an
// empty value are left out, because to Prometheus they do not exist.
package metrics
