// Package symbolizer names the frames of processes, in worker processes (package worker): whatever a
// process controls is opened and read there. These are its mapped files, its perf map, the debug
// files that it has and those of the host, which it may have mounted something over.
//
//	Client     in the program that records: Process.Learn while processes live, Client.Read at the end
//	Live       in the agent: Live.Name while processes live, again and again
//	Kernel     in either, with ReadVDSO: names that no process controls
//	Kind       the workers of a Client, LiveKind those of a Live
//
// A Client has one worker for each user of processes, so that who makes a worker hang or exhausts its
// memory loses names of that user's processes alone. In it, each process has a goroutine for each
// request, and one that hangs keeps others from nothing. A Live has a worker for each request.
//
// Every file that a process names is opened with that process's rights; those that it has mapped
// already are opened with the worker's.
package symbolizer
