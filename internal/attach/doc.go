// Package attach is the room of processes: each one from the moment it is found to its end.
//
//	processcontext  what a process publishes of itself by OpenTelemetry's process context
//	process         one probe of one process: what it publishes, where its threads keep their contexts
//	mempoll         words in the memory of many processes, read again and again
//	lifecycle       found, candidate, attached, gone; sweeps, events, retries, admission
//
// Whatever a process can make hang or malformed is read by workers (package access).
package attach
