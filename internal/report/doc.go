// Package report makes of a recording what people look at: a profile for pprof, and a summary.
//
// A Symbolizer learns, while processes live, where the names of their code are, and reads them when
// the recording is there. Names are hints: they are what files and perf maps of processes say,
// which nobody has to believe.
package report
