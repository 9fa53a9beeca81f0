// Package fusefs mounts file systems, for tests, whose server reads a request and never answers it,
// as a hostile user of the host can. Whoever has made such a request cannot be killed, until it is
// answered or the server ends: SIGKILL makes it a zombie with its descriptors open.
//
// The server is a process of an ordinary user (the test binary, executed again: see [Main]). It
// ends with the test, whatever becomes of that; so nothing that a test starts hangs after it.
package fusefs
