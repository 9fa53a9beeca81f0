// Package messaging speaks the sending side of the APM correlation protocol: the two messages
// byte for byte (wire), the way to a process's socket that the process cannot bend (Dial), and
// one queue per process that loses nothing without counting it (Sender).
//
// The processes are not trusted. What one of them does to its socket, its path or its file
// system is felt by its own Sender and by the goroutine that dials it, and by nobody else.
package messaging
