// Package clocks has clocks of a machine that tests set, and suspend.
package clocks

import (
	"time"
	"unsafe"

	"correlator/bpf"
)

// Clocks are those of a machine that is set, or suspended, by seconds.
type Clocks struct {
	begin, last time.Time
	boottime    time.Duration // since they began
}

// New returns clocks that show what those of this machine do.
func New() *Clocks {
	now := time.Now()
	return &Clocks{begin: now, last: now}
}

// Now returns the time, with the reading of Go's own clock that time.Now has.
func (c *Clocks) Now() time.Time { return c.last }

// Instant returns the same as bpf.ReadInstant.
func (c *Clocks) Instant() bpf.Instant {
	return bpf.Instant{Time: c.last, MonotonicNs: uint64(c.last.Sub(c.begin)), BoottimeNs: uint64(c.boottime)}
}

// Pass lets time pass.
func (c *Clocks) Pass(d time.Duration) { c.last, c.boottime = c.last.Add(d), c.boottime+d }

// Set sets the clock of the time of day.
func (c *Clocks) Set(by time.Duration) {
	const secondsAt = 30 // of package time: of 64 bits, the lowest are ns; with a reading of Go's clock, seconds follow
	*(*uint64)(unsafe.Pointer(&c.last)) += uint64(by/time.Second) << secondsAt
}

// Suspend suspends the machine.
func (c *Clocks) Suspend(d time.Duration) {
	c.Set(d)
	c.boottime += d
}
