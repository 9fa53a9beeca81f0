// Package try shows what the correlator does by a program of its own: a small shop whose threads compute, and wait for
// a CPU, a lock, a socket and a timer, and which measures that itself.
package try
