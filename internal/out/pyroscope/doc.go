// Package pyroscope asks Grafana's Pyroscope for the profiles of a trace, which the agents of all hosts have sent it.
//
// Version 1.21 makes labels of what agents send: attributes of the process, of each sample, and of its link the id of
// the trace. So a trace is a selector of series, one for each of its threads, and for each that it waited for; a query
// merges the profiles of each. Where it writes segments, as its version 2 does, those that are not compacted yet are
// found only by a selector with the name of a service, so each service is asked for. What it does not keep is when
// anything was within a profile, its span, and how many samples or waits there were: their time alone.
package pyroscope
