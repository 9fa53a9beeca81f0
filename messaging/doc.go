// Package messaging implements the sending side of the APM correlation protocol: encoding the two
// messages (wire.go), connecting to a process's socket by a path that the process controls (Dial),
// and a queue per process that counts everything it loses (Sender).
//
// The processes are not trusted. What one of them does to its socket, its path or its file system
// affects only its own Sender and the goroutine that dials it.
package messaging
