// Package watch reports what the processes of a host do, as it happens.
//
//	EventWatcher  which process maps executable files, and which executes another program   Event
//	ExitWatcher   when processes exit, any number of them on one goroutine
//
// Events are the kernel's side-band records of perf events: perfring.go reads the memory into which
// the kernel writes them, perfrecord.go decodes them. An event says which process to probe with
// procscan.Scanner.Process. Exits come from the pidfds of procscan.Handle.
//
// Every pid is one of our own pid namespace.
package watch
