// Package report converts a recording to a profile for pprof and a summary.
//
// A symbolizer opens the files with the names of code while processes are alive, and reads them
// after the recording. Names are hints: they come from files and perf maps of processes, which are
// not trusted.
package report
