// Package access is how the agent gets at what a foreign process controls: paths, files, sockets
// and memory. Whatever can hang, or be malformed, is done in workers (package worker): walking a
// path, opening, reading and parsing a file, reading memory. The agent gets facts, and of a socket
// a connected descriptor.
//
// A worker serves one request at a time. Requests and answers are one message each: a byte for the
// operation, then JSON; paths are bytes of any kind, and travel as base64. Reading memory, which is
// done all the time, has a binary form (memory.go).
package access
