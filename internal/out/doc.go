// Package out is the room of receivers: what is done with samples. All of them take profile.Sample,
// and none can hold up another.
//
//	agent       registers with APM agents and sends them correlations; the agent's counters and status
//	export      what leaves by OTLP, and what is received to be passed on
//	keep        the samples of the last minutes, by trace, for explain
//	live        the host as live objects on a DOTS bus, and the page that shows them
//	record      samples for a while: a recording
//	report      a recording as pprof, folded stacks, HTML and a summary
//	explain     where the time of one trace went
//	flamegraph  a flame graph as one HTML file
//	pyroscope   asks Pyroscope for what all hosts have sent it, for explain
package out
