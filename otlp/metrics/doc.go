// Package metrics makes OTLP metrics of what a Prometheus registry gathers: the bytes of
// ExportMetricsServiceRequest messages. It knows nothing of how they are sent.
//
//	Prometheus  OTLP
//	counter     sum, monotonic and cumulative
//	gauge       gauge; so do families without a type
//	histogram   histogram with explicit bounds, cumulative
//	summary     summary
//
// # Names
//
// A metric has the name that it has at /metrics, and its labels are attributes of the same names. That is what
// the collector makes of it when it scrapes the same agent, and what Prometheus makes of it when it takes it
// in by OTLP: it appends "_total" and the unit where a name does not have them. So dashboards, alerts and the
// documentation say the same name whichever way a metric went. Names as OpenTelemetry would choose them
// (correlator.samples.sent) are another set in every store that does not translate, and those of Go and the
// process would still not be the ones of its conventions, which count other things.
//
// What the name says of the unit is also the metric's unit.
//
// # Values
//
// Values are doubles, as Prometheus has them: a counter of seconds is integral now and then, and a series must
// not change its type. What is no number is no point: NaN and infinite values of counters and gauges are left
// out and counted as skipped, sums and quantiles are left out of their histogram or summary. Labels with an
// empty value are left out, because to Prometheus they are none.
package metrics
